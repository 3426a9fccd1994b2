"""The first schema. It needs no upgrade: new ledgers are created from `schema.metadata`."""

from __future__ import annotations

revision = "0009"
down_revision = None


def upgrade() -> None:
    """Does nothing: no schema comes before the first."""
