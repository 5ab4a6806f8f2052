"""Training moves the draft towards the target, the same way each time, and survives a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tuner.engine.training.conftest import counting_answers
from tuner.engine.training.batching import Course, Library, draft_index, make_batch
from tuner.engine.training.distill import (
    Recipe,
    StepProgress,
    Trainer,
    frequent_vocab,
    rate_ratio,
    train,
)
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.head import DraftHead
from tuner.engine.training.methods import HEADS
from tuner.engine.training.scoring import TrainingScore
from tuner.engine.training.shards import Answer
from tuner.engine.training.target import Target

RECIPE = Recipe(num_steps=30, batch_tokens=256, warmup_steps=3, decay_steps=10, depths=3)
VOCAB = torch.arange(0, 96, dtype=torch.int32)


def _trainer(target: Target, method: str) -> Trainer:
    torch.manual_seed(0)
    return Trainer(HEADS[method](target, VOCAB), RECIPE)


def _course(target: Target, folder: Path, head: DraftHead) -> Course:
    library = Library(folder, target, needs_states=head.needs_states, held_out=2)
    return Course(library, draft_index(VOCAB, 128), seed=0, batch_tokens=RECIPE.batch_tokens)


def _train(
    target: Target, folder: Path, method: str, checkpoint: Path
) -> tuple[Trainer, list[StepProgress]]:
    trainer = _trainer(target, method)
    done: list[StepProgress] = []
    course = _course(target, folder, trainer.head)
    train(trainer, course, checkpoint, None, lambda step, _marks: done.append(step))
    return trainer, done


@pytest.mark.parametrize("method", HEADS)
def test_training_lowers_the_loss_at_every_depth_and_finds_the_targets_best_tokens(
    tiny_target: Target, counting_folder: Path, method: str
) -> None:
    trainer = _trainer(tiny_target, method)
    source = _course(tiny_target, counting_folder, trainer.head).batches()
    batch = next(source)
    first = trainer.train_step(batch)
    for _ in range(27):
        done = trainer.train_step(batch)
    assert done.loss < 0.5 * first.loss
    assert len(done.match_ratios) == RECIPE.depths
    assert done.match_ratios[0] > 0.6


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_a_stopped_run_goes_on_to_the_same_weights(
    tiny_target: Target, counting_folder: Path, tmp_path: Path, method: str
) -> None:
    whole, _ = _train(tiny_target, counting_folder, method, tmp_path / "whole.ckpt")
    first = _trainer(tiny_target, method)
    course = _course(tiny_target, counting_folder, first.head)
    source = course.batches()
    for _ in range(11):
        first.train_step(next(source))
    checkpoint = tmp_path / "training.ckpt"
    first.save(checkpoint, course)
    second, done = _train(tiny_target, counting_folder, method, checkpoint)
    assert [step.step for step in done] == list(range(12, 31))
    for name, tensor in second.head.state_dict().items():
        torch.testing.assert_close(tensor, whole.head.state_dict()[name])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no checkpoint at all"])
def test_a_damaged_checkpoint_is_one_line(
    tiny_target: Target, counting_folder: Path, tmp_path: Path, content: bytes
) -> None:
    checkpoint = tmp_path / "training.ckpt"
    checkpoint.write_bytes(content)
    with pytest.raises(TrainingError, match=r"training.ckpt cannot be read: delete it"):
        _train(tiny_target, counting_folder, "medusa", checkpoint)


def test_a_checkpoint_of_another_head_is_refused(
    tiny_target: Target, counting_folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "training.ckpt"
    other = _trainer(tiny_target, "mtp")
    other.save(checkpoint, _course(tiny_target, counting_folder, other.head))
    with pytest.raises(TrainingError, match=r"training.ckpt is of another head"):
        _train(tiny_target, counting_folder, "medusa", checkpoint)


def _loss(head: DraftHead, answer: Answer, index: torch.Tensor) -> tuple[float, list[float]]:
    batch = make_batch([answer], index)
    score = TrainingScore(batch, head.output_rows, 0.0, torch.Generator())
    head(batch, score, 1)
    return float(score.loss().detach()), score.match_ratios


def test_the_loss_is_the_cross_entropy_over_the_draft_vocabulary(tiny_target: Target) -> None:
    head = _trainer(tiny_target, "draft_model").head
    answer = counting_answers(5, 6)[0]
    loss, _ = _loss(head, answer, draft_index(VOCAB, 128))
    with torch.inference_mode():
        hidden = head.hidden(answer.tokens.long()[None])[0, 3:-1]
        logprobs = head.logits(hidden).log_softmax(-1).gather(1, answer.top_ids.long())
    expected = -(answer.top_logprobs.float().exp() * logprobs).sum(-1).mean()
    assert loss == pytest.approx(float(expected), rel=1e-3)


def test_a_position_whose_tokens_the_head_cannot_propose_does_not_count(
    tiny_target: Target,
) -> None:
    head = _trainer(tiny_target, "draft_model").head
    answer = counting_answers(5, 6)[0]
    index = draft_index(VOCAB, 128)
    index[answer.top_ids.long()] = -1
    assert _loss(head, answer, index) == (0.0, [0.0])


def test_only_right_drafts_and_a_share_of_the_rest_go_on(tiny_target: Target) -> None:
    batch = make_batch(counting_answers(5, 45), draft_index(VOCAB, 128))
    rows, columns = batch.known_places()
    wanted = batch.draft_tokens[rows, columns]
    guesses = torch.nn.functional.one_hot(torch.where(rows < 20, wanted, wanted - 1), 96).float()
    score = TrainingScore(batch, torch.eye(96), 0.25, torch.Generator().manual_seed(0))
    goes_on = score(0, guesses, rows, columns)
    assert bool(goes_on[rows < 20].all())
    assert 0.15 < float(goes_on[rows >= 20].float().mean()) < 0.35


def test_the_vocabulary_is_ascending_and_holds_the_frequent_and_the_required_tokens() -> None:
    vocab = frequent_vocab(counting_answers(3, 60), 40, (2, 127))
    assert len(vocab) == 40
    assert bool((vocab[1:] > vocab[:-1]).all())
    assert {2, 127, 30} <= set(vocab.tolist())


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    ratios = [rate_ratio(step, RECIPE) for step in range(31)]
    assert ratios[0] == pytest.approx(1 / 3)
    assert ratios[10] == 1.0
    assert ratios[25] == pytest.approx(0.5)
    assert ratios[30] == 0.0
