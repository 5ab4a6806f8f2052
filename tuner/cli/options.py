"""Options that several commands share, and reading the settings they name."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from collectors.records import AcceptanceRule, Setting
from tuner.cli.errors import UsageError
from tuner.settings import Settings, load_settings

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file with settings; see README.md."),
]
WhoOption: TypeAlias = Annotated[
    str, typer.Option("--who", help="Name written into the decision; yours by default.")
]

_ADAPTIVE = "adaptive"

MOST_NAME = 128
"""Characters of a name, as of a token's."""

MOST_NUMBER = 2**63 - 1
"""Largest row number that the databases hold."""


def read_settings(config: Path | None, **overrides: object) -> Settings:
    """Read the settings of a command; options given on the command line win."""
    return load_settings(config, os.environ, **overrides)


def acting_user(who: str) -> str:
    """Return the name under which a decision is made: the one given, or the user's.

    Raises:
        UsageError: it is too long or not printable.
    """
    if len(who) > MOST_NAME or not who.isprintable():
        raise UsageError(f"--who {who[:80]!a} must have at most {MOST_NAME} printable characters")
    return who or current_user()


def current_user() -> str:
    """Return the name under which decisions are made from this command line."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


def parse_setting(text: str) -> Setting:
    """Read a Setting as ``off``, ``METHOD:K``, ``METHOD:K:NODES:WIDTH`` for a tree, or JSON.

    ``adaptive`` and the name of an acceptance rule may follow a draft length, such as
    ``draft_model:7:adaptive`` and ``draft_model:3:token_match``.

    Raises:
        UsageError: the text has none of these forms.
        InvalidRecord: a method, rule or draft length is not legal.
    """
    if text.lstrip().startswith("{"):
        try:
            return Setting.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise UsageError(f"setting {text}: not JSON ({error})") from None
    method, *rest = text.split(":")
    has_rule = len(rest) > 1 and not rest[-1].isdecimal() and rest[-1] != _ADAPTIVE
    rule = rest.pop() if has_rule else AcceptanceRule.REJECTION.value
    is_adaptive = len(rest) > 1 and rest[-1] == _ADAPTIVE
    if is_adaptive:
        rest.pop()
    if len(rest) not in (0, 1, 3) or not all(number.isdecimal() for number in rest):
        raise UsageError(f"setting {text!r}: write off, draft_model:3 or a tree as eagle:4:16:4")
    named = dict(zip(("k", "tree_nodes", "tree_width"), map(int, rest), strict=False))
    return Setting.from_dict({"method": method, "rule": rule, "is_adaptive": is_adaptive, **named})
