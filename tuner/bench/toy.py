"""A toy language of four tokens, small enough that every sequence's probability is known.

A token depends on the one before it. The draft is the target, mixed with another language.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

NUM_TOKENS = 4
FIRST_CONTEXT = 0
_LANGUAGE_SEED = 2
_SHARED = 0.55


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyLanguage:
    """Next-token probabilities of target and draft.

    Attributes:
        target: [4, 4] float64, row = context token.
        draft: [4, 4] float64.
    """

    target: Tensor
    draft: Tensor

    @classmethod
    def build(cls) -> ToyLanguage:
        """Return the language, always the same one."""
        rng = np.random.default_rng(_LANGUAGE_SEED)
        target = rng.dirichlet(np.ones(NUM_TOKENS), size=NUM_TOKENS)
        other = rng.dirichlet(np.ones(NUM_TOKENS), size=NUM_TOKENS)
        draft = _SHARED * target + (1 - _SHARED) * other
        return cls(target=torch.from_numpy(target), draft=torch.from_numpy(draft))

    @property
    def alpha_by_context(self) -> tuple[float, ...]:
        """Acceptance of the rejection rule after each context token: the rows' overlap."""
        return tuple(torch.minimum(self.target, self.draft).sum(1).tolist())

    @property
    def match_by_context(self) -> tuple[float, ...]:
        """Acceptance of the token-match rule after each context token."""
        return tuple((self.target * self.draft).sum(1).tolist())

    def sequence_probs(self, length: int) -> Tensor:
        """Return the target's probability of every sequence, [4**length] float64.

        Sequences are numbered as `number_sequences` does.
        """
        probs = self.target[FIRST_CONTEXT]
        for _ in range(length - 1):
            last = torch.arange(len(probs)) % NUM_TOKENS
            probs = (probs.unsqueeze(1) * self.target[last]).flatten()
        return probs


def number_sequences(tokens: Tensor) -> Tensor:
    """Number sequences by reading them in base 4, first token first.

    Args:
        tokens: [B, length] int64.

    Returns:
        [B] int64 in 0..4**length - 1.
    """
    places = NUM_TOKENS ** torch.arange(tokens.shape[1] - 1, -1, -1)
    return (tokens * places).sum(1)
