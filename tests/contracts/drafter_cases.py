"""Every drafter with every Setting it is put to, and what its answers are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pytest
import torch

from collectors.records import Setting
from tests.tuner.engine.harness import (
    CONTEXT,
    DRAFTERS,
    SCRIPTED,
    SmallEngine,
    greedy_reference,
    random_decoder,
    random_weights,
    small_engine,
)
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Span, lay_out

VOCAB = 9
"""Small, so that drafts made at random are right now and then."""

WINDOW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One drafter with one Setting."""

    name: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.name} {self.setting.label}"

    @property
    def is_skilled(self) -> bool:
        return (DRAFTERS | SCRIPTED)[self.name].is_skilled

    def engine(self, **changes: object) -> SmallEngine:
        """A draft as good as the drafter can have it."""
        return small_engine(**{"vocab_size": VOCAB, "drafters": (self.name,), **changes})  # type: ignore[arg-type]

    def weak_engine(self, **changes: object) -> SmallEngine:
        """A draft unlike the target that knows two thirds of its tokens: most guesses are wrong."""
        return self.engine(**weak_parts(), **changes)


def cases() -> list[Case]:
    return [
        Case(name=name, setting=setting)
        for name, drafter in (DRAFTERS | SCRIPTED).items()
        for setting in drafter.settings
    ]


EACH_CASE = pytest.mark.parametrize("case", cases(), ids=str)


def weak_parts() -> dict[str, object]:
    vocab = torch.arange(0, VOCAB, 3).repeat_interleave(2) + torch.tensor([0, 1]).repeat(VOCAB // 3)
    weights = random_weights(random_decoder(7, VOCAB, num_layers=1).shape, 7, 0.5)
    draft = random_decoder(7, VOCAB).with_layers(1, weights, vocab)
    return {"draft": draft, "draft_vocab": vocab}


def target(window: int | None = None) -> LlamaDecoder:
    """The target of every engine here."""
    return random_decoder(1, VOCAB, window=window)


def greedy(prompt_ids: Sequence[int], num_tokens: int, *, window: int | None = None) -> list[int]:
    """What the target says on its own, computed anew for every token."""
    return list(_greedy(tuple(prompt_ids), num_tokens, window))


@lru_cache(maxsize=4096)
def _greedy(prompt_ids: tuple[int, ...], num_tokens: int, window: int | None) -> tuple[int, ...]:
    return tuple(greedy_reference(target(window), prompt_ids, num_tokens))


def assert_cache_is_that_of_a_fresh_prefill(engine: SmallEngine) -> None:
    """Every valid KV entry and every hidden state kept for drafters is what one pass gives."""
    rows, slots, features = engine.core._rows, engine.core._slots, engine.core._features
    assert rows
    for row in rows:
        assert row.kv_length == len(row.token_ids) - 1
        fresh = engine.target.new_slots(1, CONTEXT)
        span = Span(slot=0, start=0, token_ids=row.token_ids[:-1])
        fresh_features = None
        if features is not None:
            fresh_features = type(features)(
                taps=features.taps,
                num_slots=1,
                max_context_tokens=CONTEXT,
                hidden_size=features.values.shape[-1],
                dtype=features.values.dtype,
                device=features.values.device,
            )
        with torch.inference_mode():
            engine.target.forward(lay_out([span], engine.target.mask_kind), fresh, fresh_features)
        pairs = [
            (held[row.slot, :, : row.kv_length], wanted[0, :, : row.kv_length])
            for held, wanted in zip(
                (*slots.keys, *slots.values), (*fresh.keys, *fresh.values), strict=True
            )
        ]
        if features is not None and fresh_features is not None:
            held = features.values[row.slot, : row.kv_length]
            pairs.append((held, fresh_features.values[0, : row.kv_length]))
        for held, wanted in pairs:
            torch.testing.assert_close(held, wanted, atol=1e-4, rtol=1e-3)
