"""From a head's directory to its drafter, one loader a method; the registry calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from collectors.records import Method
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.eagle import EagleDrafter
from tuner.engine.drafters.medusa import MedusaDrafter
from tuner.engine.drafters.mlp_speculator import MlpSpeculatorDrafter
from tuner.engine.drafters.mtp import MtpDrafter
from tuner.engine.drafters.pard import PardDrafter
from tuner.engine.errors import StartupError
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.heads.formats import (
    is_mtp_name,
    read_eagle,
    read_medusa,
    read_mlp_speculator,
    read_mtp,
)
from tuner.engine.model.heads.head_file import HeadFile, read_head_file
from tuner.engine.model.heads.pard import load_pard
from tuner.engine.model.hf_decoder import HfDecoder
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.weights import LoadedModel, hash_weights
from tuner.engine.settings import EngineSettings, draft_dtype

HeadLoader: TypeAlias = Callable[[Path, EngineSettings, LoadedModel], Drafter]


def _eagle(path: Path, settings: EngineSettings, target: LoadedModel) -> Drafter:
    file, weights_hash = _read(path, target)
    return EagleDrafter(
        read_eagle(file, _head_target(path, settings, target)),
        num_slots=settings.limits.max_rows,
        max_context_tokens=settings.limits.max_context_tokens,
        drafter_id=_name(file),
        drafter_hash=weights_hash,
    )


def _mtp(path: Path, settings: EngineSettings, target: LoadedModel) -> Drafter:
    num_layers = target.decoder.shape.num_layers
    file, weights_hash = _read(path, target, lambda name: is_mtp_name(name, num_layers))
    return MtpDrafter(
        read_mtp(file, _head_target(path, settings, target)),
        num_slots=settings.limits.max_rows,
        max_context_tokens=settings.limits.max_context_tokens,
        drafter_id=_name(file),
        drafter_hash=weights_hash,
    )


def _medusa(path: Path, settings: EngineSettings, target: LoadedModel) -> Drafter:
    file, weights_hash = _read(path, target)
    heads = read_medusa(file, _head_target(path, settings, target))
    return MedusaDrafter(heads, drafter_id=_name(file), drafter_hash=weights_hash)


def _mlp_speculator(path: Path, settings: EngineSettings, target: LoadedModel) -> Drafter:
    file, weights_hash = _read(path, target)
    speculator = read_mlp_speculator(file, _head_target(path, settings, target))
    return MlpSpeculatorDrafter(speculator, drafter_id=_name(file), drafter_hash=weights_hash)


def _pard(path: Path, settings: EngineSettings, target: LoadedModel) -> Drafter:
    draft, mask_id = load_pard(path, target, draft_dtype(settings))
    return PardDrafter(
        draft.decoder,
        mask_id=mask_id,
        num_slots=settings.limits.max_rows,
        max_context_tokens=settings.limits.max_context_tokens,
        draft_vocab=draft.draft_vocab,
        drafter_id=draft.drafter_id,
        drafter_hash=draft.weights_hash,
    )


HEAD_LOADERS: Mapping[Method, HeadLoader] = {
    Method.MEDUSA: _medusa,
    Method.EAGLE: _eagle,
    Method.MTP: _mtp,
    Method.PARD: _pard,
    Method.MLP_SPECULATOR: _mlp_speculator,
}


def _read(
    path: Path, target: LoadedModel, keep: Callable[[str], bool] = lambda name: True
) -> tuple[HeadFile, str]:
    """Read a head and hash it; one of ours is refused for another target than its own."""
    file = read_head_file(path, keep)
    trained_for = file.manifest.get("target_hash")
    if file.manifest and trained_for != target.weights_hash:
        raise file.corrupt(
            f"was trained for target {trained_for!r}, not for {target.weights_hash!r}; "
            "give the head of this target"
        )
    return file, hash_weights(file.tensors)


def _head_target(path: Path, settings: EngineSettings, target: LoadedModel) -> HeadTarget:
    decoder: Decoder = target.decoder
    if not isinstance(decoder, LlamaDecoder | HfDecoder):
        raise StartupError(
            f"head {str(path)!r} needs the target's embedding and output rows, which a "
            f"{type(decoder).__name__} does not give; leave the head out"
        )
    return HeadTarget(
        shape=decoder.shape,
        embedding=decoder.embedding,
        output_rows=decoder.output_rows,
        dtype=draft_dtype(settings),
    )


def _name(file: HeadFile) -> str:
    return str(file.manifest.get("name", file.path.name))
