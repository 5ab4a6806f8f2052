"""What must hold of our policies in `spectuner bench policy`, and how they stand.

The bounds are those of the project, written before the runs; a bound that was not measured in a run
is left out, never taken as kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.simulate.field import BEST_FIXED
from policy.simulate.scores import Standing, Table
from tuner.bench.policy_planner import PlannerTime

MAX_HARM = 0.005
MAX_PACE_HARM = 0.01
"""Share of windows below 98 % of off; the second where the machine's pace wanders."""

MIN_AUTOPILOT_SHARE = 0.94
PACE_COVERAGE = (0.85, 0.95)
MAX_PLANNER_MS = 4.0
MAX_DECISION_MS = 8.0
REVIEWED_PEERS = ("batch_size_table", BEST_FIXED)
ONE_ARM = "oracle_one_arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One figure and what it must not pass.

    Attributes:
        what: policy and figure.
        found: the figure.
        low: least that it may be; None for no least.
        high: most that it may be; None for no most.
    """

    what: str
    found: float
    low: float | None = None
    high: float | None = None

    @property
    def is_kept(self) -> bool:
        """True where the figure lies within."""
        is_low = self.low is not None and self.found < self.low
        return not is_low and (self.high is None or self.found <= self.high)

    @property
    def sentence(self) -> str:
        """The bound in words."""
        ends = [f"{word} {end:g}" for word, end in self._ends() if end is not None]
        verdict = "holds" if self.is_kept else "DOES NOT HOLD"
        return f"{verdict}: {self.what} {self.found:.4g}, {' and '.join(ends)}"

    def _ends(self) -> tuple[tuple[str, float | None], ...]:
        return (("at least", self.low), ("at most", self.high))

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "what": self.what,
            "found": self.found,
            "low": self.low,
            "high": self.high,
            "holds": self.is_kept,
        }


def bounds_of(table: Table, planner: PlannerTime, *, is_pace: bool) -> tuple[Bound, ...]:
    """Return what must hold of ours, and of the time they take."""
    autopilot, reviewed = table.autopilot, table.reviewed
    bounds = [_harm(standing, is_pace) for standing in table.standings]
    if is_pace:
        bounds += [bound for standing in table.standings for bound in _coverage(standing)]
    else:
        share, of = autopilot.row.oracle_share, "spectuner_autopilot ahead of others"
        bounds += [
            Bound(what="spectuner_autopilot oracle_share", found=share, low=MIN_AUTOPILOT_SHARE),
            Bound(what=of, found=autopilot.num_ahead, low=len(autopilot.pairs)),
        ]
    bounds += [
        Bound(what=f"spectuner_reviewed less {peer}, low end", found=reviewed.over(peer).low, low=0)
        for peer in REVIEWED_PEERS
    ]
    return (
        *bounds,
        Bound(what="planner p99, ms", found=1e3 * planner.p99_s, high=MAX_PLANNER_MS),
        Bound(
            what="decision p99 of four routes, ms",
            found=1e3 * autopilot.decision_s[1],
            high=MAX_DECISION_MS,
        ),
    )


def _harm(standing: Standing, is_pace: bool) -> Bound:
    return Bound(
        what=f"{standing.row.policy} harm_share",
        found=standing.row.harm_share,
        high=MAX_PACE_HARM if is_pace else MAX_HARM,
    )


def _coverage(standing: Standing) -> Iterator[Bound]:
    low, high = PACE_COVERAGE
    for name, found in (
        ("goodput", standing.coverage),
        ("over off", standing.over_off_coverage),
    ):
        if found is not None:
            what = f"{standing.row.policy} coverage of {name}"
            yield Bound(what=what, found=found, low=low, high=high)


def standing_lines(standing: Standing) -> list[str]:
    """Return how one policy of ours stands, one sentence each."""
    row, gap = standing.row, standing.over(ONE_ARM).difference
    recovery = "-" if row.recovery_windows is None else f"{row.recovery_windows:.0f} windows"
    lines = [
        f"{row.policy}: {row.oracle_share:.2%} of the oracle, {100 * gap:+.2f} points over "
        f"{ONE_ARM}, ahead of {standing.num_ahead} of {len(standing.pairs)}, harm "
        f"{row.harm_share:.2%}, recovery {recovery}, {row.switches_per_window:.2f} switches a "
        f"window, {standing.exploring_share:.1%} of rows explored.",
        f"{row.policy}: decisions take {1e3 * standing.decision_s[0]:.1f} ms at the median and "
        f"{1e3 * standing.decision_s[1]:.1f} ms at p99 of thread-CPU time.",
    ]
    if standing.prediction_error is not None and standing.coverage is not None:
        lines.append(
            f"{row.policy}: goodput predicted within {standing.prediction_error:.1%} at the "
            f"median; {standing.coverage:.0%} of {standing.predictions} intervals of 90 % held."
        )
    if standing.over_off_coverage is not None:
        lines.append(
            f"{row.policy}: {standing.over_off_coverage:.0%} of "
            f"{standing.over_off_predictions} intervals of speed over off held."
        )
    return lines


def standing_to_dict(standing: Standing) -> Mapping[str, object]:
    """Return the JSON form of how one policy of ours stands."""
    return {
        "policy": standing.row.policy,
        "oracle_share": standing.row.oracle_share,
        "over_one_arm": standing.over(ONE_ARM).difference,
        "num_ahead": standing.num_ahead,
        "num_others": len(standing.pairs),
        "harm_share": standing.row.harm_share,
        "recovery_windows": standing.row.recovery_windows,
        "switches_per_window": standing.row.switches_per_window,
        "exploring_share": standing.exploring_share,
        "decision_ms": _milliseconds(standing.decision_s),
        "learning_ms": _milliseconds(standing.learning_s),
        "prediction": {
            "error": standing.prediction_error,
            "coverage": standing.coverage,
            "predictions": standing.predictions,
            "over_off_coverage": standing.over_off_coverage,
            "over_off_predictions": standing.over_off_predictions,
        },
    }


def _milliseconds(seconds: tuple[float, float]) -> Mapping[str, float]:
    return {"p50": 1e3 * seconds[0], "p99": 1e3 * seconds[1]}
