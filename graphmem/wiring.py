"""Settings become open stores and models: the only file that names concrete backends. Models load on first use."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr
from sqlalchemy import URL, select

from graphmem.boundary.validation import is_encodable
from graphmem.errors import ConfigError, StoreLocked
from graphmem.extraction.protocols import Extractor
from graphmem.models.protocols import Closeable, Embedder, LanguageModel
from graphmem.settings import CallableEmbedder as CallableSettings
from graphmem.settings import MinilmEmbedder as MinilmSettings
from graphmem.settings import Neo4jConfig, QdrantConfig, Settings
from graphmem.settings import Neo4jGraph as Neo4jSettings
from graphmem.settings import NetworkxGraph as NetworkxSettings
from graphmem.settings import OpenaiEmbedder as OpenaiEmbedderSettings
from graphmem.settings import SpacyExtractor as SpacySettings
from graphmem.stores.ledger import Ledger, secret_key
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.stores.ledger.postgres import parse_url
from graphmem.stores.ledger.schema import ledger as ledger_table
from graphmem.stores.ledger.secret_key import SecretKeySource
from graphmem.stores.ledger.sqlite import private_folder
from graphmem.stores.numpy_index import NumpyIndex
from graphmem.stores.projection import GraphSink, Projection, VectorSink
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.stores.protocols import Graph, GraphIndex, VectorIndex

if TYPE_CHECKING:
    from graphmem.stores.neo4j.index import Neo4jIndex
    from graphmem.stores.qdrant.embedded import EmbeddedIndex
    from graphmem.stores.qdrant.server import ServerIndex

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Backends:
    """What a Memory works with.

    `llm` is None without a language model, `graph_copy` where the graph is the ledger's own tables.
    """

    ledger: Ledger
    embedder: Embedder
    extractor: Extractor | None
    llm: LanguageModel | None
    index: VectorIndex
    vectors: ProjectionWorker
    graph: Graph
    graph_copy: ProjectionWorker | None

    @property
    def projection_workers(self) -> list[ProjectionWorker]:
        """Who delivers: one for each projection."""
        return [self.vectors] if self.graph_copy is None else [self.vectors, self.graph_copy]

    def close_projections(self) -> None:
        """Lets go of the projections' files and connections, and of the models'."""
        with ExitStack() as closing:
            for model in (self.embedder, self.llm):
                if isinstance(model, Closeable):
                    closing.callback(model.close)
            if isinstance(self.graph, GraphIndex):
                closing.callback(self.graph.close)
            closing.callback(self.index.close)


def open_backends(settings: Settings, *, in_memory: bool) -> Backends:
    """Opens what the settings name; servers are reached later, by their projection workers.

    Raises ConfigError for what cannot be had, StoreError for a ledger that cannot be used, EmbeddingError if an
    embedding endpoint has to be asked for the length of its vectors and does not tell.
    """
    settings.check_available()
    with ExitStack() as refused:
        llm, embedder, extractor = _llm(settings), _embedder(settings), _extractor(settings)
        if isinstance(embedder, Closeable):
            refused.callback(embedder.close)
        place = None if in_memory else _ledger_place(settings)
        ledger = Ledger(place, _keyring(settings, place))
        refused.callback(ledger.close)
        index, vectors = _vectors(settings, ledger, embedder, in_memory=in_memory)
        refused.callback(index.close)
        graph, graph_copy = _graph(settings, ledger, in_memory=in_memory)
        refused.pop_all()
    return Backends(ledger, embedder, extractor, llm, index, vectors, graph, graph_copy)


def home_folder(settings: Settings) -> Path:
    """The folder of the embedded stores: as configured, else $GRAPHMEM_HOME, else ~/.graphmem."""
    if settings.home is not None:
        return settings.home
    try:
        named = os.environ.get("GRAPHMEM_HOME")
        return Path(named).expanduser() if named else Path.home() / ".graphmem"
    except RuntimeError as error:
        raise ConfigError(
            "home: the folder that ~ stands for is unknown; set home (or GRAPHMEM_HOME) to a path written out"
        ) from error


def storage_paths(settings: Settings) -> list[Path]:
    """The folders and files that hold a memory: nothing else is to be put there."""
    vectors, ledger = settings.vector_store.config.path, _ledger_place(settings)
    files = [] if isinstance(ledger, URL) else [ledger.with_name(f"{ledger.name}{end}") for end in ("", "-wal", "-shm")]
    keys = [file.with_name(secret_key.KEY_FILE) for file in files[:1]]
    return [place.absolute() for place in (home_folder(settings), *([vectors] if vectors else []), *files, *keys)]


def _ledger_place(settings: Settings) -> Path | URL:
    if settings.ledger_url is not None:
        url = settings.ledger_url.get_secret_value()
        if url.startswith("postgres"):
            return parse_url(url)
        path = url.partition("///")[2]
        if not is_encodable(path):
            raise ConfigError("ledger_url: holds a lone surrogate, which no name of a file can; correct it")
        return Path(path)
    return Path(settings.history_db_path or home_folder(settings) / "ledger.sqlite").expanduser()


def _keyring(settings: Settings, place: Path | URL | None) -> SecretKeySource:
    beside = place.parent if isinstance(place, Path) else home_folder(settings)
    return SecretKeySource(
        configured=_revealed(settings.secret_key),
        file=None if place is None else beside.absolute() / secret_key.KEY_FILE,
        may_replace=settings.replace_secret_key,
        is_local=not isinstance(place, URL),
    )


def _embedder(settings: Settings) -> Embedder:
    wanted = settings.embedder
    found: Embedder
    if isinstance(wanted, CallableSettings):
        from graphmem.models.callable import CallableEmbedder  # noqa: PLC0415  (only what is used is imported)

        found = CallableEmbedder(wanted.config.embed, wanted.config.embedding_dims, wanted.config.model)
    elif isinstance(wanted, OpenaiEmbedderSettings):
        from graphmem.models.openai_embeddings import OpenaiEmbedder  # noqa: PLC0415

        found = OpenaiEmbedder(
            wanted.config.model,
            api_key=_revealed(wanted.config.api_key),
            base_url=_revealed(wanted.config.openai_base_url),
            dims=wanted.config.embedding_dims,
            batch_size=wanted.config.batch_size,
            timeout=wanted.config.timeout,
        )
    else:
        from graphmem.models.minilm import MiniLM, TokenMiniLM  # noqa: PLC0415

        found = TokenMiniLM() if isinstance(wanted, MinilmSettings) and wanted.config.tokens else MiniLM()
    said = settings.vector_store.config.embedding_model_dims
    if said is not None and said != found.dims:
        raise ConfigError(
            f"vector_store.config.embedding_model_dims is {said}, but the embedder {found.model!r} gives {found.dims}; "
            "leave it out or correct it"
        )
    return found


def _llm(settings: Settings) -> LanguageModel | None:
    if settings.llm is None:
        return None
    from graphmem.models.openai_chat import OpenaiChatModel, Prices  # noqa: PLC0415

    config = settings.llm.config
    prices = config.prices
    return OpenaiChatModel(
        config.model,
        api_key=_revealed(config.api_key),
        base_url=_revealed(config.openai_base_url),
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        timeout=config.timeout,
        prices=None if prices is None else Prices(prices.prompt, prices.completion, prices.cached),
    )


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _extractor(settings: Settings) -> Extractor | None:
    if not isinstance(settings.extractor, SpacySettings):
        return None
    from graphmem.extraction.spacy.extractor import SpacyExtractor  # noqa: PLC0415

    return SpacyExtractor(settings.extractor.config.model)


def _vectors(
    settings: Settings, ledger: Ledger, embedder: Embedder, *, in_memory: bool
) -> tuple[VectorIndex, ProjectionWorker]:
    """The index and who delivers to it. A second process on a folder gets an index of its own."""
    config = settings.vector_store.config
    if not _FOLDER_NAME.fullmatch(config.collection_name):
        raise ConfigError(
            f"vector_store.config.collection_name {config.collection_name!r}: use letters, digits, '-' and '_', "
            "at most 64 of them, beginning with a letter or digit"
        )
    if config.is_server:
        _refuse_in_memory("vector_store", in_memory=in_memory)
        server = _qdrant(config, ledger, embedder)

        def check() -> None:
            if recorded_embedder(ledger) in {None, embedder.model}:  # else a rebuild is due, and the ledger says so
                server.check()

        there, target = f"qdrant/{config.collection_name}", VectorSink(server, embedder.model)
        return server, ProjectionWorker(
            Projection("vectors", ledger, target, shared=True, leased=True, place=there), check
        )
    index = None if in_memory else _edge(settings, ledger, embedder)
    if index is None:
        own = NumpyIndex()
        return own, ProjectionWorker(Projection("vectors", ledger, VectorSink(own, embedder.model), shared=False))
    place = index.place if ledger.on_server else None  # else there is one such folder
    return index, ProjectionWorker(
        Projection("vectors", ledger, VectorSink(index, embedder.model), shared=True, place=place)
    )


def _refuse_in_memory(key: str, *, in_memory: bool) -> None:
    if in_memory:
        raise ConfigError(
            f'{key}: a server is configured, and Memory(":memory:") would leave there what nobody could find again; '
            "give it a folder, or leave the server out"
        )


def _edge(settings: Settings, ledger: Ledger, embedder: Embedder) -> EmbeddedIndex | None:
    """The engine in this process; None when another process holds its folder."""
    from graphmem.stores.qdrant.embedded import EmbeddedIndex  # noqa: PLC0415

    config = settings.vector_store.config
    base = Path(config.path).expanduser() if config.path is not None else home_folder(settings) / "vectors"
    private_folder(base.parent)  # home, where no ledger's file has made it
    try:
        # The ledger's own folder: two ledgers that are given one path never touch each other's points.
        return EmbeddedIndex(base / f"{config.collection_name}-{ledger.uuid}", embedder.dims)
    except StoreLocked:
        return None


def _qdrant(config: QdrantConfig, ledger: Ledger, embedder: Embedder) -> ServerIndex:
    try:
        from graphmem.stores.qdrant.client import QdrantOptions  # noqa: PLC0415
        from graphmem.stores.qdrant.server import ServerIndex  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ConfigError("vector_store: a Qdrant server needs its client: pip install 'graphmem[qdrant]'") from error
    key = _revealed(config.api_key)
    address = f"{config.host}:{config.port or 6333}" if config.url is None else config.url.get_secret_value()
    scheme = "http" if key is None else "https"  # as qdrant-client has it, where none is given
    server = QdrantOptions(
        url=address if "://" in address else f"{scheme}://{address}",
        api_key=key,
        collection=config.collection_name,
        grpc_port=config.grpc_port,
        prefer_grpc=config.prefer_grpc,
        on_disk=bool(config.on_disk),
        quantized=config.quantization is not None,
    )
    return ServerIndex(server, ledger.uuid, embedder.model, embedder.dims)


def _graph(settings: Settings, ledger: Ledger, *, in_memory: bool) -> tuple[Graph, ProjectionWorker | None]:
    """The graph and, if it is a copy, who fills it."""
    wanted = settings.graph_store
    if isinstance(wanted, NetworkxSettings):
        from graphmem.stores.networkx_graph import NetworkxIndex  # noqa: PLC0415  (networkx is slow to import)

        copy = NetworkxIndex()
        return copy, ProjectionWorker(Projection("graph", ledger, GraphSink(copy), shared=False))
    if isinstance(wanted, Neo4jSettings):
        _refuse_in_memory("graph_store", in_memory=in_memory)
        server = _neo4j(wanted.config, ledger)
        place = f"neo4j/{wanted.config.database}"
        projection = Projection("graph", ledger, GraphSink(server), shared=True, leased=True, place=place)
        return server, ProjectionWorker(projection, server.check)
    return EmbeddedGraph(ledger), None


def _neo4j(config: Neo4jConfig, ledger: Ledger) -> Neo4jIndex:
    try:
        from graphmem.stores.neo4j.index import Neo4jIndex  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ConfigError("graph_store: neo4j needs its driver: pip install 'graphmem[neo4j]'") from error
    url, password = config.url.get_secret_value(), config.password.get_secret_value()
    return Neo4jIndex(url, config.username, password, config.database, ledger.uuid)


def recorded_embedder(ledger: Ledger) -> str | None:
    """The model whose vectors the ledger's projections hold; None before the first."""
    with ledger.read() as connection:
        return connection.scalar(select(ledger_table.c.embedder))


def record_embedder(ledger: Ledger, model: str) -> None:
    """Notes that the projections hold this model's vectors."""
    with ledger.write() as connection:
        connection.execute(ledger_table.update().values(embedder=model))
