"""The demo conversation with later changes, stored in a Neo4j, and the Cypher files that people run on it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmem import Memory
from graphmem.cli.demo import USER, store
from graphmem.commands.types import RetireMemory
from graphmem.model import Kind
from graphmem.stores.ledger import memories, outbox
from graphmem.stores.ledger.schema import links
from support.neo4j_servers import Server
from support.waiting import wait_until

EXPLORE = Path(__file__).parents[2] / "cypher" / "explore"
FILES = sorted(EXPLORE.glob("*.cypher"))
MOVED = datetime(2025, 6, 2, 12, 10, tzinfo=UTC)


@contextmanager
def demo_memory(server: Server, home: Path) -> Iterator[Memory]:
    """A memory of what the demo stores, with the usual models and its graph on a server; removed at the end."""
    neo4j = {"url": server.uri, "username": server.username, "password": server.password}
    config = {
        "history_db_path": str(home / "ledger.sqlite"),
        "vector_store": {"provider": "qdrant", "config": {"path": str(home / "vectors")}},
        "graph_store": {"provider": "neo4j", "config": neo4j},
    }
    memory = Memory.from_config(config)
    try:
        store(memory)
        wait_until(lambda: memory.flush() == {"pending": []})  # a server that has just started is slow
        yield memory
    finally:
        memory.close()
        server.remove(memory.engine.ledger.uuid)


def partition(memory: Memory) -> str:
    """The full name of the demo's partition: other ledgers on the server may hold the demo, too."""
    return f"{memory.engine.ledger.uuid}/user:{USER}"


def find_memory(memory: Memory, words: str) -> str:
    """The id of the memory whose text contains these words."""
    (uid,) = (hit["id"] for hit in memory.get_all(user_id=USER, top_k=1000)["results"] if words in hit["memory"])
    return str(uid)


def continue_conversation(memory: Memory) -> None:
    """Adds to the demo: a change that ends what the demo's conversation says, a contradiction, a summary."""
    for when, words in (
        ("2025-06-03T09:00:00+00:00", "Hannah Osei lives in Bergen."),
        ("2025-06-04T09:00:00+00:00", "Hannah Osei lives in Oslo."),
        ("2025-06-05T21:00:00+00:00", "Samir Haddad and Bela Moravec cannot make it on weekdays."),
    ):
        memory.add([{"role": "user", "name": "Ravi", "content": words, "timestamp": when}], user_id=USER)
    retired, successor = find_memory(memory, "Harbour Street"), find_memory(memory, "gone to live")
    memory.engine.commit([RetireMemory(retired, at=MOVED, reason="moved", successor=successor)])
    _summarise(
        memory,
        find_memory(memory, "cannot make it"),
        find_memory(memory, "itches"),
        find_memory(memory, "glued the crack"),
    )
    assert memory.flush() == {"pending": []}


def _summarise(memory: Memory, summary: str, *sources: str) -> None:
    """Makes a memory the summary of others, as a language model would have done."""
    with memory.engine.ledger.write() as connection:
        record = memories.find(connection, summary)
        assert record is not None
        memories.update(connection, replace(record, kind=Kind.SUMMARY, seq=outbox.next_seq(connection)))
        for source in sources:
            other = memories.find(connection, source)
            assert other is not None
            connection.execute(links.insert().values(memory=record.row, kind="drawn_from", other=other.row))


def parameters(path: Path) -> dict[str, Any]:
    """The parameters that a file's head names, with the values it gives as examples."""
    lines = re.findall(r"^// :param (\w+) => (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {name: ast.literal_eval(value) for name, value in lines}
