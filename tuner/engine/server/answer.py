"""The parts of an answer that both generating endpoints share: usage, metrics, token text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from collectors.records import Setting
from tuner.engine.request import Delta, RequestCounts

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot hold; OpenAI's value."""


def total_of(counts: Sequence[RequestCounts], prompt_tokens: int) -> RequestCounts:
    """Return what several rows of one request cost and got together.

    Args:
        counts: of each row.
        prompt_tokens: of the request, a prompt that several rows share counted once.
    """
    histograms = [row.accepted_histogram for row in counts]
    return RequestCounts(
        prompt_tokens=prompt_tokens,
        completion_tokens=sum(row.completion_tokens for row in counts),
        passes=sum(row.passes for row in counts),
        verify_passes=sum(row.verify_passes for row in counts),
        drafted=sum(row.drafted for row in counts),
        accepted=sum(row.accepted for row in counts),
        accepted_histogram=tuple(map(sum, zip_longest(*histograms, fillvalue=0))),
        max_k=max(row.max_k for row in counts),
    )


def usage_of(counts: RequestCounts) -> dict[str, object]:
    """Return OpenAI's usage object."""
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }


def metrics_of(counts: RequestCounts, setting: Setting) -> dict[str, object]:
    """Return what speculation did for a request, from its totals.

    ``speculative_decoding`` has vLLM's shape and counts passes with a draft only; rates are null
    where nothing was drafted. ``spectuner`` adds the Setting of the last step and all passes.
    """
    return {
        "speculative_decoding": _speculative_decoding(counts),
        "spectuner": {
            "setting": setting.to_dict(),
            "passes": counts.passes,
            "verify_passes": counts.verify_passes,
        },
    }


def _speculative_decoding(counts: RequestCounts) -> dict[str, object]:
    histogram = list(counts.accepted_histogram)
    histogram += [0] * (counts.max_k + 1 - len(histogram))
    length = 1 + counts.accepted / counts.verify_passes if counts.verify_passes else None
    rate = counts.accepted / counts.drafted if counts.drafted else None
    return {
        "mean_acceptance_length": length,
        "draft_acceptance_rate": rate,
        "acceptance_histogram": histogram,
        "num_spec_steps": counts.verify_passes,
        "num_accepted_draft_tokens": counts.accepted,
        "num_draft_tokens": counts.drafted,
        "num_spec_tokens": counts.max_k,
    }


def finite_logprob(value: float) -> float:
    """Return a log probability that JSON can hold."""
    return value if math.isfinite(value) else LOWEST_LOGPROB


def joined(deltas: Sequence[Delta]) -> Delta:
    """Return one delta that delivers all of them at once.

    Args:
        deltas: all deltas of a request, at least one, in order.
    """
    last = deltas[-1]
    return Delta(
        request_id=last.request_id,
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        text="".join(delta.text for delta in deltas),
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
        prompt_logprobs=deltas[0].prompt_logprobs,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        counts=last.counts,
        setting=last.setting,
    )
