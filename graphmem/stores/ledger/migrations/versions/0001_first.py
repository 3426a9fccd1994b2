"""The first schema. New files are made from `schema.metadata`, so there is nothing to do on the way here."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing comes before this."""
