"""The ledger: the only truth. `Ledger` opens it; the modules beside it hold its statements, one subject each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, select

from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.stores.ledger import migrate, schema
from graphmem.stores.ledger.engine import Database
from graphmem.stores.ledger.postgres import Postgres
from graphmem.stores.ledger.sqlite import Sqlite


class Ledger:
    """An open ledger: a file, a PostgreSQL database (`postgres.parsed`), or None for memory.

    Raises StoreError for one that cannot be used, StoreUnavailable for one out of reach, ConfigError for one that
    refuses what the URL says.
    """

    def __init__(self, place: Path | URL | None) -> None:
        self.on_server = isinstance(place, URL)
        self._database: Database = Postgres(place) if isinstance(place, URL) else Sqlite(place)
        with ExitStack() as refused:
            refused.callback(self._database.release)
            try:
                self.uuid = self._made_ready()
            except StoreUnavailable as error:
                if self._database.is_refusal(error):
                    raise ConfigError(f"ledger_url: {error}; check user, password, database and rights") from error
                raise
            refused.pop_all()

    def _made_ready(self) -> str:
        with self._database.read() as connection:
            ready = migrate.is_current(connection)
        with self._database.read() if ready else self._database.write() as connection:
            if not ready:  # asked again inside the transaction: another process may have been faster
                migrate.ensure(connection)
            return str(connection.scalar(select(schema.ledger.c.uuid)))

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
