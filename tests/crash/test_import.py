"""A process killed while it imports: importing the file again stores every record once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from child import open_memory
from support.ledger_snapshot import same
from test_kill import ENGINE, TOMBSTONES, Server, assert_verified, folder, server  # noqa: F401  (two of them are fixtures)

from graphmem.transfer import jsonl

IMPORTS, ALIASES = "graphmem.commands.imports", "graphmem.stores.ledger.entity_names"
POINTS = [
    ("the first memory is stored, its history is not", f"after {IMPORTS}:_insert", 1),
    ("its history is written, its derived rows are not", f"before {IMPORTS}:_store_derived", 1),
    ("inside it, before COMMIT", f"after {IMPORTS}:_store_derived", 2),
    ("the first batch is committed, not delivered", f"after {ENGINE}:Engine.commit", 1),
    ("the second batch is committed, its tasks are pending", "before graphmem.jobs.enrichment_lane:commit", 1),
    ("its tasks are complete, not delivered", "after graphmem.jobs.enrichment_lane:commit", 1),
    ("in the third batch", f"after {IMPORTS}:_store_derived", 5),
    ("a tombstone is added, before COMMIT", f"after {TOMBSTONES}:add_tombstone", 1),
    ("an alias is imported, before COMMIT", f"after {ALIASES}:import_link", 1),
    ("a chosen name is imported, before COMMIT", f"after {ALIASES}:import_chosen_name", 1),
    ("all is committed, the last batch is not delivered", f"before {ENGINE}:Engine.deliver", 4),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory):
    """A memory and its export, with two memories without vectors, one of them without mentions, too."""
    home = tmp_path_factory.mktemp("source")
    with open_memory(home) as memory:
        texts = [f"Nr{n} met Nr{n + 1} at Fagott{n}" for n in range(7)]
        ids = [memory.add(text, user_id="u", timestamp="2024-01-01")["results"][0]["id"] for text in texts]
        memory.update(ids[0], "Nr0 met Bergen")
        memory.delete(ids[1])
        memory.alias("nr0", "nr3", user_id="u")
        memory.rename_entity("nr5", "Five", user_id="u")
        path = tmp_path_factory.mktemp("export") / "export"
        memory.export(path)
        thin(path)
        yield memory, path


def thin(path: Path) -> None:
    records = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    records[3]["embeddings"] = None
    records[4] |= {"embeddings": None, "mentions": None, "statements": None}
    with path.open("wb") as file:
        writer = jsonl.JsonlWriter(file.write)
        for record in records:
            writer.write(record)
        writer.close()


@pytest.mark.parametrize(("name", "point", "nth"), [pytest.param(*one, id=one[0]) for one in POINTS])
def test_killed_while_importing(name: str, point: str, nth: int, source, server: Server, folder: Path) -> None:  # noqa: F811
    memory, path = source
    home = folder / "home"
    code, _ = server.order(home, "import", point=point, nth=nth, file=str(path))
    assert code == -9, f"the point was not reached: {point} (exit {code})"
    with open_memory(home) as again:
        assert again.flush() == {"pending": []}
        assert_verified(again)
        report = again.import_(path)
        assert report["added"] + report["known"] >= 6
        assert report["unenriched"] == 0
        same(memory, again)
        hits = [hit["id"] for hit in memory.search("Nr3", user_id="u")["results"]]
        assert [hit["id"] for hit in again.search("Nr3", user_id="u")["results"]] == hits
