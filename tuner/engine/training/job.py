"""One training from data to files: vocabulary, batches, checkpoints, weights, manifest.

Called by the training commands. Everything lies in one folder: `model.safetensors` and
`manifest.json`, renewed at each checkpoint, and the checkpoint itself.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tuner.engine.model.memory import keep_freed_memory
from tuner.engine.training.batching import Course, Library, draft_index
from tuner.engine.training.copying import copy_exercises
from tuner.engine.training.distill import (
    Mark,
    Recipe,
    StepProgress,
    Trainer,
    frequent_vocab,
    read_checkpoint,
    train,
)
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.head import WEIGHTS_NAME, DraftHead
from tuner.engine.training.manifest import (
    MANIFEST_NAME,
    DataSource,
    TrainingRun,
    add_acceptance,
    write_manifest,
)
from tuner.engine.training.measure import RouteAcceptance, TargetAnswer, measure_routes
from tuner.engine.training.plot import write_plot
from tuner.engine.training.rehearsal import Rehearsal, can_rehearse
from tuner.engine.training.shards import Answer, file_digest
from tuner.engine.training.target import Target

CHECKPOINT_NAME = "training.ckpt"
PLOT_NAME = "training.svg"
REHEARSED_DEPTHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What to train, on what, and where to.

    Attributes:
        kind: the head's class.
        recipe: how.
        data: folder of the shards.
        out: folder of the head.
        held_out: number of the shard that only measures; None holds none out.
        vocab_size: token ids the head may propose.
        copies_ratio: copying exercises per answer, for heads that need no states.
        start: trained weights to go on from; None begins anew.
        notes: a line for the manifest.
    """

    kind: type[DraftHead]
    recipe: Recipe
    data: Path
    out: Path
    held_out: int | None = None
    vocab_size: int = 8192
    copies_ratio: float = 0.0
    start: Path | None = None
    notes: str = ""


def run_job(
    job: TrainingJob,
    target: Target,
    tokenizer: PreTrainedTokenizerBase,
    report: Callable[[StepProgress, list[Mark]], None],
) -> None:
    """Train to the last step; a stopped job goes on from its checkpoint.

    Args:
        job: what to do.
        target: the model that generated the data.
        tokenizer: its tokenizer.
        report: called after each step with what it did and the marks so far.

    Raises:
        TrainingError: there is no data, or the method cannot use what it was given.
    """
    kind = job.kind
    library = Library(job.data, target, needs_states=kind.needs_states, held_out=job.held_out)
    extra = _copies(job, library, tokenizer)
    job.out.mkdir(parents=True, exist_ok=True)
    checkpoint = job.out / CHECKPOINT_NAME
    vocab = _vocab(job, library, checkpoint, int(tokenizer.eos_token_id))
    keep_freed_memory()
    torch.manual_seed(job.recipe.seed)
    head = kind(target, vocab)
    if job.start is not None:
        head.start_from(target, job.start)
    index = draft_index(vocab, target.shape.vocab)
    trainer = Trainer(head, job.recipe)
    course = Course(
        library,
        index,
        seed=job.recipe.seed,
        batch_tokens=job.recipe.batch_tokens,
        extra={"copies": extra} if extra else {},
    )
    shard = library.held_out()
    depths = kind.max_depth or REHEARSED_DEPTHS
    rehearsal = None
    if shard is not None and can_rehearse(shard):
        rehearsal = Rehearsal(shard, index, depths=depths)

    def export() -> None:
        trainer.averaged().save(job.out / WEIGHTS_NAME)
        _describe(job, target, library, course, trainer)
        write_plot(job.out / PLOT_NAME, kind.method, trainer.marks)

    train(trainer, course, checkpoint, rehearsal, report, export)


def measure_head(
    kind: type[DraftHead],
    folder: Path,
    target: Target,
    answers: Iterable[TargetAnswer],
    k: int | None = None,
    *,
    is_stated: bool,
) -> dict[str, RouteAcceptance]:
    """Measure the head of a folder.

    Args:
        kind: its class.
        folder: weights and manifest.
        target: the model it drafts for.
        answers: of the target.
        k: draft length; None for the longest usual one of the method.
        is_stated: write the result into the manifest.
    """
    weights = folder / WEIGHTS_NAME
    head = kind.load(target, weights)
    routes = measure_routes(head, answers, k or kind.max_depth or REHEARSED_DEPTHS)
    if is_stated:
        add_acceptance(folder / MANIFEST_NAME, weights, routes)
    return routes


def _vocab(job: TrainingJob, library: Library, checkpoint: Path, eos_id: int) -> Tensor:
    """Return the draft vocabulary: that of the run gone on with, else the most frequent ids."""
    if checkpoint.exists():
        vocab: Tensor = read_checkpoint(checkpoint)["draft_vocab"]
        return vocab
    return frequent_vocab(library.answers(), job.vocab_size, (eos_id,))


def _copies(job: TrainingJob, library: Library, tokenizer: PreTrainedTokenizerBase) -> list[Answer]:
    """Return the copying exercises of a job."""
    if job.copies_ratio == 0:
        return []
    if job.kind.needs_states:
        raise TrainingError(f"{job.kind.method} reads the target's states: copies have none")
    count = int(job.copies_ratio * len(library.answers()))
    return list(itertools.islice(copy_exercises(_encoder(tokenizer), job.recipe.seed), count))


def _encoder(
    tokenizer: PreTrainedTokenizerBase,
) -> Callable[[str, str], tuple[list[int], list[int]]]:
    def encode(text: str, answer: str) -> tuple[list[int], list[int]]:
        turns = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        ended = answer + str(tokenizer.eos_token)
        both = (tokenizer(str(part), add_special_tokens=False) for part in (prompt, ended))
        first, second = (list(encoded["input_ids"]) for encoded in both)
        return first, second

    return encode


def _describe(
    job: TrainingJob, target: Target, library: Library, course: Course, trainer: Trainer
) -> None:
    names = sorted({name for epoch in course.epochs for name in epoch})
    answers = [answer for name in names for answer in library.shard(name).answers]
    source = DataSource(
        digest=library.digest(names),
        num_answers=len(answers),
        num_tokens=sum(len(answer.top_ids) for answer in answers),
        kinds=dict(sorted(Counter(answer.kind for answer in answers).items())),
    )
    run = TrainingRun(
        recipe=job.recipe,
        copies_ratio=job.copies_ratio,
        trained_tokens=trainer.num_scored,
        held_out=job.held_out,
        coverage_ratio=_coverage(library, trainer.head.draft_vocab),
        start_digest=None if job.start is None else file_digest(job.start),
        notes=job.notes,
    )
    weights = job.out / WEIGHTS_NAME
    write_manifest(job.out / MANIFEST_NAME, weights, job.kind.method, target, source, run)


def _coverage(library: Library, vocab: Tensor) -> float | None:
    """Return the share of held-out answer tokens in the draft vocabulary."""
    shard = library.held_out()
    if shard is None:
        return None
    tokens = torch.cat([answer.tokens[answer.prompt_len :] for answer in shard.answers])
    return round(float(torch.isin(tokens, vocab).float().mean()), 4)
