"""The sampling settings of the demo's traffic, as probabilities over a whole vocabulary.

Called by measure.py for target and draft alike, so that both are shaped by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engine.training.errors import TrainingError

_FEW = 512
"""Tokens that nearly always hold the nucleus; finding them costs a tenth of sorting all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        temperature: 0 is greedy.
        top_p: smallest share of the probability that is kept, in (0, 1].
        top_k: how many tokens are kept, 0 keeps all.
        repetition_penalty: divides positive and multiplies negative scores of tokens seen before.
        max_tokens: longest answer.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    max_tokens: int = 96

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        if self.temperature < 0:
            raise TrainingError(f"temperature {self.temperature} is negative: use 0 or more")
        if not 0 < self.top_p <= 1:
            raise TrainingError(f"top_p {self.top_p} is out of range: use more than 0, at most 1")
        if self.max_tokens < 1:
            raise TrainingError(f"max_tokens {self.max_tokens} is too small: use 1 or more")

    @classmethod
    def parse(cls, fields: Mapping[str, object]) -> Sampling:
        """Read settings from a JSON object.

        Raises:
            TrainingError: a key is unknown or a value is no number.
        """
        known = {
            "temperature": float,
            "top_p": float,
            "top_k": int,
            "repetition_penalty": float,
            "max_tokens": int,
        }
        values: dict[str, float | int] = {}
        for name, value in fields.items():
            if name not in known:
                raise TrainingError(
                    f"unknown sampling setting {name!r}: use some of {', '.join(known)}"
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TrainingError(f"sampling setting {name} is {value!r}: use a number")
            values[name] = known[name](value)
        return cls(**values)  # type: ignore[arg-type]


def shaped_probs(logits: Tensor, sampling: Sampling, seen: Tensor) -> Tensor:
    """Return the probabilities that a token is drawn from.

    Args:
        logits: [..., V].
        sampling: the settings.
        seen: [..., V] bool, tokens of the prompt and the answer so far.

    Returns:
        Probabilities [..., V] float32; greedy gives a single 1.
    """
    scores = logits.float()
    penalty = sampling.repetition_penalty
    if penalty != 1.0:
        scores = torch.where(
            seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores
        )
    if sampling.temperature == 0:
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
    scores = scores / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        floor = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < floor, float("-inf"))
    probs = scores.softmax(-1)
    return probs if sampling.top_p == 1.0 else _nucleus(probs, sampling.top_p)


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens until their sum reaches top_p, renormalised."""
    ordered, ids = probs.topk(min(_FEW, probs.shape[-1]), dim=-1)
    if bool((ordered.sum(-1) < top_p).any()):
        ordered, ids = probs.sort(dim=-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0.0)
    kept = torch.zeros_like(probs).scatter_(-1, ids, ordered)
    return kept / kept.sum(-1, keepdim=True)
