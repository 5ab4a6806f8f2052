"""Prometheus metrics of the service: how well it watches, and what it saw lately.

Labels are ``engine``, ``route``, ``load`` and ``kind`` only, all bounded. The engine exports its
own counters; what is here is computed from the store at each scrape.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dashboards.views import (
    AlarmLine,
    AutopilotLine,
    Cell,
    EngineHealth,
    InForce,
    JobsView,
    Overview,
)
from policy.outcome import Basis

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DECLARED = {
    "spectuner_http_requests_total": "HTTP requests answered",
    "spectuner_http_errors_total": "HTTP requests answered with a status of 500 or more",
    "spectuner_http_request_seconds": "time to answer a request",
    "spectuner_journal_stored_seq": "newest journal record stored, of the current boot",
    "spectuner_journal_lost_records_total": "journal records overwritten before they were read",
    "spectuner_pull_age_seconds": "time since the last pull that succeeded",
    "spectuner_engine_stale": "1 where decisions stand still for want of data",
    "spectuner_recommendations_pending": "recommendations that wait for a decision",
    "spectuner_jobs_failing": "jobs whose newest run failed",
    "spectuner_acceptance_ratio": "accepted over drafted tokens, last five minutes",
    "spectuner_pass_tokens": "tokens per target pass, last five minutes",
    "spectuner_autopilot_active": "1 where the control loop acts on a route, 0 where it fell back",
    "spectuner_autopilot_changes_total": "plan entries changed by the control loop",
    "spectuner_autopilot_fallbacks_total": "times that the control loop fell back by itself",
    "spectuner_drift_alarms": "drift alarms that last and that nobody acknowledged, by kind",
    "spectuner_recommended_gain_ratio": "predicted gain of the engine's total, newest advice",
    "spectuner_route_speed_over_off_predicted_ratio": (
        "predicted speed of a route's requests over off, of what is in force"
    ),
    "spectuner_route_speed_over_off_realised_ratio": (
        "the same as measured by paired steps; absent where too few ran"
    ),
    "spectuner_engine_total_predicted_ratio": (
        "predicted tokens per second of the engine over those before, of what is in force"
    ),
    "spectuner_engine_total_realised_ratio": (
        "the same as measured before and after; absent where paired steps tell more"
    ),
    "spectuner_predictions_missed": (
        "load levels whose measured interval has nothing in common with the predicted one"
    ),
    "spectuner_traffic_age_seconds": "time since the newest step that is known of",
}
"""Every metric of the service and what it says. PromQL worth having:

- stale watch: ``spectuner_engine_stale == 1``
- losses: ``increase(spectuner_journal_lost_records_total[15m]) > 0``
- a route stopped gaining: ``spectuner_pass_tokens{load="1"} < 1.1``
- a route wears: ``spectuner_drift_alarms{kind="decay"} > 0``
- a prediction was missed: ``spectuner_predictions_missed > 0``
- what speculation brings against what was promised:
  ``spectuner_route_speed_over_off_realised_ratio
  / on(route, load) spectuner_route_speed_over_off_predicted_ratio``
