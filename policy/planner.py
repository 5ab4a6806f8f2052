"""Joint choice of (method, k) for all routes at each load level.

Ascent from several starts, all at once: each round rates every single change of every route, then
tries the best one, the best two, four, ... together and keeps whichever set gives most. A round
never makes a plan worse, and routes that only pay together (they share a draft model's time) are
found from the starts where all of them use it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policy.goodput import (
    NO_DATA_S,
    Batch,
    draft_seconds,
    limited,
    places,
    scores_of,
    step_seconds,
    target_seconds,
)
from policy.statistics import Floats, Ints

ROUNDS = ((1, 2), (5, 1))
"""Rounds, and starts kept in each scene after them: the starts that lead go on."""

LEAST_GAIN = 1e-9
PRICES = ((2.0, 1.5), (4.0, 4.0))
"""How starts price time: growth of the batch in positions at which a position's time is taken, and
the goodput that a second is worth, in plain goodputs."""

STRETCHES = (1.0, 1.15, 1.3, 1.6, 2.0, 3.0)
"""Step times, in plain steps, that starts are made to bear where there are limits."""

NUM_PRICED = 2
_UNBEARABLE = 1e12


def best_plan(batch: Batch, current: Ints) -> Ints:
    """Return the arm of each route in each scene with the highest score found; [S, R].

    A plan that keeps every limit comes before any that breaks one; off keeps them all.

    Args:
        batch: the mix; off (arm 0) must be allowed.
        current: [S, R] the arms now in force, allowed or not.
    """
    if current.shape[1] == 1:
        scores = single_changes(batch, np.arange(batch.num_scenes), current)
        return np.asarray(np.argmax(scores, axis=2))
    plans = _starts(batch, current)
    for num_rounds, num_kept in ROUNDS:
        scene = np.repeat(np.arange(batch.num_scenes), plans.shape[1])
        firsts, copied = np.unique(_first_alike(plans), return_inverse=True)
        starts = plans.reshape(len(scene), -1)[firsts]
        found, score = (each[copied] for each in improved(batch, scene[firsts], starts, num_rounds))
        order = np.argsort(-score.reshape(plans.shape[:2]), axis=1, kind="stable")[:, :num_kept]
        kept = (order + np.arange(batch.num_scenes)[:, None] * plans.shape[1]).ravel()
        capped = _capped(batch, scene[kept], found[kept], score[kept])
        plans = capped.reshape(batch.num_scenes, num_kept, -1)
    return np.asarray(plans[:, 0])


def _first_alike(plans: Ints) -> Ints:
    """Return for each of [S, Q, R] the number of the first like it in its scene; [S * Q]."""
    is_alike = (plans[:, :, None] == plans[:, None]).all(axis=3)
    first = np.argmax(is_alike, axis=2) + np.arange(len(plans))[:, None] * plans.shape[1]
    return np.asarray(first.ravel())


def improved(batch: Batch, scene: Ints, choice: Ints, num_rounds: int) -> tuple[Ints, Floats]:
    """Change plans while that gains; [N, R] in and out, never worse than what came in.

    Returns the plans and their scores [N].
    """
    choice = choice.copy()
    active = np.arange(len(scene))
    score = scores_of(batch, scene, choice)
    for _ in range(num_rounds):
        moved, gained = _round(batch, scene[active], choice[active], score[active])
        better = gained > score[active] * (1 + LEAST_GAIN)
        active = active[better]
        if not len(active):
            break
        choice[active], score[active] = moved[better], gained[better]
    return choice, score


def single_changes(batch: Batch, scene: Ints, choice: Ints) -> Floats:
    """Return the score after giving one route another arm; [N, R, A]. -1 where not allowed."""
    return np.moveaxis(_changed_scores(batch, scene, choice), 0, 2)


def _changed_scores(batch: Batch, scene: Ints, choice: Ints) -> Floats:
    """Return the score after each single change, arms in front; [A, N, R]."""
    by_arm, at = batch.arm_major, places(batch, scene, choice)
    seconds = _changed_seconds(batch, scene, choice, at)
    scores = _changed_sums(by_arm.tokens, batch.tokens.ravel().take(at), scene)
    scores /= seconds
    if batch.has_limits:
        limit_s = by_arm.limit_s.take(scene, axis=1)
        others = _without_own(batch.limit_s.ravel().take(at))
        scores = limited(scores, np.minimum(others, limit_s, out=limit_s), seconds)
    return np.where(by_arm.allowed.take(scene, axis=1), scores, -1.0)


def _starts(batch: Batch, current: Ints) -> Ints:
    """Return [S, Q, R]: current, all off, and the best of many.

    Those are plans in which each route has its best at a price, and the best of one arm for all.
    """
    legal = np.take_along_axis(batch.allowed, current[:, :, None], axis=2)[:, :, 0]
    starts = [np.where(legal, current, 0), np.where(batch.allowed[:, :, 0], 0, current)]
    equal = np.where(batch.allowed, np.arange(len(batch.arms)), 0).swapaxes(1, 2)
    leading = [_leading(batch, _priced_starts(batch), NUM_PRICED), _leading(batch, equal, 1)]
    return np.concatenate([np.stack(starts, axis=1), *leading], axis=1)


def _leading(batch: Batch, plans: Ints, count: int) -> Ints:
    """Return the best so many of some plans of each scene; [S, K, R] to [S, count, R]."""
    scene = np.repeat(np.arange(batch.num_scenes), plans.shape[1])
    score = scores_of(batch, scene, plans.reshape(len(scene), -1)).reshape(plans.shape[:2])
    best = np.argsort(-score, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(plans, best[:, :, None], axis=1)


def _priced_starts(batch: Batch) -> Ints:
    """Give each route its best arm if a position and a draft cost what they do on average.

    Drafting is priced as if all rows shared it, which finds the arms that only pay together. Where
    there are limits, only arms that bear a step of a given length take part. Returns [S, K, R].
    """
    value = np.stack([_priced_value(batch, *price) for price in PRICES], axis=1)
    value = np.where(batch.allowed[:, None], value, -np.inf)
    if not batch.has_limits:
        return np.asarray(np.argmax(value, axis=3), dtype=np.intp)
    scene, off = np.arange(batch.num_scenes), np.zeros(batch.rows.shape, dtype=np.intp)
    plain_s = step_seconds(batch, scene, off)[:, None, None]
    starts = []
    for stretch in STRETCHES:
        bears = np.where(batch.allowed, batch.limit_s, 0.0) * (1 + LEAST_GAIN) >= plain_s * stretch
        starts.append(np.argmax(value + np.where(bears, 0.0, -_UNBEARABLE)[:, None], axis=3))
    return np.concatenate(starts, axis=1)


def _priced_value(batch: Batch, growth: float, goodputs: float) -> Floats:
    """Return the tokens of each arm less the tokens that its time could yield; [S, R, A]."""
    scene = np.arange(batch.num_scenes)
    rows = batch.rows.sum(axis=1)
    plain, grown = (target_seconds(batch, scene, rows * size) for size in (1.0, growth))
    slope = np.where(grown < NO_DATA_S, (grown - plain) / (rows * (growth - 1)), plain / rows)
    drafting = np.zeros((len(scene), len(batch.arms)))
    for number in range(1, batch.num_methods):
        arms = batch.arms_by_method[number]
        depth = batch.depth[arms]
        shared = draft_seconds(batch, scene[:, None], number, rows[:, None], depth)
        drafting[:, arms] = shared / rows[:, None]
    seconds = slope[:, None, None] * batch.positions
    seconds += drafting[:, None] * batch.rows[:, :, None]
    price = goodputs * rows / plain
    return np.asarray(batch.tokens - price[:, None, None] * seconds)


def _round(batch: Batch, scene: Ints, choice: Ints, base: Floats) -> tuple[Ints, Floats]:
    """Try the best changes together in growing numbers; the best set and its score."""
    scores = _changed_scores(batch, scene, choice)
    arm, score = np.argmax(scores, axis=0), scores.max(axis=0)
    rank = np.argsort(np.argsort(-score, axis=1), axis=1)
    sizes = _sizes(choice.shape[1])
    takes = (rank[:, None] < sizes[None, :, None]) & (score > base[:, None])[:, None]
    tries = np.where(takes, arm[:, None], choice[:, None])
    flat = scores_of(batch, np.repeat(scene, len(sizes)), tries.reshape(-1, choice.shape[1]))
    gained = flat.reshape(len(scene), len(sizes))
    best, row = np.argmax(gained, axis=1), np.arange(len(scene))
    return tries[row, best], gained[row, best]


def _capped(batch: Batch, scene: Ints, choice: Ints, score: Floats) -> Ints:
    """Try to shorten all drafts of a method at once, as its time follows the deepest of them."""
    caps, num_routes = _caps(batch), choice.shape[1]
    again = np.repeat(scene, len(caps))
    tries = caps.take(choice, axis=1).swapaxes(0, 1)
    at = places(batch, again, tries.reshape(-1, num_routes)).reshape(tries.shape)
    tries = np.where(batch.allowed.ravel().take(at), tries, choice[:, None])
    flat = scores_of(batch, again, tries.reshape(-1, num_routes))
    gained = flat.reshape(len(scene), len(caps))
    best, row = np.argmax(gained, axis=1), np.arange(len(scene))
    better = gained[row, best] > score
    return np.where(better[:, None], tries[row, best], choice)


def _caps(batch: Batch) -> Ints:
    """Return, for each (method, depth) in use, which arm each arm becomes under it; [C, A].

    The first leaves all arms as they are; others that do so too are left out.
    """
    arms, depth, method = np.arange(len(batch.arms)), batch.depth, batch.method
    cap = arms[1:, None]
    is_over = (method == method[cap]) & (depth > depth[cap])
    kin = batch.family[:, None] == batch.family
    fits = kin[None] & (depth <= depth[cap])[:, None]
    shorter = np.argmax(np.where(fits, depth, -1), axis=2)
    capped = np.where(is_over & fits.any(axis=2), shorter, arms)
    return np.concatenate([arms[None], capped[(capped != arms).any(axis=1)]])


def _sizes(num_routes: int) -> Ints:
    powers = {2**place for place in range(num_routes.bit_length())}
    return np.array(sorted(powers | {num_routes}), dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MethodUse:
    """Each method's part of a step if a route did not use it; L methods, off left out.

    Attributes:
        rows: [L, N, R] rows of the other routes.
        depth: [L, N, R] their deepest draft.
        seconds: [L, N, R] their draft time.
    """

    rows: Floats
    depth: Ints
    seconds: Floats


def _changed_seconds(batch: Batch, scene: Ints, choice: Ints, at: Ints) -> Floats:
    """Return the step time after each single change; [A, N, R]."""
    by_arm, place = batch.arm_major, np.repeat(scene, choice.shape[1]).reshape(choice.shape)
    now = batch.positions.ravel().take(at)
    total = target_seconds(batch, place, _changed_sums(by_arm.positions, now, scene))
    if batch.has_own_steps:
        total += _changed_sums(by_arm.own_s, batch.own_s.ravel().take(at), scene)
    use = _use_without(batch, scene, choice)
    joined_rows = use.rows + batch.rows[scene]
    for number, arms in enumerate(batch.arms_by_method[1:]):
        depth = np.maximum(use.depth[number], batch.depth[arms][:, None, None])
        added_s = draft_seconds(batch, place, number + 1, joined_rows[number], depth)
        added_s -= use.seconds[number]
        total += use.seconds[number]
        total[arms] += added_s
    return total


def _changed_sums(values: Floats, now: Floats, scene: Ints) -> Floats:
    """Return the sum over routes of [A, S, R] after each single change; [A, N, R].

    Args:
        values: arms in front.
        now: [N, R] what the routes have.
        scene: [N].
    """
    sums = values.take(scene, axis=1)
    sums += now.sum(axis=1)[:, None] - now
    return sums


def _use_without(batch: Batch, scene: Ints, choice: Ints) -> _MethodUse:
    numbers = np.arange(1, batch.num_methods)[:, None, None]
    uses = batch.method.take(choice) == numbers
    rows = batch.rows[scene] * uses
    depth = batch.depth.take(choice) * uses
    deepest = depth.max(axis=2, keepdims=True)
    is_deepest = depth == deepest
    second = np.where(is_deepest, 0, depth).max(axis=2, keepdims=True)
    is_alone = is_deepest & (np.count_nonzero(is_deepest, axis=2, keepdims=True) == 1)
    rest = rows.sum(axis=2, keepdims=True) - rows
    rest *= rest > LEAST_GAIN
    others = np.where(is_alone, second, deepest)
    return _MethodUse(
        rows=rest,
        depth=others,
        seconds=draft_seconds(batch, scene[:, None], numbers, rest, others),
    )


def _without_own(limit_s: Floats) -> Floats:
    """Return for each route the tightest limit of the others; [N, R]."""
    tightest = limit_s.min(axis=1)[:, None]
    is_tightest = limit_s == tightest
    second = np.where(is_tightest, np.inf, limit_s).min(axis=1)[:, None]
    is_alone = is_tightest & (is_tightest.sum(axis=1) == 1)[:, None]
    return np.asarray(np.where(is_alone, second, tightest))
