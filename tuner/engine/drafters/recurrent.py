"""What EAGLE and MTP share: a head reads the target's states, then drafts from its own.

The head's KV holds one entry for each pair of a state of the target and the token after it. Only
pairs of committed tokens stay: a guess was made from the head's own state, so once committed it is
read again with the target's. Rollback and a change of method therefore need no message: what is
missing is read from the feature slots at the next ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase, TargetView
from tuner.engine.drafters.branches import Branches
from tuner.engine.drafters.tree_growth import Nodes, grow
from tuner.engine.errors import EngineError
from tuner.engine.model.decoder import slots_for
from tuner.engine.model.heads.base import RecurrentHead
from tuner.engine.model.passes import MaskKind, Span, lay_out
from tuner.engine.model.slots import FeatureSlots, KvSlots

_CATCH_UP_TOKENS = 256
"""Committed pairs read per row and pass."""

_MAX_BEAM = 16
"""Nodes of a level that are computed at most: as many as a node has children, up to this."""

SCRATCH_ENTRIES = _MAX_BEAM * (MAX_DRAFT_LENGTH - 1)
"""KV entries of a slot that a growing draft may need behind the committed ones."""


class RecurrentDrafter(DrafterBase):
    """Drafts chains and trees with a head over KV slots of its own."""

    method: Method
    max_k = MAX_DRAFT_LENGTH

    def __init__(
        self,
        head: RecurrentHead,
        *,
        num_slots: int,
        max_context_tokens: int,
        drafter_id: str,
        drafter_hash: str,
    ) -> None:
        """Take over a head.

        Args:
            head: its modules.
            num_slots: the target's number of slots.
            max_context_tokens: the target's context limit.
            drafter_id: name of the weights.
            drafter_hash: sha256 over the weights.
        """
        self._head = head
        self._kind = MaskKind(device=head.device, dtype=head.dtype)
        self._slots: KvSlots = slots_for(
            head.shape, num_slots, max_context_tokens + SCRATCH_ENTRIES, self._kind
        )
        self._read = [0] * num_slots
        self._features: FeatureSlots | None = None
        self._vocab = None if head.vocab is None else head.vocab.tolist()
        self.draft_vocab = head.vocab
        self.taps = head.taps
        self.drafter_id = drafter_id
        self.drafter_hash = drafter_hash

    def attach(self, view: TargetView) -> None:
        """Read the target's hidden states."""
        self._features = view.features

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Guess for all rows, one pass per level."""
        if not asks:
            return []
        states = self._catch_up(asks)
        head, num_modules = self._head, self._head.shape.num_layers
        branches = Branches(
            slots=[ask.slot for ask in asks],
            roots=[len(ask.token_ids) - 2 for ask in asks],
            num_modules=num_modules,
            max_positions=head.shape.max_positions,
            kind=self._kind,
        )

        def advance(level: int, nodes: Nodes) -> Tensor:
            nonlocal states
            module = level % num_modules
            batch = branches.lay_out(level, nodes)
            before = states[torch.tensor(nodes.parents, device=states.device)]
            states = head.forward(batch, before, self._slots, module)
            return head.logits(states, module)

        return grow(
            asks,
            head.logits(states, 0),
            advance,
            vocab=self._vocab,
            beams=[min(max(1, ask.setting.tree_width), _MAX_BEAM) for ask in asks],
            can_draw=True,
        )

    def move(self, source: int, target: int) -> None:
        """Carry the KV of one slot over to another."""
        self._slots.move(source, target, self._read[source])
        self._read[target], self._read[source] = self._read[source], 0

    def release(self, slot: int) -> None:
        """Forget the KV of a slot."""
        self._read[slot] = 0

    def cached_length(self, slot: int) -> int:
        """Return how many committed pairs the head's KV holds for a slot."""
        return self._read[slot]

    def _catch_up(self, asks: Sequence[DraftAsk]) -> Tensor:
        """Read the committed pairs not read yet; return the state [B, H] after each row's last."""
        while True:
            starts = [self._unread(ask) for ask in asks]
            ends = [
                min(len(ask.token_ids) - 1, start + _CATCH_UP_TOKENS)
                for ask, start in zip(asks, starts, strict=True)
            ]
            states = self._read_pairs(asks, starts, ends)
            for ask, end in zip(asks, ends, strict=True):
                self._read[ask.slot] = end
            if all(end == len(ask.token_ids) - 1 for ask, end in zip(asks, ends, strict=True)):
                return states

    def _unread(self, ask: DraftAsk) -> int:
        """Return the first pair to read, the last one again where all are read.

        A later module reads what the one before it gave for the same entry, so that with D modules
        the last D - 1 entries are read once more.
        """
        last = len(ask.token_ids) - 2
        return max(0, min(self._read[ask.slot], last) - (self._head.shape.num_layers - 1))

    def _read_pairs(
        self, asks: Sequence[DraftAsk], starts: Sequence[int], ends: Sequence[int]
    ) -> Tensor:
        """Run every module over entries [start, end) of each row.

        Returns:
            [B, H] the first module's state after each row's last entry.
        """
        states = self._run(0, _pairs(0, asks, starts, ends), {})
        newest = torch.cat([states[row][-1:] for row in range(len(asks))])
        for module in range(1, self._head.shape.num_layers):
            states = self._run(module, _pairs(module, asks, starts, ends), states)
        return newest

    def _run(
        self, module: int, spans: Mapping[int, Span], before: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Run one module over a span of each row; return its states by row, each [n, H].

        Args:
            module: which.
            spans: by row.
            before: states of the module before it, from the same first entry on.
        """
        if not spans:
            return {}
        if self._features is None:
            raise EngineError(f"the {self.method} drafter was asked before it saw the target")
        batch = lay_out(list(spans.values()), self._kind)
        lengths = [len(span.token_ids) for span in spans.values()]
        if module == 0:
            states = self._head.fuse(self._features.at(batch.slots, batch.entries, self.taps))
        else:
            states = torch.cat([before[row][: lengths[i]] for i, row in enumerate(spans)])
        after = self._head.forward(batch, states, self._slots, module)
        return dict(zip(spans, torch.split(after, lengths), strict=True))


def _pairs(
    module: int, asks: Sequence[DraftAsk], starts: Sequence[int], ends: Sequence[int]
) -> dict[int, Span]:
    """Return what a module reads of each row; rows without a pair for it are left out.

    Module d joins the state of entry i with token i + d + 1.
    """
    spans: dict[int, Span] = {}
    for row, (ask, start, end) in enumerate(zip(asks, starts, ends, strict=True)):
        stop = min(end, len(ask.token_ids) - 1 - module)
        if stop > start:
            token_ids = ask.token_ids[start + module + 1 : stop + module + 1]
            spans[row] = Span(slot=ask.slot, start=start, token_ids=token_ids)
    return spans
