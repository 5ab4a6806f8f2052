from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.records import DecodeStep, DraftCost, Method, Setting, StepGroup, StepOutcome
from tuner.bench.figures import Figures, Sums, figures_of, sums_of
from tuner.bench.questions import Encoded
from tuner.bench.turns import Turn

K = 3
SETTING = Setting(method=Method.DRAFT_MODEL, k=K)


def turn(
    accepted: Sequence[int],
    *,
    drafted: int = K,
    draft_s: float = 0.006,
    verify_s: float = 0.024,
    plain_s: float | None = 0.02,
    names: Sequence[str] = ("rag",),
) -> Turn:
    """A step of as many rows as there are accepted counts, each of the question of its name."""
    cost = DraftCost(
        method=Method.DRAFT_MODEL, rows=len(accepted), tokens=K, depth=K, seconds=draft_s
    )
    rows = list(zip(names, accepted, strict=True))
    groups = tuple(
        StepGroup(
            route=route,
            setting=SETTING,
            tokens=sum(num + 1 for name, num in rows if name == route),
            outcomes=tuple(
                StepOutcome(drafted=drafted, accepted=num, rows=1)
                for name, num in rows
                if name == route
            ),
        )
        for route in dict.fromkeys(names)
    )
    step = DecodeStep(
        seq=1,
        at=0.0,
        plan_digest="",
        running=len(accepted),
        waiting=0,
        positions=0,
        prefill_tokens=0,
        context_tokens=0,
        verify_s=verify_s,
        sample_s=0.0,
        other_s=0.0,
        drafts=(cost,),
        groups=groups,
    )
    return Turn(step=step, plain_s=plain_s)


def question(name: str) -> Encoded:
    return Encoded(name=name, category=name.split()[0], token_ids=(1,))


def alone(accepted: Sequence[int], name: str = "rag", **given: float | None) -> Sums:
    turns = [turn([num], names=[name], **given) for num in accepted]  # type: ignore[arg-type]
    (sums,) = sums_of([question(name)], turns)
    return sums


def figures(sums: Sequence[Sums], categories: Sequence[str] | None = None) -> Figures:
    found = figures_of(sums, K, categories)
    assert found is not None
    return found


def test_tokens_per_pass_and_acceptance_are_counted_from_outcomes() -> None:
    found = figures([alone([3, 1, 0, 2])])

    assert found.tokens_per_pass == pytest.approx(1 + 6 / 4)
    assert found.acceptance_by_position == pytest.approx((3 / 4, 2 / 3, 1 / 2))


def test_a_position_that_was_never_reached_has_no_rate_and_a_cut_draft_attempts_less() -> None:
    assert figures([alone([1, 0])]).acceptance_by_position == (0.5, 0.0)
    assert figures([alone([1, 1], drafted=1)]).acceptance_by_position == (1.0,)


def test_speedup_is_plain_time_over_time_for_the_same_tokens() -> None:
    found = figures([alone([3, 1])])

    # 6 tokens take 6 plain steps of 20 ms, and took two steps of 30 ms.
    assert found.speedup == pytest.approx(6 * 0.02 / 0.06)
    assert found.c == pytest.approx(0.002 / 0.02)
    assert found.predicted_speedup == pytest.approx(3 / (1 + 3 * 0.1))


def test_a_batch_delivers_a_plain_steps_worth_only_once_every_row_has_a_token() -> None:
    names = ("rag", "chat")
    rag, chat = sums_of([question(name) for name in names], [turn([3, 1], names=names)])

    assert (rag.plain_s, chat.plain_s) == pytest.approx((4 * 0.02, 2 * 0.02))
    assert figures([rag, chat]).speedup == pytest.approx(3 * 0.02 / 0.03)
    assert figures([rag, chat], ["chat"]).speedup == pytest.approx(2 * 0.02 / 0.03)


def test_a_question_that_fills_a_batch_weighs_as_often_as_it_was_asked() -> None:
    names = ("rag", "chat", "rag")
    step = turn([3, 1, 2], names=names)
    rag, chat = sums_of([question(name) for name in names], [step])

    assert (rag.answers, rag.tokens, rag.outcomes.total()) == (2, 7, 2)
    assert figures([rag, chat]).questions == 3
    assert figures([rag, chat]).speedup == pytest.approx(9 / 3 * 0.02 / 0.03)


def test_a_question_waits_only_for_the_steps_in_which_it_is_answered() -> None:
    both, rest = turn([3, 1], names=("rag", "chat")), turn([3, 0], names=("rag", ""))
    rag, chat = sums_of([question("rag"), question("chat")], [both, rest, rest])

    assert (rag.num_timed, chat.num_timed) == (3, 1)
    assert (rag.step_s, chat.step_s) == pytest.approx((3 * 0.03, 0.03))
    # A row without a name only fills the batch: 4 + 4 + 4 and 2 tokens are counted.
    assert (rag.tokens, chat.tokens) == (12, 2)
    assert figures([rag, chat]).speedup == pytest.approx((12 + 2) * 0.02 / (4 * 0.03))


def test_the_first_draft_is_told_apart_and_neither_timed_nor_lost_to_acceptance() -> None:
    first = turn([0], draft_s=0.5, plain_s=None)

    found = figures(sums_of([question("rag")], [first, turn([2])]))

    assert found.first_draft_steps == pytest.approx(0.5 / 0.02)
    assert found.c == pytest.approx(0.1)
    assert found.tokens_per_pass == pytest.approx(2)


def test_slow_stretches_of_the_machine_cancel_out() -> None:
    calm = [alone([2, 2]), alone([2, 2])]
    slow = alone([2, 2], draft_s=0.06, verify_s=0.24, plain_s=0.2)

    assert figures([calm[0], slow]).speedup == pytest.approx(figures(calm).speedup)


def test_categories_are_told_apart() -> None:
    rag, chat = alone([3]), alone([0], "chat")

    assert figures([rag, chat], ["rag"]) == figures([rag])
    assert figures([rag, chat], ["rag"]).questions == 1
    assert figures_of([rag], K, ["chat"]) is None


def test_an_interval_needs_some_questions_and_holds_the_speedup() -> None:
    many = [alone([num], f"rag {place}") for place, num in enumerate((0, 1, 2, 3, 3, 2, 1, 0))]

    assert figures(many[:4]).interval is None
    assert figures(many[:4] * 2).interval is None
    interval = figures(many).interval
    assert interval is not None
    low, mean, high = interval
    assert low < mean < high
    assert mean == figures(many).speedup
    assert low > figures([alone([0])]).speedup  # type: ignore[operator]


def test_nothing_timed_is_no_figure_and_not_zero() -> None:
    found = figures([alone([1], plain_s=None)])

    assert (found.speedup, found.c, found.predicted_speedup, found.interval) == (None,) * 4
