"""A schema newer than the code's, so that a migration can be run, watched and killed: the code itself has none yet."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from graphmem.stores.ledger import schema_migration

REVISION = "9001"
_MIGRATION = Path(__file__).with_name("newer_schema_migration.py")


def newer_schema(folder: Path) -> dict[str, Any]:
    """Puts the code's migrations and one more into a folder.

    Returns the constants of the package that make it a release of that schema, by "module:name".
    """
    migrations = folder / "migrations"
    if not migrations.exists():
        shutil.copytree(schema_migration.MIGRATIONS, migrations)
        shutil.copy(_MIGRATION, migrations / "versions")
    return {
        "graphmem.stores.ledger.schema_migration:MIGRATIONS": str(migrations),
        "graphmem.stores.ledger.schema:REVISION": REVISION,
    }
