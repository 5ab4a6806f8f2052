"""Whether routes had better be served from a pool of engines that have no speculation loaded.

Off is not free on an engine that can speculate; a clean engine takes less for a plain step. But
rows that move leave the batch that others share. Pools are resized so that every engine holds as
many rows as before: with R rows an engine, of which C belong to routes that move, the speculating
pool runs the other routes at R / (R - C) times their rows, for which it keeps that share of its
engines less. Nothing here acts: the answer is advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policy.goodput import Batch, rates, step_seconds
from policy.options import RecommendOptions
from policy.plan_evaluation import PlanEvaluation
from policy.planner import best_plan
from policy.pool_advice import PoolAdvice
from policy.statistics import TAIL, Bools, Floats, Ints, sample_interval
from policy.types import Interval
from policy.wording import pool_reason

OFF_ARM = 0
MOST_PLANNED = 8
"""Moves of a round for which the routes that stay are planned anew: the ones that lead."""

LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Routes shared out over two pools.

    Attributes:
        leaves: [R] routes served without speculation.
        plan: [R] arms of those that stay; off for the others.
        goodput: tokens per second of an engine, both pools in the mean.
    """

    leaves: Bools
    plan: Ints
    goodput: float


def goodputs(batch: Batch, leaves: Bools, plans: Ints, off_tax_ratio: float) -> Floats:
    """Return the tokens per second of an engine, over both pools; [N].

    Args:
        batch: one scene.
        leaves: [N, R] routes served without speculation.
        plans: [N, R] arms of the routes that stay.
        off_tax_ratio: what a plain step costs more than on a clean engine, 0.06 being 6 %.
    """
    rows = batch.rows[0]
    stays = staying(batch, leaves)
    kept = (rows * ~leaves).sum(axis=1) / rows.sum()
    here = rates(stays, np.arange(len(leaves)), np.where(leaves, OFF_ARM, plans)).goodput
    return np.asarray(
        here * kept + (rows * leaves).sum(axis=1) / clean_step_s(batch, off_tax_ratio)
    )


def clean_step_s(batch: Batch, off_tax_ratio: float) -> float:
    """Return the seconds of a plain step of one scene on an engine without speculation."""
    off = np.full((1, batch.rows.shape[1]), OFF_ARM, dtype=np.intp)
    return float(step_seconds(batch, np.array([0]), off)[0]) / (1 + off_tax_ratio)


def staying(batch: Batch, leaves: Bools) -> Batch:
    """Return a scene for each way to leave, of the routes that stay, grown to all the rows.

    Where all leave, the scene is the batch with everything off, which then counts for nothing.

    Args:
        batch: one scene.
        leaves: [N, R] routes that leave; they keep no rows and nothing but off.
    """
    count, rows = len(leaves), batch.rows[0]
    left = (rows * ~leaves).sum(axis=1, keepdims=True)
    growth = rows.sum() / np.where(left > 0, left, rows.sum())
    scale = np.where(left > 0, growth * ~leaves, 1.0)
    allowed = np.repeat(batch.allowed, count, axis=0) & ~leaves[:, :, None]
    allowed[:, :, OFF_ARM] = True
    return replace(
        batch,
        loads=batch.loads * count,
        routes=batch.routes * count,
        allowed=allowed,
        rows=batch.rows * scale,
        tokens=batch.tokens * scale[:, :, None],
        positions=batch.positions * scale[:, :, None],
        own_s=np.repeat(batch.own_s, count, axis=0),
        limit_s=np.where(leaves[:, :, None], np.inf, batch.limit_s),
        step_s=np.repeat(batch.step_s, count, axis=0),
        step_from=np.repeat(batch.step_from, count),
        step_per_position=np.repeat(batch.step_per_position, count),
        draft_s=np.repeat(batch.draft_s, count, axis=0),
        draft_per_row=np.repeat(batch.draft_per_row, count),
    )


def best_split(batch: Batch, plan: Ints, movable: Sequence[int], off_tax_ratio: float) -> Split:
    """Search which routes had better leave, and the Settings of those that stay.

    Single moves both ways, the others planned anew after each, from nobody leaving and from all.

    Args:
        batch: one scene.
        plan: [R] the best plan without a second pool.
        movable: numbers of the routes that may leave.
        off_tax_ratio: what a plain step costs more than on a clean engine.
    """
    starts = np.zeros((2, len(plan)), dtype=np.bool_)
    starts[1, list(movable)] = True
    found = [_climbed(batch, start, plan, movable, off_tax_ratio) for start in starts]
    return max(found, key=lambda split: split.goodput)


