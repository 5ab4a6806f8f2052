"""Acceptance of a trained head by position and route, on the demo's traffic.

Called by `python -m tuner.engine.training measure`. The target answers every prompt; the head's
drafts from each place of each answer then say how speculation would have gone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tuner.engine.training.batching import Batch, draft_index
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.features import feature_layers
from tuner.engine.training.head import DraftHead
from tuner.engine.training.passes import FoldedPasses, fold_passes, sum_passes
from tuner.engine.training.sampling import Sampling, shaped_probs
from tuner.engine.training.target import BatchTarget, Target

DEFAULT_TRAFFIC = Path(__file__).parents[2] / "demo" / "traffic.jsonl"
_GRAMMAR = "response_format"
"""Left out: answers are measured without a grammar, which would say what the head should guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPrompt:
    """One line of the traffic file.

    Attributes:
        route: class of traffic.
        messages: (role, content) of each turn.
        sampling: how its answer is drawn.
    """

    route: str
    messages: tuple[tuple[str, str], ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    """An answer of the target to one traffic prompt.

    Attributes:
        prompt: what was asked.
        tokens: [T] int64, prompt then answer.
        prompt_len: tokens of the prompt.
        target_probs: [T - prompt_len] float32, the probability each token was drawn with.
        states: [T, 4, H] float32, the target's hidden states at each token.
    """

    prompt: TrafficPrompt
    tokens: Tensor
    prompt_len: int
    target_probs: Tensor
    states: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAcceptance(FoldedPasses):
    """How drafting went on one route.

    Attributes:
        route: class of traffic, or `all`.
    """

    route: str

    @property
    def tokens_per_pass(self) -> float:
        """Answer tokens over target passes."""
        return self.tokens / self.passes

    @property
    def mean_accepted(self) -> float:
        """Draft tokens kept in one pass."""
        return sum(self.accepted_by_position) / self.passes

    @property
    def ratios(self) -> tuple[float, ...]:
        """Share of passes that accepted each position."""
        pairs = zip(self.accepted_by_position, self.drafted_by_position, strict=True)
        return tuple(accepted / drafted if drafted else 0.0 for accepted, drafted in pairs)


def read_traffic(path: Path) -> list[TrafficPrompt]:
    """Read a traffic file: one JSON object a line with route, messages and sampling.

    Raises:
        TrainingError: the file is missing, or a line is malformed.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TrainingError(f"cannot read traffic file {path}: {error.strerror}") from error
    return [
        _parse_line(line, f"{path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _parse_line(line: str, place: str) -> TrafficPrompt:
    try:
        item = json.loads(line)
        messages = tuple((str(turn["role"]), str(turn["content"])) for turn in item["messages"])
        sampling = Sampling.parse(
            {name: value for name, value in item.get("sampling", {}).items() if name != _GRAMMAR}
        )
        return TrafficPrompt(route=str(item["route"]), messages=messages, sampling=sampling)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise TrainingError(
            f"{place}: needs route, messages (role, content) and sampling: {error}"
        ) from error


def answer_traffic(
    target: Target,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[TrafficPrompt],
    seed: int,
    report: Callable[[int], None],
) -> list[TargetAnswer]:
    """Let the target answer every prompt at its own settings, in float32, all in one batch.

    Args:
        target: the model that answers.
        tokenizer: its tokenizer with the chat template.
        prompts: what is asked.
        seed: start of the sampled answers' random numbers.
        report: called with the number of answer tokens after each step.
    """
    answers = [_OpenAnswer(prompt, _prompt_tokens(tokenizer, prompt)) for prompt in prompts]
    longest = max(answer.prompt_len + answer.prompt.sampling.max_tokens for answer in answers)
    model = BatchTarget(target, len(prompts), longest, dtype=torch.float32)
    padded = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(answer.tokens) for answer in answers], batch_first=True
    )
    logits = model.prefill(padded, torch.tensor([a.prompt_len for a in answers]), first_row=0)
    generator, eos_id = torch.Generator().manual_seed(seed), int(tokenizer.eos_token_id)
    live = list(range(len(answers)))
    step = 0
    while live:
        for row in live:
            answers[row].draw(logits[row], generator)
        report(step := step + 1)
        live = [row for row in live if not answers[row].is_finished(eos_id)]
        positions = torch.tensor([len(answer.tokens) - 1 for answer in answers])
        logits = model.step(torch.tensor([answer.tokens[-1] for answer in answers]), positions)
    layers = feature_layers(target.shape)
    return [answer.closed(model.states(answer.sequence(), layers)[0]) for answer in answers]


@dataclass(slots=True)
class _OpenAnswer:
    """An answer that is still growing."""

    prompt: TrafficPrompt
    tokens: list[int]
    prompt_len: int = field(init=False)
    probs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)

    def draw(self, logits: Tensor, generator: torch.Generator) -> None:
        """Append a token drawn from logits [V] at the prompt's settings."""
        seen = _seen(torch.tensor(self.tokens), len(logits))
        probs = shaped_probs(logits, self.prompt.sampling, seen)
        token = int(torch.multinomial(probs, 1, generator=generator))
        self.tokens.append(token)
        self.probs.append(float(probs[token]))

    def is_finished(self, eos_id: int) -> bool:
        """Tell whether the answer ended itself or reached its limit."""
        return self.tokens[-1] == eos_id or len(self.probs) == self.prompt.sampling.max_tokens

    def sequence(self) -> Tensor:
        """Return prompt and answer, [1, T] int64."""
        return torch.tensor(self.tokens)[None]

    def closed(self, states: Tensor) -> TargetAnswer:
        """Return the finished answer with the target's hidden states [T, 4, H]."""
        return TargetAnswer(
            prompt=self.prompt,
            tokens=torch.tensor(self.tokens),
            prompt_len=self.prompt_len,
            target_probs=torch.tensor(self.probs),
            states=states,
        )


def keep_probs(head: DraftHead, answer: TargetAnswer, k: int) -> Tensor:
    """Return the probability that each answer token, once drafted for, was an accepted draft token.

    The rejection rule keeps the lesser of draft and target probability of the target probability
    with which the token appears.

    Returns:
        [T - prompt_len, k] float32, one column a depth.

    Source: arXiv:2211.17192, section 2.3.
    """
    score = _KeepScore(head, answer, k)
    head(score.batch, score, k)
    return score.keep


class _KeepScore:
    """Notes the chance of each answer token at each depth; see `head.Score`."""

    def __init__(self, head: DraftHead, answer: TargetAnswer, k: int) -> None:
        index = draft_index(head.draft_vocab, head.shape.vocab)[answer.tokens]
        start = answer.prompt_len
        is_penalised = answer.prompt.sampling.repetition_penalty != 1.0
        size = len(head.draft_vocab) if is_penalised else 1  # nothing else asks what was seen
        seen = [_seen(index[:end], size) for end in range(start, len(index))]
        self._head = head
        self._answer = answer
        self._seen = torch.stack(seen)
        self.keep = torch.zeros(len(index) - start, k)
        self.batch = Batch(
            tokens=answer.tokens[None],
            lengths=torch.tensor([len(index)]),
            is_known=torch.arange(len(index))[None] >= start,
            draft_tokens=index[None],
            top_ids=index[None, :, None],
            top_logprobs=torch.zeros(1, len(index), 1),
            states=answer.states[None],
        )

    def __call__(self, depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        places = columns - self._answer.prompt_len
        logits = self._head.logits(hidden.float())
        probs = shaped_probs(logits, self._answer.prompt.sampling, self._seen[places])
        tokens = self.batch.draft_tokens[rows, columns]
        drafted = probs.gather(1, tokens[:, None].clamp(min=0))[:, 0].masked_fill(tokens < 0, 0.0)
        self.keep[places, depth] = (drafted / self._answer.target_probs[places]).clamp(max=1.0)
        return torch.ones(len(rows), dtype=torch.bool)


def measure_routes(
    head: DraftHead, answers: Iterable[TargetAnswer], k: int
) -> dict[str, RouteAcceptance]:
    """Return acceptance per route, and over all routes as `all`."""
    folded: dict[str, list[FoldedPasses]] = defaultdict(list)
    with torch.inference_mode():
        for answer in answers:
            passes = fold_passes(keep_probs(head, answer, k))
            folded[answer.prompt.route].append(passes)
            folded["all"].append(passes)
    return {
        route: RouteAcceptance(route=route, **asdict(sum_passes(parts)))
        for route, parts in folded.items()
    }


def _prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: TrafficPrompt) -> list[int]:
    turns = [{"role": role, "content": content} for role, content in prompt.messages]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(str(text), add_special_tokens=False)["input_ids"])


def _seen(tokens: Tensor, size: int) -> Tensor:
    """Return [size] bool, true at the given places; those outside are left out."""
    seen = torch.zeros(size, dtype=torch.bool)
    seen[tokens[(tokens >= 0) & (tokens < size)]] = True
    return seen
