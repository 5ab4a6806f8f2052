"""Worlds with a known truth: windows as an engine would have counted them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul

from collectors.records import LoadLevel, Method, Setting, load_level_of
from policy.types import (
    DraftObservation,
    Evidence,
    Interval,
    LoadChange,
    LoadMix,
    Observation,
    StepCost,
    Window,
)

END_S = 1_800_000_000.0


def draft(k: int) -> Setting:
    return Setting(method=Method.DRAFT_MODEL, k=k)


def lookup(k: int) -> Setting:
    return Setting(method=Method.PROMPT_LOOKUP, k=k, lookup_min=1, lookup_max=3)


def survival_of(hazards: Sequence[float]) -> list[float]:
    return list(accumulate(hazards, mul))


def observation(
    setting: Setting,
    survival: Sequence[float],
    *,
    route: str = "chat",
    load: LoadLevel | None = None,
    passes: int = 10_000,
    coverage: float = 1.0,
    evidence: Evidence = Evidence.LIVE,
) -> Observation:
    """Count passes in which each position survived as often as the survival says."""
    verify = round(passes * coverage) if setting.k else 0
    accepts = tuple(round(verify * share) for share in survival[: setting.k])
    attempts = (verify, *accepts)[: setting.k]
    return Observation(
        route=route,
        setting=setting,
        load=load or load_level_of(1),
        evidence=evidence,
        start_s=END_S - 60,
        end_s=END_S,
        passes=passes,
        verify_passes=verify,
        drafted=verify * setting.k,
        accepted=sum(accepts),
        tokens=passes + sum(accepts),
        attempts=attempts,
        accepts=accepts,
    )


def step_costs(
    seconds: Callable[[int, int], float], rows: int, depths: Sequence[int], context: int = 512
) -> list[StepCost]:
    """Measure steps in which each row computes 1 + depth positions."""
    return [
        StepCost(
            rows=rows,
            positions=rows * (1 + depth),
            context_tokens=context,
            steps=200,
            total_s=200 * seconds(rows, rows * (1 + depth)),
            total_square_s2=200 * seconds(rows, rows * (1 + depth)) ** 2,
        )
        for depth in depths
    ]


def draft_costs(
    seconds: Callable[[int, int], float],
    rows: Sequence[int],
    depths: Sequence[int],
    method: Method = Method.DRAFT_MODEL,
) -> list[DraftObservation]:
    return [
        DraftObservation(
            method=method, rows=row, depth=depth, rounds=100, total_s=100 * seconds(row, depth)
        )
        for row in rows
        for depth in depths
    ]


def mix(rows_by_route: Mapping[str, float], context: float = 512.0) -> LoadMix:
    rows = sum(rows_by_route.values())
    return LoadMix(
        load=load_level_of(round(rows)),
        steps=1000,
        rows_by_route=rows_by_route,
        context_tokens=context,
        tokens=round(1000 * rows),
        busy_s=10.0,
    )


def window(
    observations: Sequence[Observation] = (),
    costs: Sequence[StepCost] = (),
    drafts: Sequence[DraftObservation] = (),
    mixes: Sequence[LoadMix] = (),
    end_s: float = END_S,
) -> Window:
    return Window(
        start_s=end_s - 60,
        end_s=end_s,
        observations=tuple(observations),
        step_costs=tuple(costs),
        draft_costs=tuple(drafts),
        mixes=tuple(mixes),
    )


NOTHING_KNOWN = Interval.certain(1.0)


def load_change(
    load: LoadLevel, current: Setting, proposed: Setting, **figures: object
) -> LoadChange:
    """A change whose figures are 1 but for those given."""
    ones = dict.fromkeys(
        ("tokens_per_pass", "step_ratio", "route_speed", "engine_total", "over_off"), NOTHING_KNOWN
    )
    given: dict[str, object] = {
        "current_tokens_per_pass": 1.0,
        "token_share": 1.0,
        "runner_up": None,
        "reason": "it pays",
        "goodput": NOTHING_KNOWN,
    }
    return LoadChange(
        load=load,
        current=current,
        proposed=proposed,
        **(ones | given | figures),  # type: ignore[arg-type]
    )
