"""``spectuner db``: migrations and access tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from collectors.records.parsing import member
from tuner.cli.options import ConfigOption, current_user, read_settings
from tuner.cli.output import JsonOption, Output
from tuner.settings import Settings

_MOST_DAYS = 36_500

app = typer.Typer(help="Upgrade the database; make access tokens.", no_args_is_help=True)


@app.command()
def upgrade(
    revision: Annotated[str, typer.Argument(help="Revision to reach.")] = "head",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Bring the database up to a revision; safe to run twice and by two services at once."""
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.demo.preparing import prepare_database

    prepare_database(settings, revision)
    _report(output, settings)


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="Revision to go back to; base removes all.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Take the database back to an older revision; what that revision cannot hold is deleted."""
    output, settings = Output.open(json_path), read_settings(config)
    if not yes:
        typer.confirm(f"Delete what revision {revision} cannot hold?", abort=True, err=True)
    from tuner.store import migrating

    migrating.downgrade(settings.database_url, revision)
    _report(output, settings)


@app.command()
def current(config: ConfigOption = None, json_path: JsonOption = None) -> None:
    """Say which revision the database is at, and which this program needs."""
    output, settings = Output.open(json_path), read_settings(config)
    _report(output, settings)


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Who will use it; written into every decision.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")] = "operator",
    days: Annotated[
        float, typer.Option(min=0.001, max=_MOST_DAYS, help="Days until it expires.")
    ] = 30,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Make an access token and print its sign-in link; the secret is shown this once only."""
    output, settings = Output.open(json_path), read_settings(config)
    from dashboards.access import Role
    from tuner.demo.preparing import new_token, sign_in_link

    life = timedelta(days=days)
    secret = new_token(settings, name, member(Role, role, "role"), life, by=current_user())
    expires_at, link = datetime.now(UTC) + life, sign_in_link(settings, secret)
    output.console.print(f"Token for {name} ({role}), until {expires_at:%Y-%m-%d %H:%M} UTC:")
    output.console.print(secret, markup=False, highlight=False, soft_wrap=True)
    output.console.print(f"Sign in: {link}", markup=False, highlight=False, soft_wrap=True)
    output.write(
        {"name": name, "role": role, "token": secret, "sign_in": link, "expires": str(expires_at)}
    )


def _report(output: Output, settings: Settings) -> None:
    from tuner.store import migrating, open_store

    found, wanted = migrating.current(settings.database_url), migrating.head()
    store = open_store(settings.database_url)
    url = store.url
    store.close()
    said = found or "empty"
    verdict = "up to date" if found == wanted else f"needs {wanted}: run `spectuner db upgrade`"
    output.console.print(f"{url} is at {said}, {verdict}", highlight=False, soft_wrap=True)
    output.write({"url": url, "current": found, "head": wanted, "is_current": found == wanted})
