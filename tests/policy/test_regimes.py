"""A route that comes back to an old behaviour is recognised, whatever method shows it."""

import math

import numpy as np
import pytest

from policy.regimes import MAX_REGIMES, PATIENCE, Regimes, _assign
from policy.tally import family_of, tally_of
from policy.types import Observation, Window
from tests.policy.worlds import END_S, draft, lookup, observation, survival_of

DRAFT, LOOKUP = family_of(draft(1)), family_of(lookup(1))
PRIORS = {
    (route, family): np.full(16, 0.5)
    for route in ("chat", "code", "talk")
    for family in (DRAFT, LOOKUP)
}
REACH = np.ones(16)


def seen(first: float, *, is_lookup: bool = False, route: str = "chat") -> Observation:
    setting = lookup(7) if is_lookup else draft(3)
    hazards = [first] * setting.k
    return observation(setting, survival_of(hazards), route=route, passes=300)


def show(regimes: Regimes, *observations: Observation, times: int = 1) -> set[str]:
    changed: set[str] = set()
    for _ in range(times):
        changed = regimes.observe(
            Window(start_s=END_S - 1, end_s=END_S, observations=observations), PRIORS
        )
    return changed


def lookup_tokens(regimes: Regimes, route: str = "chat") -> float:
    prior = PRIORS[route, LOOKUP]
    return float(regimes.mean_tokens(route, LOOKUP, prior, REACH)[7])


def tokens_at(first: float) -> float:
    return 1 + sum(survival_of([first] * 7))


def taught() -> Regimes:
    """A route that was easy and hard for both methods."""
    regimes = Regimes()
    show(regimes, seen(0.9), seen(0.9, is_lookup=True), times=10)
    show(regimes, seen(0.5), seen(0.2, is_lookup=True), times=10)
    return regimes


def test_one_method_tells_of_the_other_when_a_behaviour_returns() -> None:
    regimes = taught()
    assert lookup_tokens(regimes) == pytest.approx(tokens_at(0.2), rel=0.25)

    show(regimes, seen(0.9))

    assert lookup_tokens(regimes) == pytest.approx(tokens_at(0.9), rel=0.15)


def test_a_change_is_reported_once() -> None:
    regimes = taught()
    assert show(regimes, seen(0.9)) == {"chat"}
    assert show(regimes, seen(0.9)) == set()


def test_what_was_never_seen_becomes_a_new_regime_at_once() -> None:
    regimes = taught()

    changed = show(regimes, seen(0.05))

    assert changed == {"chat"}
    assert regimes.mean_tokens("chat", DRAFT, PRIORS["chat", DRAFT], REACH)[3] < 1.3


def taken_over() -> Regimes:
    """A route found to draft as another one does, on which lookup always hits."""
    regimes = taught()
    show(regimes, seen(0.72, route="code"), seen(0.97, is_lookup=True, route="code"), times=10)
    show(regimes, seen(0.72), times=2)
    return regimes


def test_another_routes_behaviour_is_taken_over_with_all_its_methods() -> None:
    regimes = taken_over()
    assert tokens_at(0.85) > lookup_tokens(regimes) > tokens_at(0.7)

    show(regimes, seen(0.97, is_lookup=True))

    assert lookup_tokens(regimes) == pytest.approx(tokens_at(0.97), rel=0.1)


def test_what_was_taken_over_gives_way_to_the_first_window_that_says_otherwise() -> None:
    regimes = taken_over()

    changed = show(regimes, seen(0.1, is_lookup=True))

    assert changed == set()
    assert lookup_tokens(regimes) < tokens_at(0.3)
    show(regimes, seen(0.72))
    assert lookup_tokens(regimes) < tokens_at(0.3)


def test_a_behaviour_that_two_other_routes_share_is_recognised_too() -> None:
    regimes = Regimes()
    bad = [seen(0.1, is_lookup=True, route=route) for route in ("code", "talk")]
    show(regimes, seen(0.9, is_lookup=True), *bad, times=10)

    show(regimes, seen(0.1, is_lookup=True), *bad, times=3)

    assert lookup_tokens(regimes) < tokens_at(0.3)
    easy = max(regimes.of("chat").regimes, key=lambda regime: regime.beta(LOOKUP, np.ones(1))[0, 0])
    accepts, rejects = easy.counts[LOOKUP][:, 0]
    assert accepts / (accepts + rejects) > 0.8


def test_what_was_not_tried_for_long_is_doubted_a_little() -> None:
    generator = np.random.default_rng(2)
    guesses = {LOOKUP: (PRIORS["chat", LOOKUP], REACH)}
    for stale_windows, is_doubted in ((30.0, False), (5.0, True)):
        regimes = Regimes(stale_windows)
        show(regimes, seen(0.8), seen(0.1, is_lookup=True), times=10)
        show(regimes, seen(0.8), times=10)
        drawn = regimes.drawn_tokens("chat", guesses, generator, 2000, is_next=False)[LOOKUP][:, 1]
        assert (np.mean(drawn > 1.5) > 0.01) == is_doubted
        assert np.median(drawn) < 1.25


