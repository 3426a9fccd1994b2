"""The ledger: the only truth. `Ledger` opens it; the modules beside it hold its statements, one subject each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection

from graphmem.digests import Digests
from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.stores.ledger import schema_migration, secret_key
from graphmem.stores.ledger.database import Database
from graphmem.stores.ledger.postgres import PostgresDatabase
from graphmem.stores.ledger.secret_key import SecretKeySource
from graphmem.stores.ledger.sqlite import SqliteDatabase


class Ledger:
    """An open ledger: a file, a PostgreSQL database (`postgres.parsed`), or None for memory.

    Raises StoreError for one that cannot be used, StoreUnavailable for one out of reach, ConfigError for one that
    refuses what the URL says, or a secret that is not the ledger's (`keyring`: by default a file beside the ledger).

    `digests` are what it keeps of words that may be erased; `digests.keyed` makes one of anything.
    """

    def __init__(self, place: Path | URL | None, keyring: SecretKeySource | None = None) -> None:
        self.on_server = isinstance(place, URL)
        self._database: Database = PostgresDatabase(place) if isinstance(place, URL) else SqliteDatabase(place)
        with ExitStack() as refused:
            refused.callback(self._database.release)
            try:
                self.digests = self._made_ready(keyring or _keyring_of(place))
            except StoreUnavailable as error:
                if self._database.is_refusal(error):
                    raise ConfigError(f"ledger_url: {error}; check user, password, database and rights") from error
                raise
            refused.pop_all()

    @property
    def uuid(self) -> str:
        """What tells it from other ledgers."""
        return self.digests.ledger

    def _made_ready(self, keyring: SecretKeySource) -> Digests:
        with self._database.read() as connection:
            found = (
                secret_key.existing_digests(connection, keyring) if schema_migration.is_current(connection) else None
            )
        if found is not None:
            return found
        with self._database.write() as connection:  # asked again inside: another process may have been faster
            schema_migration.ensure_schema(connection)
            return secret_key.ensure_digests(connection, keyring)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot to read from; reads inside it, by the same thread, see the same one and cost next to nothing."""
        with self._database.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction. The only place that may ask for it is a commit, a delivery or an administrative act."""
        with self._database.write() as connection:
            yield connection

    def size(self) -> int:
        """How many bytes it takes on the disk."""
        return self._database.size()

    def check(self) -> list[str]:
        """What is wrong with the file, at most ten lines; nothing for what a server keeps."""
        return self._database.check()

    def compact(self) -> None:
        """Gives back the room of what was deleted."""
        self._database.compact()

    def close(self) -> None:
        """Lets go of it; a file's write-ahead log is emptied."""
        self._database.close()


def _keyring_of(place: Path | URL | None) -> SecretKeySource:
    if isinstance(place, Path):
        return SecretKeySource(file=place.absolute().with_name(secret_key.KEY_FILE))
    return SecretKeySource(is_local=place is None)
