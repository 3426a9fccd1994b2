"""Settings that change while the service runs; rates and uses of keys; the times at which jobs were recorded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from graphmem.stores.ledger.dialects import Text, now_micros

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the table and the columns. Jobs that wait already count as recorded now."""
    op.create_table(
        "settings",
        sa.Column("user_id", Text, primary_key=True),
        sa.Column("name", Text, primary_key=True),
        sa.Column("value", Text),
        sa.Column("changed_by", Text, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("api_keys", sa.Column("rate", Text))
    op.add_column("api_keys", sa.Column("last_used_at", sa.BigInteger()))
    op.add_column("jobs", sa.Column("created_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(sa.table("jobs", sa.column("created_at")).update().values(created_at=now_micros()))
