"""Builds stores and models from `Settings`, for the engine. The only file that names concrete backends.

Models are loaded on first use.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import SecretStr
from sqlalchemy import URL

from graphmem.boundary.validation import is_encodable
from graphmem.concurrency import Pool
from graphmem.errors import ConfigError, ModelError, StoreUnavailable, install_extra
from graphmem.extraction import Extractor
from graphmem.given import Given
from graphmem.model import EmbeddingSpec, Utterance
from graphmem.observers import Observers
from graphmem.plugins import (
    Closeable,
    Embedder,
    Graph,
    LanguageModel,
    Reranker,
    TokenEmbedder,
    Transcriber,
    VectorIndex,
    VectorSearch,
    embedding_spec_of,
)
from graphmem.retrieval.reordering import BoundedReranker
from graphmem.settings import RERANK_CANDIDATES, RERANK_SECONDS, OpenaiChatConfig, Settings
from graphmem.settings import CallableEmbedder as CallableSettings
from graphmem.settings import CallableReranker as CallableRerankerSettings
from graphmem.settings import MinilmEmbedder as MinilmSettings
from graphmem.settings import Neo4jGraph as Neo4jSettings
from graphmem.settings import NetworkxGraph as NetworkxSettings
from graphmem.settings import OpenaiEmbedder as OpenaiEmbedderSettings
from graphmem.settings import ProcessWorking as ProcessWorkingSettings
from graphmem.settings import SpacyExtractor as SpacySettings
from graphmem.stores.blobs import BlobFolder
from graphmem.stores.ledger import Ledger, exists
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.stores.ledger.embedded_index import EmbeddedIndex
from graphmem.stores.ledger.ledger_state import recorded_embedder
from graphmem.stores.ledger.postgres import parse_url
from graphmem.stores.ledger.secret_key import SecretKeySource
from graphmem.stores.ledger.sqlite import KEY_FILE
from graphmem.stores.projection import GraphSink, Projection, VectorSink
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.stores.working import MESSAGES_PER_ROUND, WorkingMemory

if TYPE_CHECKING:
    from graphmem.ingest.enrichment import Enricher
    from graphmem.ingest.facts.pipeline import FactPipeline

T = TypeVar("T")

NOTHING_GIVEN = Given()

logger = logging.getLogger("graphmem")

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Backends:
    """The open stores and models of one Memory.

    `llm`, `vision` and `speech` are None unless they are configured or given; `extractor` is None if the configuration
    turns it off; `vector_worker` and `graph_worker` are None if that is read from the ledger's own tables; `working` is
    None without working memory. `owned`: what was opened here beside the ledger; given parts are closed by those who
    made them.
    """

    ledger: Ledger
    embedder: Embedder
    extractor: Extractor | None
    llm: LanguageModel | None
    reranker: BoundedReranker | None
    vision: LanguageModel | None
    speech: Transcriber | None
    vector_index: VectorSearch
    vector_worker: ProjectionWorker | None
    graph: Graph
    graph_worker: ProjectionWorker | None
    working: WorkingMemory | None
    owned: tuple[Closeable, ...]

    @property
    def projection_workers(self) -> list[ProjectionWorker]:
        """The workers that deliver, one for each projection."""
        return [worker for worker in (self.vector_worker, self.graph_worker) if worker is not None]

    def load_models(self) -> None:
        """Loads the models that run in this process, side by side, so that no first search or `add` waits for them.

        Never raises: a broken model raises when a search needs it.
        """
        from graphmem.retrieval import pipeline  # noqa: F401, PLC0415  (imported by the first search otherwise)

        with suppress(ModelError, StoreUnavailable), Pool(1, thread_name_prefix="graphmem-loading") as pool:
            parsing = None if self.extractor is None else pool.submit(self.extractor.extract, [Utterance("Anna")])
            # Only a TokenEmbedder runs in this process; any other embedder would send the word to its server.
            if isinstance(self.embedder, TokenEmbedder):
                self.embedder.embed_question("Anna")
            if parsing is not None:
                parsing.result()

    def close(self) -> None:
        """Closes what is not given: indexes, connections of models, and the ledger."""
        for worker in self.projection_workers:
            worker.cancel_waits()
        with ExitStack() as closing:
            closing.callback(self.ledger.close)  # also after an error: closing it empties its write-ahead log
            for part in self.owned:
                closing.callback(part.close)


def open_backends(settings: Settings, given: Given = NOTHING_GIVEN, *, in_memory: bool) -> Backends:
    """Opens the stores and models that the settings name, but for the given ones.

    Servers are connected later, by their projection workers. Raises ConfigError for a backend that is not installed or
    cannot be used as configured, StoreError for an unusable ledger, EmbeddingError if an embedding endpoint has to be
    asked for the length of its vectors and does not answer.
    """
    settings.check_available()
    owned: list[Closeable] = []
    with ExitStack() as cleanup:

        def own(part: T) -> T:
            if isinstance(part, Closeable):
                owned.append(part)
                cleanup.callback(part.close)
            return part

        if in_memory and settings.attachments.store == "folder":
            raise ConfigError(
                'attachments.store: "folder" keeps data in files, and Memory(":memory:") has none; give it a folder, '
                "or leave the key out"
            )
        llm = given.guarded_llm or own(None if settings.llm is None else _chat_model("llm.config", settings.llm.config))
        embedder = given.guarded_embedder or own(_embedder(settings))
        _check_dims(settings, embedder)
        reranker = _bounded_reranker(settings, given, own)
        vision, speech = own(_vision(settings)), own(_speech(settings))
        extractor = _extractor(settings)
        location = None if in_memory else ledger_location(settings)
        keeps_data = settings.attachments.store == "folder"
        blobs = None if in_memory else BlobFolder(home_folder(settings) / "blobs", keeps_new=keeps_data)
        ledger = Ledger(location, _keyring(settings, location), blobs, column_bytes=settings.search_cache_mb * 2**20)
        cleanup.callback(ledger.close)
        vector_index: VectorSearch
        vector_worker: ProjectionWorker | None
        if (index := given.guarded_index) is not None:
            vector_index, vector_worker = index, _worker_of_given(index, ledger, embedding_spec_of(embedder))
        else:
            vector_index, vector_worker = _open_vectors(settings, ledger, embedder, in_memory=in_memory)
            own(vector_index)
        working = own(_open_working(settings, ledger, in_memory=in_memory))
        graph, graph_worker = _open_graph(settings, ledger, in_memory=in_memory)
        own(graph)
        is_remote = any(worker is not None and worker.is_on_server for worker in (vector_worker, graph_worker))
        ledger.derived_stays_here = given.guarded_index is None and not is_remote
        cleanup.pop_all()
    return Backends(
        ledger,
        embedder,
        extractor,
        llm,
        reranker,
        vision,
        speech,
        vector_index,
        vector_worker,
        graph,
        graph_worker,
        working,
        tuple(owned),
    )


def fact_pipeline(
    settings: Settings, backends: Backends, model: LanguageModel, enricher: Enricher, observers: Observers
) -> FactPipeline:
    """Returns the pipeline that draws facts with a language model, as the settings say.

    Raises ConfigError for a file of rules that is not usable.
    """
    from graphmem.ingest.facts.pipeline import FactPipeline, PipelineConfig  # noqa: PLC0415  (only a model needs it)

    config = PipelineConfig(
        settings.custom_fact_extraction_prompt or settings.custom_instructions,
        settings.custom_update_memory_prompt,
        settings.summary_messages,
        timedelta(minutes=settings.session_gap),
        settings.conflicts == "confidence",
        settings.lifecycle.read_rules() if settings.extract == "matching" else None,
        settings.lifecycle.enabled,
    )
    return FactPipeline(
        backends.ledger, model, enricher, backends.vector_index, backends.vector_worker, config, observers
    )


def home_folder(settings: Settings) -> Path:
    """Returns the folder of the embedded stores: as configured, else $GRAPHMEM_HOME, else ~/.graphmem.

    Raises ConfigError if the home folder of ~ is unknown.
    """
    if settings.home is not None:
        return settings.home
    try:
        configured = os.environ.get("GRAPHMEM_HOME")
        return Path(configured).expanduser() if configured else Path.home() / ".graphmem"
    except RuntimeError as error:
        raise ConfigError(
            "home: the folder that ~ stands for is unknown; set home (or GRAPHMEM_HOME) to a path written out"
        ) from error


def storage_paths(settings: Settings) -> list[Path]:
    """Returns the folders and files that hold a memory, as absolute paths: no other file may be written there."""
    location = ledger_location(settings)
    files = (
        []
        if isinstance(location, URL)
        else [location.with_name(f"{location.name}{suffix}") for suffix in ("", "-wal", "-shm")]
    )
    keys = [file.with_name(KEY_FILE) for file in files[:1]]
    return [path.absolute() for path in (home_folder(settings), *files, *keys)]


def ledger_location(settings: Settings) -> Path | URL:
    """Returns the file of the ledger, or its URL on PostgreSQL. Raises ConfigError for an unusable path."""
    if settings.ledger_url is not None:
        url = settings.ledger_url.get_secret_value()
        if url.startswith("postgres"):
            return parse_url(url)
        file_path = url.partition("///")[2]
        if not is_encodable(file_path):
            raise ConfigError("ledger_url: holds a lone surrogate, which no name of a file can; correct it")
        return Path(file_path)
    return Path(settings.history_db_path or home_folder(settings) / "ledger.sqlite").expanduser()


def has_ledger(settings: Settings) -> bool:
    """Returns whether there is a ledger where the settings say, without creating one.

    Also True if it cannot be told: opening the ledger says why.
    """
    return exists(ledger_location(settings))


def _keyring(settings: Settings, location: Path | URL | None) -> SecretKeySource:
    folder = location.parent if isinstance(location, Path) else home_folder(settings)
    return SecretKeySource(
        configured=_secret_value(settings.secret_key),
        file=None if location is None else folder.absolute() / KEY_FILE,
        may_replace=settings.replace_secret_key,
        is_local=not isinstance(location, URL),
    )


def _embedder(settings: Settings) -> Embedder:
    section = settings.embedder
    embedder: Embedder
    if isinstance(section, CallableSettings):
        from graphmem.models.callable import CallableEmbedder  # noqa: PLC0415  (only the configured backend is imported)

        embedder = CallableEmbedder(section.config.embed, section.config.embedding_dims, section.config.model)
    elif isinstance(section, OpenaiEmbedderSettings):
        from graphmem.models.openai_embeddings import OpenaiEmbedder  # noqa: PLC0415

        embedder = OpenaiEmbedder(
            section.config.model,
            api_key=_secret_value(section.config.api_key),
            base_url=_secret_value(section.config.openai_base_url),
            dims=section.config.embedding_dims,
            batch_size=section.config.batch_size,
            timeout=section.config.timeout,
        )
    else:
        from graphmem.models.minilm import MiniLM, TokenMiniLM  # noqa: PLC0415
        from graphmem.models.two_spaces import TwoSpaceEmbedder, minilm_reads  # noqa: PLC0415
        from graphmem.models.use_multilingual import UseMultilingual  # noqa: PLC0415

        if isinstance(section, MinilmSettings) and section.config.tokens:
            embedder = TwoSpaceEmbedder(TokenMiniLM(), UseMultilingual(), minilm_reads)
        else:
            embedder = MiniLM()
    return embedder


def _check_dims(settings: Settings, embedder: Embedder) -> None:
    expected_dims = settings.vector_store.config.embedding_model_dims
    if expected_dims is not None and expected_dims != embedder.dims:
        raise ConfigError(
            f"vector_store.config.embedding_model_dims is {expected_dims}, but the embedder {embedder.model!r} gives "
            f"{embedder.dims}; leave it out or correct it"
        )


def _bounded_reranker(settings: Settings, given: Given, own: Callable[[Reranker], Reranker]) -> BoundedReranker | None:
    """Returns the given reranker, or the configured one, of which `own` is told; None without any."""
    section = settings.reranker
    if given.reranker is not None:
        return BoundedReranker(given.reranker, RERANK_CANDIDATES, RERANK_SECONDS)
    if section is None:
        return None
    if isinstance(section, CallableRerankerSettings):
        reranker: Reranker = section.config.rerank
    else:
        from graphmem.models.rerank_endpoint import EndpointReranker  # noqa: PLC0415

        config = section.config
        reranker = own(
            EndpointReranker(
                config.url.get_secret_value(),
                model=config.model,
                api_key=_secret_value(config.api_key),
                timeout=config.timeout,
            )
        )
    return BoundedReranker(reranker, section.config.candidates, section.config.timeout)


def _vision(settings: Settings) -> LanguageModel | None:
    configured = settings.vision_config
    return None if configured is None else _chat_model(*configured)


def _speech(settings: Settings) -> Transcriber | None:
    if settings.speech is None:
        return None
    from graphmem.models.openai_speech import OpenaiTranscriber  # noqa: PLC0415

    config = settings.speech.config
    return OpenaiTranscriber(
        config.model,
        api_key=_secret_value(config.api_key),
        base_url=_secret_value(config.openai_base_url),
        language=config.language,
        timeout=config.timeout,
    )


def _chat_model(section: str, config: OpenaiChatConfig) -> LanguageModel:
    from graphmem.models.openai_chat import OpenaiChatModel, Prices  # noqa: PLC0415

    prices = config.prices
    return OpenaiChatModel(
        config.model,
        api_key=_secret_value(config.api_key),
        base_url=_secret_value(config.openai_base_url),
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        timeout=config.timeout,
        prices=None if prices is None else Prices(prices.prompt, prices.completion, prices.cached),
        section=section,
    )


def _secret_value(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _extractor(settings: Settings) -> Extractor | None:
    if not isinstance(settings.extractor, SpacySettings):
        return None
    from graphmem.extraction.spacy.extractor import SpacyExtractor  # noqa: PLC0415

    return SpacyExtractor(settings.extractor.config.model)


def _worker_of_given(index: VectorIndex, ledger: Ledger, spec: EmbeddingSpec) -> ProjectionWorker:
    """Returns the worker of a given vector index, which other processes may use as well.

    `place` and `check` are those of `VectorIndex`, which an index may leave out.
    """
    place = getattr(index, "place", "") or type(index).__name__
    sink = VectorSink(index, spec)
    projection = Projection("vectors", ledger, sink, shared=True, leased=True, place=f"given/{place}")
    return ProjectionWorker(projection, getattr(index, "check", None))


def _open_vectors(
    settings: Settings, ledger: Ledger, embedder: Embedder, *, in_memory: bool
) -> tuple[VectorSearch, ProjectionWorker | None]:
    """Opens the vector index and returns it with, if it is a copy of the ledger's, the worker that delivers to it."""
    config, spec = settings.vector_store.config, embedding_spec_of(embedder)
    if not _FOLDER_NAME.fullmatch(config.collection_name):
        raise ConfigError(
            f"vector_store.config.collection_name {config.collection_name!r}: use letters, digits, '-' and '_', "
            "at most 64 of them, beginning with a letter or digit"
        )
    if config.is_server:
        _refuse_in_memory("vector_store", in_memory=in_memory)
        try:
            from graphmem.stores.qdrant.client import QdrantOptions  # noqa: PLC0415
            from graphmem.stores.qdrant.server import ServerIndex  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise ConfigError(f"vector_store: a Qdrant server needs its client; {install_extra('qdrant')}") from error
        key = _secret_value(config.api_key)
        address = f"{config.host}:{config.port or 6333}" if config.url is None else config.url.get_secret_value()
        scheme = "http" if key is None else "https"  # the default of qdrant-client
        options = QdrantOptions(
            url=address if "://" in address else f"{scheme}://{address}",
            api_key=key,
            collection=config.collection_name,
            grpc_port=config.grpc_port,
            prefer_grpc=config.prefer_grpc,
            on_disk=bool(config.on_disk),
            quantized=config.quantization is not None,
        )
        server = ServerIndex(options, ledger.uuid, spec)

        def check() -> None:
            with ledger.read() as connection:
                recorded = recorded_embedder(connection)
            if recorded in {None, spec.embedder}:  # else `check_embedder` asks for a rebuild
                server.check()

        sink = VectorSink(server, spec)
        server_place = f"qdrant/{config.collection_name}"
        return server, ProjectionWorker(
            Projection("vectors", ledger, sink, shared=True, leased=True, place=server_place), check
        )
    return EmbeddedIndex(ledger, spec), None


