from __future__ import annotations

import math

import pytest
import torch

from tuner.engine.verification.largest import argmax, largest, sorted_values

WIDTHS = [1, 7, 128, 2048, 2050, 49_152]


@pytest.mark.parametrize("width", WIDTHS)
def test_argmax_is_the_first_largest_value(width: int) -> None:
    rows = torch.randn(5, width, generator=torch.Generator().manual_seed(width)).round(decimals=1)
    best, place = argmax(rows)
    assert torch.equal(best, rows.amax(1))
    first = [row.index(max(row)) for row in rows.tolist()]
    assert place.tolist() == first


@pytest.mark.parametrize("width", [128, 49_152])
def test_argmax_points_out_nan(width: int) -> None:
    rows = torch.zeros(2, width)
    rows[1, width - 3] = math.nan
    best, place = argmax(rows)
    assert best.isnan().tolist() == [False, True]
    assert place[1] == width - 3


@pytest.mark.parametrize("width", [64, 2048, 49_152])
@pytest.mark.parametrize("is_crowded", [False, True])
def test_largest_gives_the_values_of_topk_and_where_they_stand(
    width: int, *, is_crowded: bool
) -> None:
    rows = torch.randn(4, width, generator=torch.Generator().manual_seed(width))
    if is_crowded:
        rows[:, :64] += 10
    values, places = largest(rows, 64)
    assert torch.equal(values, rows.topk(64, dim=1).values)
    assert torch.equal(rows.gather(1, places), values)
    assert all(len(set(row)) == 64 for row in places.tolist())


def test_sorted_values_descend() -> None:
    rows = torch.randn(3, 1000)
    assert torch.equal(sorted_values(rows), rows.sort(dim=1, descending=True).values)


def test_rows_that_are_not_contiguous_are_read_right() -> None:
    rows = torch.randn(4096, 3).t()
    assert torch.equal(argmax(rows)[1], rows.argmax(1))
    assert torch.equal(largest(rows, 5)[0], rows.topk(5, dim=1).values)
    assert torch.equal(sorted_values(rows), rows.sort(dim=1, descending=True).values)
