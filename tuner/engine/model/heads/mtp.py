"""Multi-token prediction modules in the style of DeepSeek-V3, over a dense layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.layers import DecoderLayer, LayerPass, LlamaShape, rms_norm, rotation_table
from tuner.engine.model.linear import FrozenLinear
from tuner.engine.model.passes import Pass
from tuner.engine.model.slots import FINAL, KvSlots

_ROWS = "shared_head.head.weight"
"""Output rows of a module; DeepSeek's files repeat the target's here."""


@dataclass(frozen=True, slots=True)
class _Module:
    embed_norm: Tensor
    hidden_norm: Tensor
    join: FrozenLinear
    input_norm: Tensor
    layer: DecoderLayer
    final_norm: Tensor
    output: FrozenLinear


class MtpModules:
    """D modules in a row; with one, or beyond D tokens, they are applied again, as in vLLM.

    With e the token's embedding and h the state before it: x = eh_proj [enorm(e); hnorm(h)], one
    Llama layer over x gives the next state, shared_head.norm of it is scored.

    Source: arXiv:2412.19437, section 2.2.
    """

    def __init__(
        self,
        shape: LlamaShape,
        modules: Sequence[Mapping[str, Tensor]],
        target: HeadTarget,
        *,
        vocab: Tensor | None,
        joins_hidden_first: bool = False,
        feeds_normed: bool = False,
    ) -> None:
        """Take over the weights.

        Args:
            shape: sizes of a module's layer; `num_layers` is the number of modules.
            modules: of each `enorm`, `hnorm`, `eh_proj`, a Llama layer's names, `shared_head.norm`,
                and `shared_head.head` where the output rows are not the target's.
            target: embedding and output rows.
            vocab: [reduced V] int64 ids they score; None for all.
            joins_hidden_first: `eh_proj` reads [hnorm(h); enorm(e)].
            feeds_normed: the next module reads the state after `shared_head.norm`.
        """
        self.shape = shape
        self.taps: tuple[int, ...] = (FINAL,)
        self.dtype, self.device = target.dtype, target.device
        self.vocab = vocab
        self._target = target
        self._joins_hidden_first = joins_hidden_first
        self._feeds_normed = feeds_normed
        output = cache(partial(target.output, vocab))
        self._modules = [
            _module(shape, weights, target, output(weights.get(_ROWS))) for weights in modules
        ]
        self._rotation = rotation_table(shape, target.device)

    def fuse(self, features: Tensor) -> Tensor:
        """Return the final states [N, H]."""
        return features[:, 0].to(self.dtype)

    def forward(self, batch: Pass, states: Tensor, slots: KvSlots, module: int) -> Tensor:
        """Compute a pass of one module; see `RecurrentHead`."""
        part, eps = self._modules[module], self.shape.norm_eps
        halves = [
            rms_norm(self._target.embed(batch.token_ids), part.embed_norm, eps),
            rms_norm(states, part.hidden_norm, eps),
        ]
        joined = part.join(torch.cat(halves[::-1] if self._joins_hidden_first else halves, dim=-1))
        work = LayerPass(batch, slots, self.shape, self._rotation)
        done = part.layer(module, rms_norm(joined, part.input_norm, eps), joined, work)
        return rms_norm(done, part.final_norm, eps) if self._feeds_normed else done

    def logits(self, states: Tensor, module: int) -> Tensor:
        """Score states over the vocabulary."""
        part = self._modules[module]
        if not self._feeds_normed:
            states = rms_norm(states, part.final_norm, self.shape.norm_eps)
        return part.output(states)


def _module(
    shape: LlamaShape,
    weights: Mapping[str, Tensor],
    target: HeadTarget,
    output: FrozenLinear,
) -> _Module:
    own = {name: target.cast(value) for name, value in weights.items() if name != _ROWS}
    return _Module(
        embed_norm=own["enorm.weight"],
        hidden_norm=own["hnorm.weight"],
        join=target.linear(own["eh_proj.weight"]),
        input_norm=own["input_layernorm.weight"],
        layer=DecoderLayer(shape, own, is_packed=target.is_packed),
        final_norm=own["shared_head.norm.weight"],
        output=output,
    )
