"""Live trials with their tokens; the draw behind a decision; sign-outs of a token.

Revision 0003 of 2026-11-30. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import json
import re

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_BEGAN = re.compile(r"trial of .+ on (?P<route>\S+) at load (?P<load>\S+) until (?P<end>\d+)")
_TRIALS = sa.text(
    "SELECT id, engine, who, why, body, before FROM plans WHERE outcome = 'applied'"
    " AND (why LIKE 'trial of %' OR why LIKE 'end of the trial of %') ORDER BY id"
)
_ADOPTED = sa.text(
    "INSERT INTO trials (engine, change, route, load, setting, former, start_s, end_s,"
    " most_tokens, who) VALUES (:engine, :change, :route, :load, :setting, :former, :end_s, :end_s,"
    " 0, :who)"
)

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table and add columns; old decisions say that nothing was drawn."""
    _create_trials()
    _adopt_trials()
    op.add_column("decisions", sa.Column("seed", BIG, nullable=True))
    op.add_column("decisions", sa.Column("until_s", sa.Float(), nullable=True))
    op.add_column(
        "access_tokens",
        sa.Column("sign_outs", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )


def downgrade() -> None:
    """Drop what was added."""
    op.drop_column("access_tokens", "sign_outs")
    op.drop_column("decisions", "until_s")
    op.drop_column("decisions", "seed")
    op.drop_table("trials")


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("change", BIG, nullable=True),
        sa.Column("route", sa.String(length=64), nullable=False),
        sa.Column("load", sa.String(length=16), nullable=False),
        sa.Column("setting", sa.String(length=16), nullable=False),
        sa.Column("former", sa.String(length=16), nullable=False),
        sa.Column("start_s", sa.Float(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=False),
        sa.Column("most_tokens", BIG, nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("refused_change", BIG, nullable=True),
        sa.Column("ended_s", sa.Float(), nullable=True),
        sa.Column("tokens", BIG, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["change"], ["plans.id"], name="fk_trials_change_plans", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["refused_change"],
            ["plans.id"],
            name="fk_trials_refused_change_plans",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(["setting"], ["settings.key"], name="fk_trials_setting_settings"),
        sa.ForeignKeyConstraint(["former"], ["settings.key"], name="fk_trials_former_settings"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
    )
    op.create_index("ix_trials_engine_start", "trials", ["engine", "start_s"], unique=False)
    op.create_index(
        "uq_trials_open",
        "trials",
        ["engine"],
        unique=True,
        sqlite_where=sa.text("ended_s IS NULL"),
        postgresql_where=sa.text("ended_s IS NULL"),
    )


def _adopt_trials() -> None:
    """Give each trial that runs now a row, so that the service ends it.

    What it took was not counted, so no token is left to it.
    """
    bind = op.get_bind()
    newest = {change.engine: change for change in bind.execute(_TRIALS)}
    keys = {
        body: key for key, body in bind.execute(sa.text("SELECT key, body FROM settings")).all()
    }
    for change in newest.values():
        began = _BEGAN.fullmatch(change.why)
        if began is None:
            continue
        place = (began["route"], began["load"])
        setting, former = (keys.get(_at(place, plan)) for plan in (change.body, change.before))
        if setting is not None and former is not None:
            row = {"route": place[0], "load": place[1], "setting": setting, "former": former}
            about = {"engine": change.engine, "change": change.id, "who": change.who}
            bind.execute(_ADOPTED, {**row, **about, "end_s": float(began["end"])})


def _at(place: tuple[str, str], plan: str) -> str:
    """Return what a plan runs at a route and load, as the settings are written."""
    read = json.loads(plan)
    own = [one["setting"] for one in read["entries"] if (one["route"], one["load"]) == place]
    found = own[0] if own else read["default"]
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
