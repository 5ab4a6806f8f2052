"""Multi-token prediction: one DeepSeek-V3 module, applied again and again.

Forward, for entry i at depth 0 (alignment: unroll.py):

    h = the target's state f_i after its final norm       [H]
    x = eh_proj [enorm(E t_{i+1}); hnorm(h)]              [H]
    g = one Llama layer over x, rotary at place i         [H], fed back as h at the next depth
    logits = R shared_head.norm(g)                        [D], R = output rows of the target

The public layout numbers the module as the layer after the target's last one:
`model.layers.{L}.enorm`, `hnorm`, `eh_proj`, `self_attn.*`, `mlp.*`, `input_layernorm`,
`post_attention_layernorm`, `shared_head.norm`. Embedding and output rows are the target's and left
out. Attention is the target's grouped-query one.

Source: arXiv:2412.19437, section 2.2; one module for all depths as in vLLM.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from tuner.engine.training.layers import DecoderLayer, Heads
from tuner.engine.training.target import Shape, Target
from tuner.engine.training.unroll import UnrolledHead


class _SharedHead(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)


class _Module(DecoderLayer):
    """A decoder layer with the projection that joins embedding and hidden state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.enorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)
        self.hnorm = nn.RMSNorm(shape.hidden, eps=shape.rms_eps)
        self.eh_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.shared_head = _SharedHead(shape)


class MtpHead(UnrolledHead):
    """The MTP module in its trainable form."""

    method: ClassVar[str] = "mtp"
    title: ClassVar[str] = "a multi-token prediction module"
    trained_depths: ClassVar[int] = 3

    def __init__(self, target: Target, draft_vocab: Tensor) -> None:
        """Build an untrained module; see `DraftHead`."""
        super().__init__(target, draft_vocab)
        self.module = _Module(target.shape)

    def first_hidden(self, states: Tensor) -> Tensor:
        """Take the state after the final norm."""
        return states[..., -1, :].float()

    def enter(self, embedded: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Heads, Tensor]:
        """Project the normed embedding and the normed hidden state to one."""
        module = self.module
        joined = torch.cat([module.enorm(embedded), module.hnorm(hidden)], dim=-1)
        projected = module.eh_proj(joined).float()
        return module.heads(projected, positions), projected

    def leave(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Finish the layer."""
        return self.module.finish(residual, mixed)

    def scored(self, hidden: Tensor) -> Tensor:
        """Norm the layer's output."""
        normed: Tensor = self.module.shared_head.norm(hidden)
        return normed

    def name_prefixes(self) -> tuple[str, str]:
        """Number the module as the layer after the target's last one."""
        return "module.", f"model.layers.{self.shape.num_layers}."
