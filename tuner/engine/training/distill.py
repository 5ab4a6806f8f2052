"""Trains a drafting head on the target's own answers and likeliest tokens.

Called by the training commands. Seeds are fixed; a checkpoint is written every two minutes, and
a stopped run goes on from it.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from tuner.engine.training.batching import Batch, Course
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.head import DraftHead
from tuner.engine.training.rehearsal import Rehearsal
from tuner.engine.training.scoring import TrainingScore
from tuner.engine.training.shards import Answer

CHECKPOINT_PERIOD_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train.

    Attributes:
        seed: order of the batches.
        num_steps: optimizer steps.
        batch_tokens: prompt and answer tokens in one step, at most.
        norm_rate: peak rate of AdamW, which moves the norms.
        matrix_rate: peak rate of Muon, which moves the matrices.
        warmup_steps: steps of linear rise to the peak.
        decay_steps: last steps, in which the rates fall linearly to 0.
        weight_decay: decay of the matrices.
        average_ratio: the result is a running mean of weights that keeps this share a step.
        depths: depths that the loss is taken at.
        rest_ratio: share of the wrong drafts that are trained on at the next depth all the same.
    """

    seed: int = 0
    num_steps: int = 1000
    batch_tokens: int = 6144
    norm_rate: float = 3e-3
    matrix_rate: float = 0.02
    warmup_steps: int = 10
    decay_steps: int = 250
    weight_decay: float = 0.01
    average_ratio: float = 0.97
    depths: int = 1
    rest_ratio: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """What one optimizer step did.

    Attributes:
        step: steps done.
        loss: mean loss of the step in nats, over all depths.
        match_ratios: by depth, positions where the head's best token is the target's best.
        num_scored: predictions that the loss was taken on, all depths together.
    """

    step: int
    loss: float
    match_ratios: tuple[float, ...]
    num_scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where training stood when a checkpoint was written.

    Attributes:
        step: steps done.
        loss: mean loss since the last mark, in nats.
        tokens_per_pass: of greedy drafts on held-out answers; None where nothing is held out.
    """

    step: int
    loss: float
    tokens_per_pass: float | None


def frequent_vocab(answers: list[Answer], size: int, required: tuple[int, ...]) -> Tensor:
    """Return the most frequent answer tokens, `required` among them, as ascending int32 [size].

    Ids never seen fill up from the smallest, so that the size is always reached.
    """
    counts: Counter[int] = Counter()
    for answer in answers:
        counts.update(answer.tokens[answer.prompt_len :].tolist())
        counts.update(answer.top_ids[:, :2].flatten().tolist())
    ranked = [token for token, _ in counts.most_common()]
    chosen = dict.fromkeys([*required, *ranked, *range(size)])
    return torch.tensor(sorted(list(chosen)[:size]), dtype=torch.int32)


def rate_ratio(step: int, recipe: Recipe) -> float:
    """Return the learning rate of a step over its peak: linear rise, flat, linear fall to 0."""
    rise = (step + 1) / max(1, recipe.warmup_steps)
    fall = (recipe.num_steps - step) / max(1, recipe.decay_steps)
    return max(0.0, min(rise, 1.0, fall))


class Trainer:
    """One head, its two optimizers and its place in the recipe.

    Attributes:
        head: what is trained.
        recipe: how.
        step: optimizer steps done.
        num_scored: predictions trained on so far.
        marks: where training stood, one a checkpoint.
    """

    def __init__(self, head: DraftHead, recipe: Recipe) -> None:
        """Muon moves the matrices, AdamW the norms and biases.

        Source: kellerjordan.github.io/posts/muon.
        """
        matrices = [weight for weight in head.parameters() if weight.ndim == 2]
        others = [weight for weight in head.parameters() if weight.ndim != 2]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay),
            torch.optim.AdamW(others, lr=recipe.norm_rate, weight_decay=0.0),
        ]
        self._peaks = [recipe.matrix_rate, recipe.norm_rate]
        self.head = head
        self.recipe = recipe
        self.step = 0
        self.num_scored = 0
        self.marks: list[Mark] = []
        self._rows = head.output_rows.to(torch.bfloat16)
        self._average = {name: tensor.clone() for name, tensor in head.state_dict().items()}

    def train_step(self, batch: Batch) -> StepProgress:
        """Take one optimizer step on a batch."""
        for optimizer, peak in zip(self._optimizers, self._peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * rate_ratio(self.step, self.recipe)
            optimizer.zero_grad(set_to_none=True)
        generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + self.step)
        score = TrainingScore(batch, self._rows, self.recipe.rest_ratio, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.head(batch, score, self.recipe.depths)
        loss = score.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.step += 1
        self.num_scored += score.num_scored
        self._update_average()
        return StepProgress(
            step=self.step,
            loss=loss.item(),
            match_ratios=tuple(score.match_ratios),
            num_scored=score.num_scored,
        )

    def averaged(self) -> DraftHead:
        """Return a head with the running mean of the weights, less noisy than the last ones."""
        head = copy.deepcopy(self.head)
        head.load_state_dict(self._average)
        return head

    def _update_average(self) -> None:
        kept = min(self.recipe.average_ratio, self.step / (self.step + 10))
        for name, tensor in self.head.state_dict().items():
            self._average[name].lerp_(tensor, 1 - kept)

    def save(self, path: Path, course: Course) -> None:
        """Write a checkpoint to go on from, under a temporary name first."""
        state = {
            "step": self.step,
            "num_scored": self.num_scored,
            "marks": [asdict(mark) for mark in self.marks],
            "epochs": course.epochs,
            "draft_vocab": self.head.draft_vocab,
            "head": self.head.state_dict(),
            "average": self._average,
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, path: Path, course: Course) -> None:
        """Go on from a checkpoint of the same method and recipe.

        Raises:
            TrainingError: the file is damaged, or of another head.
        """
        state = read_checkpoint(path)
        try:
            self.head.load_state_dict(state["head"])
            for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError, LookupError) as error:
            raise TrainingError(
                f"checkpoint {path} is of another head: delete it, or give another folder"
            ) from error
        self.step = int(state["step"])
        self.num_scored = int(state["num_scored"])
        self.marks = [Mark(**mark) for mark in state["marks"]]
        course.epochs = state["epochs"]
        self._average = state["average"]


_CHECKPOINT_KEYS = frozenset(
    {"step", "num_scored", "marks", "epochs", "draft_vocab", "head", "average", "optimizers"}
)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `Trainer.save` wrote.

    Raises:
        TrainingError: the file is damaged or no checkpoint.
    """
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, UnpicklingError) as error:
        raise TrainingError(f"checkpoint {path} cannot be read: delete it to begin anew") from error
    if not isinstance(state, dict) or not state.keys() >= _CHECKPOINT_KEYS:
        raise TrainingError(f"{path} is no checkpoint of a training: delete it to begin anew")
    return state


