from dataclasses import replace

import pytest

from collectors.records import OFF, load_level_of
from tests.fixtures.facts import DRAFT_3, PLAN_DIGEST, group, step
from tuner.bench.service.blocks import Level, Stretch, block_of

STRETCH = Stretch(
    round=0,
    level=Level(concurrency=2),
    arm="off",
    plan_digest=PLAN_DIGEST,
    spans=((100.0, 105.0),),
)


def test_a_block_counts_the_tokens_of_steps_that_end_within_it() -> None:
    steps = [
        step(1, at=99.9, groups=(group(tokens=50),)),
        step(2, at=100.0, groups=(group(tokens=3), group("story", OFF, ((0, 0, 1),), tokens=1))),
        step(3, at=104.9, groups=(group(tokens=2),)),
        step(4, at=105.0, groups=(group(tokens=50),)),
    ]

    found = block_of(STRETCH, steps)

    assert found.tokens == 6
    assert found.tokens_per_s == pytest.approx(6 / 5)
    assert found.is_valid


def test_a_route_is_timed_by_its_rows_and_the_seconds_of_their_steps() -> None:
    first = step(1, at=101.0, groups=(group(outcomes=((3, 2, 2),)),))
    second = step(2, at=102.0, groups=(group(outcomes=((3, 0, 2),)),))

    (decoding,) = block_of(STRETCH, [first, second]).decoding.values()

    assert (decoding.tokens, decoding.passes) == (8, 4)
    assert decoding.row_s == pytest.approx(2 * first.step_s + 2 * second.step_s)
    assert decoding.tokens_per_s == pytest.approx(8 / decoding.row_s)


def test_replayed_rows_are_no_part_of_a_block() -> None:
    steps = [step(1, at=101.0, groups=(group(is_shadow=True), group(setting=DRAFT_3, tokens=2)))]

    found = block_of(STRETCH, steps)

    assert found.tokens == 2
    assert set(found.decoding) == {("chat", load_level_of(2))}


def test_a_step_under_another_plan_makes_a_block_invalid() -> None:
    steps = [
        step(1, at=101.0, groups=(group(),)),
        step(2, at=102.0, groups=(group(),), plan_digest="f" * 64),
    ]

    assert not block_of(STRETCH, steps).is_valid
    assert not block_of(STRETCH, []).is_valid


def test_a_block_of_two_parts_leaves_out_what_lies_between_them() -> None:
    parts = replace(STRETCH, spans=((100.0, 102.0), (110.0, 111.0)))
    steps = [
        step(seq, at=at, groups=(group(tokens=3),))
        for seq, at in enumerate((101.0, 105.0, 110.5), 1)
    ]

    found = block_of(parts, steps)

    assert found.tokens == 6
    assert found.tokens_per_s == pytest.approx(6 / 3)
