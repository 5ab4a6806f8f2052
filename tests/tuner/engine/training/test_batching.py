"""Batches come in an order that a stopped run finds again, and never from the held-out shard."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch

from tests.tuner.engine.training.conftest import counting_answers
from tuner.engine.training.batching import Batch, Course, Library, draft_index, make_batch
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.features import ShardStates, write_features
from tuner.engine.training.shards import shard_path, write_shard
from tuner.engine.training.target import Target

INDEX = draft_index(torch.arange(100, dtype=torch.int32), 128)


@pytest.fixture
def folder(counting_folder: Path, tmp_path: Path) -> Path:
    """A copy of the counting shards that a test may add to."""
    return Path(shutil.copytree(counting_folder, tmp_path / "data"))


def _course(folder: Path, target: Target, *, needs_states: bool = True) -> Course:
    library = Library(folder, target, needs_states=needs_states, held_out=2)
    return Course(library, INDEX, seed=5, batch_tokens=60)


def _firsts(batches: list[Batch]) -> list[list[int]]:
    return [batch.tokens[:, 0].tolist() for batch in batches]


def test_an_epoch_holds_every_answer_once_but_none_held_out(
    folder: Path, tiny_target: Target
) -> None:
    epoch = list(itertools.islice(_course(folder, tiny_target).batches(), 12))
    assert all(batch.tokens.numel() <= 60 for batch in epoch)
    assert sorted(itertools.chain(*_firsts(epoch))) == list(range(3, 60))


def test_a_stopped_course_goes_on_with_the_batch_it_would_have_had(
    folder: Path, tiny_target: Target
) -> None:
    whole = list(itertools.islice(_course(folder, tiny_target).batches(), 30))
    stopped = _course(folder, tiny_target)
    list(itertools.islice(stopped.batches(), 14))
    again = _course(folder, tiny_target)
    again.epochs = stopped.epochs
    late = shard_path(folder, 3)
    write_shard(late, counting_answers(70, 80), tiny_target.digest)
    write_features(tiny_target, [late], lambda _path, _tokens: None)
    rest = list(itertools.islice(again.batches(14), 10))
    assert _firsts(rest) == _firsts(whole[14:24])


def test_a_new_shard_joins_at_the_next_epoch_once_it_has_states(
    folder: Path, tiny_target: Target
) -> None:
    course = _course(folder, tiny_target)
    source = course.batches()
    next(source)
    late = shard_path(folder, 3)
    write_shard(late, counting_answers(70, 80), tiny_target.digest)
    rest = list(itertools.islice(source, 23))
    assert max(itertools.chain(*_firsts(rest))) == 59
    write_features(tiny_target, [late], lambda _path, _tokens: None)
    rest = list(itertools.islice(source, 14))
    assert max(itertools.chain(*_firsts(rest))) == 79
    assert [len(names) for names in course.epochs] == [2, 2, 3]


def test_each_row_has_its_own_states_and_its_own_opinions(
    folder: Path, tiny_target: Target
) -> None:
    batch = next(_course(folder, tiny_target).batches())
    answers = counting_answers(3, 33) + counting_answers(33, 60)
    shards = [counting_answers(3, 33), counting_answers(33, 60)]
    states = [ShardStates(shard_path(folder, n), tiny_target, shards[n]) for n in (0, 1)]
    assert batch.is_known.sum(1).tolist() == [8] * len(batch.tokens)
    for row, first in enumerate(batch.tokens[:, 0].tolist()):
        own = states[0][first - 3] if first < 33 else states[1][first - 33]
        assert torch.equal(batch.target_states()[row], own)
        wanted = INDEX[answers[first - 3].top_ids.long()]
        assert torch.equal(batch.top_ids[row, 4:], wanted)
    assert bool((batch.top_ids[:, :4] == -1).all())


def test_extra_answers_are_a_part_of_every_epoch(folder: Path, tiny_target: Target) -> None:
    library = Library(folder, tiny_target, needs_states=False, held_out=2)
    extra = {"copies": counting_answers(80, 84)}
    course = Course(library, INDEX, seed=5, batch_tokens=60, extra=extra)
    epoch = list(itertools.islice(course.batches(), 13))
    assert sorted(itertools.chain(*_firsts(epoch)))[-4:] == [80, 81, 82, 83]


def test_an_empty_folder_and_missing_states_are_named(tiny_target: Target, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="run `generate` first"):
        Library(tmp_path, tiny_target, needs_states=False)
    write_shard(shard_path(tmp_path, 0), counting_answers(3, 5), tiny_target.digest)
    with pytest.raises(TrainingError, match="run `features` first"):
        Library(tmp_path, tiny_target, needs_states=True)
    with pytest.raises(TrainingError, match="run `features` first"):
        make_batch(counting_answers(3, 5), INDEX).target_states()
