"""On SQLite the id of a completed job is not given to a later one: two processes may still work on the first."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the table of jobs anew on SQLite. PostgreSQL never gives an id twice."""
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table("jobs", recreate="always", table_kwargs={"sqlite_autoincrement": True}):
            pass
