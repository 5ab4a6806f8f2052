"""From what was learned to the arrays that the planner searches.

A load level with several rows becomes one scene in which the routes share each step. A level of
one row becomes a scene for each route, since such a step holds a single route and nothing is
shared: there the goodput is one over the latency, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.ndimage import gaussian_filter1d  # type: ignore[attr-defined]

from collectors.records import LoadLevel, Route, Setting
from policy.adaptive import kind_of
from policy.goodput import NO_DATA_S, Batch, numbered, step_seconds
from policy.knowledge import Knowledge, Mix
from policy.statistics import Bools, Floats
from policy.tally import family_of

_STEP_POINTS = 513
_DRAFT_POINTS = 65
_MAX_QUERIES = 257
SPREAD_PER_ROW = 0.5
_EDGE_WIDTHS = 4.0
_LONGEST_S = NO_DATA_S * 1e-12
"""Above this, a value is mixed with an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepBounds:
    """What the times of one scene may be at worst.

    Attributes:
        least_off_s: the least that a step without speculation may take, in seconds.
        most_s: [P] the most that a step may take, by point of the batch's step table.
    """

    least_off_s: float
    most_s: Floats


def shared_batch(
    knowledge: Knowledge, mixes: Sequence[Mix], limits: Mapping[str, Route]
) -> Batch | None:
    """Return the scenes in which routes share steps; None where there are none.

    Levels whose plain step was never measured are left out.
    """
    known = [mix for mix in mixes if not mix.is_lone and _plain_s(knowledge, mix) is not None]
    if not known:
        return None
    routes = tuple(sorted({route for mix in known for route in mix.rows_by_route}))
    rows = np.array([[mix.rows_by_route.get(route, 0.0) for route in routes] for mix in known])
    batch = _batch(knowledge, tuple(mix.load for mix in known), (routes,) * len(known), rows)
    tables = [_step_table(knowledge, mix) for mix in known]
    batch = replace(
        batch,
        allowed=batch.allowed & (rows > 0)[:, :, None],
        step_s=np.stack([table for _, _, table in tables]),
        step_from=np.array([start for start, _, _ in tables]),
        step_per_position=np.array([scale for _, scale, _ in tables]),
        draft_s=np.stack([_draft_table(knowledge, mix) for mix in known]),
        draft_per_row=np.array([_draft_scale(mix.rows) for mix in known]),
    )
    return _with_limits(_with_off(batch), limits)


def lone_batch(
    knowledge: Knowledge, mixes: Sequence[Mix], limits: Mapping[str, Route]
) -> Batch | None:
    """Return a scene for each route of the levels of one row; None where there are none."""
    known = [
        (mix, route)
        for mix in mixes
        if mix.is_lone and _plain_s(knowledge, mix) is not None
        for route in sorted(mix.rows_by_route)
    ]
    if not known:
        return None
    loads = tuple(mix.load for mix, _ in known)
    routes = tuple((route,) for _, route in known)
    batch = _batch(knowledge, loads, routes, np.ones((len(known), 1)))
    own_s = np.array([[_lone_seconds(knowledge, mix, route)] for mix, route in known])
    batch = replace(
        batch,
        own_s=np.where(np.isnan(own_s), NO_DATA_S, own_s),
        allowed=batch.allowed & ~np.isnan(own_s),
    )
    return _with_limits(_with_off(batch), limits)


def one_scene(batch: Batch, scene: int) -> Batch:
    """Return one scene of a batch as a batch of its own."""
    only = slice(scene, scene + 1)
    shared = ("arms", "method", "depth", "family")
    by_scene = {name: getattr(batch, name)[only] for name in batch.__slots__ if name not in shared}
    return replace(batch, **by_scene)


def _plain_s(knowledge: Knowledge, mix: Mix) -> float | None:
    if mix.is_lone:
        value = float(knowledge.step_table_s(1.0, np.ones(1), mix.context_tokens)[0])
        return None if np.isnan(value) else value
    value = float(_step_table(knowledge, mix)[2][0])
    return value if value < _LONGEST_S else None


