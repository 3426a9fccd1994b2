"""Reads mem0's stores: the Qdrant collection of its memories, on a server or in a folder of Qdrant's local mode, and
the history database, which has the events of each memory by its id, but not whose the memory was.

Nothing is ever written to them.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from graphmem.boundary import validation
from graphmem.errors import ConfigError, StoreError, StoreUnavailable, ValidationError, install_extra
from graphmem.transfer.sources import pickle_reader

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

Key = int | str
Row = dict[str, Any]
BATCH = 500
# Seconds to wait for a page of points from a server.
TIMEOUT = 30
# Seconds to wait for a lock that another process holds.
LOCK_TIMEOUT = 10
_URL = re.compile(r"https?://", re.IGNORECASE)
# Collections of mem0 that hold no memories: its entities (since 2.0), and its telemetry.
_OTHER_COLLECTIONS = re.compile(r".*_entities|mem0migrations")
# The columns of every version of mem0, and those that later versions added.
_REQUIRED_COLUMNS = {"id", "memory_id", "old_memory", "new_memory", "event", "created_at"}
_OPTIONAL_COLUMNS = ("updated_at", "is_deleted", "actor_id", "role")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the collection; `payload` is None if it cannot be read, `key` is for `points_by_key`."""

    key: Key
    id: str
    payload: Mapping[str, Any] | None


class PointCollection(Protocol):
    """A collection of points; `place` names it in errors."""

    place: str

    def all_points(self) -> Iterator[Point]:
        """Yields every point; of several stored copies of a point the newest comes first."""

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        """Returns the points with these keys, without those deleted since."""


def open_collection(place: str, collection: str, api_key: str | None) -> AbstractContextManager[PointCollection]:
    """Opens the collection at a URL or in a folder.

    Raises ValidationError for a missing folder or collection, StoreUnavailable if it cannot be read, and ConfigError if
    qdrant-client is not installed or the server refuses `api_key`.
    """
    if _URL.match(place):
        return _server(place, collection, api_key)
    return _folder(validation.home(place, "--qdrant"), collection)


def _missing_collection(place: str, collection: str, present: Iterable[str]) -> ValidationError:
    candidates = sorted(name for name in present if not _OTHER_COLLECTIONS.fullmatch(name))
    choice = f"it has {', '.join(map(repr, candidates))}" if candidates else "it has none"
    return ValidationError(f"--collection={collection!r}: there is no such collection in {place}; {choice}")


# --- a folder ------------------------------------------------------------------------------------------------------


class _LocalCollection:
    """A collection of Qdrant's local mode, read as SQLite page by page, so that a running mem0 can go on writing."""

    def __init__(self, place: str, connection: sqlite3.Connection) -> None:
        self.place = place
        self._connection = connection
        self._pickles = pickle_reader.PickleReader()

    def all_points(self) -> Iterator[Point]:
        rowid_bound = 2**63 - 1
        while rows := self._rows("rowid < ? ORDER BY rowid DESC LIMIT ?", [rowid_bound, BATCH]):
            yield from self._points(rows)
            rowid_bound = rows[-1][0]

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        placeholders = ", ".join("?" * len(keys))
        return {point.key: point for point in self._points(self._rows(f"rowid IN ({placeholders})", keys))}

    def _points(self, rows: list[tuple[int, bytes]]) -> list[Point]:
        all_fields = self._pickles.fields([data for _, data in rows])
        return [_point(key, fields) for (key, _), fields in zip(rows, all_fields, strict=True)]

    def _rows(self, condition: str, values: Sequence[Key]) -> list[tuple[int, bytes]]:
        return self._connection.execute(f"SELECT rowid, point FROM points WHERE {condition}", values).fetchall()  # noqa: S608  (the conditions have placeholders for values)


def _point(key: int, fields: pickle_reader.Fields | None) -> Point:
    payload = None if fields is None else fields["payload"] or {}
    name = f"row {key}" if fields is None else str(fields["id"])
    return Point(key, name, payload if isinstance(payload, dict) else None)


