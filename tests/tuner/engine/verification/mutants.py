"""A module of ours with one line changed, made at run time from its own source."""

from __future__ import annotations

import inspect
from types import ModuleType


def mutant_of(module: ModuleType, line: str, replacement: str) -> ModuleType:
    """Return a copy of a module in which one piece of code is replaced.

    Raises:
        AssertionError: the piece does not occur exactly once, so the mutant would be another one.
    """
    source = inspect.getsource(module)
    assert source.count(line) == 1, f"{line!r} occurs {source.count(line)} times"
    mutant = ModuleType(module.__name__)
    mutant.__file__ = module.__file__
    code = compile(source.replace(line, replacement), f"<mutant of {module.__name__}>", "exec")
    exec(code, mutant.__dict__)
    return mutant
