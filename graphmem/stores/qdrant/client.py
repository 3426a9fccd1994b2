"""The client of a Qdrant server: connections, graphmem's collection, and the client's errors as graphmem's.

The collection's metadata names the models of its vectors. Collection and metadata are created in one step: of two
processes that create it at the same time, the second finds the first one's complete.
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
from graphmem.model import EmbeddingSpec
from graphmem.plugins import StoreLost
from graphmem.stores.qdrant.payload import DENSE, MULTILINGUAL, SPARSE

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

SCHEMA_VERSION = 1
# The metadata of graphmem's collections: keys and types.
_METADATA_TYPES = {"schema": int, "model": str, "dims": int, "id": str}
# In seconds, after which a server counts as out of reach. The client accepts whole numbers only.
READ_TIMEOUT, WRITE_TIMEOUT = 1, 10
# The first version with collection metadata and conditional upserts.
_MIN_VERSION = (1, 16)
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# With these options the next call reaches a restarted server: by default, gRPC's pauses between attempts grow to two
# minutes, and it resolves a name again only after half a minute. ("min_reconnect_backoff" is how long one attempt may
# take, by default 20 s.) Keepalive detects a machine that disappeared without closing the connection.
_GRPC_OPTIONS = {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 2_000,
    "grpc.max_reconnect_backoff_ms": 500,
    "grpc.dns_min_time_between_resolutions_ms": 1_000,
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 5_000,
}

# Exceptions of the client and its libraries: for values that cannot be sent, and for everything else. They raise
# RuntimeError for closed connections and for threads that cannot be started.
_VALUE_ERRORS = (ValueError, TypeError, OverflowError, LookupError)
_CLIENT_ERRORS = (
    ApiException,
    QdrantException,
    RpcError,
    httpx.HTTPError,
    httpx.InvalidURL,
    OSError,
    RuntimeError,
    *_VALUE_ERRORS,
)
_CONFLICT = 409
# The failures told apart, by HTTP status and by gRPC code.
_FAILURE_BY_STATUS = {401: "denied", 403: "denied", 404: "lost", 408: "unreachable", 429: "unreachable"}
_FAILURE_BY_CODE = {
    "UNAUTHENTICATED": "denied",
    "PERMISSION_DENIED": "denied",
    "NOT_FOUND": "lost",
    "INVALID_ARGUMENT": "refused",
    "FAILED_PRECONDITION": "refused",
    "OUT_OF_RANGE": "refused",
    "ALREADY_EXISTS": "refused",
}
# A search filters by a partition, or by a ledger and an agent or run. So HNSW graphs are built per value of those
# fields (payload_m) and not over all points (m). At 30,000 points, one graph over all found 85 % of the nearest 100 in
# a large partition and 61 % by agent alone; graphs per value found 93 and 86 %, and more with `_SEARCH_PARAMS` of
# `server.py`.
_HNSW = models.HnswConfigDiff(m=0, payload_m=16)
_POOL_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


def _keyword(*, graph: bool, tenant: bool | None = None) -> models.KeywordIndexParams:
    """`graph` False saves the HNSW graph of a field that no search filters by alone; servers before 1.17 ignore it."""
    return models.KeywordIndexParams(
        type=models.KeywordIndexType.KEYWORD, is_tenant=tenant, enable_hnsw=None if graph else False
    )


def _integer() -> models.IntegerIndexParams:
    return models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True, enable_hnsw=False)


# Servers before 1.17 build an HNSW graph for every indexed field that many points have, and searching all their links
# is slower than searching one graph: at 100,000 points 19 ms with a dozen indexes, 5 ms with few. So `seq` and
# `window` have no index, because their conditions also name the memories; `valid_from` has none, because only searches
# with `as_of` use it and the server can read it from the points it visits; and values that most points share are not in
# the payload at all (see `payload.payload`).
_INDEXED_FIELDS: Mapping[str, models.PayloadSchemaParams] = {
    "partition": _keyword(graph=True, tenant=True),
    "agent_id": _keyword(graph=True),
    "run_id": _keyword(graph=True),
    "ledger": _keyword(graph=False),
    "memory": _keyword(graph=False),
    "kind": _keyword(graph=False),
    "valid_to": _integer(),
    "expires_at": _integer(),
    "forgotten_at": _integer(),
}
_MEMORY_ID_ONLY = grpc.WithPayloadSelector(include=grpc.PayloadIncludeSelector(fields=["memory"]))


@dataclass(frozen=True, slots=True)
class QdrantOptions:
    """The address of a Qdrant server and the options of its collection. Raises ConfigError for an invalid URL.

    `prefer_grpc` None: gRPC if it answers, else REST. `on_disk` and `quantized` matter only when the collection is
    created.
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
        if "@" in self.url:  # the client would silently drop it
            raise ConfigError("vector_store.config.url: holds a name or password; Qdrant has an api_key instead")

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 6333}"

    @property
    def crosses_network_unencrypted(self) -> bool:
        """True if requests travel unencrypted over a network, where others could read them."""
        parts = urlsplit(self.url)
        return parts.scheme != "https" and parts.hostname not in _LOCAL_HOSTS


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """The metadata of a collection; `id` distinguishes it from one of the same name on another server.

    `multilingual` is the embedding form of its vectors in the multilingual space, None in a collection without them.
    """

    model: str
    dims: int
    id: str
    multilingual: str | None = None


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A search of a collection: the points nearest to a vector among those that pass the filter."""

    collection: str
    vector: list[float] | models.SparseVector
    using: str
    filter: models.Filter
    params: models.SearchParams | None

    def to_grpc(self, limit: int) -> grpc.QueryPoints:
        """Converts the query to a gRPC message."""
        if isinstance(self.vector, list):
            nearest = grpc.VectorInput(dense=grpc.DenseVector(data=self.vector))
        else:
            sparse = grpc.SparseVector(indices=self.vector.indices, values=self.vector.values)
            nearest = grpc.VectorInput(sparse=sparse)
        return grpc.QueryPoints(
            collection_name=self.collection,
            query=grpc.Query(nearest=nearest),
            using=self.using,
            filter=RestToGrpc.convert_filter(self.filter),
            params=None if self.params is None else RestToGrpc.convert_search_params(self.params),
            limit=limit,
            with_payload=_MEMORY_ID_ONLY,
        )


def point_struct(
    uid: str, dense: Mapping[str, Matrix], weights: Mapping[int, float], payload: dict[str, Any]
) -> grpc.PointStruct:
    """Builds the gRPC message of a point directly; converting the client's models takes three times as long.

    `dense` has the dense vectors by name.
    """
    vectors = {name: grpc.Vector(dense=grpc.DenseVector(data=vector.tolist())) for name, vector in dense.items()}
    if weights:
        vectors[SPARSE] = grpc.Vector(sparse=grpc.SparseVector(indices=list(weights), values=list(weights.values())))
    return grpc.PointStruct(
        id=grpc.PointId(uuid=uid),
        vectors=grpc.Vectors(vectors=grpc.NamedVectors(vectors=vectors)),
        payload=RestToGrpc.convert_payload(payload),
    )


def upsert_operation(
    points: Sequence[grpc.PointStruct], replaceable: models.FieldCondition
) -> grpc.PointsUpdateOperation:
    """Returns the operation that writes points whole, replacing a stored point only if it meets the condition."""
    update_filter = RestToGrpc.convert_filter(models.Filter(must=[replaceable]))
    return grpc.PointsUpdateOperation(
        upsert=grpc.PointsUpdateOperation.PointStructList(points=points, update_filter=update_filter)
    )


def delete_operation(selected: models.Filter) -> grpc.PointsUpdateOperation:
    """Returns the operation that deletes the points that pass the filter."""
    return RestToGrpc.convert_points_update_operation(
        models.DeleteOperation(delete=models.FilterSelector(filter=selected))
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """One client with the read timeout, one with the write timeout."""

    reader: QdrantClient
    writer: QdrantClient
    over_grpc: bool

    def nearest(self, query: VectorQuery, limit: int) -> list[tuple[str, float]]:
        """Returns (memory id, score) of the nearest points, best first.

        Reads the gRPC answer directly: converting it to the client's models took as long as the server's search.
        """
        if self.over_grpc:
            answer = self.reader.grpc_points.Query(query.to_grpc(limit), timeout=READ_TIMEOUT)
            return [(point.payload["memory"].string_value, point.score) for point in answer.result]
        response = self.reader.query_points(
            query.collection,
            query.vector,
            using=query.using,
            query_filter=query.filter,
            search_params=query.params,
            limit=limit,
            with_payload=["memory"],
        )
        return [((point.payload or {})["memory"], point.score) for point in response.points]

    def update(self, collection: str, operations: Sequence[grpc.PointsUpdateOperation]) -> None:
        """Executes operations in order, in one request. Durable when it returns."""
        if self.over_grpc:
            request = grpc.UpdateBatchPoints(collection_name=collection, wait=True, operations=operations)
            self.writer.grpc_points.UpdateBatch(request, timeout=WRITE_TIMEOUT)
        else:
            rest_operations = [GrpcToRest.convert_points_update_operation(operation) for operation in operations]
            self.writer.batch_update_points(collection, rest_operations, wait=True)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


class Collection:
    """The collection on the server, opened at its first use, for the vectors of this specification."""

    def __init__(self, options: QdrantOptions, spec: EmbeddingSpec) -> None:
        self.name = options.collection
        self._options = options
        self._spec = spec
        self._lock = Lock()
        self._connection: Connection | None = None
        self._info: CollectionInfo | None = None
        self._failure: StoreUnavailable | None = None
        self._closed = False
        if options.api_key is not None and options.crosses_network_unencrypted:
            warn("vector_store: the api key goes over plain http; use an https url", stacklevel=2)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yields the connection, opened on demand, and raises the client's errors in the block as graphmem's.

        Raises ConfigError if the collection holds another model's vectors or is not graphmem's, or the key is refused.
        """
        with self._translated_errors():
            connection = self._open()
            if not self.matches_model:
                raise self.model_mismatch_error()
            yield connection

    @contextmanager
    def connected_for_reset(self) -> Iterator[Connection]:
        """Like `connected`, but accepts a collection of another model's vectors, and creates a missing one."""
        with self._translated_errors():
            connection = self._open()
            with self._rest() as rest:
                self._info = self._load_or_create(rest)
            yield connection

    @property
    def matches_model(self) -> bool:
        """True if the collection holds this model's vectors, by its metadata as last read."""
        return self._info is not None and (self._info.model, self._info.dims) == self._spec.embedder

    @property
    def has_multilingual(self) -> bool:
        """True if the collection holds the vectors in the multilingual space that the specification asks for.

        A collection that was made without them serves without them, as the space of a vector cannot be added.
        """
        return self._info is not None and self._spec.multilingual in {self._info.multilingual, None}

    def model_mismatch_error(self) -> ConfigError:
        """Returns the error for a collection that holds another model's vectors."""
        stored_vectors = "" if self._info is None else f"{self._info.dims} dimensions of {self._info.model!r}"
        return ConfigError(
            f"vector_store: the collection {self.name!r} on {self._options.address} holds vectors of "
            f"{stored_vectors}, the embedder gives {self._spec.dims} of {self._spec.model!r}; "
            "choose another vector_store.config.collection_name"
        )

    def replace(self) -> None:
        """Deletes the collection and creates it for this model. The caller has checked that it is empty."""
        with self._rest(WRITE_TIMEOUT) as rest:
            rest.delete_collection(self.name)
            self._info = self._load_or_create(rest)

    def close(self) -> None:
        """Cancels requests in progress and closes the connections."""
        self._closed = True
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> Connection:
        earlier_failure = self._failure
        with self._lock:
            if self._closed:
                raise StoreUnavailable(CLOSED)
            if self._connection is None:
                if self._failure is not None and self._failure is not earlier_failure:
                    # Another thread tried and failed while this one waited; trying again would wait twice.
                    raise StoreUnavailable(str(self._failure)) from self._failure
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        """Loads or creates the collection over REST; then uses gRPC if that reaches the same collection."""
        try:
            with self._rest() as rest:
                self._check_version(rest)
                self._info = self._load_or_create(rest)
        except Exception as error:
            if not _is_client_error(error):
                raise
            translated = self._translate(error, opening=True)
            self._failure = translated if isinstance(translated, StoreUnavailable) else None
            raise translated from None  # the client's error quotes the answer, which may quote the request
        over_grpc = self._uses_grpc()
        reader, writer = (self._client(timeout, over_grpc=over_grpc) for timeout in (READ_TIMEOUT, WRITE_TIMEOUT))
        return Connection(reader, writer, over_grpc)

    def _client(self, timeout: int, *, over_grpc: bool) -> QdrantClient:
        key = self._options.api_key
        return QdrantClient(
            url=self._options.url,
            grpc_port=self._options.grpc_port,
            prefer_grpc=over_grpc,
            grpc_options=dict(_GRPC_OPTIONS),
            # As a header: with `api_key` the client warns at each opening, even for a server on this machine.
            headers={} if key is None else {"api-key": key},
            timeout=timeout,
            check_compatibility=False,
            limits=_POOL_LIMITS,
        )

    def _rest(self, timeout: int = READ_TIMEOUT) -> closing[QdrantClient]:
        return closing(self._client(timeout, over_grpc=False))

    def _uses_grpc(self) -> bool:
        preferred = self._options.prefer_grpc
        if preferred is False:
            return False
        with closing(self._client(READ_TIMEOUT, over_grpc=True)) as client:
            try:
                is_same = self._parse_metadata(client.get_collection(self.name)) == self._info
            except (RpcError, GraphmemError):  # no server, or another one: the default port is a guess
                is_same = False
        if preferred and not is_same:
            raise ConfigError(
                f"vector_store.config.prefer_grpc: the Qdrant server at {self._options.address} does not answer gRPC "
                f"on port {self._options.grpc_port}; set grpc_port, or leave prefer_grpc out"
            )
        return is_same

    def _check_version(self, rest: QdrantClient) -> None:
        try:
            version = rest.info().version
        except (ApiException, ValueError) as error:
            if _is_foreign_answer(error) or _failure_of(error) in {"lost", "refused"}:
                raise ConfigError(
                    f"vector_store: the server at {self._options.address} is no Qdrant server; correct the url"
                ) from None
            raise
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < _MIN_VERSION:
            raise ConfigError(
                f"vector_store: the Qdrant server at {self._options.address} is of version {version[:20]}; "
                f"graphmem needs {_MIN_VERSION[0]}.{_MIN_VERSION[1]} or later"
            )

    def _load_or_create(self, rest: QdrantClient) -> CollectionInfo:
        """Returns the collection's metadata, after creating the collection or its indexes if they are missing."""
        try:
            info = rest.get_collection(self.name)
        except UnexpectedResponse as error:
            if _failure_of(error) != "lost":
                raise
            info = self._create()
        metadata = self._parse_metadata(info)
        # All indexes of a new collection, some if the process that created it died.
        missing = {name: schema for name, schema in _INDEXED_FIELDS.items() if name not in info.payload_schema}
        if missing:
            with self._rest(WRITE_TIMEOUT) as writer:
                for name, schema in missing.items():
                    writer.create_payload_index(self.name, name, schema)
        return metadata

    def _parse_metadata(self, info: models.CollectionInfo) -> CollectionInfo:
        metadata = (info.config.metadata or {}).get("graphmem")
        if (
            not isinstance(metadata, dict)
            or not _METADATA_TYPES.items() <= {name: type(metadata[name]) for name in metadata}.items()
        ):
            raise ConfigError(
                f"vector_store: the collection {self.name!r} on {self._options.address} is not graphmem's and is left "
                "as it is; choose another vector_store.config.collection_name"
            )
        if metadata["schema"] > SCHEMA_VERSION:
            raise StoreError(
                f"the collection {self.name!r} on {self._options.address} is of a newer graphmem; upgrade this one, "
                "or choose another vector_store.config.collection_name"
            )
        multilingual = metadata.get("multilingual")
        return CollectionInfo(
            metadata["model"],
            metadata["dims"],
            metadata["id"],
            multilingual if isinstance(multilingual, str) else None,
        )

    def _create(self) -> models.CollectionInfo:
        spec, on_disk = self._spec, self._options.on_disk or None
        metadata = {"schema": SCHEMA_VERSION, "model": spec.model, "dims": spec.dims, "id": str(uuid4())}
        vectors = {DENSE: models.VectorParams(size=spec.dims, distance=models.Distance.COSINE, on_disk=on_disk)}
        if spec.multilingual is not None:
            metadata["multilingual"] = spec.multilingual
            vectors[MULTILINGUAL] = models.VectorParams(
                size=spec.multilingual_dims,
                distance=models.Distance.COSINE,
                on_disk=on_disk,
                datatype=models.Datatype.FLOAT16,
            )
        int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        with self._rest(WRITE_TIMEOUT) as rest:
            try:
                rest.create_collection(
                    self.name,
                    vectors_config=vectors,
                    sparse_vectors_config={
                        SPARSE: models.SparseVectorParams(index=models.SparseIndexParams(on_disk=on_disk))
                    },
                    hnsw_config=_HNSW,
                    quantization_config=models.ScalarQuantization(scalar=int8) if self._options.quantized else None,
                    metadata={"graphmem": metadata},
                )
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:  # else another process has just created it
                    raise
            return rest.get_collection(self.name)

    # --- errors -------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raises the client's errors as graphmem's, without the server's message, which may quote the request."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except GraphmemError:
            raise
        except Exception as error:
            if not _is_client_error(error):
                raise
            raise self._translate(error) from None

    def _translate(self, error: Exception, *, opening: bool = False) -> GraphmemError:
        if isinstance(error, GraphmemError):
            return error
        if self._closed:
            return StoreUnavailable(CLOSED)
        failure, name = _failure_of(error), _error_name(error)
        server = f"the Qdrant server at {self._options.address}"
        if failure == "lost":
            return StoreLost(f"the collection {self.name!r} is gone from {server} ({name})")
        if failure == "refused":
            return StoreError(f"{server} refuses this ({name})")
        if failure == "denied" and opening:
            return ConfigError(f"vector_store.config.api_key: {server} refuses it ({name})")
        problem = "refuses the api key" if failure == "denied" else "is out of reach"
        return StoreUnavailable(f"{server} {problem} ({name})")


