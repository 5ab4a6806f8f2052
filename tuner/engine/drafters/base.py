"""The contract of a drafter: guess the next tokens of many rows, keep up after any commit.

A draft is a chain or a tree; a chain is the tree whose every token follows the one before it.

A drafter never hears what was accepted. It is asked again with the committed tokens and must bring
whatever it caches in step with them, also after steps in which it was not asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from collectors.records import Method, Setting
from tuner.engine.adaptive import Outlook
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftAsk:
    """One row that wants a draft.

    Attributes:
        slot: the row's slot, the same as the target's.
        token_ids: prompt and output so far; not to be changed.
        k: length of the longest path wanted, at least 1.
        num_nodes: draft tokens wanted at most: k for a chain, for a tree k or more.
        route: its route; empty where nothing it says may outlive it.
        setting: the row's Setting.
        sampling: the row's sampling parameters.
        generator: the row's random numbers.
        outlook: says at each position whether it pays; None where the draft has a fixed length.
    """

    slot: int
    token_ids: Sequence[int]
    k: int
    num_nodes: int
    route: str
    setting: Setting
    sampling: SamplingParams
    generator: torch.Generator
    outlook: Outlook | None = None

    @property
    def is_seeded(self) -> bool:
        """True where the answer is drawn with random numbers that can be repeated."""
        return not self.sampling.is_greedy and self.sampling.seed is not None

    @property
    def depth(self) -> int:
        """Draft passes one after the other that it may take or, once drafted, has taken."""
        return self.k if self.outlook is None else max(1, self.outlook.num_judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens guessed for one row.

    Attributes:
        token_ids: T of them, a path never longer than k; empty where the drafter has no guess.
        probs: [T, V or reduced V] float32; row i+1 is what the children of token i were drawn from,
            without replacement and in their order, row 0 likewise for the children of the last
            committed token. None where the guess is deterministic.
        parents: T indexes into `token_ids`, -1 for the last committed token, each before its child;
            None for a chain.
    """

    token_ids: tuple[int, ...] = ()
    probs: Tensor | None = None
    parents: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        if self.parents is None:
            return len(self.token_ids)
        return max(depths_of(self.parents), default=0)


NO_DRAFT = Draft()


def depths_of(parents: Sequence[int]) -> list[int]:
    """Return how many tokens lie on the path to each token of a tree, itself included."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the target computed for a row in its last pass.

    Attributes:
        slot: the row's slot.
        draft: the draft that the pass verified; empty where there was none.
        outputs: the target's likeliest token after the last committed token and after each draft
            token, raw logits, 1 + T.
    """

    slot: int
    draft: Draft
    outputs: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """What drafters may read of the target; all of it by slot, valid up to a row's KV length.

    Attributes:
        decoder: the target.
        slots: its KV. Entries behind a row's KV length are free to be written over.
        features: hidden states of the drafters' `taps`; None where no drafter asked for any.
    """

    decoder: Decoder
    slots: KvSlots
    features: FeatureSlots | None


class DrafterBase:
    """What most drafters answer: no weights, whole vocabulary, no look at the target."""

    drafter_id = ""
    drafter_hash = ""
    draft_vocab: Tensor | None = None
    max_positions = sys.maxsize
    taps: tuple[int, ...] = ()
    wants_outputs = False

    def attach(self, view: TargetView) -> None:
        """Read nothing of the target."""

    def see(self, seen: Sequence[Seen]) -> None:
        """Learn nothing from its passes."""


class Drafter(Protocol):
    """One drafting method.

    Attributes:
        method: its name.
        max_k: longest draft it can be asked for.
        drafter_id: id of its weights; empty without weights.
        drafter_hash: sha256 over its weights; empty without weights.
        draft_vocab: [reduced V] int64 token ids behind the columns of `Draft.probs`, ascending;
            None where the columns are the whole vocabulary.
        max_positions: longest row it can read, its draft included; longer ones are not asked for.
        taps: which hidden states of the target it reads (see `FeatureSlots`); empty for none.
        wants_outputs: True where `see` shall be called after each pass of its rows.
    """

    method: Method
    max_k: int
    drafter_id: str
    drafter_hash: str
    draft_vocab: Tensor | None
    max_positions: int
    taps: tuple[int, ...]
    wants_outputs: bool

    def attach(self, view: TargetView) -> None:
        """Take what it may read of the target; called once, before the first ask."""

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows at once; one answer per ask, in order."""

    def see(self, seen: Sequence[Seen]) -> None:
        """Learn what the target computed for rows drafted by it; only where it wants outputs."""

    def move(self, source: int, target: int) -> None:
        """Carry what is cached for one slot over to another."""

    def release(self, slot: int) -> None:
        """Forget what is cached for a slot."""