def _refuse_in_memory(key: str, *, in_memory: bool) -> None:
    if in_memory:
        raise ConfigError(
            f'{key}: a server is configured, and Memory(":memory:") would leave data there that nobody could '
            "find again; give it a folder, or leave the server out"
        )


def _open_working(settings: Settings, ledger: Ledger, *, in_memory: bool) -> WorkingMemory | None:
    section = settings.working
    if section is None:
        return None
    seconds, most = settings.session_gap * 60, section.config.rounds * MESSAGES_PER_ROUND
    if isinstance(section, ProcessWorkingSettings):
        from graphmem.stores.working.memory import ProcessWorkingMemory  # noqa: PLC0415

        return ProcessWorkingMemory(seconds, most)
    _refuse_in_memory("working", in_memory=in_memory)
    try:
        from graphmem.stores.working.redis import RedisWorkingMemory  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ConfigError(f"working: a Redis server needs its client; {install_extra('redis')}") from error
    return RedisWorkingMemory(section.config.url.get_secret_value(), ledger.uuid, seconds, most)


def _open_graph(settings: Settings, ledger: Ledger, *, in_memory: bool) -> tuple[Graph, ProjectionWorker | None]:
    """Opens the graph and returns it with, if it is a copy of the ledger's, the worker that delivers to it."""
    section = settings.graph_store
    if isinstance(section, NetworkxSettings):
        from graphmem.stores.networkx_graph import NetworkxIndex  # noqa: PLC0415  (networkx is slow to import)

        index = NetworkxIndex()
        return index, ProjectionWorker(Projection("graph", ledger, GraphSink(index), shared=False, place="networkx"))
    if isinstance(section, Neo4jSettings):
        _refuse_in_memory("graph_store", in_memory=in_memory)
        config = section.config
        try:
            from graphmem.stores.neo4j.index import Neo4jIndex  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise ConfigError(f"graph_store: neo4j needs its driver; {install_extra('neo4j')}") from error
        url, password = config.url.get_secret_value(), config.password.get_secret_value()
        server = Neo4jIndex(url, config.username, password, config.database, ledger.uuid, settings.zone)
        place = f"neo4j/{config.database}"
        projection = Projection("graph", ledger, GraphSink(server), shared=True, leased=True, place=place)
        return server, ProjectionWorker(projection, server.check)
    return EmbeddedGraph(ledger), None
