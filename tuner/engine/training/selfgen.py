"""The target answers the training prompts; its answers and likeliest tokens become training data.

Called by `python -m tuner.engine.training generate`. Each shard has its own seed and is
written whole, so a stopped run goes on with the first shard that is missing.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tuner.engine.training.prompts import TrainingPrompt, training_prompts
from tuner.engine.training.shards import Answer, shard_path, write_shard
from tuner.engine.training.target import BatchTarget, Target

TOP_COUNT = 32
MAX_PROMPT_TOKENS = 640
_BLOCK = 64
_CAPTURED_SHARDS = 8
_SHARD_PROMPTS = 384


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """What to generate.

    Attributes:
        seed: start of all random numbers.
        num_prompts: prompts in one shard.
        max_rows: sequences in one batch.
        max_answer_tokens: longest answer.
        kinds: weight of each kind of prompt; None takes the default mixture.
    """

    seed: int
    num_prompts: int = _SHARD_PROMPTS
    max_rows: int = 96
    max_answer_tokens: int = 160
    kinds: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPrompt:
    """A prompt that waits for its answer.

    Attributes:
        prompt: the prompt and its sampling.
        tokens: its token ids, chat template included.
    """

    prompt: TrainingPrompt
    tokens: list[int]


@dataclass(slots=True)
class _Row:
    prompt: TrainingPrompt
    tokens: list[int]
    prompt_len: int
    top_ids: list[Tensor] = field(default_factory=list)
    top_logprobs: list[Tensor] = field(default_factory=list)

    def as_answer(self) -> Answer:
        return Answer(
            kind=self.prompt.kind,
            tokens=torch.tensor(self.tokens, dtype=torch.int32),
            prompt_len=self.prompt_len,
            top_ids=torch.stack(self.top_ids).to(torch.int32),
            top_logprobs=torch.stack(self.top_logprobs).to(torch.float16),
        )


def answer_own(
    target: Target,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    shards: range,
    plan: GenerationPlan,
    report: Callable[[int, int], None],
) -> None:
    """Let the target answer this project's own prompts; see `generate_shards`."""
    prompts_of = functools.partial(_own_prompts, tokenizer, plan)
    eos_id = int(tokenizer.eos_token_id)
    generate_shards(target, eos_id, prompts_of, folder, plan, shards, report)


