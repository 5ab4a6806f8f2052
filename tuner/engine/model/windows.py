"""Which layers of a model see all tokens, and which only the latest; read off its configuration."""

from __future__ import annotations

from transformers import PreTrainedConfig

FULL, SLIDING = "full_attention", "sliding_attention"
"""Transformers' names for the two kinds of layers that run over KV slots."""


def window_of(config: PreTrainedConfig) -> int | None:
    """Return the attention window of a model's sliding layers, in tokens; None where it has none.

    A model whose layers are all of the full kind has none, whatever its window says.
    """
    window = getattr(config, "sliding_window", None)
    kinds = _kinds(config)
    if not window or not getattr(config, "use_sliding_window", True):
        return None
    return window if not kinds or SLIDING in kinds else None


def mixes_windows(config: PreTrainedConfig) -> bool:
    """Say whether some layers attend a window and others all tokens."""
    return window_of(config) is not None and len(_kinds(config)) > 1


def layers_refusal_reason(config: PreTrainedConfig) -> str | None:
    """Say why a model's layers cannot run over KV slots; None where nothing tells so.

    Needs no weights, so that nothing large is read or converted for a model that is refused.
    """
    if not getattr(config, "num_attention_heads", None):
        return "its configuration has no attention"
    others = _kinds(config) - {FULL, SLIDING}
    if others:
        return f"some of its layers are of the kind {min(others)!r}"
    return None


def _kinds(config: PreTrainedConfig) -> set[str]:
    return set(getattr(config, "layer_types", None) or ())
