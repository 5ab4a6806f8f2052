"""What an engine will take in memory, counted from file headers and sizes before it is loaded.

`spectuner doctor` states it. An engine refuses to start where it cannot fit: slots are given to the
process page by page, so that too many of them would end it in the middle of traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collectors.records import MAX_DRAFT_LENGTH, MAX_TREE_NODES, Method
from tuner.engine.available import available_bytes
from tuner.engine.drafters.recurrent import SCRATCH_ENTRIES
from tuner.engine.drafters.registry import find_draft, find_head
from tuner.engine.drafters.self_sparse import SelfSparseDrafter
from tuner.engine.drafters.trained_heads import HEAD_LOADERS
from tuner.engine.errors import StartupError
from tuner.engine.model.bundled_model import resolve_model
from tuner.engine.model.checkpoint import tensor_shapes
from tuner.engine.model.decoder import DecoderShape
from tuner.engine.model.heads.formats import is_mtp_name
from tuner.engine.model.heads.head_file import MANIFEST
from tuner.engine.model.hf_decoder import shape_of
from tuner.engine.model.weights import read_config
from tuner.engine.settings import EngineSettings, draft_dtype, torch_dtype

_MEBIBYTE = 1 << 20
_PROCESS_BYTES = 400 * _MEBIBYTE
"""Measured: 395 MiB with torch, transformers and the server imported."""

_LOGIT_BYTES = 4 * 4
"""Measured: four float32 copies of a step's logits, of 8 rows that verify 64 draft tokens each."""

_VOCABULARIES = ("draft_vocab", "token_map", "d2t")
_STATE_AND_TOKEN = 2
"""Vectors that an EAGLE head of the first kind joins: the final state and the token's embedding."""

_STATE_READERS = (Method.MEDUSA, Method.EAGLE, Method.MTP, Method.MLP_SPECULATOR)
_SELF_FEEDING = (Method.EAGLE, Method.MTP)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes that an engine takes.

    Attributes:
        process: libraries and server.
        weights: the target's, prepacked, and the embedding that tokens are looked up in.
        loading: the weights as they were read beside that; once loaded they are pages of a file
            that the system can drop.
        kv_slots: keys and values of the target.
        features: hidden states of the target that drafters read.
        draft_weights: of drafters, by method.
        draft_slots: keys and values of drafters, by method that has any.
        logits: of one step in which every row verifies the largest draft.
    """

    process: int
    weights: int
    loading: int
    kv_slots: int
    features: int
    draft_weights: Mapping[Method, int]
    draft_slots: Mapping[Method, int]
    logits: int

    @property
    def total(self) -> int:
        """The most at any time: while loading or while serving."""
        drafts = sum(self.draft_weights.values()) + sum(self.draft_slots.values())
        serving = self.kv_slots + self.features + drafts + self.logits
        return self.process + self.weights + max(self.loading, serving)

    def words(self) -> str:
        """Return the parts in one line."""
        slots = self.draft_slots
        by_method = ", ".join(f"{method} {in_mebibytes(num)}" for method, num in slots.items())
        parts = {
            "process": self.process,
            "weights": self.weights,
            "loading them": self.loading,
            "KV slots": self.kv_slots,
            "hidden states for drafters": self.features,
            "draft weights": sum(self.draft_weights.values()),
            "draft slots": sum(slots.values()),
            "logits": self.logits,
        }
        told = ", ".join(f"{name} {in_mebibytes(num)}" for name, num in parts.items())
        return f"{told}; draft slots by method: {by_method}" if by_method else told


def memory_need(settings: EngineSettings) -> MemoryNeed:
    """Count what an engine with these settings takes.

    Raises:
        StartupError: a path or dtype that cannot be served.
    """
    model, size, limits = resolve_model(settings.model), _target_size(settings), settings.limits
    shape, entries = shape_of(read_config(model)), limits.max_rows * limits.max_context_tokens
    read = _numbers(tensor_shapes(model)) * size
    drafts = _drafts(settings, shape.num_layers)
    return MemoryNeed(
        process=_PROCESS_BYTES,
        weights=read + shape.vocab_size * shape.hidden_size * size,
        loading=read,
        kv_slots=entries * _entry_bytes(shape, size),
        features=entries * _num_taps(drafts, shape) * shape.hidden_size * size,
        draft_weights={method: draft.weights(shape) for method, draft in drafts.items()},
        draft_slots=_draft_slots(settings, drafts, shape),
        logits=limits.max_rows * (_most_drafted(settings) + 1) * shape.vocab_size * _LOGIT_BYTES,
    )


def require_memory(settings: EngineSettings) -> None:
    """Refuse settings that need more memory than there is.

    Raises:
        StartupError: it cannot fit; names both figures, the parts and what to lower.
    """
    need, available = memory_need(settings), available_bytes(settings.device)
    if available is not None and need.total > available:
        raise StartupError(
            f"the engine needs about {in_mebibytes(need.total)} and {in_mebibytes(available)} are "
            f"available ({need.words()}); {HOW_TO_FIT}"
        )


HOW_TO_FIT = "lower --max-rows or --max-context, name fewer --methods, or free memory"


def in_mebibytes(num_bytes: int) -> str:
    """Return bytes as people read them."""
    return f"{num_bytes / _MEBIBYTE:,.0f} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What a drafter's checkpoint holds.

    Attributes:
        method: the drafter's.
        shapes: its tensors by name.
        size: bytes of a number in its weights and its KV.
        is_whole: it is a model of its own, with its own embedding and output rows.
    """

    method: Method
    shapes: Mapping[str, tuple[int, ...]]
    size: int
    is_whole: bool

    def weights(self, target: DecoderShape) -> int:
        """Return the bytes of its weights, prepacked, and of the rows that are looked up or copied.

        A whole model keeps its embedding beside the prepacked output rows, any other drafter a
        prepacked copy of the target's output rows.
        """
        rows = target.vocab_size if self.is_whole else self._num_output_rows(target)
        return (_numbers(self.shapes) + rows * target.hidden_size) * self.size

    def entry_bytes(self) -> int:
        """Return the bytes of one token's keys and values in all its layers."""
        keys = [shape[0] for name, shape in self.shapes.items() if name.endswith("k_proj.weight")]
        return 2 * sum(keys) * self.size

    def num_layers_tapped(self, hidden_size: int) -> int:
        """Return how many layers' states it fuses; 0 where it reads the final state or none."""
        num_read = self.shapes.get("fc.weight", (0, 0))[1] // hidden_size
        return num_read if self.method is Method.EAGLE and num_read > _STATE_AND_TOKEN else 0

    def _num_output_rows(self, target: DecoderShape) -> int:
        reduced = (self.shapes[name][0] for name in _VOCABULARIES if name in self.shapes)
        return next(reduced, target.vocab_size)