def _batch(
    knowledge: Knowledge,
    loads: tuple[LoadLevel, ...],
    routes: tuple[tuple[str, ...], ...],
    rows: Floats,
) -> Batch:
    """Return a batch in which no step takes time yet."""
    method = numbered([(arm.method, arm.is_adaptive) for arm in knowledge.arms])
    depth = np.array([arm.k for arm in knowledge.arms], dtype=np.intp)
    names = sorted({name for scene in routes for name in scene})
    place = np.array([[names.index(name) for name in scene] for scene in routes])
    arrays = [array[place] for array in _by_arm(knowledge, names)]
    for scene, load in enumerate(loads):
        _put_adaptive(knowledge, load, routes[scene], [array[scene] for array in arrays])
    tokens, found, may_choose = arrays
    num_scenes = len(loads)
    shape = (*rows.shape, len(knowledge.arms))
    return Batch(
        loads=loads,
        routes=routes,
        arms=knowledge.arms,
        method=method,
        depth=depth,
        family=numbered([family_of(arm) for arm in knowledge.arms]),
        allowed=may_choose.astype(np.bool_),
        rows=rows,
        tokens=rows[:, :, None] * tokens,
        positions=rows[:, :, None] * (1 + found * depth),
        own_s=np.zeros(shape),
        limit_s=np.full(shape, np.inf),
        step_s=np.zeros((num_scenes, 1)),
        step_from=np.zeros(num_scenes),
        step_per_position=np.zeros(num_scenes),
        draft_s=np.zeros((num_scenes, int(method.max()) + 1, 1, int(depth.max()) + 1)),
        draft_per_row=np.zeros(num_scenes),
    )


def _by_arm(knowledge: Knowledge, names: Sequence[str]) -> tuple[Floats, Floats, Bools]:
    """Return tokens of a pass, mean draft length over k, and what may be chosen; [N, A].

    Of adaptive arms nothing yet, since that depends on the load.
    """
    tokens = np.ones((len(names), len(knowledge.arms)))
    found, may_choose = np.zeros_like(tokens), np.ones(tokens.shape, dtype=np.bool_)
    families: dict[Setting, list[int]] = {}
    for index, arm in enumerate(knowledge.arms):
        if arm.k and not arm.is_adaptive:
            families.setdefault(family_of(arm), []).append(index)
    for family, indices in families.items():
        arms = [knowledge.arms[index] for index in indices]
        lengths = [arm.k for arm in arms]
        for row, name in enumerate(names):
            tokens[row, indices] = knowledge.tokens_per_pass(name, family)[lengths]
            found[row, indices] = knowledge.found_share(name, family)
            may_choose[row, indices] = [knowledge.may_choose(name, arm) for arm in arms]
    return tokens, found, may_choose


def _put_adaptive(
    knowledge: Knowledge, load: LoadLevel, names: Sequence[str], arrays: Sequence[Floats]
) -> None:
    """Put what adaptive arms yield at a load level into the arrays of ``_by_arm``; [R, A]."""
    tokens, found, may_choose = arrays
    for index, arm in enumerate(knowledge.arms):
        if not arm.is_adaptive:
            continue
        kind = kind_of(arm, load)
        for row, name in enumerate(names):
            tokens[row, index] = knowledge.tokens_per_pass(name, kind)[arm.k]
            found[row, index] = knowledge.found_share(name, kind)
            may_choose[row, index] = knowledge.may_choose(name, arm, load)


def _with_off(batch: Batch) -> Batch:
    allowed = batch.allowed.copy()
    allowed[:, :, 0] = True
    return replace(batch, allowed=allowed)


def _with_limits(batch: Batch, limits: Mapping[str, Route]) -> Batch:
    """Bound the step by each route's limit on the time per output token.

    A limit that even a plain step breaks is eased to that step: no plan could keep it.
    """
    limit = np.full(batch.rows.shape, np.inf)
    for scene, names in enumerate(batch.routes):
        for index, name in enumerate(names):
            route = limits.get(name)
            if route is not None and route.tpot_limit_s and batch.rows[scene, index] > 0:
                limit[scene, index] = route.tpot_limit_s
    scenes, off = np.arange(batch.num_scenes), np.zeros(batch.rows.shape, dtype=np.intp)
    eased = np.maximum(limit, step_seconds(batch, scenes, off)[:, None])
    rows = np.where(batch.rows > 0, batch.rows, 1.0)
    tokens = np.maximum(batch.tokens / rows[:, :, None], 1.0)
    return replace(batch, limit_s=eased[:, :, None] * tokens)


