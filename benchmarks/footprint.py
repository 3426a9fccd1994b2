"""How many bytes a memory takes in each store: two sizes, their difference over the difference of the numbers.

    POSTGRES_URL=… QDRANT_URL=… NEO4J_URI=… NEO4J_PASSWORD=… python benchmarks/footprint.py \
        --qdrant DIR --neo4j DIR > benchmarks/results/footprint.json

The rows are those of `scale.py`: twelve words, a vector of 384 dimensions, the matrix of twelve tokens, three mentions,
each memory with an embedding of its own. `--qdrant` and `--neo4j` name the folders in which the servers keep their data
on this machine; what they take on the disk is counted, logs and preallocated files included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scale import MadeUpLedger, wait_until_delivered
from service import new_stores
from sqlalchemy import create_engine, make_url

from graphmem import Memory
from graphmem.evaluation.environment import environment
from graphmem.settings import Settings
from graphmem.stores.ledger import outbox

SIZES, PARTITIONS = (5_000, 20_000), 10
SETTLE_SECONDS = 10.0


def on_disk(folder: Path) -> int:
    """Returns the bytes that the files of a folder take on the disk."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


def fill(memory: Memory, memories: int) -> None:
    """Writes the rows, and waits until the projections, if there are any, hold them."""
    ledger = memory.engine.ledger
    MadeUpLedger(memories, PARTITIONS).fill(ledger)
    with ledger.write() as connection:
        for worker in memory.engine.projection_workers:
            outbox.delete_cursor(connection, worker.name)
    wait_until_delivered(memory)
    time.sleep(SETTLE_SECONDS)


def database_bytes() -> int:
    """Returns the size of the ledger's database on PostgreSQL, once what was deleted is gone."""
    url = make_url(os.environ["GRAPHMEM_LEDGER_URL"]).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM FULL")
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    engine.dispose()
    return int(size)


def measure_embedded(memories: int) -> dict[str, int]:
    """Returns the bytes of a memory in a folder."""
    with tempfile.TemporaryDirectory(prefix="graphmem-") as home:
        with Memory(home, settings=Settings()) as memory:
            fill(memory, memories)
        return {"sqlite": on_disk(Path(home))}


def measure_servers(memories: int, folders: dict[str, Path]) -> dict[str, int]:
    """Returns the bytes on the servers: what they have more than before."""
    before = {name: on_disk(folder) for name, folder in folders.items()}
    with tempfile.TemporaryDirectory(prefix="graphmem-") as home, new_stores(home):
        settings = Settings.from_env()
        with Memory(settings=settings) as memory:
            empty = database_bytes()
            fill(memory, memories)
            sizes = {"postgres": database_bytes() - empty}
            sizes |= {name: on_disk(folder) - before[name] for name, folder in folders.items()}
            memory.reset()
            wait_until_delivered(memory)
    return sizes


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qdrant", type=Path, help="the folder of Qdrant's data")
    parser.add_argument("--neo4j", type=Path, help="the folder of Neo4j's data")
    arguments = parser.parse_args()
    folders = {name: path for name, path in (("qdrant", arguments.qdrant), ("neo4j", arguments.neo4j)) if path}
    if "neo4j" in folders:
        os.environ["GRAPHMEM_GRAPH_STORE__PROVIDER"] = "neo4j"
        os.environ["GRAPHMEM_GRAPH_STORE__CONFIG__URL"] = os.environ["NEO4J_URI"]
        os.environ["GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD"] = os.environ["NEO4J_PASSWORD"]
    figures: dict[str, Any] = {}
    for memories in SIZES:
        sizes = measure_embedded(memories)
        if urlsplit(os.environ.get("POSTGRES_URL", "")).scheme:
            sizes |= measure_servers(memories, folders)
        figures[str(memories)] = sizes
        print(json.dumps(sizes), file=sys.stderr, flush=True)
    few, many = (figures[str(size)] for size in SIZES)
    each = {store: round((many[store] - few[store]) / (SIZES[1] - SIZES[0])) for store in many}
    json.dump({"benchmark": "footprint", **environment(), "bytes": figures, "bytes_each": each}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
