"""What Medusa and the MLP speculator share: they read the target's newest state, keep nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collectors.records import Method
from tuner.engine.drafters.base import DraftAsk, DrafterBase, TargetView
from tuner.engine.errors import EngineError
from tuner.engine.model.slots import FINAL, FeatureSlots


class NewestStateDrafter(DrafterBase):
    """Drafts from the state after the token before the last committed one."""

    method: Method
    taps: tuple[int, ...] = (FINAL,)

    def __init__(self, *, drafter_id: str, drafter_hash: str) -> None:
        """Start without a target.

        Args:
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
        """
        self._features: FeatureSlots | None = None
        self.drafter_id = drafter_id
        self.drafter_hash = drafter_hash

    def attach(self, view: TargetView) -> None:
        """Read the target's hidden states."""
        self._features = view.features

    def move(self, source: int, target: int) -> None:
        """Do nothing: nothing is kept."""

    def release(self, slot: int) -> None:
        """Do nothing: nothing is kept."""

    def _newest(self, asks: Sequence[DraftAsk]) -> Tensor:
        """Return the newest final state of each row, [B, H]."""
        if self._features is None:
            raise EngineError(f"the {self.method} drafter was asked before it saw the target")
        device = self._features.values.device
        slots = torch.tensor([ask.slot for ask in asks], device=device)
        entries = torch.tensor([len(ask.token_ids) - 2 for ask in asks], device=device)
        return self._features.at(slots, entries, self.taps)[:, 0]