def train(
    trainer: Trainer,
    course: Course,
    checkpoint: Path,
    rehearsal: Rehearsal | None,
    report: Callable[[StepProgress, list[Mark]], None],
    on_checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Train to the recipe's last step, leaving out the batches of the steps already done.

    Args:
        trainer: head and optimizers; its own place is taken from `checkpoint` if that file exists.
        course: the batches.
        checkpoint: written every two minutes and at the end.
        rehearsal: measures the averaged head at each checkpoint; None measures nothing.
        report: called after each step with what it did and the marks so far.
        on_checkpoint: called after each checkpoint.
    """
    if checkpoint.exists():
        trainer.load(checkpoint, course)
    source = course.batches(trainer.step)
    saved_at, losses = time.monotonic(), list[float]()
    while trainer.step < trainer.recipe.num_steps:
        done = trainer.train_step(next(source))
        losses.append(done.loss)
        is_last = trainer.step == trainer.recipe.num_steps
        if is_last or time.monotonic() - saved_at > CHECKPOINT_PERIOD_S:
            hits = rehearsal.hits(trainer.averaged()) if rehearsal else None
            mean_loss = sum(losses) / len(losses)
            trainer.marks.append(
                Mark(
                    step=trainer.step,
                    loss=mean_loss,
                    tokens_per_pass=hits.tokens_per_pass if hits else None,
                )
            )
            trainer.save(checkpoint, course)
            saved_at, losses = time.monotonic(), []
            on_checkpoint()
        report(done, trainer.marks)
