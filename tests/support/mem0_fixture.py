"""Real mem0ai, without network: its models are replaced by ones that need none. Works with every version since 0.1.

`python tests/support/mem0_fixture.py FOLDER` adds, updates and deletes some memories in a folder; older versions wrote
tests/data/mem0-* so.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import json
import os
import shutil
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

DIMS = 8
# Both are read when it is imported: it would send telemetry, and write into the home folder.
os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": mkdtemp(prefix="mem0-")}
atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)


class Embedder:
    """A vector for a text, by its bytes."""

    def __init__(self) -> None:
        self.config = type("Config", (), {"embedding_dims": DIMS, "model": "bytes"})()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [1 + byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIMS]]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text) for text in texts]


class Model:
    """A language model that draws one fact from any message, in the answer formats of all versions' prompts."""

    fact = "Likes hiking in Norway"

    def generate_response(self, *_: Any, **__: Any) -> str:
        memory = {"id": "0", "text": self.fact, "event": "ADD", "attributed_to": "user"}
        return json.dumps({"facts": [self.fact], "memory": [memory]})


def opened(folder: Path, **qdrant: Any) -> Any:
    """Opens a mem0 in a folder, or with its collection elsewhere; only its models are replaced."""
    from mem0 import Memory

    with suppress(ImportError):  # since 2.0
        from mem0.utils import spacy_models

        # Else it would download a model.
        spacy_models._load_failed_full = spacy_models._load_failed_lemma = True
    store = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMS, **qdrant}
    config = {
        "vector_store": {"provider": "qdrant", "config": {k: v for k, v in store.items() if v is not None}},
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
        "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": DIMS}},
        "history_db_path": str(folder / "history.db"),
    }
    with warnings.catch_warnings():
        # Qdrant's local mode does not close a database that it only reads.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.disable()  # what the next call makes is then in the youngest generation, the only one that is collected
        memory = Memory.from_config(config)
        gc.collect(0)
        gc.enable()
    memory.embedding_model, memory.llm = Embedder(), Model()
    return memory


def closed(memory: Any) -> None:
    """Closes all connections; older versions do not do it themselves."""
    memory.vector_store.client.close()
    connection = getattr(memory.db, "connection", None)
    if connection is not None:
        connection.close()
        memory.db.connection = None


def live(memory: Any) -> list[str]:
    """Adds verbatim and extracted memories to a mem0 1 or older, updates one, deletes one. Returns the ids in order."""
    messages = [
        {"role": "user", "name": "Tom", "content": "My sister Anna works at Nordlicht."},
        {"role": "assistant", "content": "Nordlicht has an office in Bergen."},
        {"role": "user", "content": "I like tea."},
        {"role": "user", "content": "Forget this one."},
    ]
    ids = []
    for message in messages:
        (one,) = memory.add([message], user_id="tom", agent_id="bot", metadata={"topic": "family"}, infer=False)[
            "results"
        ]
        ids.append(one["id"])
    (one,) = memory.add("I like hiking in Norway.", user_id="ida", infer=True)["results"]
    ids.append(one["id"])
    memory.update(ids[2], "I like coffee.")
    memory.delete(ids[3])
    return ids


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    alive = opened(place)
    live(alive)
    closed(alive)
