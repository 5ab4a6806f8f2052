"""From matches to a table: means over worlds, and paired intervals of the differences.

The rule was written before the first run: ours is ahead of a peer only where the lower end of the
paired 95 % interval lies above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policy.simulate.field import ORACLE
from policy.simulate.match import Match, Score
from policy.simulate.ours import AUTOPILOT
from policy.simulate.reviewed import REVIEWED
from policy.statistics import Floats, Ints

OURS = (AUTOPILOT, REVIEWED)
"""The policies of this product that are judged against all others."""

NUM_RESAMPLES = 10_000
TAIL = 0.025
"""Chance on each side of the intervals of scores: they hold 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One policy over all worlds; attributes as in ``Score``, means, with a 95 % interval."""

    policy: str
    oracle_share: float
    oracle_share_low: float
    oracle_share_high: float
    harm_share: float
    recovery_windows: float | None
    switches_per_window: float
    parts: Floats
    regret: Floats
    limited_share: float | None
    kept_share: float
    tpot_p99_s: Floats
    drawdown_windows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Ours against one peer, in shares of the oracle, world by world.

    Attributes:
        peer: name.
        difference: mean of ours less the peer's.
        low: lower end of the 95 % interval.
        high: upper end.
    """

    peer: str
    difference: float
    low: float
    high: float

    @property
    def is_ahead(self) -> bool:
        """True where ours is ahead beyond chance."""
        return self.low > 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """One policy of ours against all others.

    Attributes:
        row: its scores.
        pairs: it against every other but the oracle and ours, the closest first.
        decision_s: p50 and p99 of its decisions.
        learning_s: p50 and p99 of what it took to learn from a window.
        exploring_share: mean share of rows that explored.
        prediction_error: median relative error of what was predicted; None without predictions.
        coverage: share of predicted goodputs whose 90 % interval held; None without predictions.
        predictions: how many were judged.
        over_off_coverage: the same of predicted speeds over off; None without any.
        over_off_predictions: how many were judged.
    """

    row: Row
    pairs: tuple[Pair, ...]
    decision_s: tuple[float, float]
    learning_s: tuple[float, float]
    exploring_share: float
    prediction_error: float | None
    coverage: float | None
    predictions: int
    over_off_coverage: float | None
    over_off_predictions: int

    @property
    def num_ahead(self) -> int:
        """How many of the others it is ahead of."""
        return sum(pair.is_ahead for pair in self.pairs)

    def over(self, peer: str) -> Pair:
        """Return it against one other.

        Raises:
            KeyError: there is none of that name.
        """
        return {pair.peer: pair for pair in self.pairs}[peer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The result of a benchmark.

    Attributes:
        rows: policies, best first.
        standings: ours, the autopilot first.
    """

    rows: tuple[Row, ...]
    standings: tuple[Standing, ...]

    @property
    def autopilot(self) -> Standing:
        """The control loop."""
        return self.standings[0]

    @property
    def reviewed(self) -> Standing:
        """What people approve."""
        return self.standings[1]


def table_of(matches: Sequence[Match]) -> Table:
    """Fold matches; at least one."""
    names = list(matches[0].scores)
    chosen = _resamples(len(matches))
    rows = {name: _row(name, [match.scores[name] for match in matches], chosen) for name in names}
    return Table(
        rows=tuple(sorted(rows.values(), key=lambda row: -row.oracle_share)),
        standings=tuple(_standing(matches, rows[name], chosen) for name in OURS),
    )


def _standing(matches: Sequence[Match], row: Row, chosen: Ints) -> Standing:
    own = [match.own[row.policy] for match in matches]
    mine, peers = _shares(matches, row.policy), matches[0].scores.keys() - {ORACLE, *OURS}
    pairs = [_pair(name, mine - _shares(matches, name), chosen) for name in sorted(peers)]
    made = [one.prediction for one in own]
    errors = [error for one in made for error in one.errors]
    judged, over_off = (sum(one.judged for one in made), sum(one.over_off_judged for one in made))
    return Standing(
        row=row,
        pairs=tuple(sorted(pairs, key=lambda pair: pair.difference)),
        decision_s=_quantiles([one.decision_s for one in own]),
        learning_s=_quantiles([one.learning_s for one in own]),
        exploring_share=float(np.mean([one.exploring_share for one in own])),
        prediction_error=float(np.median(errors)) if errors else None,
        coverage=_share(sum(one.covered for one in made), judged),
        predictions=judged,
        over_off_coverage=_share(sum(one.over_off_covered for one in made), over_off),
        over_off_predictions=over_off,
    )


def _share(held: int, judged: int) -> float | None:
    return held / judged if judged else None


def _resamples(num_worlds: int) -> Ints:
    """Return worlds drawn with replacement; [N, worlds]."""
    generator = np.random.default_rng(20260102)
    return np.asarray(generator.integers(num_worlds, size=(NUM_RESAMPLES, num_worlds)))


def _interval(values: Floats, chosen: Ints) -> tuple[float, float]:
    low, high = np.quantile(values[chosen].mean(axis=1), (TAIL, 1 - TAIL))
    return float(low), float(high)


def _row(name: str, scores: Sequence[Score], chosen: Ints) -> Row:
    shares = np.array([score.oracle_share for score in scores])
    low, high = _interval(shares, chosen)
    return Row(
        policy=name,
        oracle_share=float(shares.mean()),
        oracle_share_low=low,
        oracle_share_high=high,
        harm_share=float(np.mean([score.harm_share for score in scores])),
        recovery_windows=_known_mean([score.recovery_windows for score in scores]),
        switches_per_window=float(np.mean([score.switches_per_window for score in scores])),
        parts=np.mean([score.parts for score in scores], axis=0),
        regret=np.mean([score.regret for score in scores], axis=0),
        limited_share=_known_mean([score.limited_share for score in scores]),
        kept_share=float(np.mean([score.kept_share for score in scores])),
        tpot_p99_s=np.mean([score.tpot_p99_s for score in scores], axis=0),
        drawdown_windows=float(np.mean([score.drawdown_windows for score in scores])),
    )


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _pair(name: str, differences: Floats, chosen: Ints) -> Pair:
    low, high = _interval(differences, chosen)
    return Pair(peer=name, difference=float(differences.mean()), low=low, high=high)


def _shares(matches: Sequence[Match], name: str) -> Floats:
    return np.array([match.scores[name].oracle_share for match in matches])


def _quantiles(parts: Sequence[Floats]) -> tuple[float, float]:
    low, high = np.quantile(np.concatenate(parts), (0.5, 0.99))
    return float(low), float(high)