def answer_captured(
    target: Target,
    eos_id: int,
    captured: Sequence[WaitingPrompt],
    folder: Path,
    seed: int,
    report: Callable[[int, int], None],
) -> None:
    """Let the target answer captured prompts, in shards so small that one can be held out.

    See `generate_shards`.
    """
    size = min(_SHARD_PROMPTS, -(-len(captured) // _CAPTURED_SHARDS))
    plan = GenerationPlan(seed=seed, num_prompts=size)
    shards = range(-(-len(captured) // size))

    def prompts_of(number: int) -> Iterable[WaitingPrompt]:
        return captured[number * size :]

    generate_shards(target, eos_id, prompts_of, folder, plan, shards, report)


def generate_shards(
    target: Target,
    eos_id: int,
    prompts_of: Callable[[int], Iterable[WaitingPrompt]],
    folder: Path,
    plan: GenerationPlan,
    shards: range,
    report: Callable[[int, int], None],
) -> None:
    """Generate the shards of `shards` that `folder` lacks.

    Args:
        target: the model that answers.
        eos_id: token that ends an answer.
        prompts_of: gives the prompts of a shard by its number; only as many as planned are taken.
        folder: where shards go; made if missing.
        plan: what to generate.
        shards: numbers of the shards.
        report: called after each shard with its number and its count of answer tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = BatchTarget(target, plan.max_rows, MAX_PROMPT_TOKENS + plan.max_answer_tokens)
    for number in shards:
        path = shard_path(folder, number)
        if path.exists():
            continue
        rows = itertools.islice(prompts_of(number), plan.num_prompts)
        by_length = sorted(rows, key=lambda row: len(row.tokens))
        generator = torch.Generator().manual_seed(plan.seed * 100_003 + number)
        batch = AnswerBatch(model, plan, eos_id, generator)
        answers = list(batch.answers(deque(by_length)))
        write_shard(path, answers, target.digest)
        report(number, sum(len(answer.top_ids) for answer in answers))


def top_logprobs(logits: Tensor, count: int = TOP_COUNT) -> tuple[Tensor, Tensor]:
    """Return the `count` largest log-probabilities of each row and their token ids.

    The largest elements lie in the blocks with the largest maxima: faster than searching all.

    Args:
        logits: [B, V]; V is a multiple of 64.
        count: how many to keep.

    Returns:
        Log-probabilities [B, count] float32, best first, and ids [B, count] int64.
    """
    wide = logits.float()
    blocks = wide.view(len(wide), -1, _BLOCK)
    num_blocks = min(count, blocks.shape[1])
    best_blocks = blocks.amax(-1).topk(num_blocks, dim=-1).indices
    kept = blocks.gather(1, best_blocks[..., None].expand(-1, -1, _BLOCK)).flatten(1)
    values, places = kept.topk(count, dim=-1)
    ids = best_blocks.gather(1, places // _BLOCK) * _BLOCK + places % _BLOCK
    return values - wide.logsumexp(-1, keepdim=True), ids


class AnswerBatch:
    """A batch that is refilled from a queue of prompts until all are answered."""

    def __init__(
        self, model: BatchTarget, plan: GenerationPlan, eos_id: int, generator: torch.Generator
    ) -> None:
        """Start empty; `generator` draws the sampled tokens."""
        self._model = model
        self._plan = plan
        self._eos_id = eos_id
        self._generator = generator
        self._rows: list[_Row] = []

    def answers(self, waiting: deque[WaitingPrompt]) -> Iterator[Answer]:
        """Yield each prompt's answer when it is finished; the queue is emptied."""
        while waiting or self._rows:
            if waiting and self._num_free() >= self._refill(waiting):
                self._admit(waiting)
            else:
                self._advance()
            yield from self._retire()

    def _num_free(self) -> int:
        return self._plan.max_rows - len(self._rows)

    def _refill(self, waiting: deque[WaitingPrompt]) -> int:
        """Return how many prompts are read at once: enough to keep the matrix products wide."""
        return min(max(1, self._plan.max_rows // 8), len(waiting))

    def _admit(self, waiting: deque[WaitingPrompt]) -> None:
        count = self._refill(waiting)
        prompts = [waiting.popleft() for _ in range(count)]
        admitted = [_Row(item.prompt, list(item.tokens), len(item.tokens)) for item in prompts]
        lengths = torch.tensor([row.prompt_len for row in admitted])
        tokens = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row.tokens) for row in admitted], batch_first=True
        )
        logits = self._model.prefill(tokens, lengths, len(self._rows))
        self._rows.extend(admitted)
        self._take(admitted, logits)

    def _advance(self) -> None:
        tokens = torch.tensor([row.tokens[-1] for row in self._rows])
        positions = torch.tensor([len(row.tokens) - 1 for row in self._rows])
        self._take(self._rows, self._model.step(tokens, positions))

    def _take(self, rows: list[_Row], logits: Tensor) -> None:
        logprobs, ids = top_logprobs(logits)
        chosen = _choose(rows, logprobs, self._generator)
        next_tokens = ids.gather(1, chosen[:, None])[:, 0].tolist()
        for row, token, row_ids, row_logprobs in zip(rows, next_tokens, ids, logprobs, strict=True):
            row.tokens.append(token)
            row.top_ids.append(row_ids)
            row.top_logprobs.append(row_logprobs)

    def _retire(self) -> Iterator[Answer]:
        for index in reversed(range(len(self._rows))):
            row = self._rows[index]
            num_answer = len(row.tokens) - row.prompt_len
            if row.tokens[-1] != self._eos_id and num_answer < self._plan.max_answer_tokens:
                continue
            last = self._rows.pop()
            if last is not row:
                self._model.move_row(len(self._rows), index)
                self._rows[index] = last
            yield row.as_answer()


def _choose(rows: list[_Row], logprobs: Tensor, generator: torch.Generator) -> Tensor:
    """Pick a column of logprobs [B, C] for each row: the best, or a sample at its settings."""
    temperatures = torch.tensor([row.prompt.temperature for row in rows])
    top_ps = torch.tensor([row.prompt.top_p for row in rows])
    probs = (logprobs / temperatures.clamp(min=1e-3)[:, None]).softmax(-1)
    before = probs.cumsum(-1) - probs
    nucleus = probs.masked_fill(before >= top_ps[:, None], 0.0)
    sampled = torch.multinomial(nucleus, 1, generator=generator)[:, 0]
    return torch.where(temperatures > 0, sampled, 0)


def _own_prompts(
    tokenizer: PreTrainedTokenizerBase, plan: GenerationPlan, number: int
) -> Iterator[WaitingPrompt]:
    seed = random.Random(f"{plan.seed}/{number}").getrandbits(48)
    for prompt in training_prompts(seed, plan.kinds):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt.text}], add_generation_prompt=True, tokenize=False
        )
        tokens = list(tokenizer(str(text), add_special_tokens=False)["input_ids"])
        if len(tokens) <= MAX_PROMPT_TOKENS:
            yield WaitingPrompt(prompt=prompt, tokens=tokens)
