"""The ledger, the SQL database that is the system of record.

`Ledger` opens it, and creates or migrates its schema. Each module beside it holds the statements of one subject.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import URL, Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import CreateSchema, ExecutableDDLElement

from graphmem.digests import Digests
from graphmem.errors import ConfigError, StoreError, StoreUnavailable
from graphmem.stores.ledger import ledger_state, schema, secret_key, sequence, tombstones
from graphmem.stores.ledger.columns import Columns
from graphmem.stores.ledger.database import Database
from graphmem.stores.ledger.postgres import PostgresDatabase
from graphmem.stores.ledger.secret_key import SecretKeySource
from graphmem.stores.ledger.sql import CorruptValue
from graphmem.stores.ledger.sqlite import KEY_FILE, SqliteDatabase, sign_of_use

if TYPE_CHECKING:
    from graphmem.stores.blobs import BlobFolder

logger = logging.getLogger("graphmem")
# Bytes of the largest file that `close` compacts: a second for 200 MB, with the new file in memory meanwhile.
COMPACT_AT_CLOSE = 256 * 1024 * 1024
# Bytes of memory for columns, if nothing else is said: with vectors those of about 120,000 memories, with tokens 50,000
COLUMN_BYTES = 512 * 1024 * 1024
MIGRATIONS = Path(__file__).parent / "migrations"
# SQL that formats a column of microseconds as ISO 8601 text.
_ISO_FORMAT = {
    "sqlite": (
        "strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') || printf('.%06d+00:00', {column} % 1000000)"
    ),
    "postgresql": (
        "to_char(timestamp 'epoch' + {column} * interval '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
    ),
}


class Ledger:
    """An open ledger.

    `location` is an SQLite file, a PostgreSQL URL (`postgres.parse_url`), or None for a ledger in memory. `key_source`
    says where the secret key is; by default in a file beside an SQLite ledger.

    Raises StoreError for a file that is no ledger or from a newer release, StoreUnavailable for a database that cannot
    be reached, and ConfigError for credentials that the server refuses or a secret key of another ledger.

    `digests` makes the keyed digests under which the ledger recognises erased messages, `job_holder` is the name under
    which whoever opened it claims jobs. `blobs` is the folder for data that comes with messages, None without one.
    """

    read: Callable[[], AbstractContextManager[Connection]]
    """Opens a snapshot to read from. Reads that the same thread opens inside it share it at next to no cost."""
    read_once: Callable[[], AbstractContextManager[Connection]]
    """Opens a read of one statement, or of several that may see different states, if possible without BEGIN."""

    def __init__(
        self,
        location: Path | URL | None,
        key_source: SecretKeySource | None = None,
        blobs: BlobFolder | None = None,
        *,
        column_bytes: int = COLUMN_BYTES,
    ) -> None:
        self.columns = Columns(column_bytes)
        self.on_server = isinstance(location, URL)
        self.job_holder = str(uuid4())
        self.blobs = blobs
        # Whether derived rows are delivered to no store outside of this machine.
        self.derived_stays_here = False
        if key_source is None and isinstance(location, Path):
            key_source = SecretKeySource(file=location.absolute().with_name(KEY_FILE))
        self._database: Database = PostgresDatabase(location) if isinstance(location, URL) else SqliteDatabase(location)
        self.read, self.read_once = self._database.read, self._database.read_once
        with ExitStack() as on_failure:
            on_failure.callback(self._database.release)
            try:
                self.digests = self._prepare(key_source or SecretKeySource(is_local=location is None))
            except StoreUnavailable as error:
                if self._database.is_configuration_error(error):
                    raise ConfigError(f"ledger_url: {error}; check user, password, database and rights") from error
                raise
            on_failure.pop_all()

    @property
    def uuid(self) -> str:
        """The ledger's id, which names it in shared stores."""
        return self.digests.ledger

    def _prepare(self, key_source: SecretKeySource) -> Digests:
        """Creates the schema or brings it up to date, and returns the digests with the secret key.

        Raises StoreError for a ledger of a newer release, and for a PostgreSQL database that is not in UTF8.
        """
        with self._database.read() as connection:
            is_current = _has_schema(connection) and _revision(connection) == schema.REVISION  # as it mostly is
            is_current = is_current and not sequence.lacks_room(connection)
            digests = secret_key.existing_digests(connection, key_source) if is_current else None
        if digests is not None:
            return digests
        with self._database.write() as connection:  # checks again: another process may have been faster
            if not inspect(connection).get_table_names():
                _create(connection)
            elif (revision := _revision(connection)) != schema.REVISION:
                _upgrade(connection, revision)
            if sequence.lacks_room(connection):
                sequence.make_room(connection)
            return secret_key.ensure_digests(connection, key_source)

    def write(self, of: Collection[str] | None = None) -> AbstractContextManager[Connection]:
        """Opens a write transaction; only for commits, deliveries and administration.

        `of` names what it writes: partitions by their keys, a projection or follower by its cursor. On a server other
        transactions write beside it, unless they share a name; those without names share no rows, or change each by
        one statement. None: it writes alone. Within a write transaction no other may be opened.
        """
        return self._database.write(of)

    def turn_to_write(self) -> AbstractContextManager[object]:
        """Waits until no other thread writes to the file, and holds them off: what this one writes then waits for none.

        Other processes go on. Not for a ledger on a server.
        """
        return self._database.turn_to_write(None)

    def write_derived(self, of: Collection[str] | None = None) -> AbstractContextManager[Connection]:
        """Opens a write transaction for derived rows, whose recorded task it removes; `of` as in `write`.

        If a power cut loses it, the task is there again, in an earlier commit that was synced, and the next opening
        derives the rows anew: so its commit waits for no sync (SQLite only). But only with `derived_stays_here`, for
        relations have random ids: what is lost here and was delivered to a server would stay there.
        """
        return self._database.write(of, synced=not self.derived_stays_here)

    def size(self) -> int:
        """Returns the size on disk in bytes; 0 for a ledger in memory."""
        return self._database.size()

    def check(self) -> list[str]:
        """Returns the errors that SQLite finds in the file, at most ten lines; none for a ledger on a server."""
        return self._database.check()

    def compact(self) -> None:
        """Frees the space of deleted rows. A file is rewritten without what SQLite left of them in unused space."""
        with self.read() as connection:
            count = ledger_state.erasures(connection)
        if count:
            with self.write() as connection:
                tombstones.prune_tombstones(connection)
        self._database.compact()
        if count:
            with self.write() as connection:
                ledger_state.subtract_erasures(connection, count)

    def compact_after_erasures(self) -> None:
        """Compacts the ledger if words were erased since it was compacted."""
        with self.read() as connection:
            count = ledger_state.erasures(connection)
        if count:
            self.compact()

    def close(self) -> None:
        """Closes the ledger. After erasures it compacts a file of up to COMPACT_AT_CLOSE bytes.

        Logs a warning if it cannot be compacted: the next `close` or `compact` does it.
        """
        try:
            if self._database.is_file_in_place() and self._database.size() <= COMPACT_AT_CLOSE:
                self.compact_after_erasures()
        except StoreUnavailable as error:
            if not self._database.is_damage(error):  # else the database logs it
                logger.warning("closed without compacting the ledger after erasures: %s", error)
        finally:
            self.columns.clear()
            self._database.close()


