"""Reads the Qdrant collection in which mem0 stores its memories, on a server or in a folder of Qdrant's local mode.

Nothing is ever written to it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from graphmem.boundary import validation
from graphmem.errors import ConfigError, StoreError, StoreUnavailable, ValidationError, install_extra
from graphmem.transfer.sources import pickle_reader
from graphmem.transfer.sources.sqlite_reader import open_database

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

Key = int | str
BATCH = 500
# Seconds to wait for a page of points from a server.
TIMEOUT = 30
_URL = re.compile(r"https?://", re.IGNORECASE)
# Collections of mem0 that hold no memories: its entities (since 2.0), and its telemetry.
_OTHER_COLLECTIONS = re.compile(r".*_entities|mem0migrations")


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

    place = _server_name(url)
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


def _server_name(url: str) -> str:
    """Returns the server's name for error messages: "the server at host:port", without the URL's user and password."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port or 6333
    except ValueError:
        raise ValidationError("--qdrant: is not a valid URL; give a server as http://host:port") from None
    return f"the server at {name}:{port}"
