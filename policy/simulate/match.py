"""All policies in one world, reduced to the numbers that are compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectors.records import Setting
from policy.controller import Decision
from policy.simulate.engine import ARMS, Engine
from policy.simulate.field import BEST_FIXED, OFF_NAME, ORACLE, entrants
from policy.simulate.objectives import tpot_limits_s
from policy.simulate.ours import Spectuner
from policy.simulate.peers.oracles import LimitedOracle
from policy.simulate.promises import Promises, promises_of
from policy.simulate.reviewed import Reviewed
from policy.simulate.run import Trace, run
from policy.simulate.worlds import ROUTES, World
from policy.statistics import Floats, Ints

HARM_RATIO = 0.98
RECOVERED_RATIO = 0.95
RECOVERY_WINDOWS = 10
"""A policy has recovered when so many windows reach the ratio in the mean."""

NUM_PARTS = 24
BLOCK_WINDOWS = 30
LEARNING_WINDOWS = 60
"""Windows at the start whose predictions are not judged."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Score:
    """What one policy got in one world.

    Attributes:
        oracle_share: its tokens over those of the oracle for each route.
        harm_share: share of windows below 98 % of off.
        recovery_windows: mean windows until it is back at 95 % of the oracle after the routes
            changed places; None in worlds where they do not.
        switches_per_window: changes of a route's drafting, over all routes.
        parts: [24] its share of the oracle by part of the run.
        regret: [24] by the end of each part, what it lost to the oracle over all that the oracle
            got.
        limited_share: its tokens within the routes' limits, over those of an oracle that knows
            them; None where no plan keeps any.
        kept_share: share of its own tokens that were within the limits.
        tpot_p99_s: [R] time per output token of each route that 99 % of its windows keep.
        drawdown_windows: the most that it fell behind off since it was furthest ahead of it, in
            windows of off.
    """

    oracle_share: float
    harm_share: float
    recovery_windows: float | None
    switches_per_window: float
    parts: Floats
    regret: Floats
    limited_share: float | None
    kept_share: float
    tpot_p99_s: Floats
    drawdown_windows: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """How far predictions held.

    Attributes:
        errors: relative error of predicted tokens: over blocks of 30 windows for the autopilot, by
            approved change for the reviewed mode.
        covered: goodputs that lay in the 90 % interval predicted for them.
        judged: goodputs with a prediction: of windows, or of approved changes.
        over_off_covered: speeds over off that lay in theirs.
        over_off_judged: speeds over off with a prediction.
    """

    errors: tuple[float, ...] = ()
    covered: int = 0
    judged: int = 0
    over_off_covered: int = 0
    over_off_judged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Own:
    """What is known of a policy of ours beside its score.

    Attributes:
        prediction: how far its predictions held.
        exploring_share: share of rows with which it explored.
        decision_s: [W] seconds that it took to decide.
        learning_s: [W] seconds that it took to learn, answers to `recommend` included.
    """

    prediction: Prediction
    exploring_share: float
    decision_s: Floats
    learning_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Match:
    """One world.

    Attributes:
        seed: of the world.
        scores: by policy.
        own: by name, those of ours.
        load: [W] rows of the world.
    """

    seed: int
    scores: Mapping[str, Score]
    own: Mapping[str, Own]
    load: Ints


def play(
    engine: Engine,
    clock: Callable[[], float],
    on_policy: Callable[[], None] = lambda: None,
    arms: Sequence[Setting] = ARMS,
) -> Match:
    """Run all policies in a world.

    Args:
        engine: the world on its profile.
        clock: seconds, to time decisions by.
        on_policy: called after each policy.
        arms: what ours, the bandits and the oracles may choose.
    """
    world = engine.world
    traces: dict[str, Trace] = {}
    autopilot, reviewed = Spectuner(world.seed, arms=arms), Reviewed(engine, arms=arms)
    for policy in (*entrants(engine, world.seed, arms), autopilot, reviewed):
        traces[policy.name] = run(engine, policy, world.seed, clock)
        on_policy()
    traces[BEST_FIXED] = max(
        (trace for name, trace in traces.items() if name.startswith("fixed ")),
        key=lambda trace: float(trace.goodput.sum()),
    )
    line = _line(engine, traces, clock, arms)
    scores = {name: score_of(trace, line, world) for name, trace in traces.items()}
    return Match(
        seed=world.seed,
        scores=scores,
        own={
            autopilot.name: _own(
                traces[autopilot.name],
                prediction_of(traces[autopilot.name], autopilot.decisions),
                _exploring_share(world, [made.exploring for made in autopilot.decisions]),
            ),
            reviewed.name: _own(
                traces[reviewed.name],
                _kept(promises_of(engine, reviewed.approved)),
                _exploring_share(world, reviewed.exploring),
            ),
        },
        load=world.rows.sum(axis=1),
    )


