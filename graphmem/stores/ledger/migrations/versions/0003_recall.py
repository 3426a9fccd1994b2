"""What a memory may answer, how sure a relation is, aliases and chosen names.

Memories of before have no token matrices and tell nothing until `rebuild` derives them anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW = sa.Integer().with_variant(sa.BigInteger(), "postgresql")


def upgrade() -> None:
    """Adds columns with their defaults and two tables."""
    op.add_column("memories", sa.Column("tells", sa.SmallInteger(), nullable=False, server_default="0"))
    op.add_column("memories", sa.Column("asks", sa.Float(), nullable=False, server_default="0"))
    op.add_column("supports", sa.Column("confidence", sa.Float(), nullable=False, server_default="1"))
    op.create_table(
        "aliases",
        sa.Column("space", _ROW, sa.ForeignKey("spaces.id"), primary_key=True),
        sa.Column("key", _TEXT, primary_key=True),
        sa.Column("other", _TEXT, primary_key=True),
        sa.Column("origin", _TEXT, nullable=False),
        sa.Column("apart", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "names",
        sa.Column("space", _ROW, sa.ForeignKey("spaces.id"), primary_key=True),
        sa.Column("key", _TEXT, primary_key=True),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
