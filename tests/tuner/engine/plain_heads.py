"""Recurrent heads computed anew for every token, without cache, in Hugging Face's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder

Weights = dict[str, Tensor]
Join = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def norm(hidden: Tensor, weight: Tensor | float, eps: float) -> Tensor:
    return hidden / (hidden.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def layer(shape: LlamaShape, w: Weights, inputs: Tensor, residual: Tensor, at: Tensor) -> Tensor:
    """One causal Llama layer over [N, width]; `at` are the places for the rotary angles."""
    dim, groups = shape.head_dim, shape.num_heads // shape.num_kv_heads
    query, key, value = (
        functional.linear(inputs, w[f"self_attn.{name}_proj.weight"]).view(len(inputs), -1, dim)
        for name in "qkv"
    )
    if "self_attn.q_norm.weight" in w:
        query = norm(query, w["self_attn.q_norm.weight"], shape.norm_eps)
        key = norm(key, w["self_attn.k_norm.weight"], shape.norm_eps)
    query, key = (_rotated(heads, at, shape.rope_theta) for heads in (query, key))
    key, value = (heads.repeat_interleave(groups, dim=1) for heads in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(dim)
    future = torch.ones(len(inputs), len(inputs)).triu(1).bool()
    mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(future, -math.inf).softmax(-1), value)
    hidden = residual + functional.linear(mixed.flatten(1), w["self_attn.o_proj.weight"])
    normed = norm(hidden, w["post_attention_layernorm.weight"], shape.norm_eps)
    gate = functional.silu(functional.linear(normed, w["mlp.gate_proj.weight"]))
    up = functional.linear(normed, w["mlp.up_proj.weight"])
    return hidden + functional.linear(gate * up, w["mlp.down_proj.weight"])


def _rotated(heads: Tensor, at: Tensor, theta: float) -> Tensor:
    half = heads.shape[-1] // 2
    angles = at[:, None].float() / theta ** (torch.arange(half) / half)
    cos, sin = (torch.cat([each, each], -1)[:, None] for each in (angles.cos(), angles.sin()))
    return heads * cos + torch.cat([-heads[..., half:], heads[..., :half]], -1) * sin


@dataclass(frozen=True)
class PlainHead:
    """One module: how it joins embedding and state, its layer, and how it scores."""

    shape: LlamaShape
    weights: Weights
    join: Join
    score: Callable[[Tensor], Tensor]

    def states(self, embedded: Tensor, states: Tensor, at: Tensor) -> Tensor:
        return layer(self.shape, self.weights, *self.join(embedded, states), at)


def part(weights: Weights, prefix: str) -> Weights:
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def plain_eagle_1(target: LlamaDecoder, w: Weights) -> PlainHead:
    def join(embedded: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        joined = functional.linear(torch.cat([embedded, states], -1), w["fc.weight"], w["fc.bias"])
        return joined, joined

    return PlainHead(
        target.shape, part(w, "layers.0."), join, lambda hidden: hidden @ target.output_rows.T
    )


def plain_eagle_3(target: LlamaDecoder, w: Weights) -> PlainHead:
    eps, own = target.shape.norm_eps, part(w, "midlayer.")

    def join(embedded: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        halves = (
            norm(embedded, own["input_layernorm.weight"], eps),
            norm(states, own["hidden_norm.weight"], eps),
        )
        return torch.cat(halves, -1), states

    return PlainHead(
        target.shape,
        own,
        join,
        lambda hidden: norm(hidden, w["norm.weight"], eps) @ w["lm_head.weight"].T,
    )


def plain_mtp(target: LlamaDecoder, w: Weights) -> PlainHead:
    eps = target.shape.norm_eps

    def join(embedded: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        halves = norm(embedded, w["enorm.weight"], eps), norm(states, w["hnorm.weight"], eps)
        joined = functional.linear(torch.cat(halves, -1), w["eh_proj.weight"])
        return norm(joined, w["input_layernorm.weight"], eps), joined

    return PlainHead(
        target.shape,
        w,
        join,
        lambda hidden: norm(hidden, w["shared_head.norm.weight"], eps) @ target.output_rows.T,
    )


def path_logits(
    heads: Sequence[PlainHead],
    embedding: Tensor,
    token_ids: Sequence[int],
    fused: Tensor,
    path: Sequence[int],
) -> Tensor:
    """Logits [V] after a path of guesses behind committed tokens.

    Args:
        heads: the modules.
        embedding: [V, H].
        token_ids: the n committed tokens.
        fused: [n - 1, H] what the first module reads of the target.
        path: guesses, none for the first one's logits.
    """
    embedded = embedding[torch.tensor([*token_ids, *path])]
    count = len(token_ids)
    trunks = [fused]  # what each module reads for committed pairs
    for number, head in enumerate(heads[:-1]):
        pairs = len(trunks[-1][: count - 1 - number])
        inputs = trunks[-1][:pairs], torch.arange(pairs)
        trunks.append(head.states(embedded[number + 1 : number + 1 + pairs], *inputs))
    read = [trunk[: count - 1 - number] for number, trunk in enumerate(trunks)]
    tokens = [embedded[number + 1 : count] for number in range(len(heads))]
    at = [torch.arange(len(each)) for each in read]
    state = torch.empty(0)
    for step in range(len(path) + 1):
        module = step % len(heads)
        if step:
            read[module] = torch.cat([read[module], state[None]])
            tokens[module] = torch.cat([tokens[module], embedded[count - 1 + step][None]])
            place = torch.tensor([count - 2 + step - module])
            at[module] = torch.cat([at[module], place])
        state = heads[module].states(tokens[module], read[module], at[module])[-1]
    return heads[len(path) % len(heads)].score(state)
