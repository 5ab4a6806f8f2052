from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.engine.verification.reference_sampling import reference_probs
from tuner.engine.request import SamplingParams
from tuner.engine.verification.filters import Filters, filter_probs


def filters(rows: list[tuple[int, float, float]]) -> Filters:
    top_k, top_p, min_p = zip(*rows, strict=True)
    return Filters(
        top_k=torch.tensor(top_k),
        top_p=torch.tensor(top_p, dtype=torch.float64),
        min_p=torch.tensor(min_p, dtype=torch.float32),
    )


def filtered(
    probs: list[float], *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    out = filter_probs(torch.tensor([probs]), filters([(top_k, top_p, min_p)]))
    values: list[float] = out[0].tolist()
    return values


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 40, 64, 65, 300, 2048, 5000]),
            st.sampled_from([1.0, 0.01, 0.6, 0.95, 0.9999]),
            st.sampled_from([0.0, 1e-4, 0.02, 0.4, 1.0]),
        ),
        min_size=1,
        max_size=5,
    ),
    vocab=st.sampled_from([3, 64, 65, 500, 2048]),
    spread=st.sampled_from([0.05, 1.0, 4.0, 30.0]),
    seed=st.integers(0, 2**20),
)
def test_rows_of_any_width_match_the_plain_reference(
    rows: list[tuple[int, float, float]], vocab: int, spread: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    probs = (torch.randn(len(rows), vocab, generator=generator) * spread).softmax(1)
    together = filter_probs(probs, filters(rows))
    for number, (top_k, top_p, min_p) in enumerate(rows):
        alone = filter_probs(probs[number : number + 1], filters([rows[number]]))
        assert torch.equal(alone[0], together[number])
        params = SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p)
        wanted = torch.tensor(
            reference_probs(probs[number].double().clamp_min(1e-300).log().tolist(), params)
        )
        assert_same_but_for_edge(together[number], wanted, top_p)


def assert_same_but_for_edge(probs: torch.Tensor, wanted: torch.Tensor, top_p: float) -> None:
    """Compare, allowing one token at top-p's edge to fall to the other side by float32 rounding."""
    differs = (probs > 0) != (wanted > 0)
    assert differs.sum() <= (1 if top_p < 1 else 0)
    tolerance = 2e-5 + probs[differs].sum().item() + wanted[differs].sum().item()
    torch.testing.assert_close(probs, wanted, atol=1e-6, rtol=tolerance * 2)
    torch.testing.assert_close(probs.sum(), torch.tensor(1.0))


def test_tokens_as_likely_as_the_least_likely_kept_one_stay_too() -> None:
    tied = [0.4, 0.2, 0.2, 0.2]
    assert filtered(tied, top_k=2) == pytest.approx(tied)
    assert filtered(tied, top_p=0.5) == pytest.approx(tied)
    assert filtered(tied, min_p=0.5) == pytest.approx(tied)


def test_ties_beyond_the_tokens_looked_at_first_stay_too() -> None:
    uniform = torch.full((2, 4096), 1 / 4096)
    kept = filter_probs(uniform, filters([(10, 1.0, 0.0), (0, 0.1, 0.0)]))
    torch.testing.assert_close(kept, uniform)


def test_top_p_counts_what_top_k_left() -> None:
    probs = [0.4, 0.3, 0.2, 0.1]
    assert filtered(probs, top_k=2, top_p=0.6) == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert filtered(probs, top_k=2, top_p=0.5) == pytest.approx([1, 0, 0, 0])
    assert filtered(probs, min_p=0.7, top_p=0.5) == pytest.approx([1, 0, 0, 0])


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_the_most_likely_token_always_stays(top_p: float) -> None:
    assert filtered([0.1, 0.6, 0.3], top_p=top_p) == pytest.approx([0, 1, 0])


def test_probabilities_that_underflow_are_no_reason_to_sort_the_row() -> None:
    probs = torch.zeros(1, 4096)
    probs[0, 7], probs[0, 9] = 0.75, 0.25
    kept = filter_probs(probs, filters([(50, 1.0, 0.0)]))
    assert torch.equal(kept, probs)


def test_a_broken_row_stays_broken_and_spares_the_others() -> None:
    probs = torch.full((2, 128), 1 / 128)
    probs[0] = float("nan")
    kept = filter_probs(probs, filters([(5, 0.9, 0.1)] * 2))
    assert not kept[0].sum().isfinite()
    torch.testing.assert_close(kept[1], probs[1])


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_each_filter_equals_that_of_transformers(temperature: float) -> None:
    from transformers.generation import logits_process as peers

    logits = torch.randn(4, 3000, generator=torch.Generator().manual_seed(4)) * 3 / temperature
    pairs = [
        (peers.TopKLogitsWarper(70), (70, 1.0, 0.0)),
        (peers.TopPLogitsWarper(0.93), (0, 0.93, 0.0)),
        (peers.MinPLogitsWarper(0.01), (0, 1.0, 0.01)),
    ]
    for peer, parameters in pairs:
        wanted = peer(torch.zeros(4, 1, dtype=torch.int64), logits.clone()).softmax(1)
        kept = filter_probs(logits.softmax(1), filters([parameters] * 4))
        torch.testing.assert_close(kept, wanted, atol=1e-6, rtol=1e-4)
