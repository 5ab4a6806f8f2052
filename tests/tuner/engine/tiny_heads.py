"""Tiny random heads: weights in the layouts' names, and drafters over a small random target."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tuner.engine.drafters.eagle import EagleDrafter
from tuner.engine.drafters.medusa import MedusaDrafter
from tuner.engine.drafters.mlp_speculator import MlpSpeculatorDrafter
from tuner.engine.drafters.mtp import MtpDrafter
from tuner.engine.drafters.pard import PardDrafter
from tuner.engine.limits import EngineLimits
from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.heads.eagle import FeatureEagle, FusedEagle
from tuner.engine.model.heads.medusa import MedusaHeads, MedusaWeights
from tuner.engine.model.heads.mlp_speculator import MlpSpeculator, StageWeights
from tuner.engine.model.heads.mtp import MtpModules
from tuner.engine.model.heads.pard import MaskedDecoder
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.slots import FINAL

EAGLE_TAPS = (0, 1, FINAL)


class Dice:
    """Random weights from one seed."""

    def __init__(self, seed: int, scale: float = 0.5) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._scale = scale

    def matrix(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator) * self._scale

    def norm(self, width: int) -> Tensor:
        return 1 + 0.2 * self.matrix(width)


def head_target(decoder: LlamaDecoder, dtype: torch.dtype = torch.float32) -> HeadTarget:
    return HeadTarget(
        shape=decoder.shape,
        embedding=decoder.embedding,
        output_rows=decoder.output_rows,
        dtype=dtype,
    )


def one_layer(shape: LlamaShape) -> LlamaShape:
    return replace(shape, num_layers=1)


def layer_weights(dice: Dice, shape: LlamaShape, prefix: str, width: int) -> dict[str, Tensor]:
    """Attention over inputs of some width, MLP, and the norm between them."""
    hidden, inner = shape.hidden_size, 2 * shape.hidden_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    return {
        f"{prefix}self_attn.q_proj.weight": dice.matrix(queries, width),
        f"{prefix}self_attn.k_proj.weight": dice.matrix(keys, width),
        f"{prefix}self_attn.v_proj.weight": dice.matrix(keys, width),
        f"{prefix}self_attn.o_proj.weight": dice.matrix(hidden, queries),
        f"{prefix}mlp.gate_proj.weight": dice.matrix(inner, hidden),
        f"{prefix}mlp.up_proj.weight": dice.matrix(inner, hidden),
        f"{prefix}mlp.down_proj.weight": dice.matrix(hidden, inner),
        f"{prefix}post_attention_layernorm.weight": dice.norm(hidden),
    }


def eagle_1_weights(shape: LlamaShape, seed: int = 1) -> dict[str, Tensor]:
    dice, hidden = Dice(seed), shape.hidden_size
    return {
        "fc.weight": dice.matrix(hidden, 2 * hidden),
        "fc.bias": dice.matrix(hidden),
        **layer_weights(dice, shape, "layers.0.", hidden),
    }


def eagle_3_weights(shape: LlamaShape, num_rows: int, seed: int = 2) -> dict[str, Tensor]:
    dice, hidden = Dice(seed), shape.hidden_size
    return {
        "fc.weight": dice.matrix(hidden, 3 * hidden),
        **layer_weights(dice, shape, "midlayer.", 2 * hidden),
        "midlayer.input_layernorm.weight": dice.norm(hidden),
        "midlayer.hidden_norm.weight": dice.norm(hidden),
        "norm.weight": dice.norm(hidden),
        "lm_head.weight": dice.matrix(num_rows, hidden),
    }


def mtp_weights(shape: LlamaShape, prefix: str = "", seed: int = 3) -> dict[str, Tensor]:
    dice, hidden = Dice(seed), shape.hidden_size
    norms = ("enorm", "hnorm", "input_layernorm", "shared_head.norm")
    return {
        **{f"{prefix}{name}.weight": dice.norm(hidden) for name in norms},
        f"{prefix}eh_proj.weight": dice.matrix(hidden, 2 * hidden),
        **layer_weights(dice, shape, prefix, hidden),
    }


def medusa_weights(
    shape: LlamaShape, num_heads: int, num_rows: int, seed: int = 4
) -> dict[str, Tensor]:
    dice, hidden = Dice(seed), shape.hidden_size
    weights: dict[str, Tensor] = {}
    for head in range(num_heads):
        weights[f"{head}.0.linear.weight"] = dice.matrix(hidden, hidden)
        weights[f"{head}.0.linear.bias"] = dice.matrix(hidden)
        weights[f"{head}.1.weight"] = dice.matrix(num_rows, hidden)
    return weights


def speculator_weights(
    shape: LlamaShape, num_stages: int, width: int, num_rows: int, seed: int = 5
) -> dict[str, Tensor]:
    dice = Dice(seed)
    weights: dict[str, Tensor] = {}
    for stage in range(num_stages):
        read = width if stage else shape.hidden_size
        weights[f"speculator.emb.{stage}.weight"] = dice.matrix(shape.vocab_size, width)
        weights[f"speculator.proj.{stage}.weight"] = dice.matrix(width, read)
        weights[f"speculator.ln.{stage}.weight"] = dice.norm(width)
        weights[f"speculator.ln.{stage}.bias"] = dice.matrix(width)
        weights[f"speculator.head.{stage}.weight"] = dice.matrix(num_rows, width)
    return weights


def eagle_1_head(target: LlamaDecoder) -> FeatureEagle:
    shape = one_layer(target.shape)
    return FeatureEagle(shape, eagle_1_weights(shape), head_target(target))


def eagle_3_head(target: LlamaDecoder, vocab: Tensor | None = None) -> FusedEagle:
    shape = one_layer(target.shape)
    num_rows = shape.vocab_size if vocab is None else len(vocab)
    weights = eagle_3_weights(shape, num_rows)
    return FusedEagle(shape, weights, head_target(target), taps=EAGLE_TAPS, vocab=vocab)


def mtp_modules(target: LlamaDecoder, count: int = 1, vocab: Tensor | None = None) -> MtpModules:
    shape = replace(target.shape, num_layers=count)
    modules = [mtp_weights(shape, seed=3 + number) for number in range(count)]
    return MtpModules(shape, modules, head_target(target), vocab=vocab)


def medusa_heads(target: LlamaDecoder, count: int, vocab: Tensor | None = None) -> MedusaHeads:
    num_rows = target.shape.vocab_size if vocab is None else len(vocab)
    weights = medusa_weights(target.shape, count, num_rows)
    heads = [
        MedusaWeights(
            blocks=[(weights[f"{head}.0.linear.weight"], weights[f"{head}.0.linear.bias"])],
            rows=weights[f"{head}.1.weight"],
        )
        for head in range(count)
    ]
    return MedusaHeads(heads, head_target(target), vocab=vocab)


def mlp_speculator(target: LlamaDecoder, count: int, vocab: Tensor | None = None) -> MlpSpeculator:
    num_rows = target.shape.vocab_size if vocab is None else len(vocab)
    weights = speculator_weights(target.shape, count, 20, num_rows)
    stages = [
        StageWeights(
            project=weights[f"speculator.proj.{stage}.weight"],
            scale=weights[f"speculator.ln.{stage}.weight"],
            shift=weights[f"speculator.ln.{stage}.bias"],
            embedding=weights[f"speculator.emb.{stage}.weight"],
            rows=weights[f"speculator.head.{stage}.weight"],
        )
        for stage in range(count)
    ]
    return MlpSpeculator(stages, head_target(target), vocab=vocab, scales_input=True)


def eagle(target: LlamaDecoder, limits: EngineLimits, vocab: Tensor | None = None) -> EagleDrafter:
    return EagleDrafter(eagle_3_head(target, vocab), **_slots(limits), **_ID)


def mtp(target: LlamaDecoder, limits: EngineLimits, vocab: Tensor | None = None) -> MtpDrafter:
    return MtpDrafter(mtp_modules(target, 2, vocab), **_slots(limits), **_ID)


def medusa(target: LlamaDecoder, vocab: Tensor | None = None) -> MedusaDrafter:
    return MedusaDrafter(medusa_heads(target, 4, vocab), **_ID)


def speculator(target: LlamaDecoder, vocab: Tensor | None = None) -> MlpSpeculatorDrafter:
    return MlpSpeculatorDrafter(mlp_speculator(target, 4, vocab), **_ID)


def pard(draft: LlamaDecoder, limits: EngineLimits, vocab: Tensor | None = None) -> PardDrafter:
    mask = Dice(6).matrix(draft.shape.hidden_size)
    decoder = MaskedDecoder(draft, mask)
    return PardDrafter(decoder, mask_id=decoder.mask_id, draft_vocab=vocab, **_slots(limits), **_ID)


def _slots(limits: EngineLimits) -> dict[str, int]:
    return {"num_slots": limits.max_rows, "max_context_tokens": limits.max_context_tokens}


_ID = {"drafter_id": "tiny", "drafter_hash": "0"}