def _climbed(
    batch: Batch, leaves: Bools, plan: Ints, movable: Sequence[int], off_tax_ratio: float
) -> Split:
    best = _planned(batch, leaves[None], plan, off_tax_ratio)
    while True:
        moves = np.tile(best.leaves, (len(movable), 1))
        moves[np.arange(len(movable)), movable] ^= True
        plans = np.tile(best.plan, (len(movable), 1))
        rough = goodputs(batch, moves, plans, off_tax_ratio)
        leading = np.argsort(-rough, kind="stable")[:MOST_PLANNED]
        tried = _planned(batch, moves[leading], best.plan, off_tax_ratio)
        if tried.goodput <= best.goodput * (1 + LEAST_GAIN):
            return best
        best = tried


def _planned(batch: Batch, leaves: Bools, plan: Ints, off_tax_ratio: float) -> Split:
    """Plan the routes that stay for each way to leave, and return the best of them."""
    current = np.where(leaves, OFF_ARM, plan)
    plans = best_plan(staying(batch, leaves), current)
    plans = np.where(leaves, OFF_ARM, plans)
    worth = goodputs(batch, leaves, plans, off_tax_ratio)
    best = int(np.argmax(worth))
    return Split(leaves=leaves[best], plan=plans[best], goodput=float(worth[best]))


def pool_advice(
    evaluation: PlanEvaluation, plan: Ints, movable: Sequence[int], options: RecommendOptions
) -> PoolAdvice | None:
    """Advise which routes to move, where that surely gains over a plan; None elsewhere.

    Args:
        evaluation: the batch.
        plan: [R] arms recommended without a second pool.
        movable: numbers of the routes that may be moved.
        options: how cautious to be; the tax must be known.
    """
    tax = options.off_tax_ratio
    if not options.clean_pool or tax is None or not movable:
        return None
    batch = evaluation.mean
    split = best_split(batch, plan, movable, tax)
    if not split.leaves.any():
        return None
    samples = _drawn(evaluation, batch, split, tax)
    gain = _gain(evaluation, plan, samples, split)
    off = np.full_like(plan, OFF_ARM)
    low_over_off = float(np.quantile(samples, TAIL)) / float(evaluation.rates(off).goodput[0])
    if gain.low <= 0 or gain.mean < options.min_gain or low_over_off < options.least_over_off:
        return None
    return _worded(batch, plan, split, gain, tax)


def _drawn(evaluation: PlanEvaluation, batch: Batch, split: Split, off_tax_ratio: float) -> Floats:
    """Return the goodput of both pools by draw; [N]."""
    rows = batch.rows[0]
    stays = staying(batch, split.leaves[None])
    seconds = float(step_seconds(stays, np.array([0]), split.plan[None])[0])
    tokens = evaluation.draws[:, np.arange(len(rows)), split.plan] @ (rows * ~split.leaves)
    moved = float((rows * split.leaves).sum())
    return np.asarray(tokens / seconds + moved / clean_step_s(batch, off_tax_ratio))


def _gain(evaluation: PlanEvaluation, plan: Ints, samples: Floats, split: Split) -> Interval:
    """Return what both pools gain over a plan on one, as a share of its goodput."""
    base = float(evaluation.rates(plan).goodput[0])
    drawn = evaluation.drawn_goodput(plan)
    is_same = np.array_equal(split.plan, plan)
    error = 0.0 if is_same else evaluation.ratio_error(split.plan, plan)
    noise = np.exp(error * evaluation.noise)
    return sample_interval((samples * noise - drawn) / drawn, split.goodput / base - 1)


def _worded(batch: Batch, plan: Ints, split: Split, gain: Interval, tax: float) -> PoolAdvice:
    names, arms = batch.routes[0], batch.arms
    moving = [int(route) for route in np.flatnonzero(split.leaves)]
    leaves = tuple(names[route] for route in moving)
    here = [route for route in range(len(names)) if batch.rows[0, route] > 0]
    stay = {names[route]: arms[split.plan[route]] for route in here if not split.leaves[route]}
    changed = {
        names[route]: arms[split.plan[route]]
        for route in here
        if not split.leaves[route] and split.plan[route] != plan[route]
    }
    load, is_off = batch.loads[0], not any(plan[route] for route in moving)
    reason = pool_reason(load, leaves, gain, tax, changed, is_off=is_off)
    return PoolAdvice(load=load, leaves=leaves, settings=stay, gain=gain, reason=reason)


def unknown_reason(options: RecommendOptions) -> str | None:
    """Say why nothing can be said of a pool that there is; None where something can."""
    if not options.clean_pool or options.off_tax_ratio is not None:
        return None
    return (
        "Moving routes to the pool without speculation is not evaluable: set off_tax_ratio to what "
        "a plain step costs more here than there."
    )
