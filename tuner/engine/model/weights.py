"""Reads a model directory into a decoder, and hashes what it read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from tuner.engine.errors import ModelCorrupt, StartupError
from tuner.engine.model.codec import HfCodec
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.hf_decoder import HfDecoder, shape_of
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.windows import layers_refusal_reason, mixes_windows, window_of

_FAMILIES = ("llama", "mistral", "qwen2")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model read from disk.

    Attributes:
        decoder: ready to run.
        codec: its tokenizer.
        weights_hash: sha256 over names and bytes of its weights as they are stored.
        tokenizer_hash: sha256 over its tokenizer file.
    """

    decoder: Decoder
    codec: HfCodec
    weights_hash: str
    tokenizer_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDraft:
    """A draft model for a target.

    Attributes:
        decoder: ready to run.
        draft_vocab: [reduced V] int64 ids behind its logits; None for the whole vocabulary.
        drafter_id: name of the weights.
        weights_hash: sha256 over names and bytes of its weights.
    """

    decoder: Decoder
    draft_vocab: Tensor | None
    drafter_id: str
    weights_hash: str


def load_model(path: Path, *, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """Read a Hugging Face directory.

    Raises:
        ModelCorrupt: the files are no whole model.
        StartupError: the architecture is not one the engine runs.
    """
    config = read_config(path)
    require_layers(config, path)
    model = _read_model(path)
    weights_hash = hash_weights(_state_of(model))
    model = _moved(model, dtype, device)
    return LoadedModel(
        decoder=_decoder(model, config, _state_of(model), path),
        codec=_read_codec(path, config),
        weights_hash=weights_hash,
        tokenizer_hash=_hash_file(path / "tokenizer.json"),
    )


def load_head_draft(path: Path, target: LoadedModel, dtype: torch.dtype) -> LoadedDraft:
    """Read a draft model trained for a target: it uses the target's embedding and output rows.

    Args:
        path: directory with `model.safetensors` and `manifest.json`.
        target: the model it was trained for.
        dtype: of the draft; it only changes what is guessed, never what is kept.

    Raises:
        ModelCorrupt: the files are not whole, or belong to another target.
    """
    manifest = _read_manifest(path)
    if manifest.get("target_hash") != target.weights_hash:
        raise ModelCorrupt(
            f"draft {str(path)!r} was trained for target {manifest.get('target_hash')!r}, "
            f"not for {target.weights_hash!r}; give the draft of this target or --draft none"
        )
    decoder = target.decoder
    if not isinstance(decoder, LlamaDecoder):
        raise StartupError(
            f"draft {str(path)!r} uses the target's layers, which a {type(decoder).__name__} "
            "does not give; use a draft model of its own"
        )
    vocab_size = decoder.shape.vocab_size
    try:
        stored = load_file(path / "model.safetensors")
        draft_vocab = stored.pop("draft_vocab").long()
        if not is_vocabulary(draft_vocab, vocab_size):
            raise ValueError(f"its draft_vocab does not ascend within {vocab_size} tokens")
        weights = {name: value.to(dtype) for name, value in stored.items()}
        num_layers = 1 + max(int(name.split(".")[1]) for name in weights if "layers." in name)
        draft = decoder.with_layers(num_layers, weights, draft_vocab, dtype)
    except (OSError, SafetensorError, LookupError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())
        raise ModelCorrupt(f"draft {str(path)!r} cannot be read: {line}") from error
    return LoadedDraft(
        decoder=draft,
        draft_vocab=draft_vocab.to(decoder.mask_kind.device),
        drafter_id=str(manifest.get("name", path.name)),
        weights_hash=hash_weights({**weights, "draft_vocab": draft_vocab}),
    )


def load_separate_draft(path: Path, target: LoadedModel) -> LoadedDraft:
    """Read any model with the target's vocabulary as draft.

    Raises:
        ModelCorrupt: the files are no whole model.
        StartupError: the vocabularies differ.
    """
    draft = load_beside(path, target)
    if not shares_vocabulary(draft, target):
        raise StartupError(
            f"draft {str(path)!r} has another vocabulary than the target "
            f"({draft.decoder.shape.vocab_size} tokens, the target "
            f"{target.decoder.shape.vocab_size}); give a model with the target's tokenizer"
        )
    return LoadedDraft(
        decoder=draft.decoder,
        draft_vocab=None,
        drafter_id=path.name,
        weights_hash=draft.weights_hash,
    )


def load_beside(path: Path, target: LoadedModel) -> LoadedModel:
    """Read a model that will draft for a target, in its dtype and on its device.

    Raises:
        ModelCorrupt: the files are no whole model.
        StartupError: the architecture is not one the engine runs.
    """
    kind = target.decoder.mask_kind
    return load_model(path, dtype=kind.dtype, device=kind.device)


def shares_vocabulary(one: LoadedModel, other: LoadedModel) -> bool:
    """Say whether a token id means the same to two models."""
    return (
        one.decoder.shape.vocab_size == other.decoder.shape.vocab_size
        and one.codec.tokenizer.get_vocab() == other.codec.tokenizer.get_vocab()
    )


def read_config(path: Path) -> PreTrainedConfig:
    """Read a model's configuration.

    Raises:
        ModelCorrupt: there is none that can be read.
    """
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path, local_files_only=True)
        return config
    except (OSError, ValueError, KeyError) as error:
        raise ModelCorrupt(f"model {str(path)!r} has no readable config.json: {error}") from error


