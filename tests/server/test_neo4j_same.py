"""The graph in Neo4j equals the ledger after any changes, delivered in any steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.fakes import merging
from support.neo4j_servers import VARIABLES, Server

from graph_conformance import ALICE, enrich, fill_ledger, store_memory  # isort: skip

from sqlalchemy import select

from graphmem.commands.types import (
    AddAlias,
    DeleteMemory,
    RememberMemory,
    RemoveAlias,
    RenameEntity,
    RestoreMemory,
    RetireMemory,
    UpdateMemory,
)
from graphmem.errors import NotFoundError
from graphmem.model import micros, optional_micros
from graphmem.stores.ledger import change_feed, entity_names, memories
from graphmem.stores.ledger.schema import entities, partitions, relations
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.stores.neo4j.index import SCHEMA_VERSION, Neo4jIndex
from graphmem.stores.projection import GraphSink, Projection

pytestmark = pytest.mark.server


@pytest.fixture(params=VARIABLES)
def at(request: Any) -> Server:
    return Server.at(request.param)


@pytest.fixture
def graph(at: Server, clerk: Any) -> Iterator[Neo4jIndex]:
    with at.filled(clerk.ledger.uuid) as graph:
        yield graph


MEMORIES = """MATCH (n:Memory {ledger: $ledger}) WHERE n.seq IS NOT NULL
RETURN n.id, n.partition, n.user_id, n.agent_id, n.run_id, n.kind, n.text, n.at, n.valid_to,
       n.forgotten_at, n.seq,
       n.date.epochMillis = n.at / 1000"""
MENTIONS = """MATCH (m:Memory {ledger: $ledger})-[r:MENTIONS {ledger: $ledger}]->(e:Entity {ledger: $ledger})
RETURN m.id, e.partition, e.key, r.kind"""
ENTITIES = """MATCH (n:Entity {ledger: $ledger})
RETURN n.partition, n.key, n.name, n.type, [l IN labels(n) WHERE l <> 'Entity']"""
SAME = "MATCH (a:Entity)-[r:SAME_AS {ledger: $ledger}]->(b:Entity) RETURN a.partition, a.key, b.key"
RELATIONS = """MATCH (a:Entity)-[r:RELATES_TO {ledger: $ledger}]->(b:Entity)
RETURN r.id, a.key, r.predicate, b.key, r.facts, r.memory_ids, r.confidence, r.seq"""
CHAIN = "MATCH (a:Memory)-[r:NEXT {ledger: $ledger}]->(b:Memory) RETURN a.id, b.id"
LINKS = """MATCH (a:Memory)-[r:DRAWN_FROM|REPLACES|COMPRESSES {ledger: $ledger}]->(b:Memory)
RETURN type(r), a.id, b.id"""
OTHERS = """MATCH (n {ledger: $ledger}) WHERE n.seq IS NULL AND NOT n:Entity AND NOT n:GraphmemLedger RETURN n.id"""


def read_graph(at: Server, ledger: Any) -> dict[str, Any]:
    """Reads the nodes and relationships of a ledger from Neo4j."""
    rows = {}
    with at.driver() as driver:
        for name, text in (
            ("memories", MEMORIES), ("mentions", MENTIONS), ("entities", ENTITIES), ("same", SAME),
            ("relations", RELATIONS), ("chain", CHAIN), ("links", LINKS), ("others", OTHERS),
        ):  # fmt: skip
            records = driver.execute_query(text, {"ledger": ledger.uuid}).records
            rows[name] = sorted(_line(name, record.values()) for record in records)
    return rows


def _line(name: str, values: list[Any]) -> str:
    return repr(
        (values[0], *sorted(values[1:])) if name == "same" else tuple(values)
    )  # the direction of a link does not matter


def read_ledger(ledger: Any) -> dict[str, Any]:
    """Reads the same from the ledger."""
    with ledger.read() as connection:
        uids = list(connection.scalars(select(memories_table.c.uid)))
        records = list(memories.records(connection, uids).values())
        states = change_feed.memory_states(connection, records)
        columns = select(partitions.c.key, entities.c.key, entities.c.name, entities.c.type, partitions.c.id)
        shown = {
            row: entity_names.names_to_show(connection, row) for row in connection.scalars(select(partitions.c.id))
        }
        named = [
            (partition, key, shown[row].get(key, name), type_)
            for partition, key, name, type_, row in connection.execute(columns.join(partitions))
        ]
        related = change_feed.relation_states(connection, connection.scalars(select(relations.c.uid)).all())
        linked = {
            (partition, *sorted((link.key, link.other)))
            for partition, row in connection.execute(select(partitions.c.key, partitions.c.id)).all()
            for link in entity_names.all_links(connection, row)
            if {(partition, link.key), (partition, link.other)} <= {(s, k) for s, k, *_ in named}
        }
    at = lambda partition: f"{ledger.uuid}/{partition}"
    return {
        "memories": sorted(
            repr((r.id, at(r.partition), r.scope.user_id, r.scope.agent_id, r.scope.run_id, r.kind.value, r.text,
                  micros(r.at), optional_micros(r.valid_to), optional_micros(r.forgotten_at), r.seq, True))
            for r in records
        ),
        "mentions": sorted(
            repr((s.record.id, at(s.record.partition), e.key, int(kind))) for s in states for e, kind in s.mentions
        ),
        "entities": sorted(repr((at(s), k, called, type_, [type_])) for s, k, called, type_ in named),
        "same": sorted(repr((at(partition), *ends)) for partition, *ends in linked),
        "relations": sorted(
            repr((s.relation.id, s.relation.source, s.relation.predicate, s.relation.target, list(s.relation.facts),
                  list(s.relation.memory_ids), s.relation.confidence, s.seq)) for s in related
        ),
        "chain": sorted(repr((s.previous, s.record.id)) for s in states if s.previous is not None),
        "links": sorted(
            repr((kind, s.record.id, other)) for s in states
            for kind, others in (("DRAWN_FROM", s.drawn_from), ("REPLACES", s.replaces), ("COMPRESSES", s.compresses))
            for other in others
        ),
        "others": [],
    }  # fmt: skip


def open_projection(clerk: Any, graph: Neo4jIndex) -> Projection:
    return Projection("graph", clerk.ledger, GraphSink(graph), shared=True)


@pytest.mark.parametrize("seed", range(2))
def test_everything_the_ledger_holds_is_there(at: Server, clerk: Any, graph: Neo4jIndex, seed: int) -> None:
    fill_ledger(clerk, seed)
    open_projection(clerk, graph).catch_up([])
    assert read_graph(at, clerk.ledger) == read_ledger(clerk.ledger)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_and_in_whichever_steps_it_comes(
    at: Server, clerk: Any, graph: Neo4jIndex, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmem.stores.projection.BATCH", 3)
    chance, projection = random.Random(seed), open_projection(clerk, graph)
    keys, ids = [f"e{n}" for n in range(6)], []
    for n in range(60):
        action = chance.choice(
            ["add", "add", "delete", "update", "retire", "restore", "merge", "remember", "alias", "unalias", "rename"]
        )
        chosen, other, pair = chance.choice(ids or [None]), chance.choice(ids or [None]), chance.sample(keys, 2)
        try:
            if action == "add" or chosen is None:
                ids.append(store_memory(clerk, *chance.sample(keys, chance.randint(0, 3)), at=chance.randint(0, 99)).id)
            elif action == "delete":
                (outcome,) = clerk.commit(DeleteMemory(chosen))
                ids = [uid for uid in ids if uid not in outcome.erased.ids]
            elif action == "update":
                clerk.commit(UpdateMemory(chosen, text=f"words {n}"))
                enrich(clerk, clerk.record(chosen), chance.sample(keys, 2))
            elif action == "retire":
                clerk.commit(RetireMemory(chosen, clerk.record(chosen).at + timedelta(hours=1), "x", successor=other))
            elif action == "restore":
                clerk.commit(RestoreMemory(chosen, reason="x"))
            elif action == "merge" and chosen != other:
                clerk.commit(*merging(chosen, other))
            elif action in {"merge", "remember"}:
                clerk.commit(RememberMemory(chosen, "x"))
            elif action == "alias":
                clerk.commit(AddAlias(ALICE, *pair))
            elif action == "unalias":
                clerk.commit(RemoveAlias(ALICE, *pair))
            else:
                clerk.commit(RenameEntity(ALICE, pair[0], f"Name {n}"))
        except NotFoundError:
            continue
        if chance.random() < 0.3:
            projection.catch_up([])
            assert read_graph(at, clerk.ledger) == read_ledger(clerk.ledger)
    projection.catch_up([])
    expected = read_ledger(clerk.ledger)
    assert read_graph(at, clerk.ledger) == expected
    assert not any(projection.verify().values())
    projection.rebuild([])
    assert read_graph(at, clerk.ledger) == expected


def test_a_link_from_what_stands_for_a_memory_goes_when_that_comes_back_or_is_erased(
    at: Server, clerk: Any, graph: Neo4jIndex
) -> None:
    projection = open_projection(clerk, graph)
    merged, kept = store_memory(clerk, "anna"), store_memory(clerk, "anna")
    link = repr(("COMPRESSES", kept.id, merged.id))
    for commands, expected in (
        (merging(merged.id, kept.id), [link]),
        ([UpdateMemory(kept.id, metadata={"seen": True})], [link]),
        ([RememberMemory(merged.id, "x")], []),
        (merging(merged.id, kept.id), [link]),
        ([DeleteMemory(merged.id)], []),
    ):
        clerk.commit(*commands)
        projection.catch_up([])
        assert read_graph(at, clerk.ledger)["links"] == expected
        assert not any(projection.verify().values())
        assert read_graph(at, clerk.ledger) == read_ledger(clerk.ledger)


def test_a_memory_with_its_graph_in_neo4j(at: Server, tmp_path: Path, make_memory: Any) -> None:
    """A Memory whose graph is in Neo4j: search, alias, rename, rebuild, delete and reset."""
    config = {"url": at.uri, "username": at.username, "password": at.password}
    memory = make_memory(tmp_path, graph_store={"provider": "neo4j", "config": config}, extractor={"provider": "spacy"})
    ledger = memory.engine.ledger
    try:
        for words in ("My sister Anna works at Nordlicht.", "Nordlicht is building a new lab in Bergen."):
            memory.add(words, user_id="tom")
        response = memory.search("Where does Anna's company build?", user_id="tom", explain=True)
        assert "degraded" not in response
        assert len(response["results"]) == 2
        memory.alias("Nordlicht", "Anna", user_id="tom")
        memory.rename_entity("Nordlicht", "Nordlicht AS", user_id="tom")
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
        assert read_graph(at, ledger) == read_ledger(ledger)
        assert [line for line in read_graph(at, ledger)["entities"] if "'anna', 'Nordlicht AS'" in line]
        assert len(read_graph(at, ledger)["same"]) == 1
        memory.rebuild("graph")
        assert read_graph(at, ledger) == read_ledger(ledger)
        memory.delete_all(user_id="tom")
        assert memory.flush() == {"pending": []}
        assert {name: lines for name, lines in read_graph(at, ledger).items() if lines} == {}
        memory.add("Anna sings.", user_id="tom")
        memory.reset()
        assert {name: lines for name, lines in read_graph(at, ledger).items() if lines} == {}
        with at.driver() as driver:
            left = driver.execute_query(
                "MATCH (n {ledger: $ledger}) RETURN labels(n), properties(n)", ledger=ledger.uuid
            )
        # The lock of other processes, which may write at once.
        assert [record.values() for record in left.records] == [
            [["GraphmemLedger"], {"ledger": ledger.uuid, "schema": SCHEMA_VERSION}]
        ]
    finally:
        memory.close()
        at.remove(ledger.uuid)
