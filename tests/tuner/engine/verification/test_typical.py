from __future__ import annotations

import math

import pytest
import torch

from tests.tuner.engine.verification.exactness import FALSE_ALARM_RATE
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.shapes import ShapeError
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.typical import (
    DELTA,
    EPSILON,
    typical_thresholds,
    verify_typical,
)

VOCAB = 7


def threshold_of(probs: list[float]) -> float:
    entropy = -sum(prob * math.log(prob) for prob in probs if prob > 0)
    return min(0.09, 0.3 * math.exp(-entropy))


def candidates_of(parents: tuple[int, ...]) -> list[list[int]]:
    """Every path from the root, node by node: what the authors call candidates."""
    paths = []
    for node in range(len(parents)):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        paths.append(path)
    return paths


def longest_by_hand(
    draft: list[int], parents: tuple[int, ...], probs: list[list[float]]
) -> list[int]:
    """Longest accepted prefix among all candidates, of equal ones the likeliest."""
    best, best_likelihood = [], 0.0
    for path in candidates_of(parents):
        likelihood, is_kept = 0.0, True
        for before, node in zip([-1, *path], path, strict=False):
            prob = probs[before + 1][draft[node]]
            is_kept &= prob > threshold_of(probs[before + 1])
            likelihood += math.log(max(prob, 1e-300))
        if is_kept and (len(path), likelihood) > (
            len(best),
            best_likelihood if best else -math.inf,
        ):
            best, best_likelihood = path, likelihood
    return best


def test_paths_are_those_of_the_paper_worked_by_hand() -> None:
    generator = torch.Generator().manual_seed(1)
    drafts, parents, probs = [], [], []
    for number in range(300):
        size = number % 9
        parents.append(
            tuple(int(torch.randint(-1, node, (1,), generator=generator)) for node in range(size))
        )
        drafts.append(torch.randint(0, VOCAB, (size,), generator=generator).tolist())
        scale = (0.3, 1.0, 3.0)[number % 3]
        probs.append((torch.randn(size + 1, VOCAB, generator=generator) * scale).softmax(-1))
    lengths = torch.tensor([len(rows) for rows in probs])
    trees = Trees.of(drafts, parents)
    uniforms = torch.rand(300, trees.num_columns, generator=generator, dtype=torch.float64)
    verified = verify_typical(trees, torch.cat(probs), lengths.cumsum(0) - lengths, uniforms)
    kept = []
    for row, rows in enumerate(probs):
        wanted = longest_by_hand(drafts[row], parents[row], rows.tolist())
        assert verified.path[row, : verified.accepted_len[row]].tolist() == wanted
        position = wanted[-1] + 1 if wanted else 0
        following = int(verified.next_token[row])
        assert rows[position, following] > threshold_of(rows[position].tolist())
        kept.append(len(wanted))
    assert max(kept) > 2


def test_the_last_token_is_drawn_among_the_typical_ones() -> None:
    rows = 20_000
    probs = torch.tensor([[0.6, 0.25, 0.1, 0.04, 0.01]])
    assert typical_thresholds(probs).item() == pytest.approx(
        min(EPSILON, DELTA * math.exp(-1.048)), abs=1e-3
    )
    uniforms = torch.rand(rows, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    verified = verify_typical(
        Trees.of([()] * rows, [None] * rows), probs, torch.zeros(rows).long(), uniforms
    )
    expected = torch.tensor([0.6, 0.25, 0.1, 0, 0])
    expected = expected / expected.sum() * rows
    counts = torch.bincount(verified.next_token, minlength=5)
    assert chi_square_p_value(counts, expected) > FALSE_ALARM_RATE


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
def test_the_likeliest_token_is_always_typical(scale: float) -> None:
    logits = torch.randn(50, 3000, generator=torch.Generator().manual_seed(3)) * scale
    probs = logits.softmax(-1)
    assert (probs.amax(1).double() > typical_thresholds(probs)).all()


def test_a_broken_target_gives_no_token_and_spares_the_other_rows() -> None:
    probs = torch.full((4, 4), 0.25)
    probs[:2] = float("nan")
    verified = verify_typical(
        Trees.of([(1,), (1,)], [None, None]),
        probs,
        torch.tensor([0, 2]),
        torch.full((2, 2), 0.6, dtype=torch.float64),
    )
    assert verified.accepted_len.tolist() == [0, 1]
    assert verified.next_token.tolist() == [-1, 2]


def test_as_many_starts_as_rows_are_needed() -> None:
    with pytest.raises(ShapeError, match="starts has shape"):
        verify_typical(
            Trees.of([(1,)], [None]),
            torch.full((2, 4), 0.25),
            torch.tensor([0, 2]),
            torch.zeros(1, 2, dtype=torch.float64),
        )
