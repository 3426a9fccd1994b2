"""How search, adding, and a rebuild hold up: made-up memories, so that a million does not take a day.

    python benchmarks/scale.py --memories 100000 --partitions 1
    python benchmarks/scale.py --memories 1000000 --search-cache-mb 8000 --questions 50
    NEO4J_URI=… NEO4J_PASSWORD=… QDRANT_URL=… python benchmarks/scale.py --memories 100000 --servers

The rows are inserted into the ledger's tables as commits would write them. Their shape follows long conversations:
sessions of twenty turns, twelve words each from a vocabulary with Zipf frequencies, three mentions, one entity in six
memories of ten, half a relation. Vectors are random around a thousand topics, at most 100,000 different ones. So the
figures measure the cost of size, not the quality of answers. Questions and the messages added at the end are real
sentences, read by the real models.

A Qdrant server that has stored the points goes on building its HNSW graphs on all cores. Searching is measured once the
server reports that it has finished; `indexed_s` are the seconds from filled projections until then.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from process_sample import sample_process

from graphmem import Memory
from graphmem.evaluation.environment import environment
from graphmem.model import VECTOR
from graphmem.models.minilm import TokenMiniLM
from graphmem.models.two_spaces import TwoSpaceEmbedder, minilm_reads
from graphmem.models.use_multilingual import UseMultilingual
from graphmem.plugins import embedding_spec_of
from graphmem.retrieval import pipeline
from graphmem.settings import Settings
from graphmem.stores.ledger import Ledger, integrity, outbox, schema
from graphmem.stores.ledger.index_blocks import encode_terms
from graphmem.stores.ledger.ledger_state import record_embedder
from graphmem.text import bm25_weights, term_counts

SEED, DIMS, TOPICS, DISTINCT = 0, 384, 1000, 100_000
SESSION, WORDS, VOCABULARY, TOKENS = 20, 12, 30_000, 12
START, MINUTE = 1_600_000_000_000_000, 60_000_000
ROWS = 20_000
WARM, QUESTIONS, ADDITIONS = 30, 200, 200
POLL_INTERVAL = 1.0
# What the default embedder stores of a text.
SPEC = embedding_spec_of(TwoSpaceEmbedder(TokenMiniLM(), UseMultilingual(), minilm_reads))
BASE = UUID("00000000-0000-4000-8000-000000000000").int
FIRST = (
    "Ada Boris Clara Dario Elena Felix Greta Hugo Ines Jonas Karim Lara Marek Nadia Oscar Petra Ravi Selma Tara".split()
)
LAST = (
    "Abel Brandt Costa Dahl Evers Fink Grau Holm Ivanov Jung Kern Lund Moser Nagy Olsen Pohl Quist Rossi Stein".split()
)
SPOKEN = (
    "{name} moved to Lisbon last year and likes the trams there.",
    "I met {name} at the harbour, we talked about the new boat.",
    "{name} is reading a book about glaciers and cannot stop.",
    "Next week {name} starts a course in pottery with a friend.",
)


class MadeUpLedger:
    """The made-up ledger: everything from one seed."""

    def __init__(self, memories: int, partitions: int) -> None:
        self.memories, self.partitions = memories, partitions
        self._chance = np.random.default_rng(SEED)
        self._entities = max(20, 3 * memories // 10)
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._stored_entities: set[tuple[int, int]] = set()
        self._word = np.cumsum(weights / weights.sum())
        self._topics = _unit(self._chance.standard_normal((TOPICS, DIMS), dtype=np.float32))

    def users(self) -> list[str]:
        return [f"user{partition}" for partition in range(self.partitions)]

    def name(self, entity: int) -> str:
        """A first name, a last one, and a number that makes it one of its kind."""
        return f"{FIRST[entity % len(FIRST)]} {LAST[entity // len(FIRST) % len(LAST)]}{entity}"

    def fill(self, ledger: Ledger) -> None:
        """Writes all rows; the last step computes the derived columns."""
        with ledger.write() as connection:
            users = [{"id": s + 1, "key": f"user:{user}", "size": 0} for s, user in enumerate(self.users())]
            connection.execute(schema.partitions.insert(), users)
            self._embeddings(connection)
            for first in range(0, self.memories, ROWS):
                self._insert_rows(connection, range(first, min(self.memories, first + ROWS)))
            connection.execute(schema.ledger.update().values(seq=2 * self.memories + 10))
        record_embedder(ledger, SPEC)
        with ledger.write() as connection:
            connection.execute(schema.entities.update().values(mentions=_mentions_of()))
            connection.execute(schema.entities.delete().where(schema.entities.c.mentions == 0))
            integrity.recompute_derived(connection)

    def _embeddings(self, connection: Any) -> None:
        for first in range(0, min(DISTINCT, self.memories), ROWS):
            rows = range(first, min(DISTINCT, self.memories, first + ROWS))
            topics = self._topics[self._chance.integers(0, TOPICS, len(rows))]
            vectors = _unit(topics + 0.6 / DIMS**0.5 * self._chance.standard_normal(topics.shape, dtype=np.float32))
            tokens = self._chance.integers(-40, 40, (len(rows), TOKENS, SPEC.token_dims), dtype=np.int8)
            multilingual = self._chance.integers(-40, 40, (len(rows), SPEC.multilingual_dims), dtype=np.int8)
            forms = VECTOR, SPEC.tokens, SPEC.multilingual
            embeddings = [
                {"hash": f"{row:032x}", "model": SPEC.model, "form": form, "window": 0, "data": data, "uses": 1}
                for row, *data_of_row in zip(rows, vectors, tokens, multilingual, strict=True)
                for form, data in zip(forms, map(np.ndarray.tobytes, data_of_row), strict=True)
            ]
            connection.execute(schema.embeddings.insert(), embeddings)

    def _insert_rows(self, connection: Any, rows: range) -> None:
        per_partition = -(-self.memories // self.partitions)
        entities_by_row = self._mentioned(rows, per_partition)
        entities = {entity for mentions in entities_by_row for entity in mentions}
        new_entities = [
            self._entity(partition, entity) for partition, entity in sorted(entities - self._stored_entities)
        ]
        self._stored_entities |= entities
        connection.execute(schema.entities.insert(), new_entities)
        connection.execute(schema.memories.insert(), [self._memory(row, row // per_partition) for row in rows])
        mentions = [
            {"memory": row + 1, "entity": self._row(*entity), "kind": 1, "at": START + row * MINUTE}
            for row, some in zip(rows, entities_by_row, strict=True)
            for entity in some
        ]
        connection.execute(schema.mentions.insert(), mentions)

    def _mentioned(self, rows: range, per_partition: int) -> list[list[tuple[int, int]]]:
        """Three entities for each memory: the partition's first in six of ten, the rest Zipf."""
        ranks = self._chance.zipf(1.3, (len(rows), 3))
        often = self._chance.random(len(rows)) < 0.6
        most = max(4, self._entities // self.partitions)
        return [
            sorted(
                {
                    (row // per_partition, 0 if first and place == 0 else int(rank) % most)
                    for place, rank in enumerate(some)
                }
            )
            for row, some, first in zip(rows, ranks, often, strict=True)
        ]

    def _row(self, partition: int, entity: int) -> int:
        return partition * max(4, self._entities // self.partitions) + entity + 1

    def _entity(self, partition: int, entity: int) -> dict[str, Any]:
        name = self.name(entity)
        row = self._row(partition, entity)
        return {
            "id": row,
            "partition": partition + 1,
            "key": name.lower(),
            "name": name,
            "type": "Person",
            "mentions": 1,
        }

    def _memory(self, row: int, partition: int) -> dict[str, Any]:
        words = np.searchsorted(self._word, self._chance.random(WORDS))
        text, at = " ".join(f"w{word}" for word in words), START + row * MINUTE
        return {
            "id": row + 1, "uid": str(UUID(int=BASE + row)), "partition": partition + 1, "user_id": f"user{partition}",
            "kind": "episode", "text": text, "metadata": {}, "speaker": "Ada",
            "session": f"s{row // SESSION}", "source_only": False, "at": at, "valid_from": at, "created_at": at,
            "updated_at": at, "version": 1, "seq": row + 1, "embedding": f"{row % DISTINCT:032x}", "windows": 1,
            "terms": encode_terms(bm25_weights(term_counts(text))),
        }  # fmt: skip

    def questions(self) -> Iterator[tuple[str, str]]:
        """Questions that name an entity, each with its user."""
        chance = np.random.default_rng(SEED + 1)
        most = max(4, self._entities // self.partitions)
        while True:
            entity = int(chance.zipf(1.3)) % most
            user = f"user{int(chance.integers(0, self.partitions))}"
            yield f"When did {self.name(entity)} talk about w{int(chance.integers(1, 300))} with a friend?", user


def _unit(matrix: Any) -> Any:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def _mentions_of() -> Any:
    from sqlalchemy import func, select  # noqa: PLC0415

    is_of_entity = schema.mentions.c.entity == schema.entities.c.id
    return select(func.count()).select_from(schema.mentions).where(is_of_entity).scalar_subquery()


def settings(*, servers: bool, search_cache_mb: int) -> Settings:
    """A folder alone, or vectors and graph on the servers that the environment names."""
    if not servers:
        return Settings(search_cache_mb=search_cache_mb)
    vectors = {"url": os.environ["QDRANT_URL"], "grpc_port": int(os.environ.get("QDRANT_GRPC_PORT", "6334"))}
    graph = {"url": os.environ["NEO4J_URI"], "password": os.environ["NEO4J_PASSWORD"]}
    return Settings.from_dict(
        {
            "vector_store": {"config": {**vectors, "collection_name": f"scale-{uuid4().hex[:8]}"}},
            "graph_store": {"provider": "neo4j", "config": graph},
            "search_cache_mb": search_cache_mb,
        }
    )


def wait_until_delivered(memory: Memory) -> None:
    """Waits until the projections hold everything; flush() gives up once a batch takes longer than a call may."""
    while memory.flush()["pending"]:
        time.sleep(POLL_INTERVAL / 10)


def wait_until_indexed(chosen: Settings) -> float:
    """Waits until the Qdrant server has no work left in our collection; returns the seconds."""
    from qdrant_client import QdrantClient, models  # noqa: PLC0415  (an extra)

    start = time.perf_counter()
    server = chosen.vector_store.config
    with closing(QdrantClient(server.url.get_secret_value(), check_compatibility=False)) as client:
        while client.get_collection(server.collection_name).status != models.CollectionStatus.GREEN:
            time.sleep(POLL_INTERVAL)
    return round(time.perf_counter() - start, 1)


def time_method(owner: Any, method: str, spent: dict[str, list[float]], name: str) -> None:
    """Puts a clock around a method."""
    act: Callable[..., Any] = getattr(owner, method)

    @wraps(act)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return act(*args, **kwargs)
        finally:
            spent[name].append(1000 * (time.perf_counter() - start))

    setattr(owner, method, timed)


def measure_search(memory: Memory, ledger_data: MadeUpLedger, questions: int) -> dict[str, Any]:
    """Milliseconds of a search, and of its parts; seconds of the first one, which reads a partition's rows."""
    times: dict[str, list[float]] = defaultdict(list)
    for owner, function, name in (
        (pipeline, "retrieve", "question and arms"),
        (memory.engine.backends.vector_index, "dense", "dense"),
        (memory.engine.backends.vector_index, "sparse", "keyword"),
        (pipeline, "neighbourhoods", "graph"),
    ):
        time_method(owner, function, times, name)
    totals: list[float] = []
    degraded: Counter[str] = Counter()
    for number, (question, user) in zip(range(WARM + questions), ledger_data.questions(), strict=False):
        if number == WARM:
            times.clear()
        start = time.perf_counter()
        degraded.update(memory.search(question, user_id=user).get("degraded", []))
        totals.append(1000 * (time.perf_counter() - start))
    return {
        "questions": questions,
        "first_s": round(totals[0] / 1000, 1),
        **_spread(totals[WARM:]),
        "degraded": dict(degraded),
        "parts": {k: _spread(v) for k, v in times.items()},
    }


def _spread(times: list[float]) -> dict[str, float]:
    return {"p50_ms": round(float(np.percentile(times, 50)), 1), "p95_ms": round(float(np.percentile(times, 95)), 1)}


def measure_adding(memory: Memory, ledger_data: MadeUpLedger) -> dict[str, float]:
    """Messages a second, with the real models: one by one, all in one call, by eight threads."""
    texts = iter(
        SPOKEN[n % len(SPOKEN)].format(name=ledger_data.name(n)) + f" Number {n}." for n in range(10 * ADDITIONS)
    )

    def per_second(act: Callable[[], Any]) -> float:
        start = time.perf_counter()
        act()
        return round(ADDITIONS / (time.perf_counter() - start), 1)

    some = lambda: [next(texts) for _ in range(ADDITIONS)]  # noqa: E731
    user = ledger_data.users()[0]
    single, batch, threads = some(), some(), some()
    memory.add("Ada begins.", user_id=user)
    with ThreadPoolExecutor(8) as pool:
        return {
            "single": per_second(lambda: [memory.add(text, user_id=user) for text in single]),
            "batch": per_second(
                lambda: memory.add([{"role": "user", "content": text} for text in batch], user_id=user)
            ),
            "eight_threads": per_second(lambda: list(pool.map(lambda text: memory.add(text, user_id=user), threads))),
        }


def measure(memories: int, partitions: int, questions: int, *, servers: bool, search_cache_mb: int) -> dict[str, Any]:
    """The figures, ready for JSON."""
    ledger_data = MadeUpLedger(memories, partitions)
    with tempfile.TemporaryDirectory(prefix="graphmem-", dir=os.environ.get("TMPDIR")) as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        start = time.perf_counter()
        ledger_data.fill(ledger)
        filled_s = round(time.perf_counter() - start, 1)
        with ledger.write() as connection:
            outbox.delete_cursor(connection, "vectors")
        ledger.close()
        chosen = settings(servers=servers, search_cache_mb=search_cache_mb)
        start = time.perf_counter()
        with Memory(folder, settings=chosen) as memory:
            try:
                wait_until_delivered(memory)  # opening notices that the projections are empty, and fills them
                if not servers:  # nothing was to be filled: `rebuild` computes the ledger's derived columns anew
                    start = time.perf_counter()
                    memory.rebuild()
                filling = {"rebuilt_s": round(time.perf_counter() - start, 1)}
                if servers:
                    filling["indexed_s"] = wait_until_indexed(chosen)
                return {
                    "benchmark": "scale", **environment(), "memories": memories, "partitions": partitions,
                    "stores": "servers" if servers else "embedded", "search_cache_mb": search_cache_mb,
                    "ledger_filled_s": filled_s,
                    "bytes": memory.stats()["bytes"], **filling,
                    "search": measure_search(memory, ledger_data, questions),
                    "added_per_second": measure_adding(memory, ledger_data),
                    "rss_mb": sample_process()["rss_mb"],
                }  # fmt: skip
            finally:
                memory.reset()
                wait_until_delivered(memory)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--servers", action="store_true", help="vectors and graph on servers (see above)")
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--search-cache-mb", type=int, default=Settings().search_cache_mb, help="as in the settings")
    arguments = parser.parse_args()
    print(json.dumps(measure(**vars(arguments)), indent=2))


if __name__ == "__main__":
    main()
