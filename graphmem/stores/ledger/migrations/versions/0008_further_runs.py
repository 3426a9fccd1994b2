"""The runs beside its own that a memory was said again in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the table, and its index."""
    op.create_table(
        "further_runs",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("memory", _ROW_ID, sa.ForeignKey("memories.id"), primary_key=True),
        sa.Column("place", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("further_runs_memory", "further_runs", ["memory", "place"])
