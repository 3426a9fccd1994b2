"""The UTC offset that the time of a message came with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the column. The offsets of earlier messages are unknown."""
    op.add_column("memories", sa.Column("utc_offset", sa.SmallInteger()))
