"""EAGLE-3: one layer over fused target states and the next token's embedding.

Forward, for entry i at depth 0 (alignment: unroll.py):

    h = fc [low_i; middle_i; high_i]                      [H], states entering layers 2, L//2, L-3
    x = [input_layernorm(E t_{i+1}); hidden_norm(h)]      [2H]
    a = h + o_proj(attention(q_proj x, k_proj x, v_proj x)) rotary at place i
    g = a + mlp(post_attention_layernorm(a))              [H], fed back as h at the next depth
    logits = R norm(g)                                    [D], R = output rows of the target

A later depth d replaces h by the g before it, t_{i+1} by t_{i+1+d}, and place i by i + d.
The file has SafeAILab's layout: `fc`, `midlayer.*`, `norm`, `d2t` (token id minus draft id, int64
[D]) and `t2d` (bool [V]). `lm_head.weight` and the embedding are the target's and left out.

Source: arXiv:2503.01840; key names of github.com/SafeAILab/EAGLE, eagle/model/cnets.py.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from tuner.engine.training.layers import Attention, Heads, Mlp
from tuner.engine.training.target import Shape, Target
from tuner.engine.training.unroll import UnrolledHead


class _MidLayer(nn.Module):
    """A Llama layer whose attention reads embedding and hidden state side by side."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.mlp = Mlp(shape)
        self.hidden_norm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)


class EagleHead(UnrolledHead):
    """The EAGLE-3 head in its trainable form."""

    method: ClassVar[str] = "eagle"
    title: ClassVar[str] = "an EAGLE-3 head"
    trained_depths: ClassVar[int] = 5

    def __init__(self, target: Target, draft_vocab: Tensor) -> None:
        """Build an untrained head; see `DraftHead`."""
        super().__init__(target, draft_vocab)
        shape = target.shape
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.midlayer = _MidLayer(shape)
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)

    def first_hidden(self, states: Tensor) -> Tensor:
        """Fuse low, middle and high states."""
        fused: Tensor = self.fc(states[..., :3, :].flatten(-2).float())
        return fused.float()

    def enter(self, embedded: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Heads, Tensor]:
        """Join the normed embedding and the normed hidden state."""
        layer = self.midlayer
        joined = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)
        return layer.self_attn.heads(joined, positions), hidden

    def leave(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Add attention and MLP to the residual."""
        hidden = residual + self.midlayer.self_attn.project(mixed)
        done: Tensor = hidden + self.midlayer.mlp(self.midlayer.post_attention_layernorm(hidden))
        return done

    def scored(self, hidden: Tensor) -> Tensor:
        """Norm the layer's output."""
        normed: Tensor = self.norm(hidden)
        return normed

    def vocab_tensors(self) -> dict[str, Tensor]:
        """Return the public layout's two maps."""
        ids = self.draft_vocab.long()
        is_drafted = torch.zeros(self.shape.vocab, dtype=torch.bool)
        is_drafted[ids] = True
        return {"d2t": ids - torch.arange(len(ids)), "t2d": is_drafted}

    @classmethod
    def vocab_of(cls, tensors: dict[str, Tensor]) -> Tensor | None:
        """Read the vocabulary from the public layout's offsets."""
        tensors.pop("t2d", None)
        offsets = tensors.pop("d2t", None)
        return None if offsets is None else (offsets + torch.arange(len(offsets))).to(torch.int32)
