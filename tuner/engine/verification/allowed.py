"""Which tokens the grammars of a batch allow at each position of a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tuner.engine.grammar import GrammarState
from tuner.engine.verification.rows import Block


def allowed_tokens(
    states: Sequence[GrammarState | None], block: Block, logits: Tensor
) -> Tensor | None:
    """Return what may follow each position, as if the tokens before it had come one by one.

    Positions that cannot be reached, behind a forbidden token or an end, allow all.

    Args:
        states: of each row; None where it has no grammar. They stand where they stood afterwards.
        block: which positions are whose, and the drafts.
        logits: [N, V], for its sizes and its device.

    Returns:
        [N, V] bool; None where no row has a grammar.
    """
    if all(state is None for state in states):
        return None
    allowed = np.ones(tuple(logits.shape), dtype=np.bool_)
    for index, state in enumerate(states):
        if state is not None:
            first = block.starts[index] + 1
            for node in state.visit(block.drafts[index], block.parents[index]):
                if not state.is_over:
                    allowed[first + node] = state.allowed()
    return torch.from_numpy(allowed).to(logits.device)
