"""Lookahead decoding: a Jacobi window beside the answer fills a pool of n-grams to draft from.

Source: arXiv:2402.02057. The target is its own drafter: while it verifies, it also computes a
window of W columns and N-1 levels, each level the likeliest tokens after the one before. A column
read down its levels, with the token after its last, is an n-gram that the target might say; the
pool offers those that begin with the last committed token.

Window and candidates are one tree of guesses, so nothing here can make an output wrong. Token i of
level 0 follows token i-1 of level 0; in a column each level follows the one above it. From k, the
longest path, follows the shape: N-1 = (k+1)/2 levels, 4 at most (the paper's N = 5), and W columns
so that the deepest token of the window is the k-th; as many candidates as columns, where
`MAX_TREE_NODES` leaves room for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from collectors.records import MAX_DRAFT_LENGTH, MAX_TREE_NODES, Method
from tuner.engine.drafters.base import Draft, DraftAsk, DrafterBase, Seen

_MAX_LEVELS = 4
_ROOT = -1
_STRIDE = 7919
"""A prime: fillers of neighbouring places come from places far apart in the text."""


class _Shape(NamedTuple):
    """Sizes of window and pool: levels (N-1), columns (W), candidates (G)."""

    levels: int
    columns: int
    candidates: int

    @classmethod
    def of(cls, k: int) -> Self:
        levels = min(_MAX_LEVELS, (k + 1) // 2)
        columns = k - levels + 1
        room = MAX_TREE_NODES // levels - columns
        return cls(levels=levels, columns=columns, candidates=min(columns, room))


class _Trie:
    """A tree of guesses: equal paths are one path."""

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self.token_ids: list[int] = []
        self.parents: list[int] = []
        self._depths: list[int] = []
        self._known: dict[tuple[int, int], int] = {}
        self._max_nodes = max_nodes
        self._max_depth = max_depth

    def insert(self, parent: int, token_id: int) -> int | None:
        """Return the child of a node with this token, made where missing; None without room."""
        node = self._known.get((parent, token_id))
        if node is not None:
            return node
        depth = 1 if parent == _ROOT else self._depths[parent] + 1
        if depth > self._max_depth or len(self.token_ids) == self._max_nodes:
            return None
        node = self._known[parent, token_id] = len(self.token_ids)
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self._depths.append(depth)
        return node

    def insert_path(self, parent: int, token_ids: Sequence[int]) -> int | None:
        """Return the last node of a path below a node; None where it does not fit whole."""
        node: int | None = parent
        for token_id in token_ids:
            node = self.insert(parent, token_id)
            if node is None:
                return None
            parent = node
        return node


class _Pool:
    """N-grams by their first token, of each the newest ones."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self._known: dict[int, dict[tuple[int, ...], None]] = {}
        self._num_read = 0

    def add(self, ngram: Sequence[int]) -> None:
        """Keep an n-gram, as the newest of its first token."""
        first, *rest = ngram
        known = self._known.setdefault(first, {})
        known.pop(tuple(rest), None)
        known[tuple(rest)] = None
        if len(known) > self._shape.candidates:
            del known[next(iter(known))]

    def read(self, token_ids: Sequence[int]) -> None:
        """Take in the n-grams of committed tokens that were not read yet."""
        size = self._shape.levels + 1
        for end in range(max(size, self._num_read + 1), len(token_ids) + 1):
            self.add(token_ids[end - size : end])
        self._num_read = len(token_ids)

    def after(self, token_id: int) -> list[tuple[int, ...]]:
        """Return what may follow a token, newest first."""
        return list(reversed(self._known.get(token_id, {})))


