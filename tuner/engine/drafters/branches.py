"""KV entries of drafts that leave the committed text, laid out level by level.

The entries lie behind the committed ones of a slot, in the order in which they were computed, and
each sees the committed ones and its ancestors. They are scratch: the next ask writes over them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from tuner.engine.drafters.tree_growth import Nodes
from tuner.engine.model.passes import MaskKind, PaddedSpans, Pass


class Branches:
    """The branches of some rows while they grow."""

    def __init__(
        self,
        *,
        slots: Sequence[int],
        roots: Sequence[int],
        num_modules: int,
        max_positions: int,
        kind: MaskKind,
    ) -> None:
        """Start behind the committed entries.

        Args:
            slots: of B rows.
            roots: entry of each row's last committed pair, that of the last committed token.
            num_modules: D, modules with KV of their own; level j is computed by module j modulo D.
            max_positions: rotary angles there are.
            kind: device and dtype of the mask.
        """
        self._slots = slots
        self._first_slot, self._last_slot = min(slots), max(slots) + 1
        self._roots = roots
        self._num_modules = num_modules
        self._max_positions = max_positions
        self._kind = kind
        self._used = [0] * len(slots)
        self._paths: list[tuple[int, ...]] = [()] * len(slots)

    def lay_out(self, level: int, nodes: Nodes) -> Pass:
        """Lay out the newest nodes, those of level 1 or later."""
        module = level % self._num_modules
        # Module d joins the state of entry i with the token of entry i + d, so that its last
        # committed entry lies d before the root's.
        committed = [max(0, self._roots[row] + 1 - module) for row in nodes.rows]
        positions = [
            min(max(0, self._roots[row] + level - module), self._max_positions - 1)
            for row in nodes.rows
        ]
        self._paths = [self._extended(row, above) for row, _, above in zip(*nodes, strict=True)]
        entries = [first + path[-1] for first, path in zip(committed, self._paths, strict=True)]
        slots = [self._slots[row] for row in nodes.rows]
        num_slots, width = self._last_slot - self._first_slot, max(Counter(slots).values())
        cells = [(slot - self._first_slot) * width + number for slot, number in _numbered(slots)]
        context = max(entries) + 1
        columns = (nodes.token_ids, positions, entries, slots, cells, range(len(slots)))
        tokens, places, written, where, held, rows = torch.tensor(columns, device=self._kind.device)
        mask = self._mask(module, cells, committed, (num_slots * width, context))
        return Pass(
            token_ids=tokens,
            positions=places,
            entries=written,
            slots=where,
            short=PaddedSpans(
                first_slot=self._first_slot,
                last_slot=self._last_slot,
                width=width,
                context=context,
                rows=rows,
                cells=held,
                mask=mask.view(num_slots, width, context),
                spans=(),
            ),
            long=(),
        )

    def _extended(self, row: int, above: int) -> tuple[int, ...]:
        """Return the path to a new node, places behind the committed entries, its own the last."""
        place = self._used[row]
        self._used[row] += 1
        return (*self._paths[above], place)

    def _mask(
        self,
        module: int,
        cells: Sequence[int],
        committed: Sequence[int],
        shape: tuple[int, int],
    ) -> Tensor:
        """Return the additive mask [cells, context]; cells without a node see everything.

        A node sees the committed entries, and of its path what its own module has read.
        """
        mask = np.zeros(shape, dtype=np.float32)
        for cell, first, path in zip(cells, committed, self._paths, strict=True):
            mask[cell, first:] = -np.inf
            for place in path[(module - 1) % self._num_modules :: self._num_modules]:
                mask[cell, first + place] = 0.0
        return torch.from_numpy(mask).to(self._kind.device, self._kind.dtype)


def _numbered(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each node's slot, and how many nodes of that slot came before it."""
    counts: Counter[int] = Counter()
    for slot in slots:
        yield slot, counts[slot]
        counts[slot] += 1
