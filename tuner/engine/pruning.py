"""Takes out of a draft what the row's grammar forbids, before the target computes it."""

from __future__ import annotations

from tuner.engine.drafters.base import Draft
from tuner.engine.row import Row


def pruned(draft: Draft, row: Row) -> Draft:
    """Return a draft without the tokens that could not be kept.

    A forbidden token behind allowed ones stays where it was drawn from probabilities that
    verification uses: that it is rejected is part of the rule, and leaving it out would bias what
    is drawn in its place. What follows it goes.
    """
    if row.grammar is None or not draft.token_ids:
        return draft
    parents = range(-1, len(draft.token_ids) - 1) if draft.parents is None else draft.parents
    reached = set(row.grammar.visit(draft.token_ids, draft.parents))
    is_drawn = draft.probs is not None and not row.request.sampling.is_greedy
    kept = [
        node
        for node, parent in enumerate(parents)
        if node in reached or (is_drawn and parent in reached)
    ]
    return draft if len(kept) == len(draft.token_ids) else _subtree(draft, kept)


def _subtree(draft: Draft, kept: list[int]) -> Draft:
    """Return some tokens of a draft, each with its parent.

    Args:
        draft: the draft.
        kept: indexes of the tokens, ascending.
    """
    places = {-1: -1} | {node: place for place, node in enumerate(kept)}
    rows = [0, *(node + 1 for node in kept[:-1])] if kept else []
    return Draft(
        token_ids=tuple(draft.token_ids[node] for node in kept),
        probs=None if draft.probs is None or not kept else draft.probs[rows],
        parents=None
        if draft.parents is None
        else tuple(places[draft.parents[node]] for node in kept),
    )
