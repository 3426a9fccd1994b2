"""Configuration: builds one checked `Settings` from a dict in mem0's shape, a file, or GRAPHMEM_* variables."""

from graphmem.settings.schema import (
    RERANK_CANDIDATES,
    RERANK_SECONDS,
    CallableEmbedder,
    CallableReranker,
    LedgerGraph,
    LifecycleSettings,
    MinilmEmbedder,
    Neo4jConfig,
    Neo4jGraph,
    NetworkxGraph,
    OpenaiChatConfig,
    OpenaiEmbedder,
    OpenaiLlm,
    ProcessWorking,
    QdrantConfig,
    Settings,
    SpacyExtractor,
)
from graphmem.settings.sources import ENVIRONMENT_PREFIX

__all__ = [
    "ENVIRONMENT_PREFIX",
    "RERANK_CANDIDATES",
    "RERANK_SECONDS",
    "CallableEmbedder",
    "CallableReranker",
    "LedgerGraph",
    "LifecycleSettings",
    "MinilmEmbedder",
    "Neo4jConfig",
    "Neo4jGraph",
    "NetworkxGraph",
    "OpenaiChatConfig",
    "OpenaiEmbedder",
    "OpenaiLlm",
    "ProcessWorking",
    "QdrantConfig",
    "Settings",
    "SpacyExtractor",
]