def is_plain_llama(config: PreTrainedConfig) -> bool:
    """Say whether a model is of the family that `LlamaDecoder` computes."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in _FAMILIES
        and rope.get("rope_type", "default") == "default"
        and getattr(config, "hidden_act", "") == "silu"
        and not mixes_windows(config)
    )


def hash_weights(weights: Mapping[str, Tensor]) -> str:
    """Return the sha256 over names, in order, and bytes of weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        stored = weights[name].detach().cpu().contiguous().flatten()
        digest.update(stored.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_vocabulary(ids: Tensor, vocab_size: int) -> bool:
    """Say whether ids [n] int64 name tokens of a vocabulary, at least one, each once, ascending."""
    if ids.dim() != 1 or not len(ids):
        return False
    return bool((ids[1:] > ids[:-1]).all() and ids[0] >= 0 and ids[-1] < vocab_size)


def _read_model(path: Path) -> PreTrainedModel:
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path, dtype="auto", local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        line = " ".join(str(error).split())
        raise ModelCorrupt(f"model {str(path)!r} cannot be read: {line}") from error
    return model


def _moved(model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    module: torch.nn.Module = model
    module.to(device, dtype)
    return model


def _state_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights without the `model.` prefix; a tied output layer is left out."""
    state = {
        name.removeprefix("model."): value.detach() for name, value in model.state_dict().items()
    }
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def _decoder(
    model: PreTrainedModel, config: PreTrainedConfig, state: Mapping[str, Tensor], path: Path
) -> Decoder:
    """Return the fast decoder where the model is of its family, else transformers over slots."""
    if is_plain_llama(config):
        embedding = state["embed_tokens.weight"]
        head = state.get("lm_head.weight", embedding)
        return LlamaDecoder(_llama_shape(config), state, embedding=embedding, head=head)
    decoder = HfDecoder(model, window_of(config), is_mixed=mixes_windows(config))
    reason = decoder.refusal_reason(_probe_tokens(config))
    if reason is not None:
        raise _no_slots(path, config, reason)
    return decoder


def require_layers(config: PreTrainedConfig, path: Path) -> None:
    """Refuse a model whose configuration tells that it cannot run, before its weights are read.

    Raises:
        StartupError: a layer keeps another state than keys and values.
    """
    reason = layers_refusal_reason(config)
    if reason is not None:
        raise _no_slots(path, config, reason)


def _no_slots(path: Path, config: PreTrainedConfig, reason: str) -> StartupError:
    return StartupError(
        f"model {str(path)!r} ({config.model_type}) cannot run over KV slots: {reason}; "
        "give a causal LM that keeps nothing but keys and values"
    )


def _probe_tokens(config: PreTrainedConfig) -> list[int]:
    """Return tokens enough to reach past an attention window, where there is one."""
    length = min(2 * (window_of(config) or 8), config.max_position_embeddings - 1)
    return [token % config.vocab_size for token in range(1, length + 1)]


def _llama_shape(config: PreTrainedConfig) -> LlamaShape:
    return LlamaShape(
        **asdict(shape_of(config)),
        rope_theta=float(config.rope_parameters["rope_theta"]),
        norm_eps=config.rms_norm_eps,
        window=window_of(config),
    )


def _read_codec(path: Path, config: PreTrainedConfig) -> HfCodec:
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelCorrupt(f"model {str(path)!r} has no readable tokenizer: {error}") from error
    eos = config.eos_token_id
    eos_ids = eos if isinstance(eos, list) else [eos] if eos is not None else []
    return HfCodec(tokenizer, eos_ids)


def _read_manifest(path: Path) -> Mapping[str, object]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise ModelCorrupt(f"draft {str(path)!r} has no readable manifest.json: {error}") from error
    if not isinstance(manifest, dict):
        raise ModelCorrupt(f"draft {str(path)!r}: manifest.json must hold a JSON object")
    return manifest


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
