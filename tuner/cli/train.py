"""``spectuner train``: hands over to the training commands, one a method and one a step."""

from __future__ import annotations

import typer
from typer.main import get_command


def train(context: typer.Context) -> None:
    """Train a drafting head: METHOD --self-distill, or METHOD --data FILE (see train --help)."""
    from tuner.engine.training.__main__ import app

    get_command(app)(context.args, "spectuner train", standalone_mode=False)
