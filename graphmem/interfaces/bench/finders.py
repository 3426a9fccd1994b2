"""The configurations that are compared: the only place that says how a question is put to a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphmem.errors import StoreError
from graphmem.memory import Memory

Scope = Mapping[str, str]
Finder = Callable[[Memory, str, Scope, int], list[str]]
"""(memory, question, scope as `{"user_id": …}`, top_k) to the ids of memories, best first, each once."""

# As many as the candidates of a search can be: the dense order is taken of all of them.
CANDIDATES = 300


def _full(memory: Memory, question: str, scope: Scope, top_k: int) -> list[str]:
    """The search as everybody has it."""
    return [hit["id"] for hit in _hits(memory, question, scope, top_k)]


def _cosine(memory: Memory, question: str, scope: Scope, top_k: int) -> list[str]:
    """The candidates of that search by their cosine with the question alone."""
    hits = _hits(memory, question, scope, CANDIDATES)
    return [hit["id"] for hit in sorted(hits, key=lambda hit: -hit["similarity"])[:top_k]]


def _hits(memory: Memory, question: str, scope: Scope, top_k: int) -> list[Any]:
    """What was found. Raises StoreError if an arm was left out: the figures would be of something else."""
    found = memory.search(question, user_id=scope["user_id"], top_k=top_k)
    if found.get("degraded"):
        raise StoreError(
            f"a search was answered without {', '.join(found['degraded'])}; figures of it would mean nothing, "
            "run the benchmark again"
        )
    return list(found["results"])


FINDERS: Mapping[str, Finder] = {"full": _full, "cosine": _cosine}
# What is told as a difference, first minus second: what the graph adds.
PAIR = ("full", "cosine")
