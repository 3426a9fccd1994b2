"""What a language model makes: how sure it is of a fact, what it has still to do, what it took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SCOPE = ("user_id", "agent_id", "run_id")


def upgrade() -> None:
    """Adds the column and the two tables."""
    op.add_column("memories", sa.Column("confidence", sa.Float(), nullable=False, server_default="1"))
    op.create_table(
        "jobs",
        sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("space", _ROW_ID, sa.ForeignKey("spaces.id"), nullable=False),
        *(sa.Column(name, _TEXT) for name in _SCOPE),
        sa.Column("session", _TEXT, nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", _TEXT),
        sa.Column("holder", _TEXT),
        sa.Column("until", sa.BigInteger(), nullable=False),
    )
    op.create_index("jobs_session", "jobs", ["space", "session"])
    op.create_table(
        "usage",
        *(sa.Column(name, _TEXT, primary_key=True) for name in ("operation", "model", *_SCOPE)),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("calls", "prompt_tokens", "completion_tokens", "cached_tokens")
        ),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sqlite_with_rowid=False,
    )
