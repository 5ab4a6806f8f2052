"""A head's checkpoint on disk: tensors taken by name and shape, so that nothing is misread.

Reads safetensors, whole or in shards, and torch files (weights only). What is missing, has another
shape or is left over is refused in one line that names the path, the key and the fix.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tuner.engine.errors import ModelCorrupt
from tuner.engine.model.decoder import DecoderShape
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.weights import is_vocabulary

MANIFEST = "manifest.json"
_INDEX = "model.safetensors.index.json"
_FILES = (
    "model.safetensors",
    "medusa_lm_head.safetensors",
    "pytorch_model.bin",
    "medusa_lm_head.pt",
)
_IGNORED = ("embed_tokens.weight", "rotary_emb.inv_freq", "t2d")
"""Copies of the target's embedding, tables that can be computed, and the inverse of `d2t`."""


class HeadFile:
    """Tensors of one head, by name.

    Attributes:
        path: where it was read from.
        tensors: all that was read and not taken yet.
        config: its config.json; empty where there is none.
        manifest: its manifest.json, which only our own heads have; empty where there is none.
    """

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, Tensor],
        config: Mapping[str, object],
        manifest: Mapping[str, object],
    ) -> None:
        self.path = path
        self.tensors = dict(tensors)
        self.config = config
        self.manifest = manifest

    def rename(self, new_name: Callable[[str], str]) -> None:
        """Give the tensors other names."""
        self.tensors = {new_name(name): tensor for name, tensor in self.tensors.items()}

    def take(self, name: str, *shape: int) -> Tensor:
        """Take a tensor.

        Raises:
            ModelCorrupt: there is none, or it has another shape.
        """
        tensor = self.find(name, *shape)
        if tensor is None:
            raise self.corrupt(f"lacks {name!r}; give a whole checkpoint of this method")
        return tensor

    def find(self, name: str, *shape: int) -> Tensor | None:
        """Take a tensor if it is there.

        Raises:
            ModelCorrupt: it has another shape.
        """
        tensor = self.tensors.pop(name, None)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise self.corrupt(
                f"has {name!r} of shape {list(tensor.shape)} in place of {list(shape)}; "
                "give a checkpoint that was trained for this target"
            )
        return tensor

    def take_vocab(self, vocab_size: int) -> Tensor | None:
        """Take the ids behind a reduced vocabulary, ascending; None for the whole one.

        Reads `draft_vocab` and `token_map` as ids, `d2t` as what is to be added to each column.

        Raises:
            ModelCorrupt: they do not ascend within the target's vocabulary.
        """
        for name in ("draft_vocab", "token_map", "d2t"):
            found = self.tensors.pop(name, None)
            if found is not None:
                ids = found.long()
                ids = ids + torch.arange(ids.numel()) if name == "d2t" and ids.dim() == 1 else ids
                if not is_vocabulary(ids, vocab_size):
                    raise self.corrupt(
                        f"has {name!r} that do not ascend within {vocab_size} tokens; "
                        "give a checkpoint that was trained for this target"
                    )
                return None if len(ids) == vocab_size else ids
        return None

    def finish(self) -> None:
        """Say that all was taken.

        Raises:
            ModelCorrupt: something else is in the file, so that the head is another than it seems.
        """
        left = sorted(name for name in self.tensors if not name.endswith(_IGNORED))
        if left:
            raise self.corrupt(
                f"has {left[0]!r} and {len(left) - 1} more that this method does not know; "
                "give a checkpoint in one of the layouts of docs/drafting.md"
            )

    def corrupt(self, what: str) -> ModelCorrupt:
        """Return the error that says what is wrong with it."""
        return ModelCorrupt(f"head {str(self.path)!r} {what}")

    def layer_shape(self, target: DecoderShape, num_layers: int) -> LlamaShape:
        """Return the sizes of the head's layers: its configuration's, else the target's.

        Raises:
            ModelCorrupt: neither says all, or positions are scaled in a way that is not computed.
        """
        config = self.layer_config
        rope = _object(config.get("rope_parameters") or config.get("rope_scaling"))
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise self.corrupt(f"scales positions by {kind!r}; give a head with plain ones")
        own = target if isinstance(target, LlamaShape) else None
        theta = config.get("rope_theta", rope.get("rope_theta", own and own.rope_theta))
        norm_eps = config.get("rms_norm_eps", own and own.norm_eps)
        num_heads = self.size_of("num_attention_heads", config, target.num_heads)
        head_dim = target.hidden_size // num_heads if config else target.head_dim
        if theta is None or norm_eps is None:
            raise self.corrupt("needs a config.json with rope_theta and rms_norm_eps beside it")
        return LlamaShape(
            num_layers=num_layers,
            hidden_size=target.hidden_size,
            num_heads=num_heads,
            num_kv_heads=self.size_of("num_key_value_heads", config, target.num_kv_heads),
            head_dim=self.size_of("head_dim", config, head_dim),
            vocab_size=target.vocab_size,
            max_positions=target.max_positions,
            rope_theta=self._number("rope_theta", theta),
            norm_eps=self._number("rms_norm_eps", norm_eps),
        )

    def size_of(self, name: str, config: Mapping[str, object], default: int) -> int:
        """Return a size that a configuration names.

        Args:
            name: its key.
            config: of the head or of its layers.
            default: where it is absent or null.

        Raises:
            ModelCorrupt: it is no whole number from 1 on.
        """
        value = config.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._misconfigured(name, value)
        return value

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._misconfigured(name, value)
        return float(value)

    def _misconfigured(self, name: str, value: object) -> ModelCorrupt:
        return self.corrupt(
            f"has {name} {value!r} in its config.json; give what it was trained with"
        )

    @property
    def layer_config(self) -> Mapping[str, object]:
        """The configuration of its layers: vLLM's speculators keep it one level deeper."""
        nested = self.config.get("transformer_layer_config")
        return _object(nested) if nested else self.config

    @property
    def algorithm(self) -> str:
        """What a config of vLLM's speculators calls it; empty for other layouts."""
        nested = _object(self.config.get("speculators_config"))
        return str(nested.get("algorithm") or self.config.get("speculators_model_type") or "")

    def take_layer(self, prefix: str, shape: LlamaShape, input_width: int) -> dict[str, Tensor]:
        """Take a layer's attention and MLP, the norms of heads and all biases where there are any.

        Args:
            prefix: before the names.
            shape: sizes.
            input_width: width that q, k and v read.

        Raises:
            ModelCorrupt: something is missing or has another shape.
        """
        hidden, width = shape.hidden_size, shape.num_heads * shape.head_dim
        kv_width = shape.num_kv_heads * shape.head_dim
        gate = self.tensors.get(f"{prefix}mlp.gate_proj.weight")
        inner = 0 if gate is None else len(gate)
        sizes = {
            "self_attn.q_proj": (width, input_width),
            "self_attn.k_proj": (kv_width, input_width),
            "self_attn.v_proj": (kv_width, input_width),
            "self_attn.o_proj": (hidden, width),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        norm = "post_attention_layernorm.weight"
        layer = {norm: self.take(f"{prefix}{norm}", hidden)}
        for name, size in sizes.items():
            layer[f"{name}.weight"] = self.take(f"{prefix}{name}.weight", *size)
        optional = {f"{name}.bias": size[0] for name, size in sizes.items()}
        optional |= {f"self_attn.{name}_norm.weight": shape.head_dim for name in "qk"}
        for name, length in optional.items():
            found = self.find(f"{prefix}{name}", length)
            if found is not None:
                layer[name] = found
        return layer


def read_head_file(path: Path, keep: Callable[[str], bool] = lambda name: True) -> HeadFile:
    """Read a head.

    Args:
        path: a directory, or its tensor file.
        keep: says by name which tensors to read.

    Raises:
        ModelCorrupt: no file that holds tensors, or one that cannot be read.
    """
    directory = path if path.is_dir() else path.parent
    tensors: dict[str, Tensor] = {}
    for file in _tensor_files(path):
        tensors |= _read_tensors(path, file, keep)
    return HeadFile(
        path,
        tensors,
        _read_json(path, directory / "config.json"),
        _read_json(path, directory / MANIFEST),
    )


def _tensor_files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    index = path / _INDEX
    if index.exists():
        names = _object(_read_json(path, index).get("weight_map")).values()
        return [path / str(name) for name in sorted(set(map(str, names)))]
    for name in _FILES:
        if (path / name).exists():
            return [path / name]
    raise ModelCorrupt(f"head {str(path)!r} has no weights; give one of: {', '.join(_FILES)}")


def _read_tensors(path: Path, file: Path, keep: Callable[[str], bool]) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as opened:
                names = filter(keep, opened.keys())
                return {name: opened.get_tensor(name) for name in names}
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        return {
            name: value
            for name, value in loaded.items()
            if isinstance(name, str) and isinstance(value, Tensor) and keep(name)
        }
    except (
        OSError,
        SafetensorError,
        RuntimeError,
        pickle.UnpicklingError,
        AttributeError,
        EOFError,
        LookupError,
        ValueError,
    ) as error:
        line = " ".join(str(error).split())
        raise ModelCorrupt(f"head {str(path)!r}: {file.name} cannot be read: {line}") from error


def _read_json(path: Path, file: Path) -> Mapping[str, object]:
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelCorrupt(f"head {str(path)!r} has no readable {file.name}: {error}") from error
    if not isinstance(data, dict):
        raise ModelCorrupt(f"head {str(path)!r}: {file.name} must hold a JSON object")
    return data


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
