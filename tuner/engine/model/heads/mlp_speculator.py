"""MLP speculator: small stages that turn a state and the last token into the next state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from torch import Tensor
from torch.nn import functional

from tuner.engine.model.heads.base import HeadTarget
from tuner.engine.model.layers import rms_norm
from tuner.engine.model.linear import FrozenLinear
from tuner.engine.model.slots import FINAL

_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """One stage, of inner width I; stages whose weights are tied hold the same tensors.

    Attributes:
        project: [I, H] in the first stage, [I, I] later.
        scale: [I] of the norm.
        shift: [I] added after it.
        embedding: [V, I] of its own; None reads the target's through `embed_project`.
        embed_project: [I, H]; None with an embedding of its own.
        rows: [reduced V, I] output rows of its own; None for the target's after `head_project`.
        head_project: [H, I]; None with rows of its own.
    """

    project: Tensor
    scale: Tensor
    shift: Tensor
    embedding: Tensor | None = None
    embed_project: Tensor | None = None
    rows: Tensor | None = None
    head_project: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Stage:
    embedding: Tensor | None
    embed_project: FrozenLinear | None
    project: FrozenLinear
    scale: Tensor
    shift: Tensor
    head_project: FrozenLinear | None
    output: FrozenLinear


class MlpSpeculator:
    """Stage i: state = GELU(norm(project state + r * embedding of the token)), then output rows.

    r is fixed so that the first state keeps half of the magnitude to the last stage.

    Source: arXiv:2404.19124, section 3; key names of IBM's fms-extras and of vLLM.

    Attributes:
        num_stages: tokens it can guess ahead.
        taps: which states of the target it reads.
        vocab: [reduced V] int64 ids behind its logits, ascending; None for all.
    """

    taps = (FINAL,)

    def __init__(
        self,
        stages: Sequence[StageWeights],
        target: HeadTarget,
        *,
        vocab: Tensor | None,
        scales_input: bool,
    ) -> None:
        """Take over the weights.

        Args:
            stages: in their order.
            target: gives embedding and output rows where a stage has none of its own.
            vocab: [reduced V] int64 ids they score; None for all.
            scales_input: the first stage reads the normed state over the root of 2.
        """
        self.num_stages = len(stages)
        self.vocab = vocab
        self._target = target
        self._scales_input = scales_input
        state_weight = 0.5 ** (0.5 / len(stages))
        width = stages[0].project.shape[0]
        self._embed_ratio = math.sqrt((1 - state_weight**2) * width / 2) / state_weight
        # Tied stages hold one tensor: it is laid out once.
        linear, cast = cache(target.linear), cache(target.cast)
        output = cache(partial(target.output, vocab))
        self._stages = [
            _Stage(
                embedding=None if part.embedding is None else cast(part.embedding),
                embed_project=None if part.embed_project is None else linear(part.embed_project),
                project=linear(part.project),
                scale=cast(part.scale),
                shift=cast(part.shift),
                head_project=None if part.head_project is None else linear(part.head_project),
                output=output(part.rows),
            )
            for part in stages
        ]

    def begin(self, features: Tensor) -> Tensor:
        """Return the states [B, H] that the first stage reads, of the target's final states."""
        if not self._scales_input:
            return features.to(self._target.dtype)
        return (rms_norm(features, None, _EPS) / math.sqrt(2)).to(self._target.dtype)

    def advance(self, stage: int, states: Tensor, token_ids: Tensor) -> Tensor:
        """Return the states [N, I] after tokens [N], of the states before them."""
        part = self._stages[stage]
        mixed = part.project(states) + self._embed_ratio * self._embedded(part, token_ids)
        return functional.gelu(rms_norm(mixed, part.scale, _EPS) + part.shift)

    def logits(self, stage: int, states: Tensor) -> Tensor:
        """Return logits [N, reduced V] of states [N, I]."""
        part = self._stages[stage]
        return part.output(states if part.head_project is None else part.head_project(states))

    def _embedded(self, part: _Stage, token_ids: Tensor) -> Tensor:
        if part.embedding is not None:
            return functional.embedding(token_ids, part.embedding)
        embedded = self._target.embed(token_ids)
        return embedded if part.embed_project is None else part.embed_project(embedded)
