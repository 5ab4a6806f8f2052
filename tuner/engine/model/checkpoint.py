"""Shapes of the tensors of a checkpoint, read from its headers alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from tuner.engine.errors import ModelCorrupt

_BYTES_WHERE_UNKNOWN = 2


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a checkpoint's tensors by name.

    A checkpoint without safetensors counts as flat tensors of half precision, one a file.

    Args:
        path: its directory, or its only file.

    Raises:
        ModelCorrupt: a header cannot be read.
    """
    found = [path] if path.is_file() else sorted(path.iterdir())
    files = [file for file in found if file.suffix == ".safetensors"]
    if files:
        return {name: shape for file in files for name, shape in _shapes_in(file).items()}
    others = [file for file in found if file.suffix in (".bin", ".pt")]
    return {file.name: (file.stat().st_size // _BYTES_WHERE_UNKNOWN,) for file in others}


def _shapes_in(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > file.stat().st_size:
                raise ValueError(f"it claims {length} bytes, more than the file has")
            header = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        return {name: tuple(entry["shape"]) for name, entry in header.items()}
    except (OSError, struct.error, ValueError, AttributeError, LookupError, TypeError) as error:
        raise ModelCorrupt(
            f"{str(file)!r} cannot be read: its header is broken, {error}"
        ) from error
