"""Public layouts of heads, read into what computes them.

Key names: EAGLE and Medusa as their authors publish them (github.com/SafeAILab/EAGLE,
github.com/FasterDecoding/Medusa), MTP as DeepSeek, MiMo and vLLM's speculators do, the MLP
speculator as IBM does, and EAGLE as vLLM's speculators do. Our own heads leave out what is the
target's: embedding and output rows.
"""

from __future__ import annotations

import re

from torch import Tensor

from tuner.engine.model.heads.base import HeadTarget, RecurrentHead
from tuner.engine.model.heads.eagle import FeatureEagle, FusedEagle
from tuner.engine.model.heads.head_file import HeadFile
from tuner.engine.model.heads.medusa import MedusaHeads, MedusaWeights
from tuner.engine.model.heads.mlp_speculator import MlpSpeculator, StageWeights
from tuner.engine.model.heads.mtp import MtpModules
from tuner.engine.model.layers import LlamaShape

_EAGLE_NAMES = {
    "fusion_fc.": "fc.",
    "transformer.": "layers.0.",
    "embedding_layernorm.": "embed_norm.",
    "embed_layernorm.": "embed_norm.",
    "hidden_layernorm.": "layers.0.input_layernorm.",
    "pre_lm_head_layernorm.": "norm.",
    "lm_head_layernorm.": "norm.",
}
"""EAGLE-1 in vLLM's speculators, and with the norms of its longer-trained variant."""

_MTP_NAMES = {
    "token_layernorm.": "enorm.",
    "hidden_layernorm.": "hnorm.",
    "input_proj.": "eh_proj.",
    "final_layernorm.": "shared_head.norm.",
}
"""MTP in MiMo and in vLLM's speculators."""

_MTP_MODULE = re.compile(r"^(model\.)?(mtp_)?layers\.(\d+)\.(.+)$")


def read_eagle(file: HeadFile, target: HeadTarget) -> RecurrentHead:
    """Read an EAGLE-1, EAGLE-2 or EAGLE-3 head.

    Raises:
        ModelCorrupt: it is none, not whole, or belongs to another target.
    """
    _require_algorithm(file, "", "eagle", "eagle3")
    file.rename(lambda name: name.removeprefix("model."))
    is_fused = any(name.endswith(".hidden_norm.weight") for name in file.tensors)
    vocab = file.take_vocab(target.shape.vocab_size)
    head = (
        _read_fused(file, target, vocab) if is_fused else _read_feature_eagle(file, target, vocab)
    )
    file.finish()
    return head


def _read_feature_eagle(file: HeadFile, target: HeadTarget, vocab: Tensor | None) -> FeatureEagle:
    file.rename(lambda name: _renamed(name, _EAGLE_NAMES))
    shape, hidden = file.layer_shape(target.shape, 1), target.shape.hidden_size
    weights = {"fc.weight": file.take("fc.weight", hidden, 2 * hidden)}
    layer = file.take_layer("layers.0.", shape, hidden)
    weights |= {f"layers.0.{name}": value for name, value in layer.items()}
    norms = ("embed_norm.weight", "layers.0.input_layernorm.weight", "norm.weight", "fc.bias")
    found = {name: file.find(name, hidden) for name in norms}
    weights |= {name: value for name, value in found.items() if value is not None}
    file.tensors.pop("lm_head.weight", None)  # a copy of the target's rows
    return FeatureEagle(shape, weights, target, vocab=vocab)


def _read_fused(file: HeadFile, target: HeadTarget, vocab: Tensor | None) -> FusedEagle:
    file.rename(lambda name: _renamed(name, {"layers.0.": "midlayer."}))
    shape, hidden = file.layer_shape(target.shape, 1), target.shape.hidden_size
    taps = _eagle_taps(file, target.shape.num_layers)
    weights = {"fc.weight": file.take("fc.weight", hidden, len(taps) * hidden)}
    layer = file.take_layer("midlayer.", shape, 2 * hidden)
    for name in ("input_layernorm.weight", "hidden_norm.weight"):
        layer[name] = file.take(f"midlayer.{name}", hidden)
    weights |= {f"midlayer.{name}": value for name, value in layer.items()}
    weights["norm.weight"] = file.take("norm.weight", hidden)
    num_rows = target.shape.vocab_size if vocab is None else len(vocab)
    if "lm_head.weight" in file.tensors or not file.manifest:
        weights["lm_head.weight"] = file.take("lm_head.weight", num_rows, hidden)
    return FusedEagle(
        shape,
        weights,
        target,
        taps=taps,
        vocab=vocab,
        adds_to_normed=bool(file.config.get("norm_before_residual", False)),
    )


