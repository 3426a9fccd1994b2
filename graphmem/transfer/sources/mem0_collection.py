"""Where mem0 keeps its memories: a Qdrant collection, on a server or in a folder of Qdrant's local mode. Only read."""

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
from graphmem.errors import ConfigError, StoreError, StoreUnavailable, ValidationError
from graphmem.transfer.sources import pickle_reader
from graphmem.transfer.sources.sqlite_reader import open_database

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

Key = int | str
BATCH = 500
# Seconds that a server may take for a page.
TIMEOUT = 30
_URL = re.compile(r"https?://", re.IGNORECASE)
# Kept by mem0 beside its memories: what it knows of names since 2.0, and its telemetry.
_OF_ANOTHER_USE = re.compile(r".*_entities|mem0migrations")


@dataclass(frozen=True, slots=True)
class Point:
    """A point as it was found; `payload` None: it cannot be read. `key` finds it again."""

    key: Key
    id: str
    payload: Mapping[str, Any] | None


class PointCollection(Protocol):
    """A collection."""

    place: str

    def all_points(self) -> Iterator[Point]:
        """Every point, of several copies of one the newest first."""

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        """Those of them that are still there."""


def open_collection(place: str, collection: str, api_key: str | None) -> AbstractContextManager[PointCollection]:
    """The collection at a URL or in a folder.

    Raises ValidationError for a folder or collection that is not there, StoreUnavailable, ConfigError.
    """
    if _URL.match(place):
        return _server(place, collection, api_key)
    return _folder(validation.home(place, "--qdrant"), collection)


def _refuse_collection(place: str, collection: str, there: Iterable[str]) -> ValidationError:
    known = sorted(name for name in there if not _OF_ANOTHER_USE.fullmatch(name))
    choice = f"it has {', '.join(map(repr, known))}" if known else "it has none"
    return ValidationError(f"--collection={collection!r}: there is no such collection in {place}; {choice}")


# --- a folder ------------------------------------------------------------------------------------------------------


class _LocalCollection:
    """Read as SQLite, page by page: a mem0 that is running goes on writing."""

    def __init__(self, place: str, connection: sqlite3.Connection) -> None:
        self.place = place
        self._connection = connection
        self._pickles = pickle_reader.PickleReader()

    def all_points(self) -> Iterator[Point]:
        last = 2**63 - 1
        while rows := self._rows("rowid < ? ORDER BY rowid DESC LIMIT ?", [last, BATCH]):
            yield from self._unpickled(rows)
            last = rows[-1][0]

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        marks = ", ".join("?" * len(keys))
        return {point.key: point for point in self._unpickled(self._rows(f"rowid IN ({marks})", keys))}

    def _unpickled(self, rows: list[tuple[int, bytes]]) -> list[Point]:
        found = self._pickles.fields([data for _, data in rows])
        return [_point(key, fields) for (key, _), fields in zip(rows, found, strict=True)]

    def _rows(self, which: str, values: Sequence[Key]) -> list[tuple[int, bytes]]:
        return self._connection.execute(f"SELECT rowid, point FROM points WHERE {which}", values).fetchall()  # noqa: S608  (only marks for values)


def _point(key: int, found: pickle_reader.Fields | None) -> Point:
    payload = None if found is None else found["payload"] or {}
    name = f"row {key}" if found is None else str(found["id"])
    return Point(key, name, payload if isinstance(payload, dict) else None)


@contextmanager
def _folder(path: Path, collection: str) -> Iterator[PointCollection]:
    collections = path / "collection"
    if not os.path.isdir(collections):  # noqa: PTH112  (a name too long is none either)
        raise ValidationError(
            f"--qdrant={str(path)!r}: is no folder of Qdrant's local mode; give the one in mem0's "
            "vector_store.config.path, or a server as http://host:port"
        )
    there = {inner.name: inner for inner in collections.iterdir() if inner.is_dir()}
    if collection not in there:
        raise _refuse_collection(str(path), collection, there)
    file = there[collection] / "storage.sqlite"
    if not file.exists():
        raise ValidationError(
            f"--qdrant={str(path)!r}: {collection!r} was written by a qdrant-client before 1.1.7; open it once with "
            "one of 1.1.7 to 1.15, which converts it"
        )
    with open_database(file, "points", {"point"}, "--qdrant") as connection:
        yield _LocalCollection(str(path), connection)


# --- a server ------------------------------------------------------------------------------------------------------


class _ServerCollection:
    """Read in pages, by REST: every server has that."""

    def __init__(self, place: str, client: QdrantClient, collection: str) -> None:
        self.place = place
        self._client = client
        self._collection = collection
        with _our_errors(place):
            there = {one.name for one in client.get_collections().collections}
        if collection not in there:
            raise _refuse_collection(place, collection, there)

    def all_points(self) -> Iterator[Point]:
        offset = None
        while True:
            with _our_errors(self.place):
                page, offset = self._client.scroll(self._collection, limit=BATCH, offset=offset)
            yield from map(_received, page)
            if offset is None:
                return

    def points_by_key(self, keys: Sequence[Key]) -> dict[Key, Point]:
        with _our_errors(self.place):
            page = self._client.retrieve(self._collection, list(keys))
        return {point.key: point for point in map(_received, page)}


def _received(point: Any) -> Point:
    return Point(point.id, str(point.id), point.payload or {})


@contextmanager
def _server(url: str, collection: str, api_key: str | None) -> Iterator[PointCollection]:
    if find_spec("qdrant_client") is None:
        raise ConfigError("--qdrant: reading a server needs pip install 'graphmem[qdrant]'")
    from qdrant_client import QdrantClient  # noqa: PLC0415

    place = _named(url)
    headers = {} if api_key is None else {"api-key": api_key}
    with closing(QdrantClient(url=url, headers=headers, timeout=TIMEOUT, check_compatibility=False)) as client:
        yield _ServerCollection(place, client, collection)


@contextmanager
def _our_errors(place: str) -> Iterator[None]:
    """The client's errors as ours, without the words of an answer."""
    from qdrant_client.common.client_exceptions import QdrantException  # noqa: PLC0415
    from qdrant_client.http.exceptions import ApiException, UnexpectedResponse  # noqa: PLC0415

    try:
        yield
    except UnexpectedResponse as error:
        if error.status_code in {401, 403}:
            raise ConfigError(f"--api-key: {place} refuses it; give one that may read, or set QDRANT_API_KEY") from None
        raise StoreError(f"{place} answers with status {error.status_code}; see that it is a Qdrant server") from None
    except (ApiException, QdrantException, ValueError) as error:
        why = type(getattr(error, "source", error)).__name__
        raise StoreUnavailable(f"{place} cannot be reached, or is no Qdrant server ({why}); see that it runs") from None


def _named(url: str) -> str:
    """The server as it may be named in a message: without a password."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port or 6333
    except ValueError:
        raise ValidationError("--qdrant: is no URL; give a server as http://host:port") from None
    return f"the server at {name}:{port}"
