"""One layer of the Llama family with frozen weights, over KV slots: decoders and heads stack it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.attention import PassAttention
from tuner.engine.model.decoder import DecoderShape
from tuner.engine.model.linear import FrozenLinear, frozen_linear
from tuner.engine.model.native import NativeAttention, can_attend, native_kernels
from tuner.engine.model.passes import Pass
from tuner.engine.model.slots import KvSlots

Norms = Callable[[Tensor, Tensor, float], Tensor]
"""From states [N, H], a weight [H] and an epsilon to normed states [N, H]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape(DecoderShape):
    """Sizes of a Llama-family decoder.

    Attributes:
        rope_theta: base of the rotary angles.
        norm_eps: epsilon of RMSNorm.
        window: tokens its attention sees, the same in all layers; None for all.
    """

    rope_theta: float
    norm_eps: float
    window: int | None = None


class LayerPass:
    """What all layers of one pass share: where KV goes, who sees whom, how heads are turned."""

    def __init__(self, batch: Pass, slots: KvSlots, shape: LlamaShape, rotation: Tensor) -> None:
        """Prepare a pass.

        Args:
            batch: the tokens.
            slots: KV to extend.
            shape: sizes of the layers.
            rotation: [positions, head_dim / 2] from `rotation_table`.
        """
        self._slots = slots
        self._shape = shape
        self._rotation = rotation[batch.positions]
        self._index = slots.flat_index(batch.slots, batch.entries)
        self._native = _native_attention(batch, slots, shape, self._rotation)
        alone = batch if self._native is None else replace(batch, short=None)
        self._attention = PassAttention(alone, slots, shape.num_heads)

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """Rotate a layer's queries and keys, write its new KV and attend over all of it.

        Args:
            layer: which layer's KV.
            qkv: [N, (heads + 2 KV heads) * head dim], pairs to rotate side by side; overwritten.

        Returns:
            [N, heads * head dim].
        """
        if self._native is None:
            queries, keys, values = self._heads(qkv)
            self._slots.write(layer, self._index, keys, values)
            return self._attention(layer, queries)
        self._native.store(layer, qkv)
        output = self._native(layer, qkv)
        if self._attention.has_long:
            self._attention.attend_long(layer, self._heads_of(qkv)[0], output)
        return output

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate queries and keys in place and split qkv into heads, [N, ..., head dim] each."""
        shape = self._shape
        width = (shape.num_heads + shape.num_kv_heads) * shape.head_dim
        pairs = qkv[:, :width].view(len(qkv), -1, shape.head_dim // 2, 2)
        wide = pairs.float()
        torch.view_as_complex(wide).mul_(self._rotation[:, None])
        if wide is not pairs:
            pairs.copy_(wide)
        return self._heads_of(qkv)

    def _heads_of(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return views of queries, keys and values, [N, heads or KV heads, head dim]."""
        shape = self._shape
        heads = qkv.view(len(qkv), -1, shape.head_dim)
        counts = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
        queries, keys, values = torch.split(heads, list(counts), dim=1)
        return queries, keys, values


def _native_attention(
    batch: Pass, slots: KvSlots, shape: LlamaShape, rotation: Tensor
) -> NativeAttention | None:
    """Return the compiled attention of a pass; None where torch must compute it."""
    held = slots.keys[0]
    kernels = native_kernels(held.device, held.dtype)
    is_given_by_mask = batch.short is not None and not batch.short.spans
    if kernels is None or is_given_by_mask:
        return None
    if not can_attend(held.device, held.dtype, shape.head_dim):
        return None
    return NativeAttention(kernels, batch, slots, shape.num_heads, rotation, shape.window)