def exists(location: Path | URL) -> bool:
    """Returns whether a ledger is there, without creating one; also True if it cannot be told."""
    if isinstance(location, Path):
        try:
            return location.stat().st_size > 0 or sign_of_use(location) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
    database = PostgresDatabase(location)
    try:
        with database.read() as connection:
            return _has_schema(connection)
    except StoreUnavailable:
        return True
    finally:
        database.release()


# --- the schema -------------------------------------------------------------------------------------------------------


def _has_schema(connection: Connection) -> bool:
    """Returns whether a ledger was created there, by this release or another."""
    return inspect(connection).has_table("alembic_version")


def _revision(connection: Connection) -> str:
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if revision is None:
        raise CorruptValue("its schema has no version")
    return str(revision)


def _create(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise StoreError(f"this database stores text as {encoding}, which lacks characters; create one with UTF8")
        # Checked first: a role without the right to create schemas may use an existing one.
        if not inspect(connection).has_schema(schema.POSTGRES_SCHEMA):
            connection.execute(CreateSchema(schema.POSTGRES_SCHEMA))
    for statement in (*_table_statements(connection.engine.url.drivername), *schema.PARTIAL_INDEXES):
        connection.exec_driver_sql(statement)
    iso = _ISO_FORMAT[connection.dialect.name]
    created, updated = iso.format(column="memory_created_at"), iso.format(column="at")
    connection.exec_driver_sql(schema.HISTORY_VIEW.format(created=created, updated=updated))
    connection.execute(schema.ledger.insert().values(id=1, uuid=str(uuid4()), seq=0, epoch=0))
    sequence.create_functions(connection)
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.execute(text("INSERT INTO alembic_version VALUES (:r)"), {"r": schema.REVISION})


@cache
def _table_statements(driver: str) -> tuple[str, ...]:
    """Returns the CREATE statements of tables and indexes, compiled once per process: most of an opening's time."""
    statements: list[str] = []

    def collect(ddl: ExecutableDDLElement, *_args: object, **_options: object) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{driver}://", collect)
    schema.metadata.create_all(engine, checkfirst=False)
    return tuple(statements)


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415  (a quarter of a second, needed only to migrate)
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known_revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known_revisions:
        if revision > schema.REVISION:
            raise StoreError(
                f"this ledger has schema {revision}, newer than this release's {schema.REVISION}; upgrade graphmem"
            )
        raise StoreError(
            f"this ledger has schema {revision}, older than {schema.REVISION}, the first that was released; export it "
            "with the version that made it (`graphmem export`), and import that into a new home (`graphmem import`)"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, schema.REVISION)
