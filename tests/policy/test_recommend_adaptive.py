"""An adaptive Setting is recommended where it was seen to pay, and explained in plain words."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.records import OFF, DecodeStep, DraftCost
from policy.simulate.folding import window_of_steps
from policy.types import Advice, Evidence, Window
from policy.wording import adaptive_reason
from tests.fixtures.facts import group, step
from tests.policy.test_adaptive import ARM, BUSY, QUIET, adaptive, fixed
from tests.policy.test_recommend import asked
from tests.policy.worlds import END_S, draft, draft_costs, mix, step_costs, window

ARMS = (draft(1), draft(3), ARM)


def step_s(rows: int, positions: int) -> float:
    """Flat to 40 positions, then in proportion."""
    return 0.01 * max(1.0, positions / 40)


def drafting_s(rows: int, depth: int) -> float:
    return 0.0002 * depth


def world() -> Window:
    """The engine drafts five tokens at four rows; at 32 rows it was never asked to."""
    return window(
        [adaptive(QUIET, 5, 0.85), fixed(0.75)],
        [cost for rows in (4, 32) for cost in step_costs(step_s, rows, range(8))],
        draft_costs(drafting_s, (4, 32), (1, 3, 5)),
        [mix({"chat": 4.0}), mix({"chat": 32.0})],
    )


def test_an_adaptive_setting_is_proposed_at_loads_where_it_was_seen_and_no_others() -> None:
    (found,) = asked([world()], OFF, ARMS)
    proposed = {change.load: change.proposed for change in found.changes}
    assert found.advice is Advice.CHANGE
    assert proposed[QUIET] == ARM
    assert proposed[BUSY] != ARM
    (change,) = (change for change in found.changes if change.load == QUIET)
    assert change.tokens_per_pass.mean == pytest.approx(1 + sum(0.85**n for n in range(1, 6)), 0.02)


def test_it_is_explained_by_its_ceiling_and_what_was_cut() -> None:
    (found,) = asked([world()], OFF, ARMS)
    words = adaptive_reason(ARM, [(QUIET, 5.0)])
    assert words in found.reasons
    assert "drafts 7 tokens at most" in words
    assert "mean length 5.0 at load 3-4 (29% cut)" in words
    wish = "A replay of draft_model adaptive with k 7 on chat"
    assert any(said.startswith(wish) for said in found.would_change_mind)


def test_its_curve_is_not_shown_as_that_of_the_method() -> None:
    (found,) = asked([world()], OFF, ARMS)
    (curve,) = found.curves
    assert curve.conditional[0].mean == pytest.approx(0.75, abs=0.02)
    assert set(curve.evidence) == {Evidence.LIVE}


def engine_step(number: int, generator: np.random.Generator) -> DecodeStep:
    """Return a step of four rows of which the engine ended each draft elsewhere."""
    drafted = generator.integers(0, 6, size=4).tolist()
    kept = [int(np.argmin(np.append(generator.random(k) < 0.9, False))) for k in drafted]
    outcomes = tuple((k, a, 1) for k, a in zip(drafted, kept, strict=True))
    cost = DraftCost(method=ARM.method, rows=4, tokens=sum(drafted), depth=5, seconds=0.001)
    return step(
        number,
        END_S - 1,
        (group(setting=ARM, outcomes=outcomes),),
        drafts=(cost,),
        verify_s=step_s(4, 4 + sum(drafted)),
        sample_s=0.0,
        other_s=0.0,
    )


def engine_window() -> Window:
    generator = np.random.default_rng(0)
    steps = [engine_step(number, generator) for number in range(1, 401)]
    return window_of_steps(steps, END_S - 60, END_S, 512)


def test_steps_of_an_engine_that_ends_each_draft_elsewhere_are_learned() -> None:
    plain = window(costs=step_costs(step_s, 4, (0,)))
    shown = engine_window()
    (found,) = asked([plain, shown], ARM, ARMS)
    (change,) = found.changes
    (seen,) = shown.observations
    assert change.current == change.proposed == ARM
    assert seen.tokens_per_pass == pytest.approx(change.tokens_per_pass.mean, rel=0.02)
    assert adaptive_reason(ARM, [(QUIET, seen.drafted / seen.passes)]) in found.reasons
