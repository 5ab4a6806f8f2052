"""Asks each drafting method once a step, for all rows that use it, and times it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from collectors.records import DraftCost, Method
from tuner.engine.drafters.base import NO_DRAFT, Draft, DraftAsk, Drafter, Seen, TargetView
from tuner.engine.model.decoder import Decoder, features_for
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.pruning import pruned
from tuner.engine.row import Row


class Drafting:
    """The loaded drafters, by method."""

    def __init__(
        self,
        drafters: Mapping[Method, Drafter],
        *,
        max_context_tokens: int,
        is_private: Callable[[str], bool] = lambda route: False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take over the drafters.

        Args:
            drafters: by method, off left out.
            max_context_tokens: KV entries of a slot.
            is_private: says whether nothing of a route may be kept, at this moment.
            clock: seconds, for the draft cost.
        """
        self._drafters = dict(drafters)
        self._max_context_tokens = max_context_tokens
        self._is_private = is_private
        self._clock = clock

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
        for method, drafter in self._drafters.items():
            asked = [(row, ask) for row in rows if (ask := self._ask(row, drafter)) is not None]
            if not asked:
                continue
            asks = [ask for _, ask in asked]
            started = self._clock()
            for (row, _), draft in zip(asked, drafter.propose(asks), strict=True):
                # A drafter that learns from the target's outputs needs them for its whole draft.
                drafts[row.slot] = draft if drafter.wants_outputs else pruned(draft, row)
            seconds = self._clock() - started
            costs.append(_cost(method, asks, seconds))
        return drafts, tuple(costs)

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

    def _ask(self, row: Row, drafter: Drafter) -> DraftAsk | None:
        """Return what to ask for a row: never more than could still be delivered."""
        if row.setting.method is not drafter.method:
            return None
        longest = min(self._max_context_tokens, drafter.max_positions)
        entries_left = longest - len(row.token_ids)
        k = min(row.setting.k, row.draft_room, entries_left)
        if k < 1:
            return None
        return DraftAsk(
            slot=row.slot,
            token_ids=row.token_ids,
            k=k,
            num_nodes=min(row.setting.max_nodes, entries_left) if row.setting.is_tree else k,
            route=self._route_of(row),
            setting=row.setting,
            sampling=row.request.sampling,
            generator=row.sampler.generator,
        )

    def _route_of(self, row: Row) -> str:
        """Return a row's route; empty where a drafter may keep nothing of it for other rows."""
        request = row.request
        return "" if request.is_shadow or self._is_private(request.route) else request.route


def draft_of(drafts: Mapping[int, Draft], row: Row) -> Draft:
    """Return a row's draft, the empty one where it has none."""
    return drafts.get(row.slot, NO_DRAFT)


def _cost(method: Method, asks: Sequence[DraftAsk], seconds: float) -> DraftCost:
    wanted = [ask.k for ask in asks]
    return DraftCost(
        method=method, rows=len(asks), tokens=sum(wanted), depth=max(wanted), seconds=seconds
    )