def _step_table(knowledge: Knowledge, mix: Mix) -> tuple[float, float, Floats]:
    """Return (first position, points per position, seconds by point)."""
    key = ("step", mix.rows, len(mix.rows_by_route) > 1, mix.context_tokens)
    if key not in knowledge.tables:
        knowledge.tables[key] = _laid_out(knowledge, mix)
    return cast("tuple[float, float, Floats]", knowledge.tables[key])


def step_bounds(knowledge: Knowledge, mix: Mix) -> StepBounds:
    """Return how far step times may lie from what is expected of them.

    From one measured step to a larger one time grows at most in proportion to positions, as beyond
    a knee, and not past that of the next measured one.
    """
    first, scale, table = _step_table(knowledge, mix)
    positions = first + np.arange(len(table)) / scale
    measured = knowledge.cost.measured_positions
    known = np.union1d(measured[(measured > first) & (measured <= positions[-1])], [first])
    above = np.append(known, np.inf)[np.searchsorted(known, positions)]
    below = known[np.searchsorted(known, positions, side="right") - 1]
    grown_s = np.interp(below, positions, table) * positions / below
    next_s = np.where(np.isinf(above), np.inf, np.interp(above, positions, table))
    least_s = knowledge.cost.least_plain_s(first, mix.context_tokens)
    return StepBounds(
        least_off_s=float(table[0]) if least_s is None else min(least_s, float(table[0])),
        most_s=np.maximum(table, np.minimum(grown_s, next_s)),
    )


def _laid_out(knowledge: Knowledge, mix: Mix) -> tuple[float, float, Floats]:
    longest = mix.rows * (1 + max(arm.k for arm in knowledge.arms))
    queries = np.union1d(_whole_numbers(mix.rows, longest), [mix.rows])
    seconds = _no_quicker_than_plain(knowledge, mix.rows, queries, mix.context_tokens)
    grid = np.linspace(mix.rows, longest, _STEP_POINTS)
    scale = (_STEP_POINTS - 1) / max(longest - mix.rows, 1.0)
    table = np.interp(grid, queries, np.where(np.isnan(seconds), NO_DATA_S, seconds))
    table = np.where(table > _LONGEST_S, NO_DATA_S, table)
    return mix.rows, scale, _blurred(table, _spread(mix) * scale)


def _no_quicker_than_plain(
    knowledge: Knowledge, rows: float, positions: Floats, context_tokens: float
) -> Floats:
    """Return the seconds of passes, none below the first unless it was measured to be; [N].

    Args:
        knowledge: step times.
        rows: sequences in the passes.
        positions: [N] positions, those of a plain step first.
        context_tokens: KV entries held by the batch.
    """
    seconds = knowledge.step_table_s(rows, positions, context_tokens)
    for index in np.flatnonzero(seconds < seconds[0]):
        if not knowledge.cost.is_surely_quicker(rows, float(positions[index]), context_tokens):
            seconds[index] = seconds[0]
    return seconds


def _spread(mix: Mix) -> float:
    """Return by how many positions steps of one plan differ; 0 where one route has all rows.

    Which routes hold the rows changes from step to step, and with it the positions.
    """
    return SPREAD_PER_ROW * mix.rows**0.5 if len(mix.rows_by_route) > 1 else 0.0


def _blurred(table: Floats, width: float) -> Floats:
    """Return the mean over a normal spread of points; what is unknown stays unknown.

    Mirrored through its ends, so that the first point, where all are off and no step differs from
    another, keeps its time.
    """
    known = table < NO_DATA_S
    last = int(np.argmin(np.append(known, False)))
    if width == 0 or last < 2:
        return table
    edge = int(np.ceil(_EDGE_WIDTHS * width))
    padded = np.pad(table[:last], edge, mode="reflect", reflect_type="odd")
    mean = gaussian_filter1d(padded, width, truncate=_EDGE_WIDTHS)[edge : edge + last]
    return np.concatenate([np.maximum(mean, table[:last].min()), table[last:]])


