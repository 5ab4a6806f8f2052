"""Sizes that the bundled engine starts with, known without loading it."""

from __future__ import annotations

DEFAULT_MAX_ROWS = 32
DEFAULT_MAX_CONTEXT = 1024
