"""MLP speculator: small stages over the target's last state and the tokens drafted so far.

Source: arXiv:2404.19124.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collectors.records import Method
from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.newest_state import NewestStateDrafter
from tuner.engine.drafters.tree_growth import Nodes, grow
from tuner.engine.model.heads.mlp_speculator import MlpSpeculator


class MlpSpeculatorDrafter(NewestStateDrafter):
    """Drafts with one stage per token."""

    method = Method.MLP_SPECULATOR

    def __init__(self, speculator: MlpSpeculator, *, drafter_id: str, drafter_hash: str) -> None:
        """Take over the stages.

        Args:
            speculator: its first stage guesses the token after the last committed one.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
        """
        super().__init__(drafter_id=drafter_id, drafter_hash=drafter_hash)
        self._speculator = speculator
        self.max_k = speculator.num_stages
        self._vocab = None if speculator.vocab is None else speculator.vocab.tolist()
        self.draft_vocab = speculator.vocab

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows, one stage a level."""
        if not asks:
            return []
        speculator, begun = self._speculator, self._speculator.begin(self._newest(asks))
        last = torch.tensor([ask.token_ids[-1] for ask in asks], device=begun.device)
        states = speculator.advance(0, begun, last)

        def advance(level: int, nodes: Nodes) -> Tensor:
            nonlocal states
            before = states[torch.tensor(nodes.parents, device=states.device)]
            token_ids = torch.tensor(nodes.token_ids, device=states.device)
            states = speculator.advance(level, before, token_ids)
            return speculator.logits(level, states)

        return grow(
            asks,
            speculator.logits(0, states),
            advance,
            vocab=self._vocab,
            beams=[max(1, ask.setting.tree_width) for ask in asks],
            can_draw=True,
        )
