"""`kernels.c`, compiled once for this machine's CPU: the small operations of a layer in few calls.

A decode step reads weights; what torch does between two products are some forty calls a layer whose
own code no longer lies in a cache by then. Where there is no C compiler, and on other devices and
dtypes, torch computes the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from tuner.engine.model.bundled_model import default_cache_dir
from tuner.engine.model.passes import Pass, Span, positions_of, seen_in_tree
from tuner.engine.model.slots import KvSlots

_LOGGER = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("kernels.c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
_COMPILE_S = 120.0
_LANES = 16
_MAX_HEAD_DIM = 256
_ENTRIES_A_THREAD = 8192
"""Entries times heads that a thread attends in some 0.1 ms: on a busy machine waiting for another
thread costs more than it saves on less."""


class _Spans(ctypes.Structure):
    """`spans_t` of `kernels.c`."""

    _fields_ = (
        ("num_spans", ctypes.c_int64),
        ("slot", ctypes.c_void_p),
        ("start", ctypes.c_void_p),
        ("first_row", ctypes.c_void_p),
        ("length", ctypes.c_void_p),
        ("sees", ctypes.c_void_p),
        ("visible", ctypes.c_void_p),
        ("first_seen", ctypes.c_void_p),
    )


class _Heads(ctypes.Structure):
    """`heads_t` of `kernels.c`."""

    _fields_ = (
        ("num_heads", ctypes.c_int64),
        ("kv_heads", ctypes.c_int64),
        ("context", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
    )


class NativeKernels:
    """The compiled functions, over contiguous float32 tensors on the CPU."""

    def __init__(self, library: Path) -> None:
        """Load a compiled `kernels.c`.

        Raises:
            OSError: it cannot be loaded.
        """
        # PyDLL keeps the interpreter's lock: a call is shorter than taking turns for it.
        functions = ctypes.PyDLL(str(library))
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        self._rms_norm = functions.rms_norm
        self._rms_norm.argtypes = (pointer, pointer, pointer, size, size, ctypes.c_float)
        self._rms_norm.restype = None
        self._gated = functions.gated
        self._gated.argtypes = (pointer, pointer, size, size)
        self._gated.restype = None
        self._store = functions.store
        self._store.argtypes = (pointer, pointer, pointer, pointer, pointer, size, pointer)
        self._store.restype = None
        self._attend = functions.attend
        self._attend.argtypes = (*[pointer] * 6, ctypes.c_int)
        self._attend.restype = ctypes.c_int

    def rms_norm(self, hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return hidden [N, H] over its root mean square, times a weight [H]."""
        hidden = hidden.contiguous()
        rows, width = hidden.shape
        output = torch.empty_like(hidden)
        self._rms_norm(hidden.data_ptr(), weight.data_ptr(), output.data_ptr(), rows, width, eps)
        return output

    def gated(self, gate_up: Tensor) -> Tensor:
        """Return silu of the first half of gate_up [N, 2 n] times the second, [N, n]."""
        rows, width = len(gate_up), gate_up.shape[1] // 2
        output = gate_up.new_empty((rows, width))
        self._gated(gate_up.data_ptr(), output.data_ptr(), rows, width)
        return output

    def store(
        self, qkv: Tensor, rotation: Tensor, kv: tuple[Tensor, Tensor], place: Tensor, heads: _Heads
    ) -> None:
        """Rotate the queries and keys of qkv in place, store its keys and values."""
        self._store(
            qkv.data_ptr(),
            rotation.data_ptr(),
            kv[0].data_ptr(),
            kv[1].data_ptr(),
            place.data_ptr(),
            len(qkv),
            ctypes.addressof(heads),
        )

    def attend(
        self,
        qkv: Tensor,
        kv: tuple[Tensor, Tensor],
        output: Tensor,
        spans: _Spans,
        heads: _Heads,
        num_threads: int,
    ) -> None:
        """Attend over stored KV.

        Raises:
            MemoryError: there was none for a row's scores.
        """
        failed = self._attend(
            qkv.data_ptr(),
            kv[0].data_ptr(),
            kv[1].data_ptr(),
            output.data_ptr(),
            ctypes.addressof(spans),
            ctypes.addressof(heads),
            num_threads,
        )
        if failed:
            raise MemoryError("no memory for the scores of an attention")