@contextmanager
def _folder(path: Path, collection: str) -> Iterator[PointCollection]:
    collections = path / "collection"
    if not os.path.isdir(collections):  # noqa: PTH112  (unlike Path.is_dir, it returns False for a name that is too long)
        raise ValidationError(
            f"--qdrant={str(path)!r}: is no folder of Qdrant's local mode; give the one in mem0's "
            "vector_store.config.path, or a server as http://host:port"
        )
    folders = {folder.name: folder for folder in collections.iterdir() if folder.is_dir()}
    if collection not in folders:
        raise _missing_collection(str(path), collection, folders)
    file = folders[collection] / "storage.sqlite"
    if not file.exists():
        raise ValidationError(
            f"--qdrant={str(path)!r}: {collection!r} was written by a qdrant-client before 1.1.7; open it once with "
            "one of 1.1.7 to 1.15, which converts it"
        )
    with open_database(file, "points", {"point"}, "--qdrant") as connection:
        yield _LocalCollection(str(path), connection)


# --- a server ------------------------------------------------------------------------------------------------------


class _ServerCollection:
    """A collection of a server, read page by page over REST, which every server offers."""

    def __init__(self, place: str, client: QdrantClient, collection: str) -> None:
        self.place = place
        self._client = client
        self._collection = collection
        with _as_graphmem_errors(place):
            present = {description.name for description in client.get_collections().collections}
        if collection not in present:
            raise _missing_collection(place, collection, present)

    def all_points(self) -> Iterator[Point]:
        offset = None
        while True:
            with _as_graphmem_errors(self.place):
                page, offset = self._client.scroll(self._collection, limit=BATCH, offset=offset)
            yield from map(_point_from_server, page)
            if offset is None:
                return

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        with _as_graphmem_errors(self.place):
            page = self._client.retrieve(self._collection, list(keys))
        return {point.key: point for point in map(_point_from_server, page)}


def _point_from_server(point: Any) -> Point:
    return Point(point.id, str(point.id), point.payload or {})


@contextmanager
def _server(url: str, collection: str, api_key: str | None) -> Iterator[PointCollection]:
    if find_spec("qdrant_client") is None:
        raise ConfigError(f"--qdrant: a Qdrant server needs its client; {install_extra('qdrant')}")
    from qdrant_client import QdrantClient  # noqa: PLC0415

    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port or 6333
    except ValueError:
        raise ValidationError("--qdrant: is not a valid URL; give a server as http://host:port") from None
    place = f"the server at {name}:{port}"  # without the URL's user and password
    headers = {} if api_key is None else {"api-key": api_key}
    with closing(QdrantClient(url=url, headers=headers, timeout=TIMEOUT, check_compatibility=False)) as client:
        yield _ServerCollection(place, client, collection)


@contextmanager
def _as_graphmem_errors(place: str) -> Iterator[None]:
    """Raises the client's errors as graphmem's, without the text of the server's answer."""
    from qdrant_client.common.client_exceptions import QdrantException  # noqa: PLC0415
    from qdrant_client.http.exceptions import ApiException, UnexpectedResponse  # noqa: PLC0415

    try:
        yield
    except UnexpectedResponse as error:
        if error.status_code in {401, 403}:
            raise ConfigError(
                f"--api-key: {place} denies access; give a key with read access, or set QDRANT_API_KEY"
            ) from None
        raise StoreError(f"{place} answers with status {error.status_code}; check that it is a Qdrant server") from None
    except (ApiException, QdrantException, ValueError) as error:
        reason = type(getattr(error, "source", error)).__name__
        raise StoreUnavailable(
            f"{place} cannot be reached, or is no Qdrant server ({reason}); check that it runs"
        ) from None


# --- the history ------------------------------------------------------------------------------------------------------


