"""Where drafts end before they have their length: asked position by position as they grow.

Both questions come before the next token is drawn, so that no token decides about itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engine.drafters.base import DraftAsk


def goes_on(asks: Sequence[DraftAsk], logits: Tensor) -> list[bool]:
    """Say of each row whether its next token shall be drafted; rows without an outlook go on.

    Args:
        asks: B rows.
        logits: [B, reduced V] of the next token.
    """
    going = [True] * len(asks)
    outlooks = {row: ask.outlook for row, ask in enumerate(asks) if ask.outlook is not None}
    if outlooks:
        rows = list(outlooks)
        if len(rows) < len(asks):
            logits = logits[rows]
        confidences = token_probs([asks[row] for row in rows], logits, logits.argmax(-1))
        market = outlooks[rows[0]].market
        for row, taken in zip(rows, market.judge([*outlooks.values()], confidences), strict=True):
            going[row] = taken
    return going


def is_worth_a_pass(asks: Sequence[DraftAsk]) -> bool:
    """Say whether rows whose drafts have not ended shall have one more draft pass."""
    outlooks = [ask.outlook for ask in asks if ask.outlook is not None]
    if len(outlooks) < len(asks):
        return True
    return bool(outlooks) and outlooks[0].market.pays_pass(outlooks)


def num_paying(ask: DraftAsk, chances: Sequence[float]) -> int:
    """Return how many tokens of a deterministic draft pay, by the chances their drafter gives."""
    outlook = ask.outlook
    if outlook is None:
        return len(chances)
    return sum(
        itertools.takewhile(bool, (outlook.market.judge([outlook], [c])[0] for c in chances))
    )


def token_probs(asks: Sequence[DraftAsk], logits: Tensor, columns: Tensor) -> list[float]:
    """Return the probability of a token of each row, at its temperature or at 1 if greedy.

    Args:
        asks: B rows.
        logits: [B, reduced V].
        columns: [B] int64 the tokens.
    """
    heats = torch.tensor([ask.sampling.temperature or 1.0 for ask in asks])
    scaled = logits.float() / heats[:, None].to(logits.device)
    probs = (scaled.gather(1, columns[:, None])[:, 0] - scaled.logsumexp(-1)).exp()
    return [float(prob) for prob in probs.tolist()]
