"""``spectuner serve``: collectors, jobs, API and console in one process without torch."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import ConfigOption, read_settings


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the console and API.")] = None,
    engine_url: Annotated[str | None, typer.Option(help="Engine to watch.")] = None,
    database_url: Annotated[str | None, typer.Option(help="SQLAlchemy URL.")] = None,
    migrate: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Upgrade the database first.")
    ] = True,
    config: ConfigOption = None,
) -> None:
    """Watch an engine: pull its journal, recommend, show the console on port 8400.

    Make a token with `spectuner db token NAME` to sign in.
    """
    settings = read_settings(
        config, host=host, port=port, engine_url=engine_url, database_url=database_url
    )
    if migrate:
        from tuner.demo.preparing import prepare_database

        prepare_database(settings)
    from tuner.app import run_service

    Console(stderr=True, soft_wrap=True).print(
        f"Watching {settings.engine_url}; console on {settings.public_url}. "
        "Make a sign-in link with `spectuner db token NAME`.",
        highlight=False,
    )
    run_service(settings)
