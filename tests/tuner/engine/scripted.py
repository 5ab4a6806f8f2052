"""A drafter that guesses by a throw of the dice: trees of any shape, good and bad, right and wrong.

It exercises verification through the real core without a trained head. Shape and distributions
are a pure function of the committed tokens, so a row's draft does not depend on its batch mates and
never on the tokens drawn for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, DrafterBase
from tuner.engine.drafters.ending import num_paying

_SHARE_EMPTY = 0.1
_SHARE_CLOSED = 0.2
"""Tokens that get no child although there is room for some."""


class ScriptedDrafter(DrafterBase):
    """Drafts random trees, or chains where the Setting asks for none."""

    max_k = MAX_DRAFT_LENGTH
    drafter_id = "scripted"

    def __init__(
        self, method: Method, *, vocab_size: int, draft_vocab: Tensor | None, gives_probs: bool
    ) -> None:
        self.method = method
        self.draft_vocab = draft_vocab
        self._gives_probs = gives_probs
        self._num_columns = vocab_size if draft_vocab is None else len(draft_vocab)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def move(self, source: int, target: int) -> None:
        pass

    def release(self, slot: int) -> None:
        pass

    def _draft(self, ask: DraftAsk) -> Draft:
        dice = np.random.default_rng([len(ask.token_ids), *ask.token_ids[-4:]])
        if dice.random() < _SHARE_EMPTY:
            return NO_DRAFT
        parents = _shape(dice, ask)
        is_drawn = self._gives_probs and not ask.sampling.is_greedy
        probs = self._distributions(dice, len(parents))
        if ask.outlook is not None:
            length = num_paying(ask, probs.max(1).values.tolist())
            parents, probs = parents[:length], probs[:length]
        if not parents:
            return NO_DRAFT
        columns = _grow(parents, probs, ask.generator if is_drawn else _fixed(dice))
        token_ids = columns if self.draft_vocab is None else self.draft_vocab[columns]
        return Draft(
            token_ids=tuple(token_ids.tolist()),
            probs=probs if is_drawn else None,
            parents=tuple(parents) if ask.setting.is_tree else None,
        )

    def _distributions(self, dice: np.random.Generator, count: int) -> Tensor:
        """Peaked and flat ones, [count, V or Vd]; a fifth of them hold three tokens only."""
        weights = dice.exponential(size=(count, self._num_columns)) ** 2 + 1e-3
        for row in np.flatnonzero(dice.random(count) < 0.2):
            weights[row, dice.permutation(self._num_columns)[3:]] = 0
        return torch.from_numpy(weights / weights.sum(1, keepdims=True)).float()


def _shape(dice: np.random.Generator, ask: DraftAsk) -> list[int]:
    """Return the parents of a tree within the ask's depth, nodes and width; a path for a chain."""
    width = max(1, ask.setting.tree_width)
    parents, depths = [], [0]
    for position in range(ask.num_nodes):
        if position >= len(depths):
            break
        num_children = int(dice.integers(1, width + 1)) * (
            width == 1 or position == 0 or dice.random() >= _SHARE_CLOSED
        )
        for _ in range(num_children):
            if depths[position] < ask.k and len(parents) < ask.num_nodes:
                parents.append(position - 1)
                depths.append(depths[position] + 1)
    return parents


def _grow(parents: Sequence[int], probs: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the children of each token without replacement, [T] columns.

    Where a distribution holds fewer tokens than there are children, the rest are whatever is left.
    """
    columns = torch.zeros(len(parents), dtype=torch.int64)
    for parent in sorted(set(parents)):
        children = [node for node, each in enumerate(parents) if each == parent]
        held = probs[parent + 1]
        count = min(len(children), int((held > 0).sum()))
        drawn = torch.multinomial(held, count, generator=generator)
        left = [column for column in range(len(held)) if column not in drawn.tolist()]
        order = [*drawn.tolist(), *left]
        columns[children] = torch.tensor(order[: len(children)])
    return columns


def _fixed(dice: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(dice.integers(2**31)))
