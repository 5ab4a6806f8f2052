"""Decode steps folded into what policies are shown: counters for peers, a window for ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.records import DecodeStep, Method, Setting, StepGroup, load_level_of
from policy.simulate.engine import Choice, Counts, Turn
from policy.simulate.profiles import Drafting
from policy.simulate.worlds import MAX_DEPTH
from policy.types import DraftObservation, LoadMix, Observation, StepCost, Window


@dataclass(slots=True)
class _Hazards:
    """Attempts and accepts by draft position, with the sums around them."""

    passes: int = 0
    verify_passes: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    attempts: Counter[int] = field(default_factory=Counter)
    accepts: Counter[int] = field(default_factory=Counter)

    def add(self, group: StepGroup) -> None:
        self.tokens += group.tokens
        self.passes += group.rows
        self.verify_passes += group.verify_passes
        self.drafted += group.drafted
        self.accepted += group.accepted
        for outcome in group.outcomes:
            for position in range(min(outcome.drafted, outcome.accepted + 1)):
                self.attempts[position] += outcome.rows
                self.accepts[position] += outcome.rows * (position < outcome.accepted)


def window_of_steps(
    steps: Sequence[DecodeStep], start_s: float, end_s: float, context_tokens: int
) -> Window:
    """Return what the service would have made of these steps.

    Args:
        steps: those of the window.
        start_s: Unix seconds.
        end_s: Unix seconds.
        context_tokens: of the batch, as step costs are to be filed under.
    """
    load = load_level_of(max((step.running for step in steps), default=1))
    plain = [step for step in steps if not step.prefill_tokens]
    return Window(
        start_s=start_s,
        end_s=end_s,
        observations=tuple(
            Observation(
                route=route,
                setting=setting,
                load=load,
                start_s=start_s,
                end_s=end_s,
                passes=seen.passes,
                verify_passes=seen.verify_passes,
                drafted=seen.drafted,
                accepted=seen.accepted,
                tokens=seen.tokens,
                attempts=tuple(seen.attempts[place] for place in range(len(seen.attempts))),
                accepts=tuple(seen.accepts[place] for place in range(len(seen.attempts))),
            )
            for (route, setting), seen in _hazards(steps).items()
        ),
        step_costs=tuple(_step_costs(plain, context_tokens)),
        draft_costs=tuple(_draft_costs(plain)),
        mixes=_mixes(plain),
    )


def counts_of(
    steps: Sequence[DecodeStep],
    turn: Turn,
    choice: Choice,
    routes: Sequence[str],
    ways: Mapping[Method, Drafting],
) -> Counts | None:
    """Return what an engine's counters say of these steps; None where all of them had prefill.

    Args:
        steps: those of the window.
        turn: the batch.
        choice: what was asked for.
        routes: names, in the order of the turn.
        ways: how methods draft.
    """
    plain = [step for step in steps if not step.prefill_tokens]
    if not plain:
        return None
    target = np.array([step.verify_s + step.sample_s + step.other_s for step in plain])
    draft_s = np.zeros(len(Drafting))
    for cost in (cost for step in plain for cost in step.drafts):
        draft_s[ways[cost.method]] += cost.seconds / len(plain)
    attempts = np.zeros((len(routes), MAX_DEPTH), dtype=np.intp)
    accepts, tokens = np.zeros_like(attempts), np.zeros(len(routes), dtype=np.intp)
    for (route, _), seen in _hazards(plain).items():
        place = routes.index(route)
        tokens[place] += seen.tokens
        for position in seen.attempts:
            attempts[place, position] += seen.attempts[position]
            accepts[place, position] += seen.accepts[position]
    return Counts(
        turn=turn,
        choice=choice,
        steps=len(plain),
        target_s=float(target.mean()),
        target_square_s2=float(np.square(target).mean()),
        draft_s=draft_s,
        attempts=attempts,
        accepts=accepts,
        tokens=tokens,
    )


def _hazards(steps: Iterable[DecodeStep]) -> dict[tuple[str, Setting], _Hazards]:
    found: dict[tuple[str, Setting], _Hazards] = defaultdict(_Hazards)
    for group in (group for step in steps for group in step.groups):
        found[group.route, group.setting].add(group)
    return found


def _step_costs(steps: Iterable[DecodeStep], context_tokens: int) -> list[StepCost]:
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for step in steps:
        seconds = step.verify_s + step.sample_s + step.other_s
        times[step.running, step.positions].append(seconds)
    return [
        StepCost(
            rows=rows,
            positions=positions,
            context_tokens=context_tokens,
            steps=len(taken),
            total_s=sum(taken),
            total_square_s2=sum(seconds**2 for seconds in taken),
        )
        for (rows, positions), taken in times.items()
    ]


def _draft_costs(steps: Iterable[DecodeStep]) -> list[DraftObservation]:
    times: dict[tuple[Method, int, int], list[float]] = defaultdict(list)
    for cost in (cost for step in steps for cost in step.drafts):
        times[cost.method, cost.rows, cost.depth].append(cost.seconds)
    return [
        DraftObservation(
            method=method, rows=rows, depth=depth, rounds=len(taken), total_s=sum(taken)
        )
        for (method, rows, depth), taken in times.items()
    ]


def _mixes(steps: Sequence[DecodeStep]) -> tuple[LoadMix, ...]:
    if not steps:
        return ()
    rows: Counter[str] = Counter()
    for group in (group for step in steps for group in step.groups):
        rows[group.route] += group.rows
    return (
        LoadMix(
            load=load_level_of(max(step.running for step in steps)),
            steps=len(steps),
            rows_by_route={route: num / len(steps) for route, num in sorted(rows.items())},
            context_tokens=sum(step.context_tokens for step in steps) / len(steps),
            tokens=sum(group.tokens for step in steps for group in step.groups),
            busy_s=sum(step.step_s for step in steps),
        ),
    )
