"""Refusal of tensors whose shapes disagree, before a silent broadcast makes a wrong token of it."""

from __future__ import annotations

from torch import Tensor


class ShapeError(ValueError):
    """Tensors that belong together disagree in shape; the message names both."""


def require_shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape.

    Raises:
        ShapeError: the shapes differ.
    """
    if tuple(tensor.shape) != expected:
        raise ShapeError(
            f"{name} has shape {list(tensor.shape)}, expected {list(expected)}: "
            "pass tensors of one batch together"
        )
