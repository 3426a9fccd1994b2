"""Reaching a Qdrant server: its connections, the collection that graphmem keeps there, its errors as ours.

The collection says in its metadata which model's vectors it holds. It is made with its metadata in one step, so that of
two processes that make it at once the second finds what the first one made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4
from warnings import warn

import httpx
import pydantic
from grpc import RpcError
from qdrant_client import QdrantClient, grpc, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from graphmem.concurrency import is_caller_timeout
from graphmem.errors import CLOSED, ConfigError, GraphmemError, StoreError, StoreUnavailable
from graphmem.stores.protocols import StoreLost
from graphmem.stores.qdrant.payload import DENSE, SPARSE

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix

SCHEMA = 1
# What a collection of ours says of itself.
_MARKED = {"schema": int, "model": str, "dims": int, "id": str}
# Seconds that a server which does not answer costs. The client takes whole ones.
READ_TIMEOUT, WRITE_TIMEOUT = 1, 10
# Collection metadata and conditional upserts came with it.
_OLDEST = (1, 16)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# A restarted server is found by the next call: gRPC's own pauses between attempts grow to two minutes, and it looks a
# name up again only after half a minute. (Its "min" is how long one attempt may take, 20 s of its own.) Keepalive
# notices a machine that is gone without a word.
_GRPC = {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 2_000,
    "grpc.max_reconnect_backoff_ms": 500,
    "grpc.dns_min_time_between_resolutions_ms": 1_000,
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 5_000,
}


# What the client and its parts raise: about values that cannot be sent, and about everything else. RuntimeError is what
# they say of connections that are closed, and of threads that cannot be started.
_VALUES = (ValueError, TypeError, OverflowError, LookupError)
_CLIENTS = (ApiException, QdrantException, RpcError, httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError, *_VALUES)
_CONFLICT = 409
_BY_STATUS = {401: "denied", 403: "denied", 404: "lost", 408: "unreachable", 429: "unreachable"}
_BY_CODE = {
    "UNAUTHENTICATED": "denied",
    "PERMISSION_DENIED": "denied",
    "NOT_FOUND": "lost",
    "INVALID_ARGUMENT": "refused",
    "FAILED_PRECONDITION": "refused",
    "OUT_OF_RANGE": "refused",
    "ALREADY_EXISTS": "refused",
}
# Searches name a partition, or a ledger and an agent or run: graphs are made for those, not for all points at once. (Of
# 30,000 points, one graph for all found 85% of the nearest 100 in a large partition and 61% by agent alone; these 93
# and 86%, and more with the wider view of `_NEAREST`.)
_HNSW = models.HnswConfigDiff(m=0, payload_m=16)
_KEPT = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def _keyword(*, graph: bool, tenant: bool | None = None) -> models.KeywordIndexParams:
    """`graph` False spares a graph for what no search is narrowed by alone (servers before 1.17 make one anyway)."""
    return models.KeywordIndexParams(
        type=models.KeywordIndexType.KEYWORD, is_tenant=tenant, enable_hnsw=None if graph else False
    )


def _integer() -> models.IntegerIndexParams:
    return models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True, enable_hnsw=False)


# Servers before 1.17 make a graph for every index that many points have a value in, whatever we say, and searching all
# these links takes longer than searching one graph's: at 100,000 points 19 ms with a dozen indexes, 5 with few. So
# there is none for what conditions use that name their memories too (`version`, `window`), none for what only a look
# back asks for (`valid_from`: the server reads it from the points it comes by), and what most points would have in
# common is not on them (`points.payload`).
_INDEXED: Mapping[str, models.PayloadSchemaParams] = {
    "partition": _keyword(graph=True, tenant=True),
    "agent_id": _keyword(graph=True),
    "run_id": _keyword(graph=True),
    "ledger": _keyword(graph=False),
    "memory": _keyword(graph=False),
    "kind": _keyword(graph=False),
    "valid_to": _integer(),
    "expires_at": _integer(),
}
_NAMES = grpc.WithPayloadSelector(include=grpc.PayloadIncludeSelector(fields=["memory"]))


@dataclass(frozen=True, slots=True)
class QdrantOptions:
    """Where a Qdrant server is and how its collection is to be made.

    `prefer_grpc` None: gRPC where it answers, else REST. `on_disk` and `quantized` count when the collection is made.
    """

    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    collection: str = "graphmem"
    grpc_port: int = 6334
    prefer_grpc: bool | None = None
    on_disk: bool = False
    quantized: bool = False

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError("vector_store.config.url: give it as http://host:port or https://host:port") from None
        if "@" in self.url:  # the client would leave it out without a word
            raise ConfigError("vector_store.config.url: holds a name or password; Qdrant has an api_key instead")

    @property
    def place(self) -> str:
        """The server as it may be named in a message."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 6333}"

    @property
    def crosses_network_unencrypted(self) -> bool:
        """Whether others could read along."""
        parts = urlsplit(self.url)
        return parts.scheme != "https" and parts.hostname not in _LOCAL


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What a collection says of itself; `id` tells it from one of the same name elsewhere."""

    model: str
    dims: int
    id: str


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """What a collection is asked: the nearest to a vector among the points that meet some conditions."""

    collection: str
    vector: list[float] | models.SparseVector
    using: str
    filter: models.Filter
    params: models.SearchParams | None

    def over_grpc(self, limit: int) -> grpc.QueryPoints:
        """The same as it goes over the wire."""
        return grpc.QueryPoints(
            collection_name=self.collection,
            query=grpc.Query(nearest=_on_the_wire(self.vector)),
            using=self.using,
            filter=RestToGrpc.convert_filter(self.filter),
            params=None if self.params is None else RestToGrpc.convert_search_params(self.params),
            limit=limit,
            with_payload=_NAMES,
        )


def _on_the_wire(vector: list[float] | models.SparseVector) -> grpc.VectorInput:
    if isinstance(vector, list):
        return grpc.VectorInput(dense=grpc.DenseVector(data=vector))
    return grpc.VectorInput(sparse=grpc.SparseVector(indices=vector.indices, values=vector.values))


def point_struct(uid: str, vector: Matrix, weights: Mapping[int, float], payload: dict[str, Any]) -> grpc.PointStruct:
    """A point as it goes over the wire: made by way of the client's models it would take three times as long."""
    vectors = {DENSE: grpc.Vector(dense=grpc.DenseVector(data=vector.tolist()))}
    if weights:
        vectors[SPARSE] = grpc.Vector(sparse=grpc.SparseVector(indices=list(weights), values=list(weights.values())))
    return grpc.PointStruct(
        id=grpc.PointId(uuid=uid),
        vectors=grpc.Vectors(vectors=grpc.NamedVectors(vectors=vectors)),
        payload=RestToGrpc.convert_payload(payload),
    )


