"""Any Hugging Face causal LM as a decoder, run by transformers over this engine's KV slots.

Slower than `LlamaDecoder` and the reference for it. Each pass is a padded grid; the model's cache
object writes into the slots and hands back views of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from tuner.engine.errors import StartupError
from tuner.engine.model.decoder import DecoderShape, slots_for
from tuner.engine.model.passes import (
    LongSpan,
    MaskKind,
    PaddedSpans,
    Pass,
    Span,
    lay_out,
    mask_of,
)
from tuner.engine.model.slots import FINAL, FeatureSlots, KvSlots
from tuner.engine.model.windows import FULL, SLIDING

_NOISE = 1e-2
"""Logits may differ by this share of the largest one: half precision adds in another order."""

_Masks: TypeAlias = Tensor | dict[str, Tensor]
"""One mask for all layers, or one by kind of layer."""


@dataclass(slots=True)
class _Window:
    """The part of the slots that one call of the model sees.

    Attributes:
        slots: all of them.
        first_slot: lowest slot, included.
        last_slot: highest slot, excluded.
        end: KV entries attended.
        index: [n * KV heads] where the grid's real tokens are written.
        cells: [n] which cells of the grid are real.
    """

    slots: KvSlots
    first_slot: int
    last_slot: int
    end: int
    index: Tensor
    cells: Tensor


class _SlotLayer(CacheLayerMixin):
    """One layer's cache: writes the new entries into the slots, returns the window's."""

    is_sliding = False

    def __init__(self, layer: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._layer = layer
        self.window: _Window | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        window = self.window
        if window is None:
            raise RuntimeError("the cache was used outside a pass")
        slots = window.slots
        slots.write(
            self._layer, window.index, *(_real(s, window) for s in (key_states, value_states))
        )
        chosen = slice(window.first_slot, window.last_slot)
        return (
            slots.keys[self._layer][chosen, :, : window.end],
            slots.values[self._layer][chosen, :, : window.end],
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (self.window.end if self.window else query_length, 0)

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


def _real(states: Tensor, window: _Window) -> Tensor:
    """Pick the real tokens of [slots, KV heads, width, head dim]; returns [n, KV heads, dim]."""
    flat = states.transpose(1, 2).reshape(-1, states.shape[1], states.shape[3])
    return flat[window.cells]


class HfDecoder:
    """A transformers model over KV slots; its states are logits already.

    Attributes:
        shape: its sizes.
        mask_kind: device, dtype and attention window.
        num_weights: its parameters.
    """

    def __init__(
        self, model: PreTrainedModel, window: int | None, *, is_mixed: bool = False
    ) -> None:
        """Take over a model.

        Args:
            model: any causal LM that keeps nothing but keys and values.
            window: tokens that the attention of its layers sees; None for all.
            is_mixed: the window holds for some layers only, the others see all tokens.
        """
        self._model = model.eval()
        self._layers = [_SlotLayer(layer) for layer in range(model.config.num_hidden_layers)]
        self._cache = Cache(layers=list(self._layers))
        self.shape = shape_of(model.config)
        sliding = MaskKind(device=model.device, dtype=model.dtype, window=window)
        self._sliding = sliding if is_mixed else None
        self.mask_kind = replace(sliding, window=None) if is_mixed else sliding
        self.num_weights = sum(weight.numel() for weight in model.parameters())

    @property
    def embedding(self) -> Tensor:
        """Its embedding table, [V, H]."""
        return self._table(self._model.get_input_embeddings())

    @property
    def output_rows(self) -> Tensor:
        """What its final state is multiplied with, [V, H]."""
        return self._table(self._model.get_output_embeddings())

    @staticmethod
    def _table(module: torch.nn.Module | None) -> Tensor:
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor):
            raise StartupError("the model has no table of embeddings that heads could share")
        return weight.detach()

    @property
    def _device(self) -> torch.device:
        return self.mask_kind.device

    def new_slots(self, num_slots: int, max_context_tokens: int) -> KvSlots:
        """Allocate KV for this decoder."""
        return slots_for(self.shape, num_slots, max_context_tokens, self.mask_kind)

    def forward(self, batch: Pass, slots: KvSlots, features: FeatureSlots | None = None) -> Tensor:
        """Compute a pass and write its KV, and the features' taps where asked for.

        Returns:
            Logits [N, V].
        """
        shape = (len(batch.token_ids), self.shape.vocab_size)
        states = torch.empty(shape, dtype=self.mask_kind.dtype, device=self._device)
        if batch.short is not None:
            states[batch.short.rows] = self._padded(batch, batch.short, slots, features)
        for span in batch.long:
            rows = slice(span.first_row, span.first_row + span.length)
            states[rows] = self._alone(batch, span, slots, features)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Return the states, which are logits."""
        return states

    @torch.inference_mode()
    def refusal_reason(self, token_ids: Sequence[int]) -> str | None:
        """Say why the model cannot run over slots: it must answer as it does without a cache.

        Catches models that keep another state than keys and values, or attend by another mask.

        Args:
            token_ids: a few tokens, at least four.
        """
        slots = self.new_slots(2, len(token_ids) + 1)
        half = len(token_ids) // 2
        pieces = ((0, token_ids[:half]), (half, token_ids[half:]))
        spans = [Span(slot=1, start=start, token_ids=ids) for start, ids in pieces]
        try:
            passes = [self.forward(lay_out([span], self.mask_kind), slots) for span in spans]
            alone = self._model(torch.tensor([list(token_ids)], device=self._device))
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            return " ".join(str(error).split())
        apart = float((torch.cat(passes) - alone.logits[0]).abs().max())
        if apart <= _NOISE * max(1.0, float(alone.logits.abs().max())):
            return None
        return f"its logits over KV slots are {apart:.3g} apart from its own"

    def _padded(
        self, batch: Pass, spans: PaddedSpans, slots: KvSlots, features: FeatureSlots | None
    ) -> Tensor:
        num_slots = spans.last_slot - spans.first_slot
        grid = torch.zeros(num_slots * spans.width, dtype=torch.int64, device=self._device)
        positions = torch.zeros_like(grid)
        grid[spans.cells] = batch.token_ids[spans.rows]
        positions[spans.cells] = batch.positions[spans.rows]
        window = _Window(
            slots=slots,
            first_slot=spans.first_slot,
            last_slot=spans.last_slot,
            end=spans.context,
            index=slots.flat_index(batch.slots[spans.rows], batch.entries[spans.rows]),
            cells=spans.cells,
        )
        shape = (num_slots, spans.width)
        answer = self._call(
            grid.view(shape), positions.view(shape), self._short_masks(spans), window, features
        )
        self._keep(answer, batch, spans.rows, window, features)
        return _real_states(_logits(answer), window)

    def _alone(
        self, batch: Pass, span: LongSpan, slots: KvSlots, features: FeatureSlots | None
    ) -> Tensor:
        rows = slice(span.first_row, span.first_row + span.length)
        positions = batch.positions[rows]
        window = _Window(
            slots=slots,
            first_slot=span.slot,
            last_slot=span.slot + 1,
            end=span.end,
            index=slots.flat_index(batch.slots[rows], batch.entries[rows]),
            cells=torch.arange(span.length, device=self._device),
        )
        masks = self._long_masks(positions, span.end)
        answer = self._call(batch.token_ids[None, rows], positions[None], masks, window, features)
        self._keep(answer, batch, torch.arange(rows.start, rows.stop), window, features)
        return _real_states(_logits(answer), window)

    def _short_masks(self, spans: PaddedSpans) -> _Masks:
        """Return the mask of a grid, [slots, 1, width, context], by kind of layer where mixed."""
        mask = spans.mask[:, None]
        if self._sliding is None:
            return mask
        sliding = mask_of(spans, self._sliding)[:, None] if spans.spans else mask
        return {FULL: mask, SLIDING: sliding}

    def _long_masks(self, positions: Tensor, end: int) -> _Masks:
        mask = self.mask_kind.additive(positions, end)[None, None]
        if self._sliding is None:
            return mask
        return {FULL: mask, SLIDING: self._sliding.additive(positions, end)[None, None]}

    def _call(
        self,
        token_ids: Tensor,
        positions: Tensor,
        mask: _Masks,
        window: _Window,
        features: FeatureSlots | None,
    ) -> CausalLMOutputWithPast:
        for layer in self._layers:
            layer.window = window
        answer: CausalLMOutputWithPast = self._model(
            input_ids=token_ids,
            position_ids=positions,
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
            output_hidden_states=features is not None,
        )
        return answer

    def _keep(
        self,
        answer: CausalLMOutputWithPast,
        batch: Pass,
        rows: Tensor,
        window: _Window,
        features: FeatureSlots | None,
    ) -> None:
        """Write the taps; the last of transformers' hidden states has been through the norm."""
        if features is None or answer.hidden_states is None:
            return
        last = len(answer.hidden_states) - 1
        for number, hidden in enumerate(answer.hidden_states):
            tap = FINAL if number == last else number
            states = _real_states(hidden, window)
            features.write(tap, batch.slots[rows], batch.entries[rows], states)


def _logits(answer: CausalLMOutputWithPast) -> Tensor:
    if answer.logits is None:
        raise TypeError("the model gave no logits")
    return answer.logits


def _real_states(grid: Tensor, window: _Window) -> Tensor:
    """Pick the real tokens of [slots, width, ...]; returns [n, ...]."""
    return grid.reshape(-1, grid.shape[-1])[window.cells]


def shape_of(config: PreTrainedConfig) -> DecoderShape:
    """Return the sizes of any causal LM's configuration."""
    num_heads = config.num_attention_heads
    return DecoderShape(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        num_heads=num_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
    )
