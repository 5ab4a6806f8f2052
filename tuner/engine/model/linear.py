"""Matrix products with frozen weights: oneDNN prepacked on CPU, plain elsewhere and as reference.

A decode step is bound by reading the weights. Prepacking lays them out once for few rows, so that
verifying several positions costs about what one position costs (measured by `spectuner bench
engine`). Both classes compute the same product; the plain one is the reference in the tests.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_PACKED_ROWS = 16


class FrozenLinear(Protocol):
    """A product with fixed weights [out, in]."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return hidden [N, in] times the weights, [N, out]."""

    def plus(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Return the product with a residual [N, out] added."""


class PlainLinear:
    """`torch.nn.functional.linear`, on any device."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return hidden [N, in] times the weights, [N, out]."""
        return functional.linear(hidden, self._weight, self._bias)

    def plus(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Return the product with a residual [N, out] added."""
        return residual + functional.linear(hidden, self._weight, self._bias)


class PackedLinear:
    """oneDNN product with weights laid out once, on CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        operators = torch.ops.mkldnn
        self._weight = operators._reorder_linear_weight(weight.contiguous(), _PACKED_ROWS)
        self._bias = bias
        self._product = operators._linear_pointwise.default
        self._product_plus = operators._linear_pointwise.binary

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return hidden [N, in] times the weights, [N, out]."""
        product: Tensor = self._product(hidden, self._weight, self._bias, "none", [], "")
        return product

    def plus(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Return the product with a residual [N, out] added in the same pass."""
        total: Tensor = self._product_plus(hidden, residual, self._weight, self._bias, "add")
        return total


def can_pack(device: torch.device) -> bool:
    """Say whether prepacked weights work here: a CPU and a torch built with oneDNN."""
    return device.type == "cpu" and bool(torch._C._has_mkldnn)


def frozen_linear(weight: Tensor, bias: Tensor | None = None, *, is_packed: bool) -> FrozenLinear:
    """Build the product for weights [out, in] and an optional bias [out]."""
    return PackedLinear(weight, bias) if is_packed else PlainLinear(weight, bias)
