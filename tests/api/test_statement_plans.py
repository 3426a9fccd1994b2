"""No call reads a whole table of the ledger: its time would grow with what all other tenants have stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, event
from support.fakes import fake_models

from graphmem import Memory, Settings

TABLES = "memories|entities|relations|supports|mentions|events|links|embeddings|further_runs|attachments|tombstones"
WHOLE_TABLE = re.compile(rf"SCAN ({TABLES})\b")


@contextmanager
def whole_tables() -> Iterator[list[str]]:
    """Collects the statements for which SQLite reads a whole table; without statistics, sizes do not matter to it."""
    found = list[str]()

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, is_many: bool) -> None:
        if not is_many and statement.startswith(("SELECT", "WITH", "UPDATE")):
            steps = connection.connection.dbapi_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            found.extend(statement for step in steps if WHOLE_TABLE.match(step[3]))

    event.listen(Engine, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", explain)


def test_calls_read_no_whole_table_of_the_ledger(tmp_path: Path) -> None:
    """A search after somebody else's addition did: the index by sequence number lost against the order by row."""
    settings = Settings.from_dict(fake_models())
    with Memory(tmp_path, settings=settings) as memory, Memory(tmp_path, settings=settings) as other:
        memory.add("Ann lives in Oslo.", user_id="ann")
        for _ in range(2):  # a partition is kept in memory from its second search on
            memory.search("Where does Ann live?", user_id="ann")
        other.add("Bo lives in Bergen.", user_id="bo", run_id="r")
        with whole_tables() as found:
            memory.search("Where does Ann live?", user_id="ann", explain=True)
            memory.search("Where does Bo live?", user_id="bo", run_id="r")
            memory.context("Where does Ann live?", user_id="ann")
            (added,) = memory.add("Ann has a boat.", user_id="ann")["results"]
            memory.update(added["id"], "Ann has two boats.")
            memory.history(added["id"])
            memory.explain(added["id"])
            memory.delete(added["id"])
            memory.get_all(user_id="ann")
            memory.flush()
    assert found == []


def test_an_import_enqueues_the_enrichments_of_a_batch_in_one_statement(tmp_path: Path) -> None:
    """One for each memory took as long as the rest of storing it."""
    texts = [f"Ann has {number} boats." for number in range(20)]
    records = [
        {"type": "memory", "id": str(uuid4()), "user_id": "ann", "text": one, "at": "2025-07-01"} for one in texts
    ]
    enqueued = list[bool]()

    def note(_connection: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, is_many: bool) -> None:
        if statement.startswith("INSERT INTO jobs"):
            enqueued.append(is_many)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with Memory(tmp_path, settings=Settings.from_dict(fake_models())) as memory:
            assert memory.import_([*records, records[0]])["known"] == 1
            assert enqueued == [True]
            assert memory.import_(records)["added"] == 0
            assert enqueued == [True]
            memory.flush()
            assert memory.search("boats", user_id="ann", top_k=30)["results"]
    finally:
        event.remove(Engine, "before_cursor_execute", note)
