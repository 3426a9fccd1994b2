"""What the compared systems have in common: their protocol, the one encoder, and how each is opened by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphmem.evaluation.datasets import BenchmarkQuestion, Message
from graphmem.model import embedded_text
from graphmem.models.minilm import DIMS, TokenMiniLM

Vectors = npt.NDArray[np.float32]


class System(Protocol):
    """A memory that is compared. Each partition is searched by itself."""

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        """Stores messages of a partition; a search finds them once this returns."""
        ...

    def settle(self) -> None:
        """Does what the system's documentation recommends once many messages were added, such as making indexes."""
        ...

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        """Returns the ids of at most k messages of the question's partition, best first."""
        ...

    def close(self) -> None:
        """Frees what is held, also on servers."""
        ...


class Encoder:
    """MiniLM, one unit vector (384,) for each text: the direction of the sum of the vectors of its windows."""

    dims = DIMS

    def __init__(self) -> None:
        self._model = TokenMiniLM()
        self._remembered: dict[str, Vectors] | None = None

    def texts(self, texts: Iterable[str]) -> Vectors:
        """Returns the vectors of texts (n x 384)."""
        wanted = list(texts)
        known = {} if self._remembered is None else self._remembered
        missing = [text for text in dict.fromkeys(wanted) if text not in known]
        for text, windows in zip(missing, self._model.embed(missing), strict=True):
            vector = windows.sum(axis=0)
            known[text] = vector / np.linalg.norm(vector)
        return np.stack([known[text] for text in wanted]) if wanted else np.empty((0, DIMS), np.float32)

    def question(self, text: str) -> Vectors:
        """Returns the vector of a question (384,). It is always encoded, for that is part of a search."""
        return self._model.embed_query(text)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Encodes each text once while this lasts: filling many systems with the same texts is not what is timed."""
        self._remembered = {}
        try:
            yield
        finally:
            self._remembered = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a system stores, the encoder it is given, and the URL of a Qdrant server (None: there is none)."""

    folder: Path
    encoder: Encoder
    qdrant: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A system: the module and class that open it, its packages, and what was used of it, for the report.

    `is_in_folder`: all that it stores is in its folder, so that its bytes can be counted.
    """

    module: str
    class_name: str
    packages: tuple[str, ...]
    used: str
    is_in_folder: bool = True

    def open(self, place: Place) -> System:
        """Opens the system in an empty folder. Raises what its code raises where it cannot be had."""
        opened: Callable[[Place], System] = getattr(import_module(self.module), self.class_name)
        return opened(place)

    def versions(self) -> dict[str, str | None]:
        """Returns the installed version of each of its packages, None for one that is not there."""
        found = {one.name.lower().replace("_", "-"): one.version for one in metadata.distributions()}
        return {name: found.get(name) for name in self.packages}


FLOOR, OWN = "dense", "graphmem"
SYSTEMS: Mapping[str, Entry] = {
    OWN: Entry(
        "own_memory",
        "OwnMemory",
        ("graphmem",),
        "the defaults, embedded; its own copy of the encoder, and for other languages than English its second one",
    ),
    "mem0": Entry(
        "mem0_memory",
        "EmbeddedMem0",
        ("mem0ai", "qdrant-client", "fastembed", "spacy"),
        "`infer=False`, Qdrant in a folder, with the lemmas and the BM25 of its documentation (without: as `dense`)",
    ),
    "mem0, Qdrant server": Entry(
        "mem0_memory",
        "ServedMem0",
        ("mem0ai", "qdrant-client", "fastembed", "spacy"),
        "the same with a Qdrant server",
        is_in_folder=False,
    ),
    "LangGraph InMemoryStore": Entry(
        "langgraph_stores",
        "InMemory",
        ("langgraph-checkpoint",),
        "`index` over the whole item as JSON (its default); nothing on disk",
        is_in_folder=False,
    ),
    "LangGraph SqliteStore": Entry(
        "langgraph_stores",
        "Sqlite",
        ("langgraph-checkpoint-sqlite", "sqlite-vec"),
        "the same in SQLite, compared by sqlite-vec",
    ),
    "LanceDB hybrid": Entry(
        "lance_table",
        "LanceTable",
        ("lancedb",),
        "hybrid search, RRF (its default), index of ICU's words, which divides Chinese, too; `optimize` after filling",
    ),
    "Chroma": Entry(
        "chroma_collections",
        "ChromaCollections",
        ("chromadb",),
        "persistent client, a collection for each user, cosine; its hybrid search is for its cloud only",
    ),
    "FTS5 + numpy": Entry(
        "fts_baseline", "FtsBaseline", (), "SQLite FTS5 with Porter's stems and cosines, joined by reciprocal ranks"
    ),
    FLOOR: Entry(
        "dense_baseline",
        "DenseBaseline",
        (),
        "the floor: encode the question, compare with all vectors by numpy, read the texts from SQLite",
    ),
}


def spoken(message: Message) -> str:
    """Returns the text that all systems store: the words after the speaker's name, as graphmem embeds them."""
    return embedded_text(message.get("name"), message["content"])


def switch_off_telemetry(folder: Path) -> None:
    """Sets what mem0, Chroma and LangSmith document for that, and keeps mem0's own files in `folder`.

    To be called before they are imported: they read these variables then.
    """
    os.environ |= {
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(folder),
        "ANONYMIZED_TELEMETRY": "False",
        "LANGSMITH_TRACING": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
    }