class History:
    """Reads rows of mem0's table `history` by memory, as dicts; a connection of None means a history without rows.

    Columns that this version of mem0 lacks are None.
    """

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._connection = connection
        if connection is None:
            return
        connection.row_factory = sqlite3.Row
        present = {row["name"] for row in connection.execute("PRAGMA table_info(history)")}
        missing = [f"NULL AS {name}" for name in _OPTIONAL_COLUMNS if name not in present]
        self._columns = ", ".join(["history.*", "history.rowid AS place", *missing])
        # mem0's table has no index on memory_id, so without this one each page would scan the whole table. Rows are
        # ordered by rowid, the order of the events: their times are texts of various zones.
        connection.executescript(
            "PRAGMA temp_store = MEMORY;"
            "CREATE TEMP TABLE places AS SELECT memory_id, rowid AS place FROM history WHERE memory_id IS NOT NULL;"
            "CREATE INDEX temp.places_memory ON places (memory_id, place);"
        )

    def rows_of(self, ids: Sequence[str]) -> dict[str, list[Row]]:
        """Returns the rows of each memory, oldest first; an empty list for a memory without history."""
        rows_by_id: dict[str, list[Row]] = {uid: [] for uid in ids}
        if self._connection is None or not ids:
            return rows_by_id
        rows = self._connection.execute(
            f"SELECT {self._columns} FROM places JOIN history ON history.rowid = places.place"  # noqa: S608  (only our own names and placeholders)
            f" WHERE places.memory_id IN ({', '.join('?' * len(ids))}) ORDER BY places.place",
            ids,
        )
        for row in rows:
            rows_by_id[row["memory_id"]].append(dict(row))
        return rows_by_id

    def unknown_memories(self, known_ids: Collection[str]) -> Iterator[tuple[str, list[Row]]]:
        """Yields the id and rows of each memory that is not in `known_ids`, in the order of their first events."""
        if self._connection is None:
            return
        by_first_event = "SELECT memory_id FROM places GROUP BY memory_id ORDER BY min(place)"
        ids = [str(uid) for (uid,) in self._connection.execute(by_first_event) if uid not in known_ids]
        for start in range(0, len(ids), BATCH):
            yield from self.rows_of(ids[start : start + BATCH]).items()


@contextmanager
def open_history(path: Path | None) -> Iterator[History]:
    """Opens the history in a file; without a path, an empty one.

    Raises ValidationError if the file is no history of mem0, and StoreUnavailable if it cannot be read.
    """
    if path is None:
        yield History(None)
        return
    with open_database(validation.home(path, "--history"), "history", _REQUIRED_COLUMNS, "--history") as connection:
        yield History(connection)


# --- SQLite files -----------------------------------------------------------------------------------------------------


@contextmanager
def open_database(path: Path, table: str, columns: AbstractSet[str], option: str) -> Iterator[sqlite3.Connection]:
    """Opens the database in a file, read-only. `option` is the command-line option that errors name.

    Raises ValidationError unless the database has the table with these columns, StoreUnavailable if it cannot be read.
    """
    if not os.path.isfile(path):  # noqa: PTH113  (unlike Path.is_file, it returns False for a name that is too long)
        raise ValidationError(f"{option}={str(path)!r}: there is no such file")
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_TIMEOUT)
        ) as connection:
            present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            # graphmem's own ledger has a view `history` with these columns, which is no history of mem0.
            kind = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if kind != ("table",) or not columns <= present:
                missing = f"no table {table!r} with {', '.join(sorted(columns))}"
                raise ValidationError(f"{option}={str(path)!r}: is no database of mem0 ({missing})")
            yield connection
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(
            f"{option}={str(path)!r}: cannot be read ({error}); stop the program that writes to it, or give a copy"
        ) from None
    except sqlite3.DatabaseError as error:
        raise ValidationError(f"{option}={str(path)!r}: cannot be read as SQLite ({error})") from None
