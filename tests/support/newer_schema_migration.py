"""What a later release may do to a ledger: a new column with values, a new table filled from an old one, an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "0009"


def upgrade() -> None:
    """In one transaction, as every migration."""
    op.add_column("memories", sa.Column("length", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "lengths", sa.Column("memory", sa.Text(), primary_key=True), sa.Column("length", sa.Integer(), nullable=False)
    )
    connection = op.get_bind()
    for uid, text in connection.execute(sa.text("SELECT uid, text FROM memories")).all():
        values = {"uid": uid, "length": len(text)}
        connection.execute(sa.text("UPDATE memories SET length = :length WHERE uid = :uid"), values)
        connection.execute(sa.text("INSERT INTO lengths VALUES (:uid, :length)"), values)
    op.create_index("memories_length", "memories", ["length"])