def _drafts(settings: EngineSettings, num_layers: int) -> dict[Method, _Draft]:
    """Return what the drafters with weights hold, of those that would be loaded."""
    paths = {method: find_head(settings, method) for method in HEAD_LOADERS}
    paths[Method.DRAFT_MODEL] = find_draft(settings)
    return {
        method: _draft(settings, method, path, num_layers)
        for method, path in paths.items()
        if path is not None and (settings.methods is None or method in settings.methods)
    }


def _draft(settings: EngineSettings, method: Method, path: Path, num_layers: int) -> _Draft:
    is_whole = method is Method.DRAFT_MODEL and not (path / MANIFEST).exists()
    if is_whole:
        path = resolve_model(str(path))
    shapes = tensor_shapes(path)
    if method is Method.MTP:
        shapes = {name: each for name, each in shapes.items() if is_mtp_name(name, num_layers)}
    return _Draft(
        method=method,
        # The loader refuses what has the wrong axes; ones behind them count nothing.
        shapes={name: (*each, 1, 1) for name, each in shapes.items()},
        size=_target_size(settings) if is_whole else draft_dtype(settings).itemsize,
        is_whole=is_whole,
    )


def _draft_slots(
    settings: EngineSettings, drafts: Mapping[Method, _Draft], shape: DecoderShape
) -> dict[Method, int]:
    """Return the bytes of KV that drafters keep beside the target's; methods with none left out.

    Heads that feed themselves keep room behind the context, and the sparse view is a short one.
    """
    rows, context = settings.limits.max_rows, settings.limits.max_context_tokens
    slots = {
        method: rows
        * (context + (SCRATCH_ENTRIES if method in _SELF_FEEDING else 0))
        * draft.entry_bytes()
        for method, draft in drafts.items()
    }
    if settings.methods is None or Method.SELF_SPARSE in settings.methods:
        drafter = SelfSparseDrafter(window_tokens=settings.sparse_window_tokens)
        view = drafter.view_entries(context)
        slots[Method.SELF_SPARSE] = rows * view * _entry_bytes(shape, _target_size(settings))
    return {method: num_bytes for method, num_bytes in slots.items() if num_bytes}


def _most_drafted(settings: EngineSettings) -> int:
    """Return the draft tokens of one row and step at most: trees may be larger than chains."""
    has_trees = settings.methods is None or any(
        method.can_branch or method is Method.LOOKAHEAD for method in settings.methods
    )
    return MAX_TREE_NODES if has_trees else MAX_DRAFT_LENGTH


def _entry_bytes(shape: DecoderShape, size: int) -> int:
    """Return the bytes of one token's keys and values in all layers of the target."""
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * size


def _num_taps(drafts: Mapping[Method, _Draft], shape: DecoderShape) -> int:
    """Return how many states of the target are kept for every token."""
    layers = sum(draft.num_layers_tapped(shape.hidden_size) for draft in drafts.values())
    reads_final = any(
        method in _STATE_READERS and not draft.num_layers_tapped(shape.hidden_size)
        for method, draft in drafts.items()
    )
    return layers + reads_final


def _numbers(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _target_size(settings: EngineSettings) -> int:
    return torch_dtype(settings.dtype).itemsize
