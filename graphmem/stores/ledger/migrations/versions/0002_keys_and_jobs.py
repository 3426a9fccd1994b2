"""Keys have a rate limit and the time of their last use, jobs the time at which they were recorded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from graphmem.stores.ledger.dialects import Text, now_micros

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the columns. Jobs that wait already count as recorded now."""
    op.add_column("api_keys", sa.Column("rate", Text))
    op.add_column("api_keys", sa.Column("last_used_at", sa.BigInteger()))
    op.add_column("jobs", sa.Column("created_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(sa.table("jobs", sa.column("created_at")).update().values(created_at=now_micros()))
