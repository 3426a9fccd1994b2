"""What stores on servers need: who delivers to them, and which entities have something said of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds a column and a table. Entities with other or chosen names get change numbers of their own."""
    op.add_column("entities", sa.Column("change", sa.BigInteger()))
    op.create_index("entities_change", "entities", ["change"], unique=True)
    op.create_table(
        "leases",
        sa.Column("projection", _TEXT, primary_key=True),
        sa.Column("holder", _TEXT),
        sa.Column("until", sa.BigInteger(), nullable=False),
    )
    connection = op.get_bind()
    told = connection.execute(sa.text(_TOLD)).scalars().all()
    for row in told:
        connection.execute(sa.text("UPDATE ledger SET change = change + 1"))
        connection.execute(
            sa.text("UPDATE entities SET change = (SELECT change FROM ledger) WHERE id = :row"), {"row": row}
        )


_TOLD = """
SELECT e.id FROM entities e
WHERE EXISTS (SELECT 1 FROM aliases a WHERE a.space = e.space AND a.key = e.key)
   OR EXISTS (SELECT 1 FROM names n WHERE n.space = e.space AND n.key = e.key)
ORDER BY e.id
"""
