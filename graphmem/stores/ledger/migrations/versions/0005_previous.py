"""What a search asks most: who was before whom in a session, as a column instead of two look-ups for each memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the column, filled from the order of the sessions, and its index."""
    op.add_column("memories", sa.Column("previous", sa.BigInteger().with_variant(sa.Integer(), "sqlite")))
    op.execute(_ORDER)
    op.create_index("memories_previous", "memories", ["previous"])


_ORDER = """
UPDATE memories SET previous = ordered.before
FROM (
    SELECT id, lag(id) OVER (PARTITION BY space, session ORDER BY at, id) AS before
    FROM memories WHERE kind = 'episode'
) AS ordered
WHERE ordered.id = memories.id AND ordered.before IS NOT NULL
"""
