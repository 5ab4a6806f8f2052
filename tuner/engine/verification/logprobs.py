"""Log probabilities for clients, and the margins that tell a near tie from a fault.

Both read the model's raw logits: before bias, penalties, temperature and filters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engine.request import TokenLogprob
from tuner.engine.verification.shapes import require_shape


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], num_alternatives: int
) -> tuple[TokenLogprob, ...]:
    """Report delivered tokens with their most likely alternatives.

    The numbers are the log-softmax of the raw logits, so a token keeps its logprob whatever the
    request's temperature, penalties or filters are.

    Args:
        logits: [M, V] raw, at the positions that the tokens were chosen for.
        token_ids: M delivered tokens.
        num_alternatives: how many of the most likely tokens to report; 0 for none.

    Raises:
        ShapeError: logits and tokens disagree.
    """
    require_shape("logits", logits, (len(token_ids), logits.shape[-1]))
    logits = logits.float()
    log_mass = logits.logsumexp(dim=1, keepdim=True)
    chosen = torch.tensor(list(token_ids), dtype=torch.int64, device=logits.device)
    own = (logits.gather(1, chosen.unsqueeze(1)) - log_mass).squeeze(1).tolist()
    best, best_ids = logits.topk(min(num_alternatives, logits.shape[1]), dim=1)
    tops = zip(best_ids.tolist(), (best - log_mass).tolist(), strict=True)
    return tuple(
        TokenLogprob(
            token_id=token,
            logprob=logprob,
            top=tuple(zip(ids, values, strict=True)),
        )
        for token, logprob, (ids, values) in zip(token_ids, own, tops, strict=True)
    )


def top_margins(logits: Tensor) -> Tensor:
    """Return how far the most likely token is above the second, [M] in nats.

    A greedy output may differ between two exact implementations where this is within the noise of
    the dtype.

    Args:
        logits: [M, V] raw, V >= 2.
    """
    best = logits.float().topk(2, dim=1).values
    return best[:, 0] - best[:, 1]
