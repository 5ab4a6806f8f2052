"""What Alembic runs: on the connection that the service hands over, or on ``-x url=...``."""

from __future__ import annotations

from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection

from tuner.store.columns import Json, UtcTime
from tuner.store.migrating import migrating_connection
from tuner.store.schema import Base


def render_type(kind: str, value: object, _context: AutogenContext) -> str | Literal[False]:
    """Write our column types as plain ones, so that old revisions never change with the code."""
    if kind == "type" and isinstance(value, UtcTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(value, Json):
        return "sa.Text()"
    return False


def run(connection: Connection) -> None:
    """Run the revisions asked for, in the connection's open transaction."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=render_type,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """Use the connection handed over, else the URL of ``-x url=...``."""
    given = context.config.attributes.get("connection")
    if isinstance(given, Connection):
        run(given)
        return
    url = context.get_x_argument(as_dictionary=True)["url"]
    with migrating_connection(str(url)) as connection:
        run(connection)


main()
