"""What an engine is loaded with, and the names its choices are given by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from collectors.records import Method
from tuner.engine.errors import StartupError
from tuner.engine.limits import EngineLimits
from tuner.engine.model.bundled_model import BUNDLED, BUNDLED_NAME

NO_DRAFT_MODEL = "none"
AUTO = "auto"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is loaded with.

    Attributes:
        model: ``bundled``, a Hugging Face directory, or a GGUF file.
        served_name: model id that clients use; empty for the directory's name.
        draft: ``bundled`` for the draft model shipped for this target, a directory, or ``none``; a
            model with another tokenizer drafts by way of the text.
        draft_min_confidence: a token of the draft model less probable than this is the last of its
            draft; 0 never stops one.
        draft_schedule: ``constant`` drafts the Setting's k each time; ``heuristic`` two more after
            a draft that was kept whole, one less after another.
        heads: directory of a method's trained head; a method left out takes the one shipped for
            this target, where there is one.
        methods: drafting methods to load; None for all that can be.
        suffix_store_tokens: past output tokens that suffix drafting keeps of each route to look in;
            0 keeps none. Shadow requests and private routes are never kept.
        sparse_window_tokens: latest tokens that self_sparse drafting looks at; it drafts once the
            context is more than twice as long.
        limits: batch, context and queue.
        dtype: float32, bfloat16 or float16.
        draft_dtype: of a draft model that shares the target's embedding, and of heads; ``auto``
            takes bfloat16 on a CPU that multiplies it natively, where it halves the draft's cost.
        device: a torch device.
        threads: CPU threads; 0 for torch's own choice.
        routes: the only legal route names; None takes names as they come.
        journal_capacity: records held at most.
        reference_interval: steps that draft from one that runs plain for comparison to the next, on
            average; 0 for none.
    """

    model: str = BUNDLED
    served_name: str = ""
    draft: str = BUNDLED
    draft_min_confidence: float = 0.0
    draft_schedule: str = "constant"
    heads: Mapping[Method, str] = field(default_factory=dict)
    methods: tuple[Method, ...] | None = None
    suffix_store_tokens: int = 0
    sparse_window_tokens: int = 256
    limits: EngineLimits = field(default_factory=EngineLimits)
    dtype: str = "float32"
    draft_dtype: str = AUTO
    device: str = "cpu"
    threads: int = 0
    routes: tuple[str, ...] | None = None
    journal_capacity: int = 100_000
    reference_interval: int = 64


def default_name(model: str) -> str:
    """Return the model id that clients use where none was given."""
    return BUNDLED_NAME if model == BUNDLED else Path(model).name


def torch_dtype(name: str) -> torch.dtype:
    """Return the dtype of a name.

    Raises:
        StartupError: the engine does not compute in it.
    """
    if name not in _DTYPES:
        raise StartupError(f"dtype {name!r} is not one of: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def draft_dtype(settings: EngineSettings) -> torch.dtype:
    """Return the dtype of drafts and heads that share the target's embedding.

    Raises:
        StartupError: the settings name none that the engine computes in.
    """
    if settings.draft_dtype != AUTO:
        return torch_dtype(settings.draft_dtype)
    is_native = settings.device == "cpu" and torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if is_native else torch_dtype(settings.dtype)


def drafting_of(settings: EngineSettings) -> dict[str, object]:
    """Return what decides, beside weights and Setting, what is drafted: part of what is pinned."""
    return {
        "draft_dtype": str(draft_dtype(settings)).removeprefix("torch."),
        "draft_min_confidence": settings.draft_min_confidence,
        "draft_schedule": settings.draft_schedule,
        "sparse_window_tokens": settings.sparse_window_tokens,
        "suffix_store_tokens": settings.suffix_store_tokens,
    }
