"""How long the planner takes for a large service: many routes, all load levels, many arms.

Thread-CPU time on one core, so that neighbours on the machine count little. The batch is drawn;
the search takes its time whatever the numbers are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from collectors.records import LOAD_LEVELS, Method
from policy.goodput import Batch, numbered
from policy.planner import best_plan
from policy.simulate.engine import ARMS, lookup, model
from policy.simulate.profiles import Drafting, Profile, gpu
from policy.statistics import Floats, Ints
from policy.tally import family_of

NUM_ROUTES = 50
NUM_REPEATS = 100
PLANNED_ARMS = (*ARMS, lookup(3), model(4), model(6))

_STEP_POINTS = 513
_DRAFT_POINTS = 65
_LEVEL_ROWS = np.array([1.6, 2.4, 3.5, 6.5, 12.0, 24.0, 48.0, 128.0])
_WAYS = {Method.PROMPT_LOOKUP: Drafting.LOOKUP, Method.DRAFT_MODEL: Drafting.MODEL}
_LIMIT_STEPS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerTime:
    """CPU seconds of one search over all levels at once.

    Attributes:
        p50_s: median, without limits.
        p99_s: 99th percentile, without limits.
        limited_p99_s: the same where every route has a limit on the time per output token.
    """

    p50_s: float
    p99_s: float
    limited_p99_s: float

    @property
    def sentence(self) -> str:
        """The figures in words."""
        return (
            f"Planning {NUM_ROUTES} routes at {len(_LEVEL_ROWS)} levels with {len(PLANNED_ARMS)} "
            f"arms takes {1e3 * self.p50_s:.1f} ms at the median and {1e3 * self.p99_s:.1f} ms at "
            f"p99 of thread-CPU time, {1e3 * self.limited_p99_s:.1f} ms where all routes have "
            "limits."
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "routes": NUM_ROUTES,
            "levels": len(_LEVEL_ROWS),
            "arms": len(PLANNED_ARMS),
            "p50": 1e3 * self.p50_s,
            "p99": 1e3 * self.p99_s,
            "limited_p99": 1e3 * self.limited_p99_s,
        }


def planner_time(num_repeats: int = NUM_REPEATS) -> PlannerTime:
    """Plan a large service again and again, with limits and without in turns."""
    free, limited = large_batch(np.inf), large_batch(_LIMIT_STEPS)
    times = np.array([[_plan_s(free), _plan_s(limited)] for _ in range(num_repeats)])
    p50_s, p99_s = np.quantile(times[:, 0], (0.5, 0.99))
    return PlannerTime(
        p50_s=float(p50_s),
        p99_s=float(p99_s),
        limited_p99_s=float(np.quantile(times[:, 1], 0.99)),
    )


def large_batch(limit_steps: float) -> Batch:
    """Return 50 routes at 8 levels with 12 arms.

    Args:
        limit_steps: longest time per output token of every route, in plain steps of its level;
            infinite for none.
    """
    generator, profile = np.random.default_rng(20260104), gpu()
    arms, depth = PLANNED_ARMS, np.array([arm.k for arm in PLANNED_ARMS], dtype=np.intp)
    rows = generator.dirichlet(np.ones(NUM_ROUTES), len(_LEVEL_ROWS)) * _LEVEL_ROWS[:, None]
    tokens = _tokens(generator, depth)
    step_s, per_position = _step_tables(profile, int(depth.max()))
    longest = limit_steps * step_s[:, 0, None, None] * tokens
    return Batch(
        loads=LOAD_LEVELS,
        routes=(tuple(f"route{number}" for number in range(NUM_ROUTES)),) * len(rows),
        arms=arms,
        method=numbered([arm.method for arm in arms]),
        depth=depth,
        family=numbered([family_of(arm) for arm in arms]),
        allowed=np.ones((*rows.shape, len(arms)), dtype=np.bool_),
        rows=rows,
        tokens=rows[:, :, None] * tokens,
        positions=rows[:, :, None] * (1.0 + depth),
        own_s=np.zeros((*rows.shape, len(arms))),
        limit_s=np.broadcast_to(longest, (*rows.shape, len(arms))),
        step_s=step_s,
        step_from=_LEVEL_ROWS,
        step_per_position=per_position,
        draft_s=_draft_tables(profile, int(depth.max())),
        draft_per_row=(_DRAFT_POINTS - 1) / (_LEVEL_ROWS - 1),
    )


def _plan_s(batch: Batch) -> float:
    started = time.thread_time()
    best_plan(batch, np.zeros(batch.rows.shape, dtype=np.intp))
    return time.thread_time() - started


def _tokens(generator: np.random.Generator, depth: Ints) -> Floats:
    """Return the tokens of a pass by route and arm; [R, A]."""
    accepted = generator.uniform(0.2, 0.95, (NUM_ROUTES, 2))
    is_lookup = np.array([arm.method is Method.PROMPT_LOOKUP for arm in PLANNED_ARMS])
    chance = np.where(is_lookup, accepted[:, :1], accepted[:, 1:])
    return np.asarray((1 - chance ** (depth + 1)) / (1 - chance))


def _step_tables(profile: Profile, deepest: int) -> tuple[Floats, Floats]:
    """Return seconds by level and point, and points per position; [S, P] and [S]."""
    tables, whole = [], np.arange(len(profile.step_table_s(1, 0.0)))
    for rows in _LEVEL_ROWS:
        grid = np.linspace(rows, rows * (1 + deepest), _STEP_POINTS)
        tables.append(np.interp(grid, whole, profile.step_table_s(round(rows), 0.0)))
    return np.stack(tables), (_STEP_POINTS - 1) / (_LEVEL_ROWS * deepest)


def _draft_tables(profile: Profile, deepest: int) -> Floats:
    """Return seconds by level, method, point of rows and depth; [S, M, H, D]."""
    depths = np.arange(deepest + 1)
    methods = list(dict.fromkeys(arm.method for arm in PLANNED_ARMS))
    tables = np.zeros((len(_LEVEL_ROWS), len(methods), _DRAFT_POINTS, len(depths)))
    for level, most in enumerate(_LEVEL_ROWS):
        rows = np.linspace(1.0, most, _DRAFT_POINTS)[:, None]
        for number, method in enumerate(methods):
            if method in _WAYS:
                tables[level, number] = profile.draft_s(_WAYS[method], rows, depths)
    return tables
