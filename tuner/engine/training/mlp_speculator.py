"""MLP speculator: a chain of stages, each fed the state before it and the token just guessed.

Forward, with f_i the target's state of t_i after its final norm and root t_{i+1}; N = 4 stages of
width W; rms(x) = x / sqrt(mean(x^2) + 1e-6):

    s   = rms(f_i) / sqrt(2)                              [H], `scale_input`
    e_d = emb_proj (E t_{i+1+d})                          [W]
    z   = proj.{d} s + e_d * (emb_weight / state_weight)  [W]
    s   = GELU(ln.{d}.weight * rms(z) + ln.{d}.bias)      [W], the state of stage d + 1
    logits_d = R (head_proj s) predict t_{i+2+d}          [D], R = the target's rows

with state_weight = 0.5^(1 / 2N) and emb_weight = sqrt((1 - state_weight^2) W / 2). The public
layout's `speculator.emb.{d}.weight` [V, W] and `speculator.head.{d}.weight` [V, W] would be larger
than all the rest; here they are the target's own rows through `speculator.emb_proj.weight` [W, H]
and `speculator.head_proj.weight` [H, W], shared by the stages: E emb_proj^T and R head_proj are
the public tensors.

Source: arXiv:2404.19124; layout and constants of vllm/model_executor/models/mlp_speculator.py.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engine.training.batching import Batch
from tuner.engine.training.head import DraftHead, Score
from tuner.engine.training.target import Target

_EPS = 1e-6
_WIDTH = 768


class _Norm(nn.Module):
    """Root-mean-square norm with a scale and a shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return _rms(hidden) * self.weight + self.bias


class MlpSpeculator(DraftHead):
    """The MLP speculator in its trainable form."""

    method: ClassVar[str] = "mlp_speculator"
    title: ClassVar[str] = "an MLP speculator"
    max_depth: ClassVar[int | None] = 4
    trained_depths: ClassVar[int] = 4

    def __init__(self, target: Target, draft_vocab: Tensor, width: int = _WIDTH) -> None:
        """Build untrained stages of `width`; see `DraftHead`."""
        super().__init__(target, draft_vocab)
        hidden, num_stages = target.shape.hidden, self.trained_depths
        inputs = [hidden] + [width] * (num_stages - 1)
        self.emb_proj = nn.Linear(hidden, width, bias=False)
        self.head_proj = nn.Linear(width, hidden, bias=False)
        self.proj = nn.ModuleList(nn.Linear(size, width, bias=False) for size in inputs)
        self.ln = nn.ModuleList(_Norm(width) for _ in inputs)
        state_weight = 0.5 ** (0.5 / num_stages)
        self._emb_ratio = ((1 - state_weight**2) * width / 2) ** 0.5 / state_weight

    @classmethod
    def sized(cls, target: Target, draft_vocab: Tensor, tensors: dict[str, Tensor]) -> Self:
        """Build stages of the file's width."""
        projection = tensors.get("speculator.emb_proj.weight")
        return cls(target, draft_vocab, _WIDTH if projection is None else len(projection))

    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token at each depth; only drafts that `score` lets go on cost."""
        rows, columns = batch.known_places()
        has_root = columns > 1
        rows, columns = rows[has_root], columns[has_root]
        state = _rms(batch.target_states()[rows, columns - 2, -1].float()) * 0.5**0.5
        for depth in range(depths):
            read = self.emb_proj(self.embed(batch.tokens[rows, columns - 1]))
            joined = self.proj[depth](state).float() + self._emb_ratio * read.float()
            state = F.gelu(self.ln[depth](joined))
            goes_on = score(depth, self.head_proj(state), rows, columns)
            goes_on = goes_on & (columns + 1 < batch.lengths[rows])
            rows, columns, state = rows[goes_on], columns[goes_on] + 1, state[goes_on]

    def name_prefixes(self) -> tuple[str, str]:
        """Put the public layout's own name in front."""
        return "", "speculator."


def _rms(hidden: Tensor) -> Tensor:
    """Return hidden [..., W] divided by its root mean square."""
    return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + _EPS)