class DecoderLayer:
    """Attention and gated MLP; the norm before attention is the caller's, for heads have others."""

    def __init__(
        self, shape: LlamaShape, weights: Mapping[str, Tensor], *, is_packed: bool
    ) -> None:
        """Take over the weights, q, k and v fused into one product, gate and up into one.

        Args:
            shape: sizes.
            weights: `self_attn.*`, `mlp.*` and `post_attention_layernorm.weight`, in Hugging Face's
                Llama names; `self_attn.q_norm` and `k_norm` where heads are normed.
            is_packed: prepack the weights.
        """

        def fused(*names: str) -> FrozenLinear:
            parts = [_as_pairs(shape, name, weights[f"{name}.weight"]) for name in names]
            biases = [
                _as_pairs(shape, name, weights[f"{name}.bias"])
                for name in names
                if f"{name}.bias" in weights
            ]
            bias = torch.cat(biases) if biases else None
            return frozen_linear(torch.cat(parts), bias, is_packed=is_packed)

        self._shape = shape
        self._qkv = fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self._output = fused("self_attn.o_proj")
        self._gate_up = fused("mlp.gate_proj", "mlp.up_proj")
        self._down = fused("mlp.down_proj")
        self._post_norm = weights["post_attention_layernorm.weight"]
        self._head_norms = _head_norms(shape, weights)
        post, down = self._post_norm, weights["mlp.down_proj.weight"]
        kernels = native_kernels(post.device, post.dtype, *down.shape)
        self._norms: Norms = rms_norm if kernels is None else kernels.rms_norm
        self._gated: Callable[[Tensor], Tensor] = gated if kernels is None else kernels.gated

    def __call__(self, layer: int, inputs: Tensor, residual: Tensor, work: LayerPass) -> Tensor:
        """Compute the layer.

        Args:
            layer: number of its KV in the slots.
            inputs: [N, width of q, k and v], what attention reads, normed.
            residual: [N, H], what attention's output is added to.
            work: the pass.

        Returns:
            [N, H].
        """
        mixed = work.attend(layer, self._heads_normed(self._qkv(inputs)))
        hidden = self._output.plus(mixed, residual)
        gate_up = self._gate_up(self._norms(hidden, self._post_norm, self._shape.norm_eps))
        return self._down.plus(self._gated(gate_up), hidden)

    def _heads_normed(self, qkv: Tensor) -> Tensor:
        """Norm each query and key head where the model does so."""
        if self._head_norms is None:
            return qkv
        num_normed, dim = self._head_norms.shape
        heads = qkv.view(len(qkv), -1, dim)
        normed = rms_norm(heads[:, :num_normed], None, self._shape.norm_eps) * self._head_norms
        return torch.cat((normed, heads[:, num_normed:]), 1).view_as(qkv)


def gated(gate_up: Tensor) -> Tensor:
    """Return silu of the first half of gate_up [N, 2 n] times the second, [N, n]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def rms_norm(hidden: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Return hidden [..., n] over its root mean square, times a weight [n] where there is one."""
    return functional.rms_norm(hidden, hidden.shape[-1:], weight, eps)


def rotation_table(shape: LlamaShape, device: torch.device) -> Tensor:
    """Return e^(i * position * frequency), [positions, head_dim / 2] complex64."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    frequencies = 1.0 / shape.rope_theta**exponents
    angles = torch.outer(torch.arange(shape.max_positions, dtype=torch.float32), frequencies)
    return torch.polar(torch.ones_like(angles), angles).to(device)


def under(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the weights whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in weights.items()
        if name.startswith(prefix)
    }


def _head_norms(shape: LlamaShape, weights: Mapping[str, Tensor]) -> Tensor | None:
    """Return the norm weights of all rotated heads, [heads + KV heads, head dim]; None for none."""
    norms: list[Tensor] = []
    counts: Sequence[int] = (shape.num_heads, shape.num_kv_heads)
    for name, count in zip(("self_attn.q_norm", "self_attn.k_norm"), counts, strict=True):
        if f"{name}.weight" not in weights:
            return None
        norm = _as_pairs(shape, name, weights[f"{name}.weight"])
        norms.append(norm.expand(count, -1))
    return torch.cat(norms)


def _as_pairs(shape: LlamaShape, name: str, weight: Tensor) -> Tensor:
    """Reorder query and key rows so that each rotated pair lies side by side.

    Hugging Face pairs dimension i with i + head_dim/2; side by side, a rotation is one complex
    product. Queries and keys move alike, so their products stay the same.
    """
    if not name.endswith(("q_proj", "k_proj", "q_norm", "k_norm")):
        return weight
    half = shape.head_dim // 2
    order = torch.arange(shape.head_dim, device=weight.device).view(2, half).T.flatten()
    return weight.view(-1, shape.head_dim, *weight.shape[1:])[:, order].reshape(weight.shape)