@dataclass(slots=True, kw_only=True)
class _Trajectory:
    """The window and the pool of one row.

    Attributes:
        shape: their sizes.
        pool: the n-grams.
        window: levels of columns, for the text of `length` tokens; empty before the first ask.
        length: committed tokens when the window was laid out.
        tips: node of each column's last level; None where it did not fit.
        newest: the target's likeliest token after each tip; None where unknown.
    """

    shape: _Shape
    pool: _Pool
    window: list[list[int]] = field(default_factory=list)
    length: int = 0
    tips: list[int | None] = field(default_factory=list)
    newest: list[int | None] = field(default_factory=list)

    def advance(self, token_ids: Sequence[int]) -> None:
        """Bring window and pool in step with what was committed.

        Each level takes the tokens of the next, the last one the target's newest; columns move left
        by the draft tokens kept. What is not known is filled with tokens of the text.
        """
        self._gather()
        self.pool.read(token_ids)
        kept = max(0, len(token_ids) - self.length - 1)
        rising: list[Sequence[int | None]] = [*self.window[1:], self.newest]
        rising += [()] * (self.shape.levels - len(rising))
        self.window = [
            [
                _known_or_filler(tokens, column + kept, level, token_ids)
                for column in range(self.shape.columns)
            ]
            for level, tokens in enumerate(rising)
        ]
        self.length = len(token_ids)
        self.newest = []

    def draft(self, ask: DraftAsk) -> Draft:
        """Lay out candidates and window as one tree."""
        trie = _Trie(ask.num_nodes, ask.k)
        for candidate in self.pool.after(ask.token_ids[-1]):
            trie.insert_path(_ROOT, candidate)
        self.tips = [None] * self.shape.columns
        above = _ROOT
        for column, token_id in enumerate(self.window[0]):
            node = trie.insert(above, token_id)
            if node is None:
                break
            above = node
            self.tips[column] = trie.insert_path(above, [row[column] for row in self.window[1:]])
        return Draft(token_ids=tuple(trie.token_ids), parents=tuple(trie.parents))

    def see(self, outputs: Sequence[int]) -> None:
        """Take the target's likeliest token after each tip."""
        self.newest = [None if tip is None else outputs[1 + tip] for tip in self.tips]

    def _gather(self) -> None:
        """Put the n-gram of each column into the pool."""
        for column, token_id in enumerate(self.newest):
            if token_id is not None:
                self.pool.add([*(row[column] for row in self.window), token_id])


class LookaheadDrafter(DrafterBase):
    """Drafts n-grams that the target itself came up with; deterministic, without weights."""

    method = Method.LOOKAHEAD
    max_k = MAX_DRAFT_LENGTH
    wants_outputs = True

    def __init__(self) -> None:
        self._trajectories: dict[int, _Trajectory] = {}

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Lay out window and candidates of all rows."""
        return [self._draft(ask) for ask in asks]

    def see(self, seen: Sequence[Seen]) -> None:
        """Read the next level of each window."""
        for row in seen:
            trajectory = self._trajectories.get(row.slot)
            if trajectory is not None and row.draft.token_ids:
                trajectory.see(row.outputs)

    def move(self, source: int, target: int) -> None:
        """Carry window and pool of one slot over to another."""
        self.release(target)
        if source in self._trajectories:
            self._trajectories[target] = self._trajectories.pop(source)

    def release(self, slot: int) -> None:
        """Forget window and pool of a slot."""
        self._trajectories.pop(slot, None)

    def _draft(self, ask: DraftAsk) -> Draft:
        trajectory = self._trajectory_of(ask)
        trajectory.advance(ask.token_ids)
        return trajectory.draft(ask)

    def _trajectory_of(self, ask: DraftAsk) -> _Trajectory:
        """Return the slot's window and pool, made anew where the Setting asks for another shape."""
        shape = _Shape.of(ask.setting.k)
        known = self._trajectories.get(ask.slot)
        if known is not None and known.shape == shape:
            return known
        made = _Trajectory(shape=shape, pool=_Pool(shape))
        self._trajectories[ask.slot] = made
        return made


def _known_or_filler(
    tokens: Sequence[int | None], column: int, level: int, token_ids: Sequence[int]
) -> int:
    """Return a token of a level, or one of the text where the level holds none."""
    known = tokens[column] if column < len(tokens) else None
    if known is not None:
        return known
    return token_ids[(len(token_ids) + column + level) * _STRIDE % len(token_ids)]
