"""An envelope says exactly what the control loop may do, and refuses bounds that mean nothing."""

import pytest

from collectors.records import OFF, Method, load_level_of
from policy.envelope import Envelope
from policy.errors import InvalidInput
from tests.fixtures.facts import DRAFT_3, LOOKUP_5


def envelope(**changes: object) -> Envelope:
    plain: dict[str, object] = {
        "route": "chat",
        "methods": frozenset({Method.DRAFT_MODEL}),
        "max_k": 4,
        "expires_s": 100.0,
    }
    return Envelope(**{**plain, **changes})  # type: ignore[arg-type]


def test_off_is_within_every_envelope():
    assert envelope().refusal_reason(OFF) is None


def test_a_method_that_is_not_named_is_outside():
    assert envelope().refusal_reason(DRAFT_3) is None
    assert envelope().refusal_reason(LOOKUP_5) == (
        f"{LOOKUP_5.label}: prompt_lookup is not among the methods allowed"
    )


def test_a_longer_draft_is_outside():
    assert envelope(max_k=2).refusal_reason(DRAFT_3) == "draft_model k=3 drafts more than 2 tokens"
    assert envelope(max_k=3).within((OFF, DRAFT_3, LOOKUP_5)) == (OFF, DRAFT_3)


def test_only_named_load_levels_are_covered_and_all_where_none_is_named():
    one, two = load_level_of(1), load_level_of(2)
    assert envelope().covers(two)
    assert envelope(loads=(one,)).covers(one)
    assert not envelope(loads=(one,)).covers(two)


def test_it_is_void_from_its_expiry_on():
    assert not envelope().is_expired(99.9)
    assert envelope().is_expired(100.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"route": ""}, "an envelope needs the name of a route"),
        ({"methods": frozenset({Method.OFF})}, "allows no method but off"),
        ({"expires_s": float("inf")}, "an envelope needs a moment of expiry, got inf"),
        ({"max_k": 0}, "max_k must be 1 to 64, got 0"),
        ({"exploring_share": 0.2}, "exploring_share must be 0 to 0.1, got 0.2"),
        ({"exploring_share": float("nan")}, "exploring_share must be 0 to 0.1, got nan"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(changes: dict[str, object], message: str):
    with pytest.raises(InvalidInput, match=message):
        envelope(**changes)
