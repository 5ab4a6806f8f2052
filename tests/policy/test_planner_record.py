"""The plans found are, arm for arm, those found before the search was made faster."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from collectors.records import LOAD_LEVELS, OFF, Setting
from policy.goodput import Batch, numbered
from policy.planner import best_plan
from policy.simulate.engine import lookup, model
from policy.tally import family_of

ARMS: tuple[Setting, ...] = (OFF, model(2), lookup(2), model(5), lookup(7), model(1), lookup(4))
POINTS, ROW_POINTS, DEEPEST = 97, 17, 7
NUM_BATCHES = 40

RECORD = {
    "free": "32bc8205862cf541",
    "limited": "f7485c9d47d34daa",
    "own steps": "fe6c59981b1fd6a8",
    "alike": "37cae155e6b5af25",
}
"""Digests of plans by kind of batch, from the search as it was on 2026-12-01."""


def drawn_batch(kind: str, generator: np.random.Generator) -> Batch:
    """Draw tables that rise and fall, arms without evidence, and limits or own times."""
    num_scenes, num_routes = int(generator.integers(1, 9)), int(generator.integers(1, 31))
    shape = (num_scenes, num_routes, len(ARMS))
    total = generator.uniform(1.5, 128.0, num_scenes)
    rows = generator.dirichlet(np.ones(num_routes), num_scenes) * total[:, None]
    rows *= generator.random((num_scenes, num_routes)) < 0.9
    rows[:, 0] += 0.25
    total = rows.sum(axis=1)
    depth = np.array([arm.k for arm in ARMS], dtype=np.intp)
    tokens = 1 + depth * generator.uniform(0.05, 0.95, shape)
    tokens[:, :, 0] = 1.0
    allowed = generator.random(shape) < 0.85
    allowed[:, :, 0] = True
    step_s = np.cumsum(generator.exponential(1.0, (num_scenes, POINTS)) ** 3, axis=1)
    step_s = 0.02 + 0.0004 * step_s * generator.uniform(0.8, 1.2, step_s.shape)
    if kind == "alike":
        tokens, step_s = np.round(tokens), np.full_like(step_s, 0.02)
    limit_s = np.full(shape, np.inf)
    if kind == "limited":
        plain_s = step_s[:, 0, None, None]
        limit_s = np.maximum(plain_s, generator.uniform(0.8, 3.0, shape) * plain_s * tokens)
    own_s = np.zeros(shape)
    if kind == "own steps":
        own_s = generator.uniform(0.0, 0.002, shape)
    return Batch(
        loads=LOAD_LEVELS[:num_scenes],
        routes=(tuple(f"r{number}" for number in range(num_routes)),) * num_scenes,
        arms=ARMS,
        method=numbered([arm.method for arm in ARMS]),
        depth=depth,
        family=numbered([family_of(arm) for arm in ARMS]),
        allowed=allowed,
        rows=rows,
        tokens=rows[:, :, None] * tokens,
        positions=rows[:, :, None] * (1.0 + depth),
        own_s=own_s,
        limit_s=limit_s,
        step_s=step_s,
        step_from=total,
        step_per_position=(POINTS - 1) / (total * DEEPEST),
        draft_s=generator.uniform(0.0, 0.004, (num_scenes, 3, ROW_POINTS, DEEPEST + 1)),
        draft_per_row=(ROW_POINTS - 1) / np.maximum(total - 1, 0.5),
    )


@pytest.mark.parametrize("kind", RECORD)
def test_plans_of_drawn_batches_are_those_on_record(kind: str) -> None:
    generator = np.random.default_rng((20261201, list(RECORD).index(kind)))
    digest = hashlib.sha256()
    for _ in range(NUM_BATCHES):
        batch = drawn_batch(kind, generator)
        current = generator.integers(len(ARMS), size=batch.rows.shape)
        for start in (np.zeros_like(current), current):
            digest.update(best_plan(batch, start).astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == RECORD[kind]
