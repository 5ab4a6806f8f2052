"""Steps that ran plain for comparison, and the passes of an observation that were theirs.

Revision 0006 of 2026-12-01. Types are written out, so that this file never changes with the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns; no older step was one."""
    op.add_column(
        "decode_steps",
        sa.Column("is_reference", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.add_column(
        "observations",
        sa.Column("reference_passes", BIG, nullable=False, server_default=sa.text("0")),
    )


def downgrade() -> None:
    """Drop what was added."""
    op.drop_column("observations", "reference_passes")
    op.drop_column("decode_steps", "is_reference")
