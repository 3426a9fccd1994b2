"""How often a ledger was reset: a projection in some process's memory notices it by that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the column; a ledger of before was never reset in a way that anybody had to notice."""
    op.add_column("ledger", sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="0"))
