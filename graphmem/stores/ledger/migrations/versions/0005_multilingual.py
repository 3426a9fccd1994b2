"""The embedding form in the multilingual space, which earlier ledgers lack."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the column. NULL: not all texts have such vectors."""
    op.add_column("ledger", sa.Column("multilingual", sa.Text()))
