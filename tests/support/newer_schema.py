"""A schema newer than the code's, so that a migration of many rows can be run, watched and killed."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from graphmem.stores import ledger

REVISION = "9001"
_MIGRATION = Path(__file__).with_name("newer_schema_migration.py")


def newer_schema(folder: Path) -> dict[str, Any]:
    """Puts the code's migrations and one more into a folder.

    Returns the constants of the package that make it a release of that schema, by "module:name".
    """
    migrations = folder / "migrations"
    if not migrations.exists():
        shutil.copytree(ledger.MIGRATIONS, migrations)
        shutil.copy(_MIGRATION, migrations / "versions")
    return {
        "graphmem.stores.ledger:MIGRATIONS": str(migrations),
        "graphmem.stores.ledger.schema:REVISION": REVISION,
    }


def use_newer_schema(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes this process a release of that schema, until the end of the test."""
    for place, value in newer_schema(folder).items():
        module, _, name = place.partition(":")
        monkeypatch.setattr(import_module(module), name, value)
