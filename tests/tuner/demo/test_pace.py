import pytest

from tuner.demo.client import ClientTrace
from tuner.demo.pace import Budget, pace_s


def answered(seconds: float, tokens: int) -> ClientTrace:
    return ClientTrace(route="chat", duration_s=seconds, completion_tokens=tokens)


def test_the_pace_is_that_of_the_fastest_quarter() -> None:
    traces = [answered(2, 100), *[answered(500, 100)] * 3, answered(9, 0)]

    assert pace_s(traces) == pytest.approx(0.02)


def test_without_answers_there_is_no_pace() -> None:
    assert pace_s([answered(1, 0)]) is None


@pytest.mark.parametrize(
    ("pace", "prompts"), [(None, 4), (0.001, 20), (0.024, 15), (0.05, 7), (1.0, 4)]
)
def test_as_many_prompts_are_asked_as_the_time_allows(pace: float | None, prompts: int) -> None:
    budget = Budget(seconds=60, answers=4, tokens=40, fewest=4, most=20)

    assert budget.prompts(pace) == prompts
