"""Trials are drawn by the chances that are said, and a draw can be made again."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.records import OFF, Plan, load_level_of
from policy.explore import win_shares
from policy.lottery import chances_of, drawn
from policy.types import Evidence, Trial
from tests.policy.worlds import draft

ONE, TWO = load_level_of(1), load_level_of(2)


def trial(k: int, win_share: float, load: object = ONE) -> Trial:
    return Trial(
        setting=draft(k),
        by=Evidence.LIVE,
        load=load,  # type: ignore[arg-type]
        most_gain=0.1,
        most_token_share=0.02,
        win_share=win_share,
    )


CANDIDATES = (
    ("chat", trial(3, 0.3)),
    ("chat", trial(5, 0.2)),
    ("story", trial(3, 0.8, TWO)),
)


def test_chances_are_shares_of_wins_over_the_places_and_the_rest_stays():
    chat, story = chances_of(CANDIDATES, Plan(), (OFF, draft(3), draft(7)))

    assert (chat.route, chat.load, story.route, story.load) == ("chat", ONE, "story", TWO)
    assert dict(chat.arms) == pytest.approx(
        {OFF: 0.75, draft(3): 0.15, draft(5): 0.1, draft(7): 0.0}
    )
    assert dict(story.arms) == pytest.approx({OFF: 0.6, draft(3): 0.4, draft(7): 0.0})
    assert chat.arms[0][0] == OFF


def test_what_is_drawn_is_as_frequent_as_its_chance_says():
    chances = chances_of(CANDIDATES, Plan(), ())
    made = [drawn(chances, seed) for seed in range(20_000)]

    for place, setting, want in (
        (("chat", ONE), draft(3), 0.15),
        (("chat", ONE), draft(5), 0.1),
        (("story", TWO), draft(3), 0.4),
    ):
        assert made.count((place, setting)) / 20_000 == pytest.approx(want, abs=0.015)
    assert made.count(None) / 20_000 == pytest.approx(0.35, abs=0.015)


def test_the_same_seed_draws_the_same():
    chances = chances_of(CANDIDATES, Plan(), ())

    assert [drawn(chances, seed) for seed in range(50)] == [
        drawn(chances, seed) for seed in range(50)
    ]


def test_nothing_proposed_draws_nothing():
    assert drawn((), 3) is None


def test_an_arm_wins_as_often_as_it_gains_most_what_stands_included():
    generator = np.random.default_rng(1)
    standing = generator.normal(0.0, 1.0, 40_000)
    gains = {4: generator.normal(0.0, 1.0, 40_000), 7: generator.normal(-9.0, 1.0, 40_000)}

    shares = win_shares(standing, gains)

    assert shares[4] == pytest.approx(0.5, abs=0.02)
    assert shares[7] == 0.0
