"""Medusa: heads on the target's last hidden state guess several tokens at once.

The guess for one position does not know that for the position before it, so the best combinations
are offered as deterministic trees, and chains take each head's likeliest token.
Source: arXiv:2401.10774, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from collectors.records import Method
from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.newest_state import NewestStateDrafter
from tuner.engine.drafters.tree_growth import Nodes, grow
from tuner.engine.model.heads.medusa import MedusaHeads


class MedusaDrafter(NewestStateDrafter):
    """Drafts with Medusa heads."""

    method = Method.MEDUSA

    def __init__(self, heads: MedusaHeads, *, drafter_id: str, drafter_hash: str) -> None:
        """Take over the heads.

        Args:
            heads: the first guesses the token after the last committed one.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
        """
        super().__init__(drafter_id=drafter_id, drafter_hash=drafter_hash)
        self._heads = heads
        self.max_k = heads.num_heads
        self._vocab = None if heads.vocab is None else heads.vocab.tolist()
        self.draft_vocab = heads.vocab

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows: all heads once, then the best of their combinations."""
        if not asks:
            return []
        logits = self._heads.logits(self._newest(asks), max(ask.k for ask in asks))

        def advance(level: int, nodes: Nodes) -> Tensor:
            return logits[level]

        # Going on costs nothing, so every node may: the tree is the best of all combinations.
        return grow(
            asks,
            logits[0],
            advance,
            vocab=self._vocab,
            beams=[ask.num_nodes if ask.setting.is_tree else 1 for ask in asks],
            can_draw=False,
            is_by_row=True,
        )
