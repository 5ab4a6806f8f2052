"""What one forward pass computes: spans of tokens, each continuing the KV of one slot.

A span may be a tree: each token then sees its ancestors only, and its position is its depth. Its KV
lies in the order of the span; the core brings the accepted path together afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

_DECODE_SPAN = 32
"""Spans up to this many tokens share one padded attention; longer ones (prefill) get their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens of one sequence to compute in this pass.

    Attributes:
        slot: KV slot of the sequence.
        start: KV entries that are valid before the span; the span overwrites what lies behind.
        token_ids: the tokens; the first follows the last valid entry.
        parents: index of each token's parent in the span, -1 for the first token, each parent
            before its child; None for a chain.
    """

    slot: int
    start: int
    token_ids: Sequence[int]
    parents: Sequence[int] | None = None

    @property
    def end(self) -> int:
        """KV entries after the span."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedSpans:
    """Short spans, attended together over the slot range [first_slot, last_slot).

    Attributes:
        first_slot: lowest slot, included.
        last_slot: highest slot, excluded; slots in between without a span are computed and dropped.
        width: tokens of the longest span.
        context: KV entries attended, the longest span's end.
        rows: [n] int64, where each token of the spans lies in the pass.
        cells: [n] int64, where it lies in the padded [slots * width] grid.
        mask: [slots, width, context] additive, 0 or -inf.
        spans: the spans, each with its first row in the pass; empty where only `mask` says who
            sees whom.
    """

    first_slot: int
    last_slot: int
    width: int
    context: int
    rows: Tensor
    cells: Tensor
    mask: Tensor
    spans: tuple[tuple[Span, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSpan:
    """One span attended alone.

    Attributes:
        slot: its slot.
        first_row: where its tokens start in the pass.
        length: number of tokens.
        end: KV entries attended by the last token.
        mask: [length, end] additive; None where the span starts at 0 (plain causal).
    """

    slot: int
    first_row: int
    length: int
    end: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Spans laid out for the model.

    Attributes:
        token_ids: [N] int64.
        positions: [N] int64, for the rotary angles.
        entries: [N] int64, where in its slot each token's KV goes; its position in a chain.
        slots: [N] int64.
        short: the short spans; None where there is none.
        long: the long spans.
    """

    token_ids: Tensor
    positions: Tensor
    entries: Tensor
    slots: Tensor
    short: PaddedSpans | None
    long: tuple[LongSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskKind:
    """How a model sees earlier tokens.

    Attributes:
        device: of the model.
        dtype: of the model.
        window: tokens seen, the token itself included; None for all before it.
    """

    device: torch.device
    dtype: torch.dtype
    window: int | None = None

    def additive(self, last_seen: Tensor, context: int) -> Tensor:
        """Return 0 where a KV entry is seen and -inf where not.

        Args:
            last_seen: [...] int64, the last entry each query sees, its own.
            context: entries there are.

        Returns:
            [..., context].
        """
        entries = torch.arange(context, device=self.device)
        hidden = entries > last_seen[..., None]
        if self.window is not None:
            hidden |= entries <= last_seen[..., None] - self.window
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(hidden, float("-inf"))


def lay_out(spans: Sequence[Span], kind: MaskKind) -> Pass:
    """Lay spans out back to back, in their order.

    Args:
        spans: at most one per slot, none empty.
        kind: how the model sees earlier tokens.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    entries: list[int] = []
    slots: list[int] = []
    short: list[tuple[Span, int]] = []
    long: list[LongSpan] = []
    for span in spans:
        first_row = len(token_ids)
        length = len(span.token_ids)
        token_ids.extend(span.token_ids)
        entries.extend(range(span.start, span.end))
        positions.extend(positions_of(span))
        slots.extend([span.slot] * length)
        if length <= _DECODE_SPAN or span.parents is not None:
            short.append((span, first_row))
        else:
            long.append(_long_span(span, first_row, kind))
    return Pass(
        token_ids=torch.tensor(token_ids, device=kind.device),
        positions=torch.tensor(positions, device=kind.device),
        entries=torch.tensor(entries, device=kind.device),
        slots=torch.tensor(slots, device=kind.device),
        short=_padded(short, kind) if short else None,
        long=tuple(long),
    )


def positions_of(span: Span) -> Sequence[int]:
    """Return where each token of a span stands among the entries that it continues."""
    if span.parents is None:
        return range(span.start, span.end)
    positions: list[int] = []
    for parent in span.parents:
        positions.append(span.start if parent < 0 else positions[parent] + 1)
    return positions


def _long_span(span: Span, first_row: int, kind: MaskKind) -> LongSpan:
    mask = None
    if span.start or kind.window is not None:
        mask = kind.additive(torch.arange(span.start, span.end, device=kind.device), span.end)
    return LongSpan(
        slot=span.slot,
        first_row=first_row,
        length=len(span.token_ids),
        end=span.end,
        mask=mask,
    )


def _padded(spans: Sequence[tuple[Span, int]], kind: MaskKind) -> PaddedSpans:
    first_slot = min(span.slot for span, _ in spans)
    last_slot = max(span.slot for span, _ in spans) + 1
    width = max(len(span.token_ids) for span, _ in spans)
    context = max(span.end for span, _ in spans)
    rows: list[int] = []
    cells: list[int] = []
    last_seen = [0] * ((last_slot - first_slot) * width)
    for span, first_row in spans:
        first_cell = (span.slot - first_slot) * width
        length = len(span.token_ids)
        rows.extend(range(first_row, first_row + length))
        cells.extend(range(first_cell, first_cell + length))
        last_seen[first_cell : first_cell + length] = range(span.start, span.end)
    seen = torch.tensor(last_seen, device=kind.device).view(last_slot - first_slot, width)
    mask = kind.additive(seen, context)
    for span, _ in spans:
        if span.parents is not None:
            _hide_other_branches(mask[span.slot - first_slot], span, kind)
    return PaddedSpans(
        first_slot=first_slot,
        last_slot=last_slot,
        width=width,
        context=context,
        rows=torch.tensor(rows, device=kind.device),
        cells=torch.tensor(cells, device=kind.device),
        mask=mask,
        spans=tuple(spans),
    )


def mask_of(padded: PaddedSpans, kind: MaskKind) -> Tensor:
    """Return the mask of spans laid out before, for layers that see earlier tokens in another way.

    Returns:
        [slots, width, context] additive, 0 or -inf.
    """
    return _padded(padded.spans, kind).mask


def _hide_other_branches(mask: Tensor, span: Span, kind: MaskKind) -> None:
    """Let each token of a tree see what lies before the span, and its ancestors.

    Args:
        mask: [width, context] of the span's slot, changed in place.
        span: a tree.
        kind: how the model sees earlier tokens.
    """
    length = len(span.token_ids)
    positions = torch.tensor(positions_of(span), device=mask.device)
    visible = seen_in_tree(span, kind.window).to(mask.device)
    mask[:length, : span.start] = kind.additive(positions, span.start)
    mask[:length, span.start : span.end] = torch.where(visible, 0.0, float("-inf"))


def seen_in_tree(span: Span, window: int | None) -> Tensor:
    """Return which tokens of a tree each of them sees: its ancestors and itself.

    Args:
        span: a tree.
        window: tokens seen, the token itself included; None for all.

    Returns:
        [T, T] bool, true where the column's token is seen.
    """
    visible = _ancestry(tuple(span.parents or ()))
    if window is None:
        return visible
    positions = torch.tensor(positions_of(span))
    return visible & (positions[:, None] - positions < window)


@lru_cache(maxsize=256)
def _ancestry(parents: tuple[int, ...]) -> Tensor:
    """Return [T, T] bool, true where the column's token is the row's own or an ancestor of it."""
    visible = torch.eye(len(parents), dtype=torch.bool)
    for token, parent in enumerate(parents):
        if parent >= 0:
            visible[token] |= visible[parent]
    return visible
