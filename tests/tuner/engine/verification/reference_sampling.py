"""Sampling written as plainly as can be: one token at a time, one row, Python floats and loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tuner.engine.request import SamplingParams


def reference_logits(
    raw: Sequence[float],
    params: SamplingParams,
    *,
    prompt: Sequence[int],
    output: Sequence[int],
    end_ids: Sequence[int] = (),
) -> list[float]:
    """Return the logits of the token that follows `output`, before the temperature."""
    logits = list(raw)
    for token, bias in params.logit_bias.items():
        logits[token] = -math.inf if bias <= -100 else logits[token] + bias
    if len(output) < params.min_tokens:
        for token in end_ids:
            logits[token] = -math.inf
    counts = Counter(output)
    for token in {*prompt, *output}:
        repetition = params.repetition_penalty
        logits[token] = (
            logits[token] / repetition if logits[token] > 0 else logits[token] * repetition
        )
    for token, count in counts.items():
        logits[token] -= params.frequency_penalty * count + params.presence_penalty
    return logits


def reference_probs(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Return the distribution of a sampled row's next token."""
    best = max(logits)
    weights = [math.exp((logit - best) / params.temperature) for logit in logits]
    floor = params.min_p * max(weights)
    if 0 < params.top_k <= len(weights):
        floor = max(floor, sorted(weights, reverse=True)[params.top_k - 1])
    weights = [weight if weight >= floor else 0.0 for weight in weights]
    if params.top_p < 1:
        weights = _top_p(weights, params.top_p)
    return [weight / sum(weights) for weight in weights]


def _top_p(weights: Sequence[float], top_p: float) -> list[float]:
    ranked = sorted(weights, reverse=True)
    mass, threshold = 0.0, ranked[0]
    for weight in ranked:
        if mass >= top_p * sum(weights):
            break
        mass += weight
        threshold = weight
    return [weight if weight >= threshold else 0.0 for weight in weights]
