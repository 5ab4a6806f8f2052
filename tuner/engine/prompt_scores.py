"""Log probabilities of a prompt's own tokens, computed beside its prefill."""

from __future__ import annotations

from torch import Tensor

from tuner.engine.model.decoder import Decoder
from tuner.engine.model.passes import Span
from tuner.engine.row import Row
from tuner.engine.verification.logprobs import token_logprobs


def score_prompt(target: Decoder, states: Tensor, row: Row, span: Span) -> None:
    """Add to a row the log probabilities of the prompt tokens that a span foretells.

    Args:
        target: the model.
        states: [T, H], what its pass gave for the T tokens of the span.
        row: asks for log probabilities of its prompt.
        span: a chunk of the prompt; chunks come in order.
    """
    following = row.request.prompt_ids[span.start + 1 : span.end + 1]
    if following:
        logits = target.logits(states[: len(following)])
        num_alternatives = row.request.prompt_logprobs or 0
        row.prompt_logprobs.extend(token_logprobs(logits, following, num_alternatives))
