"""Grows drafts level by level, trees and chains of all rows together.

Called by the drafters with trained heads. A chain is the tree whose tokens have one child each.
Trees are deterministic: a level's likeliest nodes by the product of draft probabilities along
their path go on, and of everything seen the best stay. Source: arXiv:2406.16858, section 3.

Only logits are tensors: a tree of a few nodes is kept in lists, which costs a tenth of what as many
small tensor operations cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.drafters.ending import goes_on, is_worth_a_pass
from tuner.engine.verification.drawing import draw

_ROOT = -1


class Nodes(NamedTuple):
    """The newest nodes of all rows that go on, row after row.

    Attributes:
        rows: N, to which row each belongs.
        token_ids: N.
        parents: N, each one's parent's place among the newest nodes of the level before; at
            level 1 the place of its row.
    """

    rows: Sequence[int]
    token_ids: Sequence[int]
    parents: Sequence[int]


class Advance(Protocol):
    """Scores what may follow the newest nodes."""

    def __call__(self, level: int, nodes: Nodes) -> Tensor:
        """Return logits [N, reduced V] after the newest nodes; [B, reduced V] where given by row.

        Args:
            level: 1 for the children of the last committed token, 2 for theirs, and so on.
            nodes: the newest nodes.
        """


def grow(
    asks: Sequence[DraftAsk],
    first: Tensor,
    advance: Advance,
    *,
    vocab: Sequence[int] | None,
    beams: Sequence[int],
    can_draw: bool,
    is_by_row: bool = False,
) -> list[Draft]:
    """Draft for rows, one `advance` a level.

    Args:
        asks: B rows.
        first: [B, reduced V] logits after the last committed token.
        advance: gives the logits of later levels.
        vocab: [reduced V] ids behind the columns; None for all.
        beams: nodes of a level that go on, of each row; 1 for a chain.
        can_draw: chains of sampled rows are drawn and carry their probabilities; otherwise every
            draft is deterministic.
        is_by_row: `advance` gives one set of logits a row, the same for all its nodes, at no cost.
    """
    trees = [
        _Tree(ask, beam, vocab, is_drawn=can_draw and _is_sampled_chain(ask))
        for ask, beam in zip(asks, beams, strict=True)
    ]
    width = max(tree.width for tree in trees)
    nodes = Nodes(rows=range(len(trees)), token_ids=(), parents=())
    logits = first
    for level in range(max(ask.k for ask in asks)):
        if level > 0:
            growing = [trees[row].ask for row in nodes.rows]
            if not growing or not (is_by_row or is_worth_a_pass(growing)):
                break
            logits = advance(level, nodes)
        places = nodes.rows if is_by_row else range(len(nodes.rows))
        _judge(trees, nodes, places, logits)
        tops = _likeliest(logits, width)
        _draw(trees, nodes, places, logits, tops)
        nodes = _descend(trees, nodes, [tops[place] for place in places])
    return [tree.draft() for tree in trees]


class _Top(NamedTuple):
    """The likeliest tokens after a node, best first: columns and log-probabilities."""

    columns: Sequence[int]
    scores: Sequence[float]


class _Node(NamedTuple):
    """A guess: the log-probability of its path, its column, its parent and it in the tree.

    `above` is its parent's place among the newest nodes of all rows when it was made.
    """

    score: float
    column: int
    parent: int
    place: int
    above: int


class _Tree:
    """Everything guessed for one row."""

    def __init__(
        self, ask: DraftAsk, beam: int, vocab: Sequence[int] | None, *, is_drawn: bool
    ) -> None:
        self.ask = ask
        self.width = max(1, ask.setting.tree_width)
        self.is_drawn = is_drawn
        self.has_ended = False
        self.probs: list[Tensor] = []
        self.newest = [_Node(score=0.0, column=0, parent=_ROOT, place=_ROOT, above=0)]
        self._beam = beam
        self._vocab = vocab
        self._nodes: list[_Node] = []
        self._depth = 0

    def descend(self, tops: Sequence[_Top], first: int) -> None:
        """Take in the children of the newest nodes; the best of them are the newest, if any may be.

        Args:
            tops: one for each of the newest nodes.
            first: place of the first of those among the newest nodes of all rows.
        """
        children: list[_Node] = []
        place = len(self._nodes)
        for above, (node, top) in enumerate(zip(self.newest, tops, strict=True), first):
            for column, score in zip(top.columns[: self.width], top.scores, strict=False):
                children.append(_Node(node.score + score, column, node.place, place, above))
                place += 1
        self._nodes += children
        self._depth += 1
        goes_on = self._depth < self.ask.k
        self.newest = _best(children, self._beam) if goes_on else []

    def token_id(self, node: _Node) -> int:
        """Return the token behind a node."""
        return node.column if self._vocab is None else self._vocab[node.column]

    def draft(self) -> Draft:
        """Keep the best nodes, parents before children.

        A child never scores above its parent and stands behind it, so the best are a tree.
        """
        if not self.ask.setting.is_tree:
            probs = torch.stack(self.probs) if self.probs else None
            return Draft(token_ids=tuple(map(self.token_id, self._nodes)), probs=probs)
        kept = sorted(_best(self._nodes, self.ask.num_nodes), key=lambda node: node.place)
        index = {_ROOT: _ROOT} | {node.place: number for number, node in enumerate(kept)}
        return Draft(
            token_ids=tuple(map(self.token_id, kept)),
            parents=tuple(index[node.parent] for node in kept),
        )


def _best(nodes: Sequence[_Node], num: int) -> list[_Node]:
    """Return the nodes with the best paths, best first; of equal ones the earlier."""
    return sorted(nodes, key=lambda node: -node.score)[:num]


def _is_sampled_chain(ask: DraftAsk) -> bool:
    return not ask.sampling.is_greedy and not ask.setting.is_tree


def _likeliest(logits: Tensor, width: int) -> list[_Top]:
    """Return the `width` likeliest columns of each row of logits."""
    if width == 1:
        # Chains alone: nothing is compared with anything, so nobody asks how likely it was.
        return [_Top((column,), (0.0,)) for column in logits.argmax(-1).tolist()]
    scores = torch.log_softmax(logits, -1, dtype=torch.float32)
    top = scores.topk(min(width, logits.shape[-1]), dim=-1)
    return [*map(_Top, top.indices.tolist(), top.values.tolist())]


def _judge(trees: Sequence[_Tree], nodes: Nodes, places: Sequence[int], logits: Tensor) -> None:
    """End the chains whose next token does not pay; a tree has no outlook."""
    asks = [trees[row].ask for row in nodes.rows]
    if all(ask.outlook is None for ask in asks):
        return
    for row, going in zip(nodes.rows, goes_on(asks, logits[list(places)]), strict=True):
        trees[row].has_ended = not going


def _draw(
    trees: Sequence[_Tree],
    nodes: Nodes,
    places: Sequence[int],
    logits: Tensor,
    tops: list[_Top],
) -> None:
    """Draw the next token of sampled chains in place of the likeliest."""
    drawn = [
        (trees[row], place)
        for row, place in zip(nodes.rows, places, strict=True)
        if trees[row].is_drawn and not trees[row].has_ended
    ]
    if not drawn:
        return
    where = torch.tensor([place for _, place in drawn], device=logits.device)
    heats = torch.tensor([tree.ask.sampling.temperature for tree, _ in drawn])
    probs = torch.softmax(logits[where].float() / heats[:, None].to(logits.device), -1)
    coins = [torch.rand(1, generator=tree.ask.generator, dtype=torch.float64) for tree, _ in drawn]
    columns = draw(probs, torch.cat(coins).to(logits.device)).clamp(min=0).tolist()
    for (tree, place), column, drawn_from in zip(drawn, columns, probs, strict=True):
        tops[place] = _Top((column,), (0.0,))
        tree.probs.append(drawn_from)


def _descend(trees: Sequence[_Tree], nodes: Nodes, tops: Sequence[_Top]) -> Nodes:
    """Let all trees grow by a level; return their newest nodes.

    Args:
        trees: B.
        nodes: N nodes that went on.
        tops: what follows each.
    """
    first = 0
    for tree in trees:
        end = first + len(tree.newest)
        if tree.has_ended:
            tree.newest = []
        else:
            tree.descend(tops[first:end], first)
        first = end
    newest = [(row, tree, node) for row, tree in enumerate(trees) for node in tree.newest]
    return Nodes(
        rows=[row for row, _, _ in newest],
        token_ids=[tree.token_id(node) for _, tree, node in newest],
        parents=[node.above for _, _, node in newest],
    )
