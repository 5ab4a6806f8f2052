"""``spectuner doctor``: what stands between this machine and a running Spectuner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer

from tuner.cli.checks import (
    Check,
    Verdict,
    browser_check,
    database_check,
    device_check,
    engine_check,
    memory_check,
    model_check,
    packages_check,
    port_check,
    python_check,
)
from tuner.cli.engine import methods_named
from tuner.cli.memory import DEFAULT_MAX_CONTEXT, DEFAULT_MAX_ROWS
from tuner.cli.options import ConfigOption, read_settings
from tuner.cli.output import JsonOption, Output
from tuner.settings import Settings

_MARKS = {
    Verdict.OK: "[green]ok[/]",
    Verdict.WARNING: "[yellow]note[/]",
    Verdict.FAILED: "[red]no[/]",
}


def doctor(
    engine_port: Annotated[int, typer.Option(help="Port that an engine here would use.")] = 8401,
    max_rows: Annotated[int, typer.Option(min=1, help="Its sequences in the batch.")] = (
        DEFAULT_MAX_ROWS
    ),
    max_context: Annotated[int, typer.Option(min=16, help="Its tokens of a sequence.")] = (
        DEFAULT_MAX_CONTEXT
    ),
    methods: Annotated[
        str, typer.Option(metavar="METHOD,...", help="Its drafting methods; all when absent.")
    ] = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Check what Spectuner needs, one line each with the fix; exit code 1 if it cannot run."""
    output, settings = Output.open(json_path), read_settings(config)
    memory = partial(memory_check, max_rows, max_context, methods_named(methods))
    checks = []
    for check in _checks(settings, engine_port, memory):
        checks.append(check)
        fix = f" [dim]->[/] {check.fix}" if check.fix else ""
        output.console.print(
            f"{_MARKS[check.verdict]:>4} {check.name}: {check.detail}{fix}",
            highlight=False,
            soft_wrap=True,
        )
    is_well = all(check.verdict is not Verdict.FAILED for check in checks)
    output.write({"ok": is_well, "checks": [check.to_dict() for check in checks]})
    if not is_well:
        raise typer.Exit(1)


def _checks(settings: Settings, engine_port: int, memory: Callable[[], Check]) -> Iterator[Check]:
    yield python_check()
    yield packages_check()
    yield model_check()
    yield memory()
    yield device_check()
    yield port_check("console port", settings.host, settings.port, "--port or SPECTUNER_PORT")
    yield port_check("engine port", "127.0.0.1", engine_port, "--engine-port")
    yield database_check(settings)
    yield engine_check(settings)
    yield browser_check()
