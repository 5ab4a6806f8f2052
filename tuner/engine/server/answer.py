"""The parts of an answer that both generating endpoints share: usage, metrics, token text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.engine.request import Delta, RequestCounts

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot hold; OpenAI's value."""


def usage_of(counts: RequestCounts) -> dict[str, object]:
    """Return OpenAI's usage object."""
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }


def metrics_of(delta: Delta) -> dict[str, object]:
    """Return what speculation did for a request, from its last delta.

    ``speculative_decoding`` has vLLM's shape and counts passes with a draft only; rates are null
    where nothing was drafted. ``spectuner`` adds the Setting of the last step and all passes.
    """
    counts = delta.counts
    return {
        "speculative_decoding": _speculative_decoding(counts),
        "spectuner": {
            "setting": delta.setting.to_dict(),
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
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        counts=last.counts,
        setting=last.setting,
    )
