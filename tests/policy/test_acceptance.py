"""The right denominator, shrinkage, discounting, evidence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.records import AcceptanceRule, Method, load_level_of
from policy.acceptance import WINDOW_CAP_PASSES, AcceptanceModel
from policy.errors import InvalidInput
from policy.types import Evidence, Observation
from tests.policy.worlds import END_S, draft, lookup, observation, survival_of, window

DRAFT, LOOKUP = Method.DRAFT_MODEL, Method.PROMPT_LOOKUP


def learned(*observations: Observation) -> AcceptanceModel:
    return AcceptanceModel.empty().updated(window(observations))


def means(model: AcceptanceModel, route: str = "chat", depth: int = 3) -> list[float]:
    return [i.mean for i in model.curve(route, DRAFT, depth).conditional]


def test_only_the_run_of_accepted_tokens_counts() -> None:
    """Verdicts 1,0,1 / 1,1,1 / 0,1,0 at k = 3."""
    seen = Observation(
        route="chat",
        setting=draft(3),
        load=load_level_of(1),
        start_s=0.0,
        end_s=1.0,
        passes=3,
        verify_passes=3,
        drafted=9,
        accepted=4,
        tokens=7,
        attempts=(3, 2, 1),
        accepts=(2, 1, 1),
    )
    assert seen.acceptance_rate == pytest.approx(4 / 9)
    assert seen.acceptance_length == pytest.approx(7 / 3)
    shares = [kept / 3 for kept in seen.accepts]
    assert shares == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert sum(shares) == pytest.approx(7 / 3 - 1)


def test_passes_without_a_draft_lower_the_yield_and_not_the_acceptance() -> None:
    """10 passes, 4 drafted 3 tokens and had 3, 0, 2, 1 accepted."""
    seen = Observation(
        route="chat",
        setting=lookup(3),
        load=load_level_of(1),
        start_s=0.0,
        end_s=1.0,
        passes=10,
        verify_passes=4,
        drafted=12,
        accepted=6,
        tokens=16,
        attempts=(4, 3, 2),
        accepts=(3, 2, 1),
    )
    assert (seen.acceptance_rate, seen.acceptance_length) == (0.5, 2.5)
    assert (seen.tokens_per_pass, seen.coverage) == (1.6, 0.4)
    many = learned(*[seen] * 40).posterior("chat", LOOKUP)
    assert many.coverage == pytest.approx(0.4)
    assert many.tokens_per_pass()[3] == pytest.approx(1.6, abs=0.02)


def test_every_engine_has_one_definition() -> None:
    """10 verify steps of 3 drafts, 15 accepted, 25 tokens."""
    seen = replace(
        observation(draft(3), (0.8, 0.5, 0.2), passes=10), accepted=15, tokens=25, drafted=30
    )
    assert (seen.acceptance_length, seen.acceptance_rate) == (2.5, 0.5)
    assert seen.tokens_per_pass == 2.5


def test_the_yield_at_the_observed_length_is_the_observed_one() -> None:
    seen = observation(draft(3), (0.8, 0.5, 0.2))
    assert learned(seen).posterior("chat", DRAFT).tokens_per_pass()[:4] == pytest.approx(
        [1, 1.8, 2.3, 2.5], abs=0.01
    )


def test_a_varying_length_does_not_bias_the_hazards() -> None:
    hazards = (0.8, 0.6, 0.5, 0.4)
    survival = survival_of(hazards)
    model = learned(*(observation(draft(k), survival, passes=500 * k) for k in (1, 2, 4)))
    assert means(model, depth=4) == pytest.approx(hazards, abs=0.02)


def test_drafts_that_stop_short_of_k_are_not_counted_as_rejected() -> None:
    """Half the drafts hold one token only; each drafted token is accepted nine times in ten."""
    seen = Observation(
        route="chat",
        setting=lookup(2),
        load=load_level_of(1),
        start_s=0.0,
        end_s=1.0,
        passes=1000,
        verify_passes=1000,
        drafted=1500,
        accepted=1305,
        tokens=2305,
        attempts=(1000, 450),
        accepts=(900, 405),
    )
    belief = learned(seen).posterior("chat", LOOKUP)
    assert belief.alpha / (belief.alpha + belief.beta) == pytest.approx(0.9, abs=0.02)
    assert belief.tokens_per_pass()[2] == pytest.approx(2.305, abs=0.02)
    assert belief.positions_per_row(2) == pytest.approx(2.5, abs=0.01)


def test_a_new_route_starts_from_the_method_and_a_known_one_keeps_its_own() -> None:
    model = learned(
        observation(draft(2), survival_of((0.9, 0.9)), route="code"),
        observation(draft(2), survival_of((0.3, 0.3)), route="chat"),
    )
    assert means(model, "code", 2) == pytest.approx([0.9, 0.9], abs=0.02)
    assert means(model, "chat", 2) == pytest.approx([0.3, 0.3], abs=0.03)
    unseen = model.curve("new", DRAFT, 2)
    assert 0.4 < unseen.conditional[0].mean < 0.8
    assert (unseen.attempts, unseen.evidence) == ((0, 0), ())


def test_positions_without_evidence_carry_the_tail_on_with_a_wide_interval() -> None:
    curve = learned(observation(draft(2), survival_of((0.8, 0.7)))).curve("chat", DRAFT, 4)
    known, unknown = curve.conditional[1], curve.conditional[3]
    assert unknown.mean == pytest.approx(0.7, abs=0.05)
    assert unknown.high - unknown.low > 5 * (known.high - known.low)
    assert curve.attempts[2:] == (0, 0)


def test_depth_ends_where_too_few_passes_asked() -> None:
    model = learned(
        observation(draft(2), (0.8, 0.5), passes=100),
        observation(draft(5), (0.8, 0.5, 0.2, 0.1, 0.0), passes=10),
    )
    assert model.depth("chat", DRAFT) == 2
    assert model.depth("chat", DRAFT, min_passes=5) == 5
    assert model.depth("other", DRAFT) == 0


def test_positions_that_nothing_reaches_are_evidence_all_the_same() -> None:
    model = learned(observation(draft(8), (0.5,) + (0.0,) * 7))
    assert model.depth("chat", DRAFT) == 8
    assert model.posterior("chat", DRAFT).tokens_per_pass()[8] == pytest.approx(1.5, abs=0.02)


def test_half_the_weight_is_left_after_a_half_life() -> None:
    model = AcceptanceModel.empty(600.0, {"slow": 6000.0})
    seen = [observation(draft(1), (0.5,), route=route, passes=100) for route in ("chat", "slow")]
    faded = model.updated(window(seen)).faded_to(END_S + 600)
    assert faded.curve("chat", DRAFT, 1).attempts == (50,)
    assert faded.curve("slow", DRAFT, 1).attempts[0] == pytest.approx(100 * 2**-0.1)


def test_a_late_window_counts_as_if_it_had_come_in_time() -> None:
    early = window([observation(draft(1), (0.5,), passes=100)], end_s=END_S - 900)
    late = window([observation(draft(1), (0.9,), passes=80)], end_s=END_S)
    in_order = AcceptanceModel.empty().updated(early).updated(late)
    swapped = AcceptanceModel.empty().updated(late).updated(early)
    assert swapped.curve("chat", DRAFT, 1) == in_order.curve("chat", DRAFT, 1)


def test_a_burst_counts_for_no_more_than_the_cap() -> None:
    curve = learned(observation(draft(1), (0.5,), passes=1_000_000_000)).curve("chat", DRAFT, 1)
    assert curve.attempts == (WINDOW_CAP_PASSES,)


def test_evidence_has_its_own_weight_and_is_named() -> None:
    kinds = {Evidence.REPLAY: 0.5, Evidence.COUNTERFACTUAL: 0.3, Evidence.LIVE: 1.0}
    for kind, weight in kinds.items():
        model = learned(observation(draft(1), (0.5,), passes=100, evidence=kind))
        curve = model.curve("chat", DRAFT, 1)
        assert curve.attempts[0] == pytest.approx(100 * weight)
        assert curve.evidence == (kind,)


def test_scoring_every_length_on_the_same_tokens_counts_them_once() -> None:
    kind = Evidence.COUNTERFACTUAL
    one = learned(observation(lookup(1), (0.5,), passes=100, evidence=kind))
    four = learned(
        *(observation(lookup(k), (0.5,) * k, passes=100, evidence=kind) for k in (1, 2, 3, 4))
    )
    first = [model.curve("chat", LOOKUP, 1).attempts[0] for model in (one, four)]
    assert first[1] == pytest.approx(first[0])


def test_settings_of_one_method_keep_their_rule_apart() -> None:
    matched = replace(draft(1), rule=AcceptanceRule.TOKEN_MATCH)
    model = learned(observation(draft(1), (0.9,)), observation(matched, (0.4,)))
    shown = [model.curve("chat", s, 1).conditional[0].mean for s in (draft(4), matched)]
    assert shown == pytest.approx([0.9, 0.4], abs=0.03)
    assert model.curve("chat", DRAFT, 1).conditional[0].mean == pytest.approx(0.65, abs=0.02)


def test_greedy_and_sampled_rows_can_be_asked_for_apart() -> None:
    model = learned(
        replace(observation(draft(1), (0.9,)), is_greedy=True),
        replace(observation(draft(1), (0.5,)), is_greedy=False),
    )
    shown = [
        model.curve("chat", DRAFT, 1, greedy).conditional[0].mean for greedy in (True, False, None)
    ]
    assert shown == pytest.approx([0.9, 0.5, 0.7], abs=0.03)


IMPOSSIBLE = {
    "a count is negative": {"passes": -1, "verify_passes": -1},
    "a count is not a number": {"drafted": math.nan},
    "200 verify passes in 100 passes": {"verify_passes": 200},
    "2 positions attempted and 1 accepted": {"attempts": (100, 50), "accepts": (50,)},
    "accepted more often than attempted": {"attempts": (100, 50), "accepts": (50, 60)},
    "attempted more often than the one before": {"attempts": (100, 60), "accepts": (50, 20)},
    "no counts by position": {"attempts": (), "accepts": ()},
    "101 first attempts in 100 passes": {"attempts": (101,), "accepts": (50,)},
}


@pytest.mark.parametrize(("reason", "wrong"), IMPOSSIBLE.items(), ids=list(IMPOSSIBLE))
def test_impossible_observations_are_left_out_by_name(
    reason: str, wrong: dict[str, object]
) -> None:
    good = observation(draft(2), (0.5, 0.2), passes=100)
    bad = replace(good, **wrong)  # type: ignore[arg-type]
    model = learned(good, bad)
    assert model.curve("chat", DRAFT, 2) == learned(good).curve("chat", DRAFT, 2)
    assert len(model.ignored) == 1
    assert reason in model.ignored[0]


def test_a_window_that_ends_at_no_time_is_left_out_by_name() -> None:
    model = AcceptanceModel.empty().updated(window([observation(draft(1), (0.5,))], end_s=math.nan))
    assert "window ends at nan" in model.ignored[0]
    assert model.depth("chat", DRAFT) == 0


def test_impossible_questions_are_named() -> None:
    with pytest.raises(InvalidInput, match="half-life must be above 0 seconds, got 0"):
        AcceptanceModel.empty(0)
    with pytest.raises(InvalidInput, match="depth must be 1 to 16, got 17"):
        AcceptanceModel.empty().curve("chat", DRAFT, 17)


COUNTS = st.integers(0, 10**9)


@given(counts=st.lists(COUNTS, min_size=1, max_size=16), ages=st.lists(st.floats(0, 1e9)))
def test_means_stay_inside_the_open_range_and_fading_never_adds(
    counts: list[int], ages: list[float]
) -> None:
    chain = sorted([*counts, *counts], reverse=True)
    attempts, accepts = tuple(chain[::2]), tuple(chain[1::2])
    seen = replace(
        observation(draft(len(counts)), (0.0,) * len(counts), passes=chain[0]),
        attempts=attempts,
        accepts=accepts,
    )
    model = learned(seen)
    assert not model.ignored
    depth = len(counts)
    before = model.curve("chat", DRAFT, depth)
    for age in ages:
        model = model.faded_to(END_S + age)
        after = model.curve("chat", DRAFT, depth)
        assert all(new <= old for new, old in zip(after.attempts, before.attempts, strict=True))
        assert all(0 < i.low <= i.mean <= i.high <= 1 and i.mean < 1 for i in after.conditional)
        before = after


def test_draws_spread_around_the_mean() -> None:
    belief = learned(observation(draft(3), (0.8, 0.5, 0.2), passes=200)).posterior("chat", DRAFT)
    draws = belief.sampled_tokens_per_pass(np.random.default_rng(0), 20_000)
    assert draws.mean(axis=0) == pytest.approx(belief.tokens_per_pass(), abs=0.01)
    assert draws[:, 0].std() == 0
    assert 0.02 < draws[:, 3].std() < 0.15
