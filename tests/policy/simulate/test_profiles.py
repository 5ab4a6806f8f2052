"""Hardware profiles give the stated figures."""

import numpy as np
import pytest

from policy.errors import InvalidInput
from policy.simulate.profiles import UNIT_S, Drafting, DraftTime, Profile, profile_named


def units(name: str, positions: int, context: float = 0.0) -> float:
    return float(profile_named(name).step_table_s(8, context)[positions]) / UNIT_S


@pytest.mark.parametrize(
    ("positions", "expected"),
    [(1, 1.0128), (16, 1.0128), (17, 1.0256), (128, 1.1024), (129, 1.2176), (256, 2.024)],
)
def test_the_gpu_is_padded_to_16_with_a_knee_at_128(positions: int, expected: float) -> None:
    assert units("gpu", positions) == pytest.approx(expected)


def test_the_cpu_is_not_monotone_and_goes_on_by_its_last_slope() -> None:
    assert units("cpu", 4) == pytest.approx(1.86)
    assert units("cpu", 3) > units("cpu", 4)
    assert units("cpu", 48) == pytest.approx(5.22 + (5.22 - 3.52))


def test_a_mixture_of_experts_pays_from_the_second_row() -> None:
    assert units("moe", 1) == pytest.approx(units("gpu", 1))
    assert units("moe", 2) / units("moe", 1) > 1.4
    assert units("moe", 40) / units("moe", 1) > 2.5


def test_context_costs_what_reading_it_costs() -> None:
    assert units("gpu", 8, 125_000) - units("gpu", 8) == pytest.approx(1.0)


def test_drafting_costs_by_position_or_once() -> None:
    profile = profile_named("gpu")
    rows, depth = np.array([10]), np.array([3])
    assert profile.draft_s(Drafting.MODEL, rows, depth)[0] == pytest.approx(3 * 0.055 * UNIT_S)
    assert profile.draft_s(Drafting.ONE_PASS, rows, depth)[0] == pytest.approx(0.165 * UNIT_S)
    assert profile.draft_s(Drafting.LOOKUP, rows, depth)[0] == 0


def test_a_measured_table_over_rows_and_context_is_interpolated() -> None:
    measured = Profile(
        name="measured",
        rows=np.array([1.0, 3.0]),
        positions=np.array([1.0, 5.0]),
        context_tokens=np.array([0.0, 100.0]),
        seconds=np.array([[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]),
        drafts={Drafting.MODEL: DraftTime(fixed_s=0.1)},
    )
    assert measured.step_table_s(2, 50.0)[3] == pytest.approx(4.5)


@pytest.mark.parametrize(("name", "tax"), [("tpu", 0.0), ("gpu", -0.1), ("gpu", float("nan"))])
def test_what_cannot_be_is_refused(name: str, tax: float) -> None:
    with pytest.raises(InvalidInput):
        profile_named(name, tax)
