"""Searches whose outcomes are stored in `tests/data/search_outcomes.json`, and how to store them anew:

    python tests/support/search_outcomes.py

A change that shall leave the search as it is leaves the file as it is. One that shall not comes with the new file, in a
commit that says why and by how much recall moves.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphmem import Memory
from graphmem.evaluation import chats
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.models.minilm import MiniLM
from graphmem.models.use_multilingual import UseMultilingual

ROOT = Path(__file__).parent.parent.parent
STORED = ROOT / "tests" / "data" / "search_outcomes.json"
# Chats with their number of questions here: with an assistant in both languages and in English, long replies, friends.
CHATS = {"mix-1": 74, "zh-1": 57, "en-2": 74, "en-9": 40, "grp-1": 60}
TOP_K, DIGITS = 10, 7
# Its vectors tell whether this machine computes as the one did that stored the outcomes: instructions differ.
PROBE = "Nora moved to Lisbon in May, and her brother Ivo sold the boat."

Outcome = dict[str, Any]


def fill(memory: Memory, name: str) -> list[BenchmarkQuestion]:
    """Imports a chat with ids made of its messages' own; returns its questions."""
    dataset = chats.load(ROOT / "benchmarks" / "chats" / f"{name}.json")
    (messages,) = dataset.partitions.values()
    memory.import_(list(_records(name, messages)))
    memory.flush()
    return list(dataset.cases[: CHATS[name]])


def _records(name: str, messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        at = message["timestamp"].isoformat()
        author = {"role": message["role"], "actor_id": message.get("name")}
        record = {"type": "memory", "id": _memory_id(name, message["id"]), "text": message["content"], "user_id": name}
        yield {**record, **author, "at": at, "created_at": at}


def _memory_id(name: str, message_id: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {message_id}"))


def outcomes(memory: Memory, name: str, cases: Sequence[BenchmarkQuestion]) -> Iterator[Outcome]:
    """Yields for each question its hits as [id, score, relevance, path], best first, and the digest of its context."""
    messages = chats.load(ROOT / "benchmarks" / "chats" / f"{name}.json").partitions[name]
    short = {_memory_id(name, str(message["id"])): str(message["id"]) for message in messages}
    for case in cases:
        asked = {"user_id": name, "reference_date": case.query_time}
        found = memory.search(case.question, **asked, top_k=TOP_K, explain=True)["results"]
        hits = [
            [
                short[hit["id"]],
                round(hit["score"], DIGITS),
                round(hit["relevance"], DIGITS),
                " > ".join(short.get(step["id"], step["id"]) for step in hit["explain"]["path"] if "id" in step),
            ]
            for hit in found
        ]
        block = memory.context(case.question, **asked)
        yield {"ask": case.question, "hits": hits, "context": hashlib.sha256(block.encode()).hexdigest()[:16]}


def probe() -> str:
    """Returns a digest of what the models make of the probe on this machine."""
    digest = hashlib.sha256(MiniLM().embed_query(PROBE).tobytes())
    digest.update(UseMultilingual().encode([PROBE]).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Stores the outcomes of all questions."""
    stored: dict[str, Any] = {}
    with TemporaryDirectory() as home, Memory.from_config({"home": home}) as memory:
        for name in CHATS:
            stored[name] = list(outcomes(memory, name, fill(memory, name)))
            print(name, len(stored[name]), file=sys.stderr)
    chats_as_json = (
        f'"{name}": [\n' + ",\n".join(json.dumps(one, ensure_ascii=False) for one in stored[name]) + "\n]"
        for name in stored
    )
    STORED.write_text(f'{{\n"probe": "{probe()}",\n' + ",\n".join(chats_as_json) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
