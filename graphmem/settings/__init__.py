"""Configuration: builds one checked `Settings` from a dict in mem0's shape, a file, or GRAPHMEM_* variables."""

from graphmem.settings.schema import (
    CallableEmbedder,
    LedgerGraph,
    LifecycleSettings,
    MinilmEmbedder,
    Neo4jConfig,
    Neo4jGraph,
    NetworkxGraph,
    OpenaiEmbedder,
    QdrantConfig,
    Settings,
    SpacyExtractor,
    WebhookSettings,
)
from graphmem.settings.sources import ENVIRONMENT_PREFIX

__all__ = [
    "ENVIRONMENT_PREFIX",
    "CallableEmbedder",
    "LedgerGraph",
    "LifecycleSettings",
    "MinilmEmbedder",
    "Neo4jConfig",
    "Neo4jGraph",
    "NetworkxGraph",
    "OpenaiEmbedder",
    "QdrantConfig",
    "Settings",
    "SpacyExtractor",
    "WebhookSettings",
]
