"""Material read from the Python installation is short, parseable and the same every time."""

from __future__ import annotations

import ast

from tuner.engine.training.material import (
    MAX_CODE_LINES,
    MAX_PASSAGE_CHARS,
    MIN_PASSAGE_CHARS,
    stdlib_functions,
    stdlib_passages,
)


def test_functions_are_short_valid_python_and_sorted() -> None:
    functions = stdlib_functions()
    assert len(functions) > 1000
    assert list(functions) == sorted(set(functions))
    for code in functions[::50]:
        assert isinstance(ast.parse(code).body[0], ast.FunctionDef | ast.AsyncFunctionDef)
        assert code.count("\n") < MAX_CODE_LINES


def test_passages_are_flat_prose_of_the_stated_length() -> None:
    passages = stdlib_passages()
    assert len(passages) > 500
    for passage in passages:
        assert MIN_PASSAGE_CHARS <= len(passage) <= MAX_PASSAGE_CHARS
        assert "\n" not in passage
        assert ">>>" not in passage