def _draft_table(knowledge: Knowledge, mix: Mix) -> Floats:
    """Return the seconds of drafting by method, point of rows, and depth; [M, H, D].

    What a method drafts adaptively counts as a method of its own, whose depth is its ceiling.
    """
    key = ("draft", mix.load, mix.rows, mix.context_tokens)
    if key not in knowledge.tables:
        knowledge.tables[key] = _drafting(knowledge, mix)
    return cast("Floats", knowledge.tables[key])


def _drafting(knowledge: Knowledge, mix: Mix) -> Floats:
    arms, rows, plain_s = knowledge.arms, mix.rows, _plain_s(knowledge, mix) or 0.0
    depths = np.arange(max(arm.k for arm in arms) + 1)
    queries = np.unique(np.append(_whole_numbers(1.0, max(rows, 1.0)), max(rows, 1.0)))
    grid = np.linspace(1.0, max(rows, 1.0), _DRAFT_POINTS)
    tables = []
    for method, is_adaptive in dict.fromkeys((arm.method, arm.is_adaptive) for arm in arms):
        ends = knowledge.adaptive_depth(method, mix.load) if is_adaptive else None
        taken = depths if ends is None else np.minimum(depths, ends)
        seconds = knowledge.draft_table_s(method, queries, depths, plain_s)[:, taken]
        known = np.where(np.isnan(seconds), NO_DATA_S, seconds)
        table = np.stack([np.interp(grid, queries, column) for column in known.T], axis=1)
        tables.append(np.where(table > _LONGEST_S, NO_DATA_S, table))
    return np.stack(tables)


def _draft_scale(rows: float) -> float:
    return (_DRAFT_POINTS - 1) / max(rows - 1, 1e-9)


def _whole_numbers(low: float, high: float) -> Floats:
    return np.unique(np.rint(np.linspace(np.ceil(low), np.ceil(high), _MAX_QUERIES)))


def _lone_seconds(knowledge: Knowledge, mix: Mix, route: str) -> Floats:
    """Return the seconds of a step with one row, by arm; NaN without data; [A].

    A pass either verifies a whole draft or none; the mean of the two times, since the time at the
    mean number of positions may be quite another. An adaptive one verifies about its mean.
    """
    arms = knowledge.arms
    kinds = [kind_of(arm, mix.load) for arm in arms]
    found = np.array(
        [
            knowledge.found_share(route, kind) if arm.k else 0.0
            for arm, kind in zip(arms, kinds, strict=True)
        ]
    )
    short, full, share = _drafted(arms, found)
    context = mix.context_tokens
    shorter = _no_quicker_than_plain(knowledge, 1.0, 1.0 + short, context)
    longer = _no_quicker_than_plain(knowledge, 1.0, 1.0 + full, context)
    lone, plain_s = np.ones(1), float(longer[0])
    depths = [knowledge.drafted_depth(arm, mix.load) for arm in arms]
    drafts = np.array(
        [
            knowledge.draft_table_s(arm.method, lone, np.array([depth]), plain_s)[0, 0]
            for arm, depth in zip(arms, depths, strict=True)
        ]
    )
    return np.asarray(share * longer + (1 - share) * shorter + drafts)


def _drafted(arms: Sequence[Setting], found: Floats) -> tuple[Floats, Floats, Floats]:
    """Return two draft lengths that passes of each arm have, and the share of the longer; [A]."""
    depth = np.array([float(arm.k) for arm in arms])
    is_adaptive = np.array([arm.is_adaptive for arm in arms])
    mean = found * depth
    short = np.where(is_adaptive, np.floor(mean), 0.0)
    full = np.where(is_adaptive, np.ceil(mean), depth)
    return short, full, np.where(is_adaptive, mean - short, found)
