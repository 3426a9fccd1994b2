"""The UTC offset that the time of a message came with; relations of an unknown time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the column, and lets the other be NULL. The offsets of earlier messages are unknown."""
    op.add_column("memories", sa.Column("utc_offset", sa.SmallInteger()))
    with op.batch_alter_table("supports", table_kwargs={"sqlite_with_rowid": False}) as supports:
        supports.alter_column("valid_at", existing_type=sa.BigInteger(), nullable=True)
