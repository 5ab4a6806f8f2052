"""Puts an engine together: target, drafters, plan, journal, capture, core."""

from __future__ import annotations

import platform
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import llguidance
import tokenizers
import torch
import transformers

from collectors.records import MAX_DRAFT_LENGTH, Method, PinnedConfig
from tuner.engine.capabilities import Capabilities, MethodCapability
from tuner.engine.capture import Capture
from tuner.engine.core import EngineCore
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.drafting import Drafting
from tuner.engine.errors import StartupError
from tuner.engine.journal import Journal, Observer
from tuner.engine.limits import EngineLimits
from tuner.engine.live_plan import LivePlan
from tuner.engine.memory_need import require_memory
from tuner.engine.model.bundled_model import resolve_model
from tuner.engine.model.codec import HfCodec
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.memory import (
    gather_into_huge_pages,
    keep_freed_memory,
    return_freed_memory,
)
from tuner.engine.model.weights import LoadedModel, load_model
from tuner.engine.settings import EngineSettings, default_name, drafting_of, torch_dtype

ENGINE_VERSION = "0.1.0"
_MANY_WEIGHTS = 10_000_000
"""From here on the weights outgrow what a CPU remembers of small pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """An engine ready to step.

    Attributes:
        core: the step loop.
        codec: the tokenizer.
        plan: the live plan.
        journal: the numbered journal.
        capture: the capture reservoir, off.
        pinned: what could change an output, at Setting off.
        capabilities: what it can do.
        num_weights: weights of the target that a decode step reads.
    """

    core: EngineCore
    codec: HfCodec
    plan: LivePlan
    journal: Journal
    capture: Capture
    pinned: PinnedConfig
    capabilities: Capabilities
    num_weights: int


def load_engine(settings: EngineSettings, observers: Sequence[Observer] = ()) -> LoadedEngine:
    """Load everything.

    Args:
        settings: what to load.
        observers: called with each journal record.

    Raises:
        StartupError: a path, device, dtype or size that cannot be served, or too little memory.
    """
    require_memory(settings)
    return_freed_memory()
    target = load_target(settings)
    drafters = load_drafters(settings, target)
    keep_freed_memory()
    return build_engine(settings, target, drafters, observers)


def build_engine(
    settings: EngineSettings,
    target: LoadedModel,
    drafters: Mapping[Method, Drafter],
    observers: Sequence[Observer] = (),
    clock: Callable[[], float] = time.monotonic,
) -> LoadedEngine:
    """Put an engine together from loaded parts.

    Args:
        settings: limits, names and routes.
        target: the target.
        drafters: by method, off left out.
        observers: called with each journal record.
        clock: seconds, by which steps are timed.
    """
    limits = settings.limits
    name = settings.served_name or default_name(settings.model)
    capabilities = _capabilities(name, target, drafters, limits)
    boot_id = uuid.uuid4().hex
    plan = LivePlan(settings.routes, capabilities)
    journal = Journal(boot_id, settings.journal_capacity, observers)
    capture = Capture(boot_id, target.codec.decode, random.Random(boot_id))
    core = EngineCore(
        target.decoder,
        Drafting(
            drafters,
            max_context_tokens=limits.max_context_tokens,
            is_private=lambda route: route in capture.settings.private_routes,
            clock=clock,
        ),
        target.codec,
        plan=plan,
        journal=journal,
        capture=capture,
        limits=limits,
        reference_interval=settings.reference_interval,
        clock=clock,
    )
    return LoadedEngine(
        core=core,
        codec=target.codec,
        plan=plan,
        journal=journal,
        capture=capture,
        pinned=_pinned(name, target, settings),
        capabilities=capabilities,
        num_weights=target.decoder.num_weights,
    )


def load_target(settings: EngineSettings) -> LoadedModel:
    """Read the target.

    Raises:
        StartupError: a path, device, dtype or context that cannot be served.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    path = resolve_model(settings.model)
    model = load_model(path, dtype=torch_dtype(settings.dtype), device=_device(settings.device))
    wanted, limit = settings.limits.max_context_tokens, model.decoder.shape.max_positions
    if wanted > limit:
        raise StartupError(
            f"a context of {wanted} tokens is more than the model's {limit}; lower --max-context"
        )
    if model.decoder.num_weights >= _MANY_WEIGHTS:
        gather_into_huge_pages()
    return model


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise StartupError(f"device {name!r} is not a torch device; use cpu or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise StartupError(f"device {name!r} is not there: this torch sees no CUDA device; use cpu")
    return device


def _capabilities(
    name: str, target: LoadedModel, drafters: Mapping[Method, Drafter], limits: EngineLimits
) -> Capabilities:
    methods = [MethodCapability(method=Method.OFF, max_k=0)]
    methods.extend(
        MethodCapability(
            method=method,
            max_k=min(drafter.max_k, MAX_DRAFT_LENGTH),
            drafter=drafter.drafter_id,
            drafter_hash=drafter.drafter_hash,
        )
        for method, drafter in drafters.items()
    )
    return Capabilities(
        model=name,
        methods=tuple(methods),
        max_rows=limits.max_rows,
        max_context_tokens=limits.max_context_tokens,
        queue_limit=limits.queue_limit,
        vocab_size=target.decoder.shape.vocab_size,
    )


def _pinned(name: str, target: LoadedModel, settings: EngineSettings) -> PinnedConfig:
    return PinnedConfig(
        model=name,
        weights_hash=target.weights_hash,
        tokenizer_hash=target.tokenizer_hash,
        dtype=settings.dtype,
        device=settings.device,
        engine=f"spectuner {ENGINE_VERSION}",
        versions={
            "llguidance": llguidance.__version__,
            "python": platform.python_version(),
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        attention_backend=_attention_backend(target.decoder),
        max_rows=settings.limits.max_rows,
        drafting=drafting_of(settings),
    )


def _attention_backend(decoder: Decoder) -> str:
    """Name what attends: compiled kernels round otherwise than torch."""
    is_native = isinstance(decoder, LlamaDecoder) and decoder.is_native
    return "slots, compiled" if is_native else "slots"