def _eagle_taps(file: HeadFile, num_layers: int) -> tuple[int, ...]:
    """Return the layers whose input is fused: as configured, else as SafeAILab's code does."""
    given = file.config.get("eagle_aux_hidden_state_layer_ids")
    taps = tuple(given) if isinstance(given, list) else ()
    taps = taps or (2, num_layers // 2, num_layers - 3)
    if not all(isinstance(tap, int) and 0 <= tap < num_layers for tap in taps):
        raise file.corrupt(
            f"reads the input of layers {list(taps)}, but the target has {num_layers}; "
            "give eagle_aux_hidden_state_layer_ids that it has"
        )
    return taps


def is_mtp_name(name: str, num_layers: int) -> bool:
    """Say whether a tensor of a whole model belongs to its MTP modules, or to a file of ours."""
    found = _MTP_MODULE.match(name)
    if found is None:
        return name == "draft_vocab"
    return bool(found[2]) or int(found[3]) >= num_layers


def read_mtp(file: HeadFile, target: HeadTarget) -> RecurrentHead:
    """Read MTP modules with dense layers.

    Raises:
        ModelCorrupt: there is none, they are not whole, or not dense.
    """
    _require_algorithm(file, "", "mtp")
    vocab = file.take_vocab(target.shape.vocab_size)
    found = [match for match in map(_MTP_MODULE.match, file.tensors) if match]
    if not found:
        raise file.corrupt(
            f"has no MTP module, such as 'model.layers.{target.shape.num_layers}.enorm.weight'; "
            "give the model's own directory or that of its modules"
        )
    numbers = sorted({int(match[3]) for match in found})
    has_mtp_names = all(match[2] for match in found)
    joins_hidden_first = has_mtp_names and all(match[1] for match in found)
    file.rename(_module_name)
    shape = file.layer_shape(target.shape, len(numbers))
    modules = [_take_module(file, f"{number}.", target, shape, vocab) for number in numbers]
    file.finish()
    return MtpModules(
        shape,
        modules,
        target,
        vocab=vocab,
        joins_hidden_first=joins_hidden_first,
        feeds_normed=has_mtp_names,
    )


def _module_name(name: str) -> str:
    """Shorten a module's names to its number and DeepSeek's name of the part."""
    found = _MTP_MODULE.match(name)
    return name if found is None else f"{found[3]}.{_renamed(found[4], _MTP_NAMES)}"


def _take_module(
    file: HeadFile, prefix: str, target: HeadTarget, shape: LlamaShape, vocab: Tensor | None
) -> dict[str, Tensor]:
    for part in ("self_attn.kv_a_proj", "self_attn.kv_b_proj", "mlp.experts", "mlp.gate.weight"):
        if any(name.startswith(prefix + part) for name in file.tensors):
            raise file.corrupt(
                f"has a module with {part!r}; only dense layers with keys and values of their own "
                "are computed: give such a model"
            )
    hidden = target.shape.hidden_size
    module = file.take_layer(prefix, shape, hidden)
    for name in ("enorm", "hnorm", "input_layernorm", "shared_head.norm"):
        module[f"{name}.weight"] = file.take(f"{prefix}{name}.weight", hidden)
    module["eh_proj.weight"] = file.take(f"{prefix}eh_proj.weight", hidden, 2 * hidden)
    num_rows = target.shape.vocab_size if vocab is None else len(vocab)
    rows = file.find(f"{prefix}shared_head.head.weight", num_rows, hidden)
    return module if rows is None else module | {"shared_head.head.weight": rows}


def read_medusa(file: HeadFile, target: HeadTarget) -> MedusaHeads:
    """Read Medusa heads.

    Raises:
        ModelCorrupt: there is none, they are not whole, or belong to another target.
    """
    _require_algorithm(file, "")
    file.rename(lambda name: name.removeprefix("medusa_head."))
    vocab = file.take_vocab(target.shape.vocab_size)
    heads: list[MedusaWeights] = []
    while f"{len(heads)}.0.linear.weight" in file.tensors:
        heads.append(_take_medusa_head(file, f"{len(heads)}.", target, vocab))
    if not heads:
        raise file.corrupt("has no '0.0.linear.weight'; give the directory of Medusa heads")
    file.finish()
    return MedusaHeads(heads, target, vocab=vocab)


def _take_medusa_head(
    file: HeadFile, prefix: str, target: HeadTarget, vocab: Tensor | None
) -> MedusaWeights:
    hidden = target.shape.hidden_size
    blocks: list[tuple[Tensor, Tensor | None]] = []
    while f"{prefix}{len(blocks)}.linear.weight" in file.tensors:
        linear = f"{prefix}{len(blocks)}.linear."
        blocks.append(
            (file.take(f"{linear}weight", hidden, hidden), file.find(f"{linear}bias", hidden))
        )
    last = f"{prefix}{len(blocks)}."
    num_rows = target.shape.vocab_size if vocab is None else len(vocab)
    turn = file.find(f"{last}proj.weight", hidden, hidden)
    # A head of ours without a turn ends in the target's rows as they are.
    rows = None if file.manifest else file.take(f"{last}weight", num_rows, hidden)
    return MedusaWeights(blocks=blocks, turn=turn, rows=rows)


def read_mlp_speculator(file: HeadFile, target: HeadTarget) -> MlpSpeculator:
    """Read an MLP speculator.

    Raises:
        ModelCorrupt: it is none, not whole, or belongs to another target.
    """
    _require_algorithm(file, "", "mlp_speculator")
    file.rename(lambda name: name.removeprefix("speculator."))
    vocab = file.take_vocab(target.shape.vocab_size)
    num_found = sum(name.startswith("proj.") for name in file.tensors)
    num_stages = file.size_of("n_predict", file.config, num_found)
    if "proj.0.weight" not in file.tensors:
        raise file.corrupt("has no 'speculator.proj.0.weight'; give that of an MLP speculator")
    stages = _take_stages(file, num_stages, target, vocab)
    file.finish()
    return MlpSpeculator(
        stages,
        target,
        vocab=vocab,
        scales_input=bool(file.config.get("scale_input", bool(file.manifest))),
    )


def _take_stages(
    file: HeadFile, num_stages: int, target: HeadTarget, vocab: Tensor | None
) -> list[StageWeights]:
    hidden, vocab_size = target.shape.hidden_size, target.shape.vocab_size
    width = len(file.tensors["proj.0.weight"])
    num_rows = vocab_size if vocab is None else len(vocab)
    if file.config.get("tie_weights", False):
        _tie(file, num_stages)
    embed_project = file.find("emb_proj.weight", width, hidden)
    head_project = file.find("head_proj.weight", hidden, width)
    return [
        StageWeights(
            project=file.take(f"proj.{number}.weight", width, width if number else hidden),
            scale=file.take(f"ln.{number}.weight", width),
            shift=file.take(f"ln.{number}.bias", width),
            embedding=file.take(f"emb.{number}.weight", vocab_size, width)
            if embed_project is None
            else None,
            embed_project=embed_project,
            rows=file.take(f"head.{number}.weight", num_rows, width)
            if head_project is None
            else None,
            head_project=head_project,
        )
        for number in range(num_stages)
    ]


def _tie(file: HeadFile, num_stages: int) -> None:
    """Give tied stages one tensor; only the projections start at the second, by their width."""
    for part, first in (("emb", 0), ("ln", 0), ("head", 0), ("proj", 1)):
        for kind in ("weight", "bias"):
            tensor = file.tensors.get(f"{part}.{first}.{kind}")
            if tensor is not None:
                tied = range(first + 1, num_stages)
                file.tensors |= {f"{part}.{number}.{kind}": tensor for number in tied}


def _require_algorithm(file: HeadFile, *known: str) -> None:
    if file.algorithm not in known:
        raise file.corrupt(
            f"is a {file.algorithm!r} head by its config.json; load it as the method it is for"
        )


def _renamed(name: str, names: dict[str, str]) -> str:
    """Replace the first leading part that has another name."""
    for old, new in names.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
