from __future__ import annotations

import pytest
import torch

from tuner.engine.verification.drawing import (
    NO_TOKEN,
    as_uniforms,
    draw,
    draw_uniforms,
    new_generator,
)
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.shapes import ShapeError

ALMOST_1 = 1 - 2**-53


def drawn(weights: list[float], uniform: float) -> int:
    return int(draw(torch.tensor([weights]), torch.tensor([uniform], dtype=torch.float64)))


def test_tokens_come_as_often_as_their_weights_say() -> None:
    weights = torch.tensor([3.0, 0.0, 1.0, 0.5, 2.0]) * 7
    generator = new_generator(1)
    uniforms = torch.rand(200_000, generator=generator, dtype=torch.float64)
    tokens = draw(weights.expand(len(uniforms), -1), uniforms)
    expected = weights / weights.sum() * len(uniforms)
    assert chi_square_p_value(torch.bincount(tokens, minlength=5), expected) > 1e-4


def test_rare_tokens_of_a_large_vocabulary_keep_their_share() -> None:
    vocab, rows = 49_152, 400
    weights = torch.full((1, vocab), 1e-8)
    weights[0, 0] = 1.0
    share = float(1e-8 * (vocab - 1) / weights.double().sum())
    uniforms = 1 - (torch.arange(rows, dtype=torch.float64) + 0.5) / rows * share
    tokens = torch.cat([draw(weights, uniform.unsqueeze(0)) for uniform in uniforms])
    assert (tokens > 0).all()
    assert len(set(tokens.tolist())) == rows


@pytest.mark.parametrize("uniform", [0.0, 1e-300, 0.5, ALMOST_1])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_token_without_weight_is_never_drawn(uniform: float, scale: float) -> None:
    assert drawn([0.0, scale, 0.0, 0.0], uniform) == 1


def test_the_extreme_uniforms_give_the_first_and_the_last_possible_token() -> None:
    weights = [0.0, 0.3, 0.3, 0.4, 0.0]
    assert drawn(weights, 0.0) == 1
    assert drawn(weights, ALMOST_1) == 3


@pytest.mark.parametrize(
    "weights", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0, float("nan")]]
)
def test_nothing_is_drawn_where_there_is_no_distribution(weights: list[float]) -> None:
    assert drawn(weights, 0.5) == NO_TOKEN


def test_a_row_draws_one_uniform_more_than_it_drafted_whatever_the_batch_is() -> None:
    alone = draw_uniforms([new_generator(5)], [2], 3)
    among = draw_uniforms([new_generator(4), new_generator(5)], [6, 2], 7)
    assert torch.equal(alone[0], among[1, :3])
    assert (among[1, 3:] == 0).all()
    generators = [new_generator(5), new_generator(5)]
    draw_uniforms(generators[:1], [2], 3)
    torch.rand(3, generator=generators[1], dtype=torch.float64)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


def test_the_same_seed_gives_the_same_numbers_and_no_seed_fresh_ones() -> None:
    def first(seed: int | None) -> float:
        return torch.rand(1, generator=new_generator(seed), dtype=torch.float64).item()

    assert first(7) == first(7)
    assert first(7) != first(8)
    assert first(-1) == first(2**64 - 1)
    assert first(None) != first(None)


def test_uniforms_of_another_shape_are_refused() -> None:
    num_drafted = torch.tensor([1, 2])
    with pytest.raises(ShapeError, match=r"uniforms has shape \[2, 2\], expected \[2, 3\]"):
        as_uniforms(torch.zeros(2, 2), num_drafted, 3)
    with pytest.raises(ShapeError, match="num_drafted has shape"):
        as_uniforms([new_generator(1)], num_drafted, 3)