def test_a_route_learns_of_another_method_while_it_is_not_sure_what_it_shows() -> None:
    regimes = Regimes()
    show(regimes, seen(0.8), times=10)
    regimes.of("chat").strangeness = 0.8

    show(regimes, seen(0.95, is_lookup=True), times=30)

    assert lookup_tokens(regimes) == pytest.approx(tokens_at(0.95), rel=0.1)


def test_no_regime_is_surely_in_force_while_strangers_are_likely() -> None:
    regimes = Regimes()
    show(regimes, seen(0.8), times=10)
    state = regimes.of("chat")
    assert state.surely() is state.regimes[0]
    state.strangeness = 0.8
    assert state.surely() is None


def test_windows_that_belong_to_none_for_long_go_to_the_likeliest_regime() -> None:
    regimes = Regimes()
    show(regimes, seen(0.8), times=10)
    state = regimes.of("chat")
    state.strangeness, before = 0.9, state.regimes[0].windows
    scaled = {DRAFT: (tally_of(seen(0.8)), 1.0)}
    for _ in range(PATIENCE):
        _assign(state, scaled, {DRAFT: PRIORS["chat", DRAFT]}, math.inf)
    assert state.regimes[0].windows == before
    _assign(state, scaled, {DRAFT: PRIORS["chat", DRAFT]}, math.inf)
    assert state.regimes[0].windows == before + 1


def test_nothing_is_learned_for_ever_by_none_of_two_strangers_alike() -> None:
    """Both fit a little better than what is known, so that neither ever leads."""
    regimes = Regimes()
    others = [seen(0.75, route=route) for route in ("code", "talk")]
    show(regimes, seen(0.70), *others, times=40)

    show(regimes, seen(0.75), *others, times=40)

    prior = PRIORS["chat", DRAFT]
    tokens = regimes.mean_tokens("chat", DRAFT, prior, REACH)[3]
    assert tokens == pytest.approx(1 + sum(survival_of([0.75] * 3)), rel=0.02)


def test_where_every_window_is_another_the_prediction_is_the_mean() -> None:
    regimes, generator = Regimes(), np.random.default_rng(0)
    for first in generator.choice([0.2, 0.9], size=400):
        show(regimes, seen(float(first)))

    tokens = regimes.mean_tokens("chat", DRAFT, PRIORS["chat", DRAFT], REACH)[3]

    mean = (sum(survival_of([0.2] * 3)) + sum(survival_of([0.9] * 3))) / 2
    assert tokens == pytest.approx(1 + mean, rel=0.12)


def test_two_halves_of_one_behaviour_become_one_regime() -> None:
    regimes = Regimes()
    show(regimes, seen(0.9), times=5)
    for _ in range(4):
        show(regimes, seen(0.3, is_lookup=True))
        show(regimes, seen(0.9))

    assert show(regimes, seen(0.3, is_lookup=True)) == set()
    tokens = regimes.mean_tokens("chat", DRAFT, PRIORS["chat", DRAFT], REACH)[3]
    assert tokens == pytest.approx(1 + sum(survival_of([0.9] * 3)), rel=0.1)


def test_regimes_stay_few_and_chances_stay_chances() -> None:
    regimes, generator = Regimes(), np.random.default_rng(1)
    for first in generator.uniform(0.02, 0.98, size=150):
        show(regimes, seen(float(first)))
    state = regimes._routes["chat"]
    assert len(state.regimes) <= MAX_REGIMES
    assert state.chances.sum() == pytest.approx(1)
    assert state.ahead().sum() == pytest.approx(1)


def test_draws_scatter_around_the_mean_and_narrow_with_evidence() -> None:
    few, many = Regimes(), Regimes()
    show(few, seen(0.7))
    show(many, seen(0.7), times=30)
    spreads = []
    for regimes in (few, many):
        guesses = {DRAFT: (PRIORS["chat", DRAFT][:3], REACH[:3])}
        generator = np.random.default_rng(2)
        drawn = regimes.drawn_tokens("chat", guesses, generator, 2000, is_next=True)[DRAFT][:, 3]
        mean = regimes.mean_tokens("chat", DRAFT, PRIORS["chat", DRAFT][:3], REACH[:3])[3]
        assert drawn.mean() == pytest.approx(mean, rel=0.05)
        spreads.append(drawn.std())
    assert spreads[1] < spreads[0] / 2


@pytest.mark.parametrize("passes", [1, 10**9])
def test_any_number_of_passes_leaves_numbers(passes: int) -> None:
    regimes = Regimes()
    for first in (0.0, 1.0, 0.5):
        one = observation(draft(3), survival_of([first] * 3), passes=passes)
        show(regimes, one)
    assert np.all(np.isfinite(regimes.mean_tokens("chat", DRAFT, PRIORS["chat", DRAFT], REACH)))
