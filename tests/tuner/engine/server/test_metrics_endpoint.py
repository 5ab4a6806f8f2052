from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from collectors.records import Plan
from tests.tuner.engine.records import LOOKUP_3
from tests.tuner.engine.server.running import RunningEngine, running_engine, tiny_settings


def samples(engine: RunningEngine) -> dict[str, float]:
    """Return the sum of each sample name over its labels."""
    answer = engine.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def test_a_scrape_agrees_with_what_the_answers_said(tiny_model: Path):
    with running_engine(tiny_settings(tiny_model)) as engine:
        body = {
            "prompt": "the user is",
            "temperature": 0,
            "speculation": {"method": "draft_model", "k": 3},
        }
        told = [engine.http.post("/v1/completions", json=body).json() for _ in range(3)]
        scraped = samples(engine)
        stats = [answer["metrics"]["speculative_decoding"] for answer in told]

        for name, key in (
            ("drafts", "num_spec_steps"),
            ("draft_tokens", "num_draft_tokens"),
            ("accepted_tokens", "num_accepted_draft_tokens"),
        ):
            assert scraped[f"spectuner_engine_{name}_total"] == sum(s[key] for s in stats) > 0
        assert scraped["spectuner_engine_requests_total"] == 3
        assert scraped["spectuner_engine_ttft_seconds_count"] == 3
        assert scraped["spectuner_engine_generated_tokens_total"] == 3 * 15
        assert scraped["spectuner_engine_journal_records_total"] == engine.page().last_seq
        assert scraped["spectuner_engine_running_requests"] == 0
        assert scraped["spectuner_engine_journal_lost_records_total"] == 0


def test_a_scrape_names_the_live_plan_and_only_that(tiny_model: Path):
    with running_engine(tiny_settings(tiny_model)) as engine:
        samples(engine)
        plan = Plan(default=LOOKUP_3)
        engine.http.put("/spec/plan", json=plan.to_dict()).raise_for_status()

        lines = [
            line
            for line in engine.http.get("/metrics").text.splitlines()
            if line.startswith("spectuner_engine_plan_info{")
        ]

    assert len(lines) == 1
    assert f'digest="{plan.digest[:12]}"' in lines[0]


def test_what_clients_choose_makes_no_series_of_its_own(tiny_model: Path):
    with running_engine(tiny_settings(tiny_model)) as engine:
        engine.http.put("/spec/plan", json=Plan(default=LOOKUP_3).to_dict()).raise_for_status()
        for k in range(1, 9):
            setting = {"method": "draft_model", "k": k}
            body = {"prompt": "the user", "temperature": 0, "speculation": setting}
            engine.http.post("/v1/completions", json=body).raise_for_status()
        engine.http.post("/v1/completions", json={"prompt": "the user"}).raise_for_status()
        scraped = engine.http.get("/metrics").text

    settings = {
        (sample.labels["method"], sample.labels["k"])
        for family in text_string_to_metric_families(scraped)
        for sample in family.samples
        if "k" in sample.labels
    }
    assert ("pinned", "any") in settings
    assert {method for method, _ in settings} <= {"pinned", "off", LOOKUP_3.method}
