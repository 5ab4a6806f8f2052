"""Asks each drafting method once a step, for all rows that use it, and times it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from collectors.records import MAX_DRAFT_LENGTH, DraftCost, Method
from tuner.engine.adaptive import Adaptive, Market, Outlook, StepFigures
from tuner.engine.chances import Kind
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, Drafter, Seen, TargetView
from tuner.engine.model.decoder import Decoder, features_for
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.pruning import pruned
from tuner.engine.row import Row

_MOST_BEHIND = 2 * MAX_DRAFT_LENGTH
"""Committed tokens that a drafter may have to read in a step that is still like any other."""


class Drafting:
    """The loaded drafters, by method."""

    def __init__(
        self,
        drafters: Mapping[Method, Drafter],
        *,
        max_context_tokens: int,
        is_private: Callable[[str], bool] = lambda route: False,
        clock: Callable[[], float] = time.perf_counter,
        adaptive: Adaptive | None = None,
    ) -> None:
        """Take over the drafters.

        Args:
            drafters: by method, off left out.
            max_context_tokens: KV entries of a slot.
            is_private: says whether nothing of a route may be kept, at this moment.
            clock: seconds, for the draft cost.
            adaptive: what adaptive drafts go by; None to learn from nothing.
        """
        self._drafters = dict(drafters)
        self._max_context_tokens = max_context_tokens
        self._is_private = is_private
        self._clock = clock
        self._adaptive = adaptive or Adaptive()
        self._ended: dict[int, tuple[Outlook, int]] = {}
        self._is_reading = False

    def attach(self, target: Decoder, slots: KvSlots) -> FeatureSlots | None:
        """Show the target to the drafters; return where its passes write what they read of it.

        Returns:
            Room for the hidden states that the drafters tap; None where none taps any.
        """
        taps = tuple(sorted({tap for drafter in self._drafters.values() for tap in drafter.taps}))
        features = None
        if taps:
            features = features_for(
                target.shape, taps, slots.num_slots, slots.max_context_tokens, target.mask_kind
            )
        for drafter in self._drafters.values():
            drafter.attach(TargetView(decoder=target, slots=slots, features=features))
        return features

    def see(self, verified: Sequence[tuple[Row, Draft]], logits: Tensor) -> None:
        """Show the outputs of a pass to the drafters that want them.

        Args:
            verified: rows that get tokens, each with its draft.
            logits: [N, V] raw, the positions of each row back to back.
        """
        seen: dict[Method, list[Seen]] = {}
        start = 0
        for row, draft in verified:
            end = start + len(draft.token_ids) + 1
            drafter = self._drafters.get(row.setting.method)
            if drafter is not None and drafter.wants_outputs:
                outputs = logits[start:end].argmax(-1).tolist()
                seen.setdefault(row.setting.method, []).append(
                    Seen(slot=row.slot, draft=draft, outputs=outputs)
                )
            start = end
        for method, items in seen.items():
            self._drafters[method].see(items)

    def propose(self, rows: Sequence[Row]) -> tuple[dict[int, Draft], tuple[DraftCost, ...]]:
        """Draft for the rows of a step.

        Returns:
            Drafts by slot, rows without one left out; and what each method cost.
        """
        drafts: dict[int, Draft] = {}
        costs: list[DraftCost] = []
        self._ended = {}
        self._is_reading = False
        for drafter in self._drafters.values():
            positions = len(rows) + sum(len(draft.token_ids) for draft in drafts.values())
            asked = self._paying(rows, drafter, positions)
            if not asked:
                continue
            asks = [ask for _, ask in asked]
            started = self._clock()
            proposed = drafter.propose(asks)
            for (row, ask), draft in zip(asked, proposed, strict=True):
                # A drafter that learns from the target's outputs needs them for its whole draft.
                drafts[row.slot] = draft if drafter.wants_outputs else pruned(draft, row)
                if ask.outlook is not None:
                    self._ended[row.slot] = (ask.outlook, draft.depth)
            seconds = self._clock() - started
            costs.append(
                self._cost(drafter.method, asked, seconds, is_idle=_is_idle(asks, proposed))
            )
        return drafts, tuple(costs)

    def learn(self, decoded: Sequence[tuple[Row, int]], figures: StepFigures) -> None:
        """Learn what became of the drafts of a step and what it cost, for adaptive Settings.

        What a grammar cut from a draft was drafted for nothing, as much as what the target refused.

        Args:
            decoded: rows that decoded, each with how many draft tokens were kept.
            figures: of the step.
        """
        for row, accepted in decoded:
            if row.slot in self._ended:
                outlook, drafted = self._ended[row.slot]
                self._adaptive.learn_draft(outlook, drafted, accepted)
        self._adaptive.learn_step(figures, is_reading=self._is_reading)

    def vocab_of(self, method: Method) -> Tensor | None:
        """Return the ids behind a method's draft probabilities; None for the whole vocabulary."""
        drafter = self._drafters.get(method)
        return None if drafter is None else drafter.draft_vocab

    def move(self, source: int, target: int) -> None:
        """Carry a row's caches over to another slot."""
        for drafter in self._drafters.values():
            drafter.move(source, target)

    def release(self, slot: int) -> None:
        """Forget a slot."""
        for drafter in self._drafters.values():
            drafter.release(slot)

    def _paying(
        self, rows: Sequence[Row], drafter: Drafter, positions: int
    ) -> list[tuple[Row, DraftAsk]]:
        """Return what to ask a drafter; adaptive rows only where drafting at all can pay."""
        market = None
        if any(row.setting.is_adaptive and row.setting.method is drafter.method for row in rows):
            market = self._adaptive.market(drafter.method, rows=len(rows), positions=positions)
        asked = [(row, ask) for row in rows if (ask := self._ask(row, drafter, market)) is not None]
        outlooks = [ask.outlook for _, ask in asked if ask.outlook is not None]
        if market is None or not outlooks or market.pays_draft(outlooks):
            return asked
        return [(row, ask) for row, ask in asked if ask.outlook is None]

    def _ask(self, row: Row, drafter: Drafter, market: Market | None) -> DraftAsk | None:
        """Return what to ask for a row: never more than could still be delivered."""
        if row.setting.method is not drafter.method:
            return None
        longest = min(self._max_context_tokens, drafter.max_positions)
        entries_left = longest - len(row.token_ids)
        k = min(row.setting.k, row.draft_room, entries_left)
        if k < 1:
            return None
        route, sampling = self._route_of(row), row.request.sampling
        ask = DraftAsk(
            slot=row.slot,
            token_ids=row.token_ids,
            k=k,
            num_nodes=min(row.setting.max_nodes, entries_left) if row.setting.is_tree else k,
            route=route,
            setting=row.setting,
            sampling=sampling,
            generator=row.sampler.generator,
        )
        if market is None or not row.setting.is_adaptive:
            return ask
        kind = Kind(drafter.method, sampling.is_greedy)
        outlook = Outlook(market=market, route=route, kind=kind, is_seeded=ask.is_seeded, longest=k)
        return replace(ask, outlook=outlook)

    def _cost(
        self,
        method: Method,
        asked: Sequence[tuple[Row, DraftAsk]],
        seconds: float,
        *,
        is_idle: bool,
    ) -> DraftCost:
        """Return what drafting cost; learn from it unless a drafter had text to read.

        Args:
            method: the method.
            asked: its rows and what was asked for.
            seconds: what it took.
            is_idle: no row was drafted for, so that its time says nothing of drafts.
        """
        depths = [ask.depth for _, ask in asked]
        unread = [row.note_asked(method) for row, _ in asked]
        if max(unread) > _MOST_BEHIND:
            self._is_reading = True
        elif not is_idle:
            self._adaptive.drafts.add(method, len(asked), max(depths), seconds)
        return DraftCost(
            method=method,
            rows=len(asked),
            tokens=sum(depths),
            depth=max(depths),
            seconds=seconds,
        )

    def _route_of(self, row: Row) -> str:
        """Return a row's route; empty where a drafter may keep nothing of it for other rows."""
        request = row.request
        return "" if request.is_shadow or self._is_private(request.route) else request.route


def _is_idle(asks: Sequence[DraftAsk], drafts: Sequence[Draft]) -> bool:
    """Say whether a drafter neither guessed nor looked at a position, as where it cannot pay."""
    return not any(
        draft.token_ids or (ask.outlook is not None and ask.outlook.num_judged)
        for ask, draft in zip(asks, drafts, strict=True)
    )


def draft_of(drafts: Mapping[int, Draft], row: Row) -> Draft:
    """Return a row's draft, the empty one where it has none."""
    return drafts.get(row.slot, NO_DRAFT)