def _is_client_error(error: Exception) -> bool:
    """Returns True for an exception of the client or its libraries.

    An exception that a signal handler raises, at any moment and in a class of its own, says nothing about the server.
    """
    return isinstance(error, _CLIENT_ERRORS) and not is_caller_timeout(error)


def _failure_of(error: Exception) -> str:
    """Classifies a failed call: "lost", "denied", "refused" or "unreachable"."""
    if isinstance(error, UnexpectedResponse):
        status = error.status_code or 0
        is_client_status = 400 <= status < 500  # noqa: PLR2004  (HTTP's own ranges)
        return _FAILURE_BY_STATUS.get(status, "refused" if is_client_status else "unreachable")
    if isinstance(error, RpcError):
        return _FAILURE_BY_CODE.get(_error_name(error), "unreachable")
    return "refused" if isinstance(error, _VALUE_ERRORS) and not _is_foreign_answer(error) else "unreachable"


def _is_foreign_answer(error: Exception) -> bool:
    """Returns True if the answer was not Qdrant's, such as a proxy's error page."""
    return isinstance(getattr(error, "source", error), JSONDecodeError | pydantic.ValidationError)


def _error_name(error: Exception) -> str:
    """Returns an error's name for messages; its text may quote a request."""
    if isinstance(error, UnexpectedResponse):
        return f"status {error.status_code}"
    if isinstance(error, ResponseHandlingException):
        return type(error.source).__name__
    if isinstance(error, RpcError) and hasattr(error, "code"):
        return str(error.code().name)
    return type(error).__name__