class NativeAttention:
    """Rotation, KV and attention of the short spans of one pass."""

    def __init__(
        self,
        kernels: NativeKernels,
        batch: Pass,
        slots: KvSlots,
        num_heads: int,
        rotation: Tensor,
        window: int | None,
    ) -> None:
        """Prepare a pass.

        Args:
            kernels: the compiled functions.
            batch: the tokens.
            slots: KV to extend.
            num_heads: query heads.
            rotation: [N, head_dim / 2] complex64, each token's angles.
            window: tokens a token sees, itself included; None for all before it.

        Raises:
            IndexError: a span lies beyond the slots.
        """
        _require_within(batch, slots)
        self._kernels = kernels
        self._slots = slots
        self._rotation = rotation
        kv_heads, context = slots.num_kv_heads, slots.max_context_tokens
        head_dim = slots.keys[0].shape[-1]
        self._width = num_heads * head_dim
        self._heads = _Heads(num_heads, kv_heads, context, head_dim)
        self._place = batch.slots * (kv_heads * context) + batch.entries
        spans = batch.short.spans if batch.short is not None else ()
        entries = kv_heads * sum(len(span.token_ids) * span.end for span, _ in spans)
        self._num_threads = min(torch.get_num_threads(), 1 + entries // _ENTRIES_A_THREAD)
        self._tables = _tables(spans, window)
        self._first_seen = _first_seen(spans, window, len(batch.entries))
        columns, visible = self._tables
        self._spans = _Spans(
            columns.shape[1],
            *(column.data_ptr() for column in columns),
            visible.data_ptr(),
            self._first_seen.data_ptr(),
        )

    def store(self, layer: int, qkv: Tensor) -> None:
        """Rotate qkv [N, (heads + 2 KV heads) * head dim] in place and write its KV."""
        kv = self._slots.keys[layer], self._slots.values[layer]
        self._kernels.store(qkv, self._rotation, kv, self._place, self._heads)

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """Attend the short spans; return [N, heads * head dim], other rows left as they are."""
        kv = self._slots.keys[layer], self._slots.values[layer]
        output = qkv.new_empty((len(qkv), self._width))
        self._kernels.attend(qkv, kv, output, self._spans, self._heads, self._num_threads)
        return output


def _require_within(batch: Pass, slots: KvSlots) -> None:
    """Raise IndexError where a span lies beyond the slots: C would write there."""
    short = batch.short.spans if batch.short is not None else ()
    ends = [(span.slot, span.end) for span, _ in short]
    ends += [(span.slot, span.end) for span in batch.long]
    for slot, end in ends:
        if not (0 <= slot < slots.num_slots and end <= slots.max_context_tokens):
            raise IndexError(
                f"entry {end - 1} of slot {slot} is beyond the slots: there are {slots.num_slots} "
                f"of {slots.max_context_tokens} entries"
            )


def _tables(spans: tuple[tuple[Span, int], ...], window: int | None) -> tuple[Tensor, Tensor]:
    """Return slot, start, first row, length and table of each span, [5, n]; and the tables."""
    rows: list[tuple[int, int, int, int, int]] = []
    visible: list[bool] = []
    for span, first_row in spans:
        sees = -1
        if span.parents is not None:
            sees = len(visible)
            visible.extend(seen_in_tree(span, window).flatten().tolist())
        rows.append((span.slot, span.start, first_row, len(span.token_ids), sees))
    columns = torch.tensor(rows, dtype=torch.int64).reshape(-1, 5).T.contiguous()
    return columns, torch.tensor(visible, dtype=torch.uint8)


def _first_seen(spans: tuple[tuple[Span, int], ...], window: int | None, rows: int) -> Tensor:
    """Return the first entry that each row sees, [rows]; rows of other spans are left at 0.

    Counted in entries: a sparse view of a text holds fewer than the rotary positions say.
    """
    first_seen = torch.zeros(rows, dtype=torch.int64)
    if window is not None:
        for span, first_row in spans:
            positions = torch.tensor(positions_of(span))
            first_seen[first_row : first_row + len(positions)] = positions - (window - 1)
    return first_seen.clamp_min_(0)


def native_kernels(device: torch.device, dtype: torch.dtype, *widths: int) -> NativeKernels | None:
    """Return the compiled kernels where they can compute such tensors; None where torch must.

    Args:
        device: where they lie.
        dtype: of all of them.
        widths: their last dimensions, heads among them.
    """
    if device.type != "cpu" or dtype is not torch.float32:
        return None
    if any(width % _LANES for width in widths):
        return None
    return _loaded()


def can_attend(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Say whether the kernels attend over such heads."""
    return head_dim <= _MAX_HEAD_DIM and native_kernels(device, dtype, head_dim) is not None


@lru_cache(maxsize=1)
def _loaded() -> NativeKernels | None:
    try:
        return loaded_from(default_cache_dir() / "kernels")
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        # RuntimeError: this user has no home directory, so there is no cache.
        _LOGGER.warning("no compiled kernels, torch computes instead: %s", error)
        return None


def loaded_from(folder: Path) -> NativeKernels | None:
    """Load the kernels kept in a folder; a damaged library is compiled anew, once.

    Raises:
        OSError: the folder cannot be written, or others can write to it.
        subprocess.SubprocessError: no compiler succeeded.
    """
    library = compiled(folder)
    if library is None:
        return None
    try:
        return NativeKernels(library)
    except OSError:
        library.unlink()
        again = compiled(folder)
        return None if again is None else NativeKernels(again)


def compiled(folder: Path) -> Path | None:
    """Return the shared library of `kernels.c`, compiled where it is missing.

    Args:
        folder: where libraries are kept, by a hash of source, flags, compiler and CPU.

    Returns:
        None where there is no C compiler.

    Raises:
        OSError: the folder cannot be written, or others can write to it.
        subprocess.SubprocessError: no compiler succeeded; what the last one met.
    """
    failure: subprocess.SubprocessError | None = None
    for compiler in filter(None, map(shutil.which, _COMPILERS)):
        try:
            return _compiled_by(compiler, folder)
        except subprocess.SubprocessError as error:
            failure = error
    if failure is not None:
        raise failure
    return None


def _compiled_by(compiler: str, folder: Path) -> Path:
    library = folder / f"{_key(compiler)}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(folder):
        raise PermissionError(f"others can write to {folder}, so its code is not run")
    if library.exists() and _is_ours(library):
        return library
    with tempfile.TemporaryDirectory(dir=folder) as place:
        built = Path(place) / library.name
        subprocess.run(
            [compiler, *_FLAGS, "-o", str(built), str(_SOURCE), "-lm"],
            check=True,
            capture_output=True,
            timeout=_COMPILE_S,
        )
        built.chmod(0o700)
        built.replace(library)
    return library


def _is_ours(path: Path) -> bool:
    """Say whether nobody but this user can have written a file or folder."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _key(compiler: str) -> str:
    """Return what the library depends on, as a hash; -march=native ties it to the CPU."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=60)
    parts = (_SOURCE.read_bytes(), " ".join(_FLAGS).encode(), version.stdout, _cpu())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _cpu() -> bytes:
    """Return the CPU's name and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor().encode()
    wanted = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(sorted(set(wanted))).encode()