- work for an operator: ``spectuner_recommendations_pending > 0``
"""


class ServiceMetrics:
    """Counts the service's own requests and renders everything at a scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "spectuner_http_requests",
            DECLARED["spectuner_http_requests_total"],
            registry=self._registry,
        )
        self._errors = Counter(
            "spectuner_http_errors",
            DECLARED["spectuner_http_errors_total"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "spectuner_http_request_seconds",
            DECLARED["spectuner_http_request_seconds"],
            registry=self._registry,
        )

    def note_request(self, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.inc()
        self._seconds.observe(seconds)
        if status >= 500:
            self._errors.inc()

    def exposition(self, overview: Overview, jobs: JobsView) -> bytes:
        """Return the Prometheus text of now."""
        shown = CollectorRegistry()
        shown.register(_Snapshot(lambda: _families(overview, jobs)))
        return generate_latest(self._registry) + generate_latest(shown)


class _Snapshot(Collector):
    """Metric families made at the scrape."""

    def __init__(self, make: Callable[[], Iterable[Metric]]) -> None:
        self._make = make

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._make()


def _families(overview: Overview, jobs: JobsView) -> Iterator[Metric]:
    yield from _engine_families(overview)
    yield from _cell_families(overview.cells)
    yield _single("spectuner_recommendations_pending", overview.waiting)
    failing = [job for job in jobs.timetable if job.last and job.last.outcome == "failed"]
    yield _single("spectuner_jobs_failing", len(failing))
    yield _alarm_family(overview.alarms)
    yield from _outcome_families(overview.in_force)
    if overview.last_traffic_at is not None:
        passed = (overview.at - overview.last_traffic_at).total_seconds()
        yield _single("spectuner_traffic_age_seconds", max(0.0, passed))
    yield from _autopilot_families(overview.autopilot)


def _engine_families(overview: Overview) -> Iterator[Metric]:
    stored = _gauge("spectuner_journal_stored_seq", ("engine",))
    age = _gauge("spectuner_pull_age_seconds", ("engine",))
    stale = _gauge("spectuner_engine_stale", ("engine",))
    lost = CounterMetricFamily(
        "spectuner_journal_lost_records",
        DECLARED["spectuner_journal_lost_records_total"],
        labels=("engine",),
    )
    for health in overview.engines:
        name = (health.engine,)
        stored.add_metric(name, health.cursor)
        lost.add_metric(name, health.lost_steps)
        stale.add_metric(name, float(health.is_stale))
        _add_age(age, health, overview)
    yield from (stored, lost, stale, age)


def _add_age(age: GaugeMetricFamily, health: EngineHealth, overview: Overview) -> None:
    if health.last_pull_at is not None:
        passed = (overview.at - health.last_pull_at).total_seconds()
        age.add_metric((health.engine,), max(0.0, passed))


def _cell_families(cells: Iterable[Cell]) -> Iterator[Metric]:
    rate = _gauge("spectuner_acceptance_ratio", ("route", "load"))
    tokens = _gauge("spectuner_pass_tokens", ("route", "load"))
    gain = _gauge("spectuner_recommended_gain_ratio", ("route", "load"))
    for cell in cells:
        place = (cell.route, cell.load.label)
        predicted = cell.proposal.gain.mean if cell.proposal and cell.proposal.gain else None
        for family, value in (
            (rate, cell.acceptance_rate),
            (tokens, cell.tokens_per_pass),
            (gain, predicted),
        ):
            if value is not None:
                family.add_metric(place, value)
    yield from (rate, tokens, gain)


def _outcome_families(in_force: Sequence[InForce]) -> Iterator[Metric]:
    """Give predicted and measured ratios of what is in force."""
    for basis, figure in (
        (Basis.PAIRED, "route_speed_over_off"),
        (Basis.BEFORE_AND_AFTER, "engine_total"),
    ):
        predicted = _gauge(f"spectuner_{figure}_predicted_ratio", ("route", "load"))
        realised = _gauge(f"spectuner_{figure}_realised_ratio", ("route", "load"))
        for row in in_force:
            place = (row.route, row.load.label)
            if (row.outcome.basis if row.outcome else Basis.PAIRED) is basis:
                predicted.add_metric(place, row.predicted.mean)
            if row.outcome is not None and row.outcome.basis is basis:
                realised.add_metric(place, row.outcome.realised.mean)
        yield from (predicted, realised)
    missed = _gauge("spectuner_predictions_missed", ("route",))
    for route, count in sorted(Counted(row.route for row in in_force if row.is_missed).items()):
        missed.add_metric((route,), count)
    yield missed


def _alarm_family(alarms: Iterable[AlarmLine]) -> Metric:
    family = _gauge("spectuner_drift_alarms", ("engine", "route", "kind"))
    places = Counted((alarm.engine, alarm.route or "", alarm.kind) for alarm in alarms)
    for place, count in sorted(places.items()):
        family.add_metric(place, count)
    return family


def _autopilot_families(lines: Iterable[AutopilotLine]) -> Iterator[Metric]:
    names, labels = ("changes", "fallbacks"), ("engine", "route")
    active = _gauge("spectuner_autopilot_active", labels)
    changes, fallbacks = (
        CounterMetricFamily(
            f"spectuner_autopilot_{name}",
            DECLARED[f"spectuner_autopilot_{name}_total"],
            labels=labels,
        )
        for name in names
    )
    for line in lines:
        place = (line.engine, line.route)
        active.add_metric(place, float(line.is_active))
        changes.add_metric(place, line.changes)
        fallbacks.add_metric(place, line.fallbacks)
    yield from (active, changes, fallbacks)


def _gauge(name: str, labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, DECLARED[name], labels=labels)


def _single(name: str, value: float) -> GaugeMetricFamily:
    family = _gauge(name)
    family.add_metric((), value)
    return family
