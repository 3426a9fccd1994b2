"""Settings become open stores and models: the only file that names concrete backends. Models load on first use."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from graphmem.errors import ConfigError, StoreLocked
from graphmem.providers.base import Embedder, Extractor
from graphmem.settings import CallableEmbedder as CallableSettings
from graphmem.settings import MinilmEmbedder as MinilmSettings
from graphmem.settings import NetworkxGraph as NetworkxSettings
from graphmem.settings import Settings
from graphmem.settings import SpacyExtractor as SpacySettings
from graphmem.stores.base import Graph, VectorIndex
from graphmem.stores.deliver import Graphs, Projection, Vectors
from graphmem.stores.exact import ExactIndex
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.graphs import LedgerGraph
from graphmem.stores.ledger.schema import ledger as ledger_table

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Backends:
    """What a Memory works with. `graph_copy` is None where the graph is the ledger's own tables."""

    ledger: Ledger
    embedder: Embedder
    extractor: Extractor | None
    index: VectorIndex
    vectors: Projection
    graph: Graph
    graph_copy: Projection | None


def open_backends(settings: Settings, *, in_memory: bool) -> Backends:
    """Opens what the settings name.

    Raises ConfigError for what cannot be had, StoreError for a ledger that cannot be used.
    """
    settings.check_available()
    embedder, extractor = _embedder(settings), _extractor(settings)
    ledger = Ledger(None if in_memory else _ledger_path(settings))
    with ExitStack() as refused:
        refused.callback(ledger.close)
        index, shared = _vector_index(settings, ledger, embedder, in_memory=in_memory)
        refused.pop_all()
    vectors = Projection("vectors", ledger, Vectors(index, embedder.model), shared=shared)
    if isinstance(settings.graph_store, NetworkxSettings):
        from graphmem.stores.networkx import NetworkxGraph  # noqa: PLC0415  (networkx is slow to import)

        copy = NetworkxGraph()
        graph_copy = Projection("graph", ledger, Graphs(copy), shared=False)
        return Backends(ledger, embedder, extractor, index, vectors, copy, graph_copy)
    return Backends(ledger, embedder, extractor, index, vectors, LedgerGraph(ledger), None)


def home_of(settings: Settings) -> Path:
    """The folder of the embedded stores: as configured, else $GRAPHMEM_HOME, else ~/.graphmem."""
    return Path(settings.home or os.environ.get("GRAPHMEM_HOME") or Path.home() / ".graphmem").expanduser()


def _ledger_path(settings: Settings) -> Path:
    if settings.ledger_url is not None:
        return Path(settings.ledger_url.partition("///")[2])
    return Path(settings.history_db_path or home_of(settings) / "ledger.sqlite").expanduser()


def _embedder(settings: Settings) -> Embedder:
    wanted = settings.embedder
    found: Embedder
    if isinstance(wanted, CallableSettings):
        from graphmem.providers.callable import CallableEmbedder  # noqa: PLC0415  (only what is used is imported)

        found = CallableEmbedder(wanted.config.embed, wanted.config.embedding_dims, wanted.config.model)
    else:
        from graphmem.providers.minilm import MiniLM, TokenMiniLM  # noqa: PLC0415

        found = TokenMiniLM() if isinstance(wanted, MinilmSettings) and wanted.config.tokens else MiniLM()
    said = settings.vector_store.config.embedding_model_dims
    if said is not None and said != found.dims:
        raise ConfigError(
            f"vector_store.config.embedding_model_dims is {said}, but the embedder {found.model!r} gives {found.dims}; "
            "leave it out or correct it"
        )
    return found


def _extractor(settings: Settings) -> Extractor | None:
    if not isinstance(settings.extractor, SpacySettings):
        return None
    from graphmem.providers.spacy import SpacyExtractor  # noqa: PLC0415

    return SpacyExtractor(settings.extractor.config.model)


def _vector_index(
    settings: Settings, ledger: Ledger, embedder: Embedder, *, in_memory: bool
) -> tuple[VectorIndex, bool]:
    """The index, and whether it is shared by all processes. A second process on a folder gets one of its own."""
    if in_memory:
        return ExactIndex(), False
    from graphmem.stores.edge import EdgeIndex  # noqa: PLC0415

    config = settings.vector_store.config
    if not _FOLDER_NAME.fullmatch(config.collection_name):
        raise ConfigError(
            f"vector_store.config.collection_name {config.collection_name!r}: use letters, digits, '-' and '_', "
            "at most 64 of them, beginning with a letter or digit"
        )
    base = Path(config.path).expanduser() if config.path is not None else home_of(settings) / "vectors"
    try:
        # The ledger's own folder: two ledgers that are given one path never touch each other's points.
        return EdgeIndex(base / f"{config.collection_name}-{ledger.uuid}", embedder.dims), True
    except StoreLocked:
        return ExactIndex(), False


def embedder_of(ledger: Ledger) -> str | None:
    """The model whose vectors the ledger's projections hold; None before the first."""
    with ledger.read() as connection:
        return connection.scalar(select(ledger_table.c.embedder))


def note_embedder(ledger: Ledger, model: str) -> None:
    """Notes that the projections hold this model's vectors."""
    with ledger.write() as connection:
        connection.execute(ledger_table.update().values(embedder=model))