def upsert_operation(points: Sequence[grpc.PointStruct], over: models.FieldCondition) -> grpc.PointsUpdateOperation:
    """Writes points whole; over one that is there only where it meets the condition."""
    chosen = RestToGrpc.convert_filter(models.Filter(must=[over]))
    return grpc.PointsUpdateOperation(
        upsert=grpc.PointsUpdateOperation.PointStructList(points=points, update_filter=chosen)
    )


def delete_operation(chosen: models.Filter) -> grpc.PointsUpdateOperation:
    """Removes what meets the conditions."""
    return RestToGrpc.convert_points_update_operation(
        models.DeleteOperation(delete=models.FilterSelector(filter=chosen))
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """Clients that wait for an answer as long as a read may take, and as long as a write may."""

    reader: QdrantClient
    writer: QdrantClient
    over_grpc: bool

    def nearest(self, asked: VectorQuery, limit: int) -> list[tuple[str, float]]:
        """The memories and scores of the nearest points, best first.

        gRPC's answer is taken as it comes: the client's models of it took as long as the server to find them.
        """
        if self.over_grpc:
            answer = self.reader.grpc_points.Query(asked.over_grpc(limit), timeout=READ_TIMEOUT)
            return [(point.payload["memory"].string_value, point.score) for point in answer.result]
        found = self.reader.query_points(
            asked.collection,
            asked.vector,
            using=asked.using,
            query_filter=asked.filter,
            search_params=asked.params,
            limit=limit,
            with_payload=["memory"],
        )
        return [((point.payload or {})["memory"], point.score) for point in found.points]

    def update(self, collection: str, operations: Sequence[grpc.PointsUpdateOperation]) -> None:
        """Carries out some operations in one request, one after the other; durable when it returns."""
        if self.over_grpc:
            asked = grpc.UpdateBatchPoints(collection_name=collection, wait=True, operations=operations)
            self.writer.grpc_points.UpdateBatch(asked, timeout=WRITE_TIMEOUT)
        else:
            told = [GrpcToRest.convert_points_update_operation(operation) for operation in operations]
            self.writer.batch_update_points(collection, told, wait=True)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


class Collection:
    """A server's collection, opened at the first use."""

    def __init__(self, server: QdrantOptions, model: str, dims: int) -> None:
        self.name = server.collection
        self._server = server
        self._model, self._dims = model, dims
        self._lock = Lock()
        self._connection: Connection | None = None
        self._held: CollectionInfo | None = None
        self._failure: StoreUnavailable | None = None
        self._closed = False
        if server.api_key is not None and server.crosses_network_unencrypted:
            warn("vector_store: the api key goes over plain http; use an https url", stacklevel=2)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The connection, opened if need be; errors within become ours.

        Raises ConfigError when the collection is another model's or not graphmem's, and when the key is refused.
        """
        with self._our_errors():
            connection = self._open()
            if not self.matches_model:
                raise self.model_mismatch_error()
            yield connection

    @contextmanager
    def connected_for_reset(self) -> Iterator[Connection]:
        """The same, whichever model's it is; a collection that is gone is made again."""
        with self._our_errors():
            connection = self._open()
            with self._rest() as rest:
                self._held = self._found(rest)
            yield connection

    @property
    def matches_model(self) -> bool:
        """Whether the collection, as it was last looked at, holds this model's vectors."""
        return self._held is not None and (self._held.model, self._held.dims) == (self._model, self._dims)

    def model_mismatch_error(self) -> ConfigError:
        """What to say where the collection holds vectors of another model."""
        held = "" if self._held is None else f"{self._held.dims} dimensions of {self._held.model!r}"
        return ConfigError(
            f"vector_store: the collection {self.name!r} on {self._server.place} holds vectors of {held}, the embedder "
            f"gives {self._dims} of {self._model!r}; choose another vector_store.config.collection_name"
        )

    def replace(self) -> None:
        """Makes the collection anew, for this model: only when it is graphmem's and empty."""
        with self._rest(WRITE_TIMEOUT) as rest:
            rest.delete_collection(self.name)
            self._held = self._found(rest)

    def close(self) -> None:
        """Breaks off what is under way."""
        self._closed = True
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> Connection:
        before = self._failure
        with self._lock:
            if self._closed:
                raise StoreUnavailable(CLOSED)
            if self._connection is None:
                if self._failure is not None and self._failure is not before:
                    # Another thread tried while this one waited: a server that hangs is waited for once.
                    raise StoreUnavailable(str(self._failure)) from self._failure
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        """REST has the collection made and checked; gRPC is taken if it reaches the same one."""
        try:
            with self._rest() as rest:
                self._check_version(rest)
                self._held = self._found(rest)
        except Exception as error:
            if not _is_clients(error):
                raise
            ours = self._as_ours(error, opening=True)
            self._failure = ours if isinstance(ours, StoreUnavailable) else None
            raise ours from None  # the client's own error quotes the answer, and that perhaps what was asked
        over_grpc = self._takes_grpc()
        reader, writer = (self._client(patience, over_grpc=over_grpc) for patience in (READ_TIMEOUT, WRITE_TIMEOUT))
        return Connection(reader, writer, over_grpc)

    def _client(self, timeout: int, *, over_grpc: bool) -> QdrantClient:
        key = self._server.api_key
        return QdrantClient(
            url=self._server.url,
            grpc_port=self._server.grpc_port,
            prefer_grpc=over_grpc,
            grpc_options=dict(_GRPC),
            # As a header: given as `api_key`, the client warns at each opening, even about the machine itself.
            headers={} if key is None else {"api-key": key},
            timeout=timeout,
            check_compatibility=False,
            limits=_KEPT,
        )

    def _rest(self, timeout: int = READ_TIMEOUT) -> closing[QdrantClient]:
        return closing(self._client(timeout, over_grpc=False))

    def _takes_grpc(self) -> bool:
        wanted = self._server.prefer_grpc
        if wanted is False:
            return False
        with closing(self._client(READ_TIMEOUT, over_grpc=True)) as client:
            try:
                found = self._said(client.get_collection(self.name)) == self._held
            except (RpcError, GraphmemError):  # nothing there, or another server: its port is a guess
                found = False
        if wanted and not found:
            raise ConfigError(
                f"vector_store.config.prefer_grpc: the Qdrant server at {self._server.place} does not answer gRPC on "
                f"port {self._server.grpc_port}; set grpc_port, or leave prefer_grpc out"
            )
        return found

    def _check_version(self, rest: QdrantClient) -> None:
        try:
            version = rest.info().version
        except (ApiException, ValueError) as error:
            if _is_unread(error) or _fate(error) in {"lost", "refused"}:  # an answer, but none of Qdrant's
                what = f"what answers at {self._server.place} is no Qdrant server"
                raise ConfigError(f"vector_store: {what}; correct the url") from None
            raise
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
            raise ConfigError(
                f"vector_store: the Qdrant server at {self._server.place} is of version {version[:20]}; "
                f"graphmem needs {_OLDEST[0]}.{_OLDEST[1]} or later"
            )

    def _found(self, rest: QdrantClient) -> CollectionInfo:
        """What the collection says of itself; what is missing of it is made."""
        try:
            info = rest.get_collection(self.name)
        except UnexpectedResponse as error:
            if _fate(error) != "lost":
                raise
            info = self._made()
        held = self._said(info)
        self._index({name: schema for name, schema in _INDEXED.items() if name not in info.payload_schema})
        return held

    def _index(self, missing: Mapping[str, models.PayloadSchemaParams]) -> None:
        """All, when the collection was made just now; some, when its maker died in between."""
        if missing:
            with self._rest(WRITE_TIMEOUT) as rest:
                for name, schema in missing.items():
                    rest.create_payload_index(self.name, name, schema)

    def _said(self, info: models.CollectionInfo) -> CollectionInfo:
        told = (info.config.metadata or {}).get("graphmem")
        if not isinstance(told, dict) or not _MARKED.items() <= {name: type(told[name]) for name in told}.items():
            raise ConfigError(
                f"vector_store: the collection {self.name!r} on {self._server.place} is not graphmem's and is left as "
                "it is; choose another vector_store.config.collection_name"
            )
        if told["schema"] > SCHEMA:
            raise StoreError(
                f"the collection {self.name!r} on {self._server.place} is of a newer graphmem; upgrade this one, "
                "or choose another vector_store.config.collection_name"
            )
        return CollectionInfo(told["model"], told["dims"], told["id"])

    def _made(self) -> models.CollectionInfo:
        told = {"schema": SCHEMA, "model": self._model, "dims": self._dims, "id": str(uuid4())}
        on_disk = self._server.on_disk or None
        int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        with self._rest(WRITE_TIMEOUT) as rest:
            try:
                rest.create_collection(
                    self.name,
                    vectors_config={
                        DENSE: models.VectorParams(size=self._dims, distance=models.Distance.COSINE, on_disk=on_disk)
                    },
                    sparse_vectors_config={
                        SPARSE: models.SparseVectorParams(index=models.SparseIndexParams(on_disk=on_disk))
                    },
                    hnsw_config=_HNSW,
                    quantization_config=models.ScalarQuantization(scalar=int8) if self._server.quantized else None,
                    metadata={"graphmem": told},
                )
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:  # another process was faster: what it made will do
                    raise
            return rest.get_collection(self.name)

    # --- errors -------------------------------------------------------------------------------------------------

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        """The client's errors as ours; the words of a server's answer stay out, they may quote what it was sent."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except GraphmemError:
            raise
        except Exception as error:
            if not _is_clients(error):
                raise
            raise self._as_ours(error) from None

    def _as_ours(self, error: Exception, *, opening: bool = False) -> GraphmemError:
        if isinstance(error, GraphmemError):
            return error
        if self._closed:
            return StoreUnavailable(CLOSED)
        fate, here, kind = _fate(error), f"the Qdrant server at {self._server.place}", _named(error)
        if fate == "lost":
            return StoreLost(f"the collection {self.name!r} is gone from {here} ({kind})")
        if fate == "refused":
            return StoreError(f"{here} refuses this ({kind})")
        if fate == "denied" and opening:
            return ConfigError(f"vector_store.config.api_key: {here} refuses it ({kind})")
        return StoreUnavailable(f"{here} {'refuses the api key' if fate == 'denied' else 'is out of reach'} ({kind})")


def _is_clients(error: Exception) -> bool:
    """Whether an exception is of the client, or of what it is made of.

    What the handler of a signal raises in its own class, at any moment, says nothing about the server and passes.
    """
    return isinstance(error, _CLIENTS) and not is_caller_timeout(error)


def _fate(error: Exception) -> str:
    """What became of a call: "lost", "denied", "refused" or "unreachable"."""
    if isinstance(error, UnexpectedResponse):
        return _BY_STATUS.get(error.status_code or 0, "refused" if _is_callers(error.status_code) else "unreachable")
    if isinstance(error, RpcError):
        return _BY_CODE.get(_named(error), "unreachable")
    return "refused" if isinstance(error, _VALUES) and not _is_unread(error) else "unreachable"


def _is_unread(error: Exception) -> bool:
    """Whether an answer came that is not Qdrant's: a page of some proxy."""
    return isinstance(getattr(error, "source", error), JSONDecodeError | pydantic.ValidationError)


def _is_callers(status: int | None) -> bool:
    return status is not None and 400 <= status < 500  # noqa: PLR2004  (HTTP's own ranges)


def _named(error: Exception) -> str:
    """An error's name as it may be shown: never its text."""
    if isinstance(error, UnexpectedResponse):
        return f"status {error.status_code}"
    if isinstance(error, ResponseHandlingException):
        return type(error.source).__name__
    if isinstance(error, RpcError) and hasattr(error, "code"):
        return str(error.code().name)
    return type(error).__name__
