"""Features are used where data support them, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from collectors.records import OFF
from policy.acceptance_features import FEATURES, RequestSample, checked
from policy.types import FeatureCheck
from tests.policy.test_recommend import asked, only, priced
from tests.policy.worlds import END_S, draft, survival_of

FAMILY = draft(1)
WINDOW_S = 60.0


def samples(
    seed: int,
    log_odds: Callable[[float, float], float],
    count: int = 600,
    route: str = "chat",
    late_temperature: float | None = None,
) -> list[RequestSample]:
    """Requests of twenty windows whose tokens are really tossed; windows scatter among each other.

    Args:
        seed: of the tosses.
        log_odds: of acceptance, by temperature and octaves of context.
        count: requests.
        route: their route.
        late_temperature: temperature of the newest quarter; None for any.
    """
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.15, 20)
    found = []
    for number in range(count):
        window = number * 20 // count
        temperature = float(rng.choice([0.0, 0.5, 1.0]))
        if late_temperature is not None and number >= 0.75 * count:
            temperature = late_temperature
        octaves = float(rng.uniform(6, 12))
        chance = special.expit(log_odds(temperature, octaves) + noise[window])
        kept = [15]
        for _ in range(3):
            kept.append(int(rng.binomial(kept[-1], chance)))
        found.append(
            RequestSample(
                route=route,
                setting=draft(3),
                end_s=END_S - WINDOW_S * (20 - window),
                temperature=temperature,
                context_tokens=round(2**octaves),
                has_grammar=False,
                attempts=tuple(kept[:3]),
                accepts=tuple(kept[1:]),
            )
        )
    return found


def check_of(found: list[RequestSample]) -> FeatureCheck:
    return checked(found, window_s=WINDOW_S, now_s=END_S, recent_s=300.0)[FAMILY]


def hot(temperature: float, octaves: float) -> float:
    return 1.5 - 1.2 * temperature


def flat(temperature: float, octaves: float) -> float:
    return 1.0


def test_an_effect_of_temperature_is_found_and_measured() -> None:
    check = check_of(samples(1, hot))
    assert check.why_not is None
    assert check.gain is not None
    assert check.gain.low > 0
    assert check.odds_by_feature["temperature"] == pytest.approx(np.exp(-1.2), rel=0.2)
    assert check.odds_by_feature["context_octaves"] == pytest.approx(1.0, abs=0.05)
    assert tuple(check.odds_by_feature) == FEATURES


def test_what_it_predicts_on_held_out_windows_is_what_was_counted() -> None:
    rows = check_of(samples(2, hot)).reliability
    assert len(rows) >= 4
    assert rows[-1].predicted - rows[0].predicted > 0.2
    assert all(abs(row.predicted - row.counted) < 0.05 for row in rows)


def test_without_an_effect_features_are_hardly_ever_used() -> None:
    """A test at 95 % errs once in twenty; 6 of 40 has a chance below 2 %."""
    used = [check_of(samples(seed, flat, 200)).why_not is None for seed in range(40)]
    assert sum(used) < 6
    refused = check_of(samples(0, flat, 200))
    assert refused.why_not == "it predicts held-out windows no better than the rates"
    assert refused.odds_by_feature == {}
    assert refused.shift_by_route == {}


def test_routes_that_differ_are_no_effect_of_their_temperatures() -> None:
    """One route is cold and easy, the other hot and hard: within each nothing differs."""
    cold = [replace(one, temperature=0.0) for one in samples(3, lambda t, o: 2.0)]
    warm = [replace(one, temperature=1.0) for one in samples(4, lambda t, o: -1.0, route="code")]
    check = check_of([*cold, *warm])
    assert check.odds_by_feature.get("temperature", 1.0) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (samples(0, hot, 99), "99 requests are fewer than 100"),
        (
            [replace(one, end_s=END_S) for one in samples(0, hot, 120)],
            "1 windows are fewer than 12",
        ),
        (
            [replace(one, temperature=0.0, context_tokens=64) for one in samples(0, hot, 120)],
            "all requests are alike in temperature, context length and grammar",
        ),
    ],
)
def test_too_little_is_said_and_not_tried(found: list[RequestSample], why: str) -> None:
    check = check_of(found)
    assert check.why_not == why
    assert check.gain is None


def test_requests_without_a_draft_are_left_out() -> None:
    idle = [replace(one, attempts=(), accepts=()) for one in samples(0, hot, 200)]
    assert checked(idle, window_s=WINDOW_S, now_s=END_S, recent_s=300.0) == {}


def test_a_route_that_turned_hot_is_expected_to_accept_less() -> None:
    """It was asked at all temperatures, lately at 1 only: 0.6 hotter than its mean or less."""
    check = check_of(samples(5, hot, late_temperature=1.0))
    assert check.shift_by_route["chat"] == pytest.approx(-1.2 * 0.375, abs=0.1)


def test_a_shift_moves_what_is_recommended() -> None:
    usual = FeatureCheck(requests=100, windows=20)
    cooler = replace(usual, shift_by_route={"chat": -1.0})
    (kept,) = asked([priced(0.2)], OFF, (draft(1),), features={FAMILY: usual})
    (moved,) = asked([priced(0.2)], OFF, (draft(1),), features={FAMILY: cooler})
    odds = 0.8 / 0.2
    fewer = odds * np.exp(-1) / (1 + odds * np.exp(-1))
    assert only([kept]).tokens_per_pass.mean == pytest.approx(1 + survival_of((0.8,))[0], abs=0.01)
    assert only([moved]).tokens_per_pass.mean == pytest.approx(1 + fewer, abs=0.01)
    assert moved.features[FAMILY.method].shift_by_route == {"chat": -1.0}
