"""The ledger: the only truth. `Ledger` opens it; the modules beside it hold its statements, one subject each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Connection, select

from graphmem.stores.ledger import migrate, schema
from graphmem.stores.ledger.engine import Database


class Ledger:
    """An open ledger. Raises StoreError for a file that cannot be used, StoreUnavailable for one out of reach."""

    def __init__(self, path: Path | None) -> None:
        self._database = Database(path)
        with ExitStack() as refused:
            refused.callback(self._database.release)
            self.uuid = self._made_ready()
            refused.pop_all()

    def _made_ready(self) -> str:
        with self._database.read() as connection:
            ready = migrate.is_current(connection)
        with self._database.read() if ready else self._database.write() as connection:
            if not ready:  # asked again inside the transaction: another process may have been faster
                migrate.ensure(connection)
            return str(connection.scalar(select(schema.ledger.c.uuid)))

    @property
    def path(self) -> Path | None:
        """The file, or None in memory."""
        return self._database.path

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot to read from."""
        with self._database.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction. The only place that may ask for it is a commit, a delivery or an administrative act."""
        with self._database.write() as connection:
            yield connection

    def compact(self) -> None:
        """Rewrites the file without its free pages."""
        self._database.compact()

    def close(self) -> None:
        """Lets go of the file, its write-ahead log emptied."""
        self._database.close()
