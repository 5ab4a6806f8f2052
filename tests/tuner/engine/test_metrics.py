from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.tuner.engine.records import group, request_record, step_record
from tuner.engine.metrics import EngineMetrics

PLACE = {"route": "chat", "method": "prompt_lookup", "k": "3", "load": "2"}


def value(metrics: EngineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"spectuner_engine_{name}", labels)


def test_drafts_tokens_and_positions_are_counted_from_the_outcomes_of_a_step():
    metrics = EngineMetrics()
    rows = group((3, 3, 1), (3, 1, 2), (2, 0, 1), (0, 0, 4), tokens=13)
    metrics.observe(step_record(1, running=2, groups=(rows,)))

    assert value(metrics, "drafts_total", **PLACE) == 4
    assert value(metrics, "draft_tokens_total", **PLACE) == 11
    assert value(metrics, "accepted_tokens_total", **PLACE) == 5
    assert value(metrics, "target_passes_total", **PLACE) == 8
    assert value(metrics, "generated_tokens_total", **PLACE) == 13
    by_position = [
        value(
            metrics,
            "accepted_position_tokens_total",
            route="chat",
            method="prompt_lookup",
            k="3",
            position=position,
        )
        for position in ("0", "1", "2", "3")
    ]
    assert by_position == [3, 1, 1, None]


def test_replayed_rows_are_no_traffic_of_their_route():
    metrics = EngineMetrics()
    metrics.observe(step_record(1, running=2, groups=(group((3, 3, 1), is_shadow=True, tokens=4),)))
    metrics.observe(request_record(2, is_shadow=True))

    assert value(metrics, "drafts_total", **PLACE) is None
    assert value(metrics, "requests_total", route="chat", finish_reason="stop") is None
    assert value(metrics, "shadow_tokens_total", route="chat") == 4


def test_the_time_of_a_step_is_counted_by_part_and_adds_up():
    metrics = EngineMetrics()
    step = step_record(1, running=3)
    metrics.observe(step)
    metrics.observe(step_record(2, running=1))

    parts = [
        value(metrics, "step_seconds_total", part=part, load="3-4")
        for part in ("draft", "verify", "sample", "other")
    ]
    assert parts == [0.5, 0.25, 0.125, 0.0625]
    assert sum(part or 0 for part in parts) == step.step_s
    assert value(metrics, "steps_total", load="3-4") == value(metrics, "steps_total", load="1") == 1
    assert value(metrics, "reference_steps_total", load="3-4") == 0
    assert value(metrics, "draft_seconds_total", method="prompt_lookup") == 1.0
    assert value(metrics, "prefill_tokens_total") == 4


def test_reference_steps_are_counted_by_load():
    metrics = EngineMetrics()
    metrics.observe(step_record(1))
    metrics.observe(replace(step_record(2), is_reference=True))
    assert value(metrics, "reference_steps_total", load="1") == 1
    assert value(metrics, "steps_total", load="1") == 2


def test_a_finished_request_gives_one_sample_of_each_latency():
    metrics = EngineMetrics()
    metrics.observe(request_record(1))
    place = {"route": "chat", "method": "off", "k": "0", "load": "1"}

    assert value(metrics, "requests_total", route="chat", finish_reason="stop") == 1
    assert value(metrics, "ttft_seconds_sum", **place) == 0.5
    assert value(metrics, "tpot_seconds_sum", **place) == pytest.approx(0.1)
    assert value(metrics, "tpot_seconds_count", **place) == 1


def test_rejections_are_counted_by_route():
    metrics = EngineMetrics()
    metrics.reject("chat")

    assert value(metrics, "queue_rejections_total", route="chat") == 1


def test_every_name_has_the_products_prefix_and_only_bounded_labels():
    metrics = EngineMetrics()
    metrics.observe(step_record(1, groups=(group((3, 3, 1)),)))
    metrics.observe(request_record(2))
    metrics.reject("chat")
    allowed = {"route", "method", "k", "load", "part", "position", "finish_reason", "le"}

    families = list(text_string_to_metric_families(metrics.text().decode()))

    assert len(families) >= 15
    for family in families:
        assert family.name.startswith("spectuner_engine_")
        assert family.documentation
        assert {label for sample in family.samples for label in sample.labels} <= allowed
