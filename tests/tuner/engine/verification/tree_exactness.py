"""Checks of tree verification that take the function under test, so that mutants can be tried too.

Texts of a small language, in which a token depends on the one before it, are continued by one
verified tree a row and filled up from the language itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.tuner.engine.verification.exactness import REDUCED, VOCAB, random_rows
from tuner.engine.verification.drawing import draw
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.verify import Verified
from tuner.engine.verification.verify_tree import DenseTarget

ROWS = 24_000
LENGTH = 3
CONTEXT = 1
"""The token that every text goes on from."""

SHAPES: tuple[tuple[int, ...], ...] = (
    (-1, -1, -1, 0, 0, 1, 3, 1),
    (-1, 0, -1, 0, 2, 1),
    (-1, 0, 1),
    (-1, -1, -1),
    (-1,),
    (),
)
"""Bushy trees, a chain, a star and no draft; children may stand anywhere behind their parent."""

VerifyTree = Callable[..., Verified]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTrial:
    """Many rows with trees of different shapes.

    Attributes:
        target: [V, V], next-token distributions by context token.
        trees: the drafts.
        contexts: [B, T+1], the token before each position.
        draft_probs: [B, T, V or Vd]; None for a deterministic drafter.
        draft_vocab: [Vd] or None.
        uniforms: [B, T+1].
    """

    target: Tensor
    trees: Trees
    contexts: Tensor
    draft_probs: Tensor | None
    draft_vocab: Tensor | None
    uniforms: Tensor

    def verified(self, verify_tree: VerifyTree) -> Verified:
        """Put the trial to the rejection rule."""
        return verify_tree(
            self.trees,
            DenseTarget(self.target[self.contexts]),
            self.uniforms,
            draft_probs=self.draft_probs,
            draft_vocab=self.draft_vocab,
        )

    def p_value(self, verified: Verified, seed: int) -> float:
        """Return the p-value of the whole texts; 0 where a row ended with no token at all."""
        generator = torch.Generator().manual_seed(seed + 1)
        rows = torch.arange(ROWS)
        text = torch.full((ROWS, LENGTH), CONTEXT)
        for place in range(LENGTH):
            before = text[:, place - 1] if place else torch.full((ROWS,), CONTEXT)
            fresh = torch.rand(ROWS, generator=generator, dtype=torch.float64)
            token = draw(self.target[before], fresh)
            if place < verified.path.shape[1]:
                drafted = self.trees.draft_tokens[rows, verified.path[:, place]]
                token = torch.where(place < verified.accepted_len, drafted, token)
            text[:, place] = torch.where(place == verified.accepted_len, verified.next_token, token)
        if bool((text < 0).any()):
            return 0.0
        number = (text * VOCAB ** torch.arange(LENGTH).flip(0)).sum(1)
        expected = text_probs(self.target) * ROWS
        return chi_square_p_value(torch.bincount(number, minlength=len(expected)), expected)


def text_probs(target: Tensor) -> Tensor:
    """Return the probability of every text, [V**LENGTH] float64."""
    probs = target[CONTEXT].double()
    for _ in range(LENGTH - 1):
        probs = (probs.unsqueeze(1) * target[torch.arange(len(probs)) % VOCAB].double()).flatten()
    return probs


def full_trees(seed: int) -> TreeTrial:
    """A drafter that covers the whole vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return _trial(generator, random_rows(VOCAB, VOCAB, generator), None)


def reduced_trees(seed: int) -> TreeTrial:
    """A drafter that covers three tokens: three children use its distribution up."""
    generator = torch.Generator().manual_seed(seed)
    return _trial(generator, random_rows(VOCAB, len(REDUCED), generator), REDUCED)


def narrow_trees(seed: int) -> TreeTrial:
    """A drafter that holds two tokens after each other and adds a third child as a mere guess."""
    generator = torch.Generator().manual_seed(seed)
    draft = random_rows(VOCAB, VOCAB, generator)
    for row in range(VOCAB):
        draft[row, torch.randperm(VOCAB, generator=generator)[2:]] = 0
    return _trial(generator, draft / draft.sum(1, keepdim=True), None)


def certain_trees(seed: int) -> TreeTrial:
    """A drafter that always drafts the same tokens after the same one."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(VOCAB, generator=generator) for _ in range(VOCAB)])
    target = random_rows(VOCAB, VOCAB, generator)
    return _laid_out(target, generator, None, None, lambda contexts: order[contexts])


def _trial(generator: torch.Generator, draft: Tensor, vocab: Tensor | None) -> TreeTrial:
    target = random_rows(VOCAB, VOCAB, generator)

    def drawn(contexts: Tensor) -> Tensor:
        """Order all columns by drawing them without replacement, those of probability 0 last."""
        noise = torch.empty(len(contexts), draft.shape[1]).exponential_(generator=generator)
        columns = (draft[contexts] / noise).argsort(dim=1, descending=True)
        return columns if vocab is None else vocab[columns]

    return _laid_out(target, generator, draft, vocab, drawn)


def _laid_out(
    target: Tensor,
    generator: torch.Generator,
    draft: Tensor | None,
    vocab: Tensor | None,
    children_after: Callable[[Tensor], Tensor],
) -> TreeTrial:
    """Grow the trees of all rows; row b has the shape b % len(SHAPES)."""
    width = max(len(shape) for shape in SHAPES)
    contexts = torch.full((ROWS, width + 1), CONTEXT)
    drafts: list[Sequence[int]] = [()] * ROWS
    for first, shape in enumerate(SHAPES):
        rows = slice(first, ROWS, len(SHAPES))
        for position in range(len(shape)):
            tokens = children_after(contexts[rows, position])
            children = [node for node, parent in enumerate(shape) if parent == position - 1]
            for rank, node in enumerate(children):
                contexts[rows, node + 1] = tokens[:, rank]
        drafts[rows] = contexts[rows, 1 : len(shape) + 1].tolist()
    return TreeTrial(
        target=target,
        trees=Trees.of(drafts, [SHAPES[row % len(SHAPES)] for row in range(ROWS)]),
        contexts=contexts,
        draft_probs=None if draft is None else draft[contexts[:, :-1]],
        draft_vocab=vocab,
        uniforms=torch.rand(ROWS, width + 1, generator=generator, dtype=torch.float64),
    )


def assert_longest_kept_path_found(longest_path: Callable[..., object]) -> None:
    """Of two kept paths the longer one, of equally long ones the likelier one is found."""
    trees = Trees.of([(5, 6, 7, 8, 9)] * 3, [(-1, -1, 0, 1, 2)] * 3)
    probs = torch.tensor(
        [[0.5, 0.9, 0.5, 0.9, 0.5], [0.5, 0.9, 0.5, 0.9, 0.0], [0.0, 0.0, 0.5, 0.9, 0.5]]
    ).double()
    path = longest_path(trees, probs)
    assert path.length.tolist() == [3, 2, 0]  # type: ignore[attr-defined]
    assert path.nodes[0].tolist()[:3] == [0, 2, 4]  # type: ignore[attr-defined]
    assert path.nodes[1].tolist()[:2] == [1, 3]  # type: ignore[attr-defined]
    assert path.end.tolist() == [5, 4, 0]  # type: ignore[attr-defined]
