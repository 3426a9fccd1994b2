"""A secret outside the ledger for what it keeps of erased words. `stores.ledger.secret` makes it and uses it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the columns. A ledger that has no secret yet gets one as it is opened."""
    op.add_column("ledger", sa.Column("secret", _TEXT))
    op.add_column("ledger", sa.Column("unguarded", sa.BigInteger(), nullable=False, server_default="0"))
