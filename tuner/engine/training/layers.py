"""Trainable Llama layers, and attention along branches that leave a sequence.

Used by the draft model and by every head with attention. Names of the parameters are Hugging
Face's, so that a head's file is its state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engine.training.target import Shape, rope_tables, rotate


class Attention(nn.Module):
    """Projections of a grouped-query attention; the caller decides who sees whom."""

    def __init__(self, shape: Shape, input_width: int | None = None) -> None:
        """Build untrained projections.

        Args:
            shape: sizes of the target.
            input_width: width of what queries, keys and values are made of; None for H.
        """
        super().__init__()
        width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        input_width = input_width or shape.hidden
        self.q_proj = nn.Linear(input_width, width, bias=False)
        self.k_proj = nn.Linear(input_width, kv_width, bias=False)
        self.v_proj = nn.Linear(input_width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self._shape = shape

    def heads(self, inputs: Tensor, positions: Tensor) -> Heads:
        """Return rotated queries and keys, and values, of inputs [B, T, width].

        Args:
            inputs: what the projections read.
            positions: [T] or [B, T] int64, place in the sequence that each input stands at.
        """
        query, key, value = (
            project(inputs).unflatten(-1, (-1, self._shape.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        tables = rope_tables(self._shape, int(positions.max()) + 1)
        cos, sin = (table[positions].unsqueeze(-3) for table in tables)
        query, key = (rotate(part, cos, sin).to(value.dtype) for part in (query, key))
        return Heads(query=query, key=key, value=value)

    def project(self, mixed: Tensor) -> Tensor:
        """Return [B, T, H] of mixed values [B, heads, T, head dim]."""
        projected: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return projected


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Queries [B, heads, T, head dim]; keys and values [B, KV heads, T, head dim]."""

    query: Tensor
    key: Tensor
    value: Tensor

    def attend_causally(self) -> Tensor:
        """Return the mixed values, each place seeing those up to itself.

        Source: plain products take 42 ms where torch's fused kernel takes 99 ms, forward and
        backward, 20 rows of 200 places in bfloat16 on one Zen 5 core.
        """
        num_rows, num_kv, width, head_dim = self.key.shape
        folded = (self.query * head_dim**-0.5).reshape(num_rows, num_kv, -1, head_dim)
        scores = (folded @ self.key.transpose(-1, -2)).view(num_rows, num_kv, -1, width, width)
        future = torch.full((width, width), float("-inf"), dtype=scores.dtype).triu(1)
        weights = (scores + future).softmax(-1).to(self.value.dtype)
        mixed: Tensor = weights.flatten(2, 3) @ self.value
        return mixed.view_as(self.query)


class Mlp(nn.Module):
    """The gated MLP of a Llama layer."""

    def __init__(self, shape: Shape) -> None:
        """Build untrained weights."""
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return [..., H] of hidden [..., H]."""
        projected: Tensor = self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return projected


class DecoderLayer(nn.Module):
    """One Llama layer, split where attention mixes places."""

    def __init__(self, shape: Shape) -> None:
        """Build an untrained layer."""
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)

    def heads(self, hidden: Tensor, positions: Tensor) -> Heads:
        """Return queries, keys and values of hidden [B, T, H]; see `Attention.heads`."""
        return self.self_attn.heads(self.input_layernorm(hidden), positions)

    def finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output [B, T, H] from its input and the mixed values."""
        hidden = hidden + self.self_attn.project(mixed)
        done: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return done


def attend_branches(
    query: Tensor, trunk: Heads, leave: Tensor, own_keys: Tensor, own_values: Tensor
) -> Tensor:
    """Let the newest place of each branch attend to its trunk and to itself.

    A branch leaves its sequence after some place: it sees that place and all before it, then the
    J places of its own, the newest among them; no branch sees another.

    Args:
        query: [B, heads, S, head dim], one place of each of S branches.
        trunk: keys and values of the sequences' T places.
        leave: [B, S] int64, the last place of the trunk that a branch sees.
        own_keys: [B, KV heads, S, J, head dim].
        own_values: [B, KV heads, S, J, head dim].

    Returns:
        Mixed values [B, heads, S, head dim].

    Source: arXiv:2503.01840, figure 6; arXiv:2504.18583, figure 4.
    """
    num_rows, num_kv, width, head_dim = trunk.key.shape
    num_branches, num_own = own_keys.shape[2:4]
    grouped = query.reshape(num_rows, num_kv, -1, num_branches, head_dim)
    folded = grouped.flatten(2, 3) * head_dim**-0.5
    trunk_scores = (folded @ trunk.key.transpose(-1, -2)).view(*grouped.shape[:4], width)
    is_hidden = torch.arange(width) > leave[:, None, None, :, None]
    trunk_scores = trunk_scores.masked_fill(is_hidden, float("-inf"))
    by_branch = folded.view_as(grouped).transpose(2, 3)
    own_scores = (by_branch @ own_keys.transpose(-1, -2)).transpose(2, 3)
    weights = torch.cat([trunk_scores, own_scores.to(trunk_scores.dtype)], -1).softmax(-1)
    weights = weights.to(trunk.value.dtype)
    of_trunk, of_own = torch.split(weights, [width, num_own], dim=-1)
    mixed: Tensor = (of_trunk.flatten(2, 3) @ trunk.value).view_as(grouped)
    mixed = mixed + (of_own.transpose(2, 3) @ own_values).transpose(2, 3)
    return mixed.reshape(query.shape)