def _own(trace: Trace, prediction: Prediction, exploring_share: float) -> Own:
    return Own(
        prediction=prediction,
        exploring_share=exploring_share,
        decision_s=trace.decision_s,
        learning_s=trace.learning_s,
    )


def _kept(promises: Promises) -> Prediction:
    return Prediction(
        errors=promises.errors,
        covered=promises.goodputs_held,
        judged=len(promises.errors),
        over_off_covered=promises.over_off_held,
        over_off_judged=promises.over_off_judged,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """What policies are compared with in one world.

    Attributes:
        best: [W] goodput of the oracle for each route.
        off: [W] goodput of speculation off.
        limits_s: [R] longest time per output token.
        limited: [W] tokens per second within the limits of the oracle that knows them.
    """

    best: Floats
    off: Floats
    limits_s: Floats
    limited: Floats


def _line(
    engine: Engine,
    traces: Mapping[str, Trace],
    clock: Callable[[], float],
    arms: Sequence[Setting],
) -> Line:
    limits_s = tpot_limits_s(engine.profile)
    limited = run(engine, LimitedOracle(engine, limits_s, arms), engine.world.seed, clock)
    return Line(
        best=traces[ORACLE].goodput,
        off=traces[OFF_NAME].goodput,
        limits_s=limits_s,
        limited=limited.kept(engine.world.rows, limits_s),
    )


def score_of(trace: Trace, line: Line, world: World) -> Score:
    """Compare a policy with the oracle and with off in the same world."""
    got, best = trace.goodput, line.best
    lost = [part.sum() for part in np.array_split(best - got, NUM_PARTS)]
    held = [part.sum() for part in np.array_split(best, NUM_PARTS)]
    kept = trace.kept(world.rows, line.limits_s)
    tpot_s = np.where(world.rows > 0, trace.tpot_s(world.rows), np.nan)
    return Score(
        oracle_share=float(got.sum() / best.sum()),
        harm_share=float(np.mean(got < HARM_RATIO * line.off)),
        recovery_windows=recovery_of(got / best, world.change_points),
        switches_per_window=float(trace.moved.sum(axis=1).mean()),
        parts=1 - np.divide(lost, held),
        regret=np.cumsum(lost) / best.sum(),
        limited_share=float(kept.sum() / line.limited.sum()) if line.limited.any() else None,
        kept_share=float(kept.sum() / got.sum()),
        tpot_p99_s=np.nanquantile(tpot_s, 0.99, axis=0),
        drawdown_windows=drawdown_of(got - line.off) / float(line.off.mean()),
    )


def drawdown_of(gains: Floats) -> float:
    """Return the most that the running sum falls from where it was highest, the start included."""
    total = np.concatenate(([0.0], np.cumsum(gains)))
    return float((np.maximum.accumulate(total) - total).max())


def recovery_of(shares: Floats, change_points: Sequence[int]) -> float | None:
    """Return the mean windows from a change point to the first stretch at 95 % of the oracle.

    Where there is none before the next change point, all windows up to it count.
    """
    if not change_points:
        return None
    ends = (*change_points[1:], len(shares))
    taken = []
    for start, end in zip(change_points, ends, strict=True):
        part = shares[start:end]
        means = np.convolve(part, np.full(RECOVERY_WINDOWS, 1 / RECOVERY_WINDOWS), mode="valid")
        reached = np.flatnonzero(means >= RECOVERED_RATIO)
        taken.append(float(reached[0]) if len(reached) else float(len(part)))
    return float(np.mean(taken))


def prediction_of(trace: Trace, decisions: Sequence[Decision]) -> Prediction:
    """Compare what each decision predicted with what its window gave, after a time to learn."""
    judged = [
        (made.goodput, float(got))
        for made, got in zip(decisions, trace.goodput, strict=True)
        if made.goodput is not None
    ][LEARNING_WINDOWS:]
    errors = []
    for start in range(0, len(judged) - BLOCK_WINDOWS + 1, BLOCK_WINDOWS):
        block = judged[start : start + BLOCK_WINDOWS]
        said, got = sum(each.mean for each, _ in block), sum(got for _, got in block)
        errors.append(abs(said - got) / got)
    covered = sum(said.low <= got <= said.high for said, got in judged)
    return Prediction(errors=tuple(errors), covered=covered, judged=len(judged))


def _exploring_share(world: World, exploring: Sequence[Collection[str]]) -> float:
    """Return the share of rows that explored."""
    tried = np.array([[name in routes for name in ROUTES] for routes in exploring])
    return float((world.rows * tried).sum() / world.rows.sum())
