"""The limit of a decode step: reading every weight once at the memory bandwidth of the machine."""

from __future__ import annotations

import time

import torch
from torch import Tensor


def read_seconds(weights: Tensor) -> float:
    """Return the time to read a flat tensor once, best of three, with torch's threads.

    Args:
        weights: as large as what a decode step reads; a sum reads each item once.
    """
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        torch.sum(weights)
        best = min(best, time.perf_counter() - started)
    return best
