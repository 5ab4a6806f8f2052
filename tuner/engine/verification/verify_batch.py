"""One verification for a whole step: chains and trees under all rules side by side.

Called by the engine core with the logits of one target pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from collectors.records import AcceptanceRule
from tuner.engine.verification.drawing import NO_TOKEN
from tuner.engine.verification.logit_edits import edit_logits
from tuner.engine.verification.parts import (
    ChainPart,
    GreedyPart,
    MatchPart,
    Part,
    TreePart,
    TypicalPart,
)
from tuner.engine.verification.rows import Block, RowSampler
from tuner.engine.verification.shapes import ShapeError, require_shape
from tuner.engine.verification.verify import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The distributions one drafter drew the drafts of some rows from.

    Rows that no proposal names were drafted deterministically or not at all.

    Attributes:
        rows: R row numbers in the batch.
        probs: [R, K', V], or [R, K', Vd] with `vocab`; K' is at least the longest draft of `rows`;
            what is drawn from which is said at `Draft`.
        vocab: [Vd] int64, distinct token ids that `probs` covers; None for all of them.
    """

    rows: tuple[int, ...]
    probs: Tensor
    vocab: Tensor | None = None

    def only(self, rows: Collection[int]) -> Proposal | None:
        """Return what it says about some rows; None where it names none of them."""
        wanted = [place for place, row in enumerate(self.rows) if row in rows]
        if len(wanted) == len(self.rows):
            return self
        if not wanted:
            return None
        kept = tuple(self.rows[place] for place in wanted)
        return Proposal(rows=kept, probs=self.probs[wanted], vocab=self.vocab)


def verify_batch(
    logits: Tensor,
    block: Block,
    rows: Sequence[RowSampler],
    *,
    rules: Sequence[AcceptanceRule],
    proposals: Sequence[Proposal] = (),
    allowed: Tensor | None = None,
) -> Verified:
    """Decide for every row which drafted tokens stay and which token follows them.

    A row's answer depends on its own logits, draft, parameters and generator alone.

    Args:
        logits: [N, V] float32, raw, of all positions of all rows; not changed.
        block: which positions are whose, and the drafts.
        rows: sampling state of each row; generators of sampled rows move on.
        rules: acceptance rule of each row; greedy rows need none.
        proposals: what drafts were drawn from; at most one for each row.
        allowed: [N, V] bool, False where a token may not follow; None allows all.

    Returns:
        Verified on the CPU; next_token is -1 where nothing can be drawn (see `Verified`).

    Raises:
        ShapeError: arguments disagree, or two proposals name one row.
    """
    if len(rules) != len(rows):
        raise ShapeError(f"{len(rules)} rules for {len(rows)} rows: give one a row")
    edited = edit_logits(logits, block, rows, allowed=allowed)
    accepted_len = torch.zeros(len(rows), dtype=torch.int64)
    next_token = torch.full((len(rows),), NO_TOKEN)
    path = torch.full(block.draft_tokens.shape, NO_TOKEN)
    for part in _parts(block, rows, rules, proposals):
        verified = part.verify(edited, block, rows)
        where = torch.tensor(part.rows)
        accepted_len[where] = verified.accepted_len.cpu()
        next_token[where] = verified.next_token.cpu()
        path[where, : verified.path.shape[1]] = verified.path.cpu()
    return Verified(accepted_len=accepted_len, next_token=next_token, path=path)


def _parts(
    block: Block,
    rows: Sequence[RowSampler],
    rules: Sequence[AcceptanceRule],
    proposals: Sequence[Proposal],
) -> Iterator[Part]:
    """Split the batch into parts that are verified alike.

    A tree without draft probabilities is verified by drawing, which keeps as much as the rejection
    rule would.
    """
    drawn = _drawn_rows(proposals)
    by_part: dict[type[Part], list[int]] = {}
    for index, row in enumerate(rows):
        part = _part_of(row, rules[index], block.parents[index], is_drawn=index in drawn)
        by_part.setdefault(part, []).append(index)
    for simple in (GreedyPart, MatchPart, TypicalPart):
        if simple in by_part:
            yield simple(tuple(by_part[simple]))
    chains, trees = by_part.get(ChainPart, []), by_part.get(TreePart, [])
    for proposal in proposals:
        if at := proposal.only(chains):
            yield ChainPart(at.rows, at.probs, at.vocab)
        if at := proposal.only(trees):
            yield TreePart(at.rows, at.probs, at.vocab)
    if guessed := [row for row in chains if row not in drawn]:
        yield ChainPart(tuple(guessed), probs=None, vocab=None)


def _part_of(
    row: RowSampler, rule: AcceptanceRule, parents: Sequence[int] | None, *, is_drawn: bool
) -> type[Part]:
    if row.params.is_greedy:
        return GreedyPart
    if rule is AcceptanceRule.TYPICAL:
        return TypicalPart
    if rule is AcceptanceRule.TOKEN_MATCH or (parents is not None and not is_drawn):
        return MatchPart
    return ChainPart if parents is None else TreePart


def _drawn_rows(proposals: Sequence[Proposal]) -> set[int]:
    """Return the rows that some proposal names."""
    drawn: set[int] = set()
    for proposal in proposals:
        require_shape(
            "probs of a proposal", proposal.probs, (len(proposal.rows), *proposal.probs.shape[1:])
        )
        twice = drawn.intersection(proposal.rows)
        if twice:
            raise ShapeError(f"row {min(twice)} is in two proposals: give each row at most one")
        drawn.update(proposal.rows)
    return drawn
