"""What the engine exports to Prometheus, all of it counted from the journal's records.

`EngineMetrics.observe` is the one place where a record becomes a number. Gauges are read live at
each scrape, so that an idle engine does not show its last busy moment. Replayed (shadow) rows
never count as a route's traffic; their tokens have a counter of their own.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.records import DecodeStep, JournalRecord, RequestTrace, Setting, StepGroup
from tuner.engine.journal import Journal
from tuner.engine.live_plan import LivePlan
from tuner.engine.loop import EngineLoad

_PLACE = ("route", "method", "k", "load")
_PINNED = ("pinned", "any")
_TTFT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TPOT_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2)


class EngineMetrics:
    """Counters of speculation, tokens, time and requests.

    Acceptance rate of a route:
    ``sum by (route) (rate(spectuner_engine_accepted_tokens_total[5m]))
    / sum by (route) (rate(spectuner_engine_draft_tokens_total[5m]))``

    Acceptance length of a route:
    ``1 + sum by (route) (rate(spectuner_engine_accepted_tokens_total[5m]))
    / sum by (route) (rate(spectuner_engine_drafts_total[5m]))``

    Tokens per target pass of a route (right for lookup methods too, where passes lack drafts):
    ``1 + sum by (route) (rate(spectuner_engine_accepted_tokens_total[5m]))
    / sum by (route) (rate(spectuner_engine_target_passes_total[5m]))``

    Share of drafts whose token at a position was kept:
    ``sum by (position) (rate(spectuner_engine_accepted_position_tokens_total[5m]))
    / on () group_left () sum (rate(spectuner_engine_drafts_total[5m]))``

    Attributes:
        is_planned: tells whether a plan ever asked for a Setting. Others come from clients'
            ``speculation`` and share the labels method ``pinned`` and k ``any``.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_planned: Callable[[Setting], bool] = lambda setting: True
        self._add_speculation()
        self._add_steps()
        self._add_requests()

    def observe(self, record: JournalRecord) -> None:
        """Count one journal record."""
        if isinstance(record, DecodeStep):
            self._observe_step(record)
        else:
            self._observe_request(record)

    def reject(self, route: str) -> None:
        """Count a request refused because the queue was full."""
        self.queue_rejections.labels(route).inc()

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)

    def _add_speculation(self) -> None:
        self.drafts = self._counter(
            "spectuner_engine_drafts_total", "Passes that verified a draft (V).", _PLACE
        )
        self.draft_tokens = self._counter(
            "spectuner_engine_draft_tokens_total", "Draft tokens verified (D).", _PLACE
        )
        self.accepted_tokens = self._counter(
            "spectuner_engine_accepted_tokens_total", "Draft tokens kept (A).", _PLACE
        )
        self.accepted_position_tokens = self._counter(
            "spectuner_engine_accepted_position_tokens_total",
            "Draft tokens kept at a position of the draft, from 0.",
            ("route", "method", "k", "position"),
        )
        self.target_passes = self._counter(
            "spectuner_engine_target_passes_total", "Decode passes seen by sequences (P).", _PLACE
        )
        self.generated_tokens = self._counter(
            "spectuner_engine_generated_tokens_total",
            "Tokens delivered by decode passes; a request's first comes from its prefill.",
            _PLACE,
        )
        self.shadow_tokens = self._counter(
            "spectuner_engine_shadow_tokens_total",
            "Tokens delivered to replayed requests.",
            ("route",),
        )

    def _add_steps(self) -> None:
        self.steps = self._counter(
            "spectuner_engine_steps_total", "Steps of the engine.", ("load",)
        )
        self.reference_steps = self._counter(
            "spectuner_engine_reference_steps_total",
            "Steps that ran without drafts for comparison, though the plan has one draft.",
            ("load",),
        )
        self.step_seconds = self._counter(
            "spectuner_engine_step_seconds_total",
            "Time in steps, by part: draft, verify, sample, other.",
            ("part", "load"),
        )
        self.draft_seconds = self._counter(
            "spectuner_engine_draft_seconds_total", "Time spent drafting.", ("method",)
        )
        self.prefill_tokens = self._counter(
            "spectuner_engine_prefill_tokens_total", "Prompt positions computed.", ()
        )

    def _add_requests(self) -> None:
        self.requests = self._counter(
            "spectuner_engine_requests_total", "Requests that ended.", ("route", "finish_reason")
        )
        self.queue_rejections = self._counter(
            "spectuner_engine_queue_rejections_total",
            "Requests refused because the queue was full.",
            ("route",),
        )
        self.ttft = self._histogram(
            "spectuner_engine_ttft_seconds", "Arrival to first token.", _TTFT_BOUNDS_S
        )
        self.tpot = self._histogram(
            "spectuner_engine_tpot_seconds", "Time per token after the first.", _TPOT_BOUNDS_S
        )

    def _counter(self, name: str, help_text: str, labels: Iterable[str]) -> Counter:
        return Counter(name, help_text, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, help_text: str, bounds_s: tuple[float, ...]) -> Histogram:
        return Histogram(name, help_text, _PLACE, registry=self.registry, buckets=bounds_s)

    def _observe_step(self, step: DecodeStep) -> None:
        load = step.load.label
        self.steps.labels(load).inc()
        self.reference_steps.labels(load).inc(step.is_reference)
        parts = {
            "draft": step.draft_s,
            "verify": step.verify_s,
            "sample": step.sample_s,
            "other": step.other_s,
        }
        for part, seconds in parts.items():
            self.step_seconds.labels(part, load).inc(max(0.0, seconds))
        for cost in step.drafts:
            self.draft_seconds.labels(cost.method).inc(max(0.0, cost.seconds))
        self.prefill_tokens.inc(step.prefill_tokens)
        for group in step.groups:
            self._observe_group(group, load)

    def _observe_group(self, group: StepGroup, load: str) -> None:
        if group.is_shadow:
            self.shadow_tokens.labels(group.route).inc(group.tokens)
            return
        place = (group.route, *self._setting_labels(group.setting), load)
        self.target_passes.labels(*place).inc(group.rows)
        self.generated_tokens.labels(*place).inc(group.tokens)
        if group.verify_passes:
            self.drafts.labels(*place).inc(group.verify_passes)
            self.draft_tokens.labels(*place).inc(group.drafted)
            self.accepted_tokens.labels(*place).inc(group.accepted)
        for position, tokens in sorted(_accepted_by_position(group).items()):
            self.accepted_position_tokens.labels(*place[:3], str(position)).inc(tokens)

    def _setting_labels(self, setting: Setting) -> tuple[str, str]:
        """Return method and k; one pair for all that clients choose and no plan ever did."""
        return (setting.method, str(setting.k)) if self.is_planned(setting) else _PINNED

    def _observe_request(self, trace: RequestTrace) -> None:
        if trace.is_shadow:
            return
        self.requests.labels(trace.route, trace.finish_reason).inc()
        place = (trace.route, *self._setting_labels(trace.setting), trace.load.label)
        if trace.ttft_s is not None:
            self.ttft.labels(*place).observe(trace.ttft_s)
        if trace.tpot_s is not None:
            self.tpot.labels(*place).observe(trace.tpot_s)


