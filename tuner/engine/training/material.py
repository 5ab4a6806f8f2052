"""Code and prose for training prompts, read from the Python installation that runs the training.

Called by prompts.py. The standard library's sources and docs (PSF licence) are on every machine,
so no download is needed; results are sorted, so that one Python version always gives the same.
"""

from __future__ import annotations

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tuner.engine.training.errors import MaterialError

MIN_CODE_CHARS, MAX_CODE_CHARS, MAX_CODE_LINES = 60, 520, 15
MIN_PASSAGE_CHARS, MAX_PASSAGE_CHARS = 220, 900
_SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
)
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def stdlib_functions() -> tuple[str, ...]:
    """Return short functions of the standard library, dedented, sorted, without duplicates.

    Raises:
        MaterialError: the installation carries no library sources.
    """
    functions, _ = _library_texts()
    if not functions:
        raise MaterialError(f"no Python sources under {_library_root()}: install them")
    return functions


@cache
def stdlib_passages() -> tuple[str, ...]:
    """Return paragraphs of prose from the language reference and the library's docstrings, sorted.

    Raises:
        MaterialError: the installation carries neither docs nor docstrings.
    """
    texts = [*_reference_topics(), *_library_texts()[1]]
    found = {passage for text in texts for passage in _passages_in(text)}
    if not found:
        raise MaterialError(f"no prose under {_library_root()}: install the library's sources")
    return tuple(sorted(found))


@cache
def _library_texts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the short functions and the docstrings of the library, each file parsed once."""
    functions: set[str] = set()
    docstrings: set[str] = set()
    for path in _library_files():
        parsed = _parse(path)
        if parsed is not None:
            source, module = parsed
            functions.update(_functions_in(source, module))
            docstrings.update(_docstrings_in(module))
    return tuple(sorted(functions)), tuple(sorted(docstrings))


def _library_root() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _library_files() -> Iterator[Path]:
    root = _library_root()
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
            yield path


def _parse(path: Path) -> tuple[str, ast.Module] | None:
    try:
        source = path.read_text(encoding="utf-8")
        return source, ast.parse(source)
    except (
        SyntaxError,
        UnicodeDecodeError,
    ):  # a few library files are deliberately not valid UTF-8
        return None


def _functions_in(source: str, module: ast.Module) -> Iterator[str]:
    lines = source.splitlines()
    for node in ast.walk(module):
        if not isinstance(node, _FunctionNode) or node.decorator_list:
            continue
        code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        is_short = (
            MIN_CODE_CHARS <= len(code) <= MAX_CODE_CHARS and code.count("\n") < MAX_CODE_LINES
        )
        if is_short and _is_python(code):
            yield code


def _is_python(code: str) -> bool:
    """Tell whether the code still parses; a string with text at column 0 cannot be dedented."""
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def _reference_topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return list(topics.values())


def _docstrings_in(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | _FunctionNode):
            yield ast.get_docstring(node) or ""


def _passages_in(text: str) -> Iterator[str]:
    """Join neighbouring paragraphs of prose until a passage is long enough."""
    joined = ""
    for paragraph in re.split(r"\n\s*\n", text):
        flat = " ".join(paragraph.split())
        if not _is_prose(flat):
            joined = ""
            continue
        joined = f"{joined} {flat}".strip()
        if len(joined) > MAX_PASSAGE_CHARS:
            joined = flat
        if MIN_PASSAGE_CHARS <= len(joined) <= MAX_PASSAGE_CHARS:
            yield joined
            joined = ""


def _is_prose(text: str) -> bool:
    letters = sum(char.isalpha() or char == " " for char in text)
    return len(text) > 60 and text.endswith(".") and letters / len(text) > 0.9 and ">>>" not in text