def _accepted_by_position(group: StepGroup) -> Tally[int]:
    tally: Tally[int] = Tally()
    for outcome in group.outcomes:
        for position in range(outcome.accepted):
            tally[position] += outcome.rows
    return tally


class LiveGauges(Collector):
    """What is true at the moment of a scrape: load, plan, journal."""

    def __init__(
        self, load: Callable[[], EngineLoad], plan: LivePlan, journal: Journal, version: str
    ) -> None:
        self._load = load
        self._plan = plan
        self._journal = journal
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """Yield the families, each with one sample."""
        load = self._load()
        yield _gauge("spectuner_engine_running_requests", "Sequences in the batch.", load.running)
        yield _gauge("spectuner_engine_waiting_requests", "Requests queued.", load.waiting)
        yield _gauge(
            "spectuner_engine_kv_used_ratio", "Share of KV positions in use.", load.kv_used_ratio
        )
        yield self._plan_info()
        yield _count(
            "spectuner_engine_journal_records_total", "Records written.", self._journal.last_seq
        )
        yield _count(
            "spectuner_engine_journal_lost_records_total",
            "Records overwritten.",
            self._journal.num_lost,
        )

    def _plan_info(self) -> Metric:
        """Return the live plan as labels: ``count by (digest) (spectuner_engine_plan_info)``."""
        family = GaugeMetricFamily(
            "spectuner_engine_plan_info",
            "The plan in force; always 1.",
            labels=("digest", "version", "engine_version"),
        )
        table = self._plan.table
        family.add_metric((table.digest[:12], str(table.plan.version), self._version), 1)
        return family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def _count(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)
