"""Behaviour that only a real Neo4j shows: plans, hubs, other applications' nodes, outages and their end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from time import monotonic
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from neo4j import Driver
from support.neo4j_servers import VARIABLES, Server
from support.waiting import TIMEOUT, wait_until

from graphmem.errors import ConfigError, StoreError, StoreUnavailable
from graphmem.model import GraphBounds, Scope, Seeds, micros
from graphmem.plugins import StoreLost
from graphmem.stores.neo4j import client, index, rows
from graphmem.stores.neo4j.client import statement
from graphmem.stores.neo4j.index import Neo4jIndex
from graphmem.testing.conformance.graph_index import NOON, PARTITION, VIEW, entity_state, memory, relation

pytestmark = pytest.mark.server
CYPHER = Path(__file__).parents[2] / "cypher"


@pytest.fixture(params=VARIABLES)
def at(request: Any) -> Server:
    return Server.at(request.param)


@pytest.fixture
def graph(at: Server) -> Iterator[Neo4jIndex]:
    with at.filled() as graph:
        yield graph


@pytest.fixture
def driver(at: Server) -> Iterator[Driver]:
    with at.driver() as driver:
        yield driver


def ask(driver: Driver, text: str, **parameters: Any) -> list[dict[str, Any]]:
    return [record.data() for record in driver.execute_query(text, parameters).records]


def neighbourhood(graph: Neo4jIndex, *keys: str, memories: Any = (), limits: GraphBounds = GraphBounds()) -> Any:
    return graph.neighbourhood(VIEW, Seeds(keys, memories), limits)


# --- plans -----------------------------------------------------------------------------------------------------------

ROW = {"id": "", "seq": 1, "type": "Other", "source": "", "target": "", "properties": {}}
PARAMETERS: dict[str, Any] = {
    **rows.neighbourhood_parameters("ledger", VIEW, Seeds(), GraphBounds()),
    "rows": [], "ids": [], "entities": [], "memories": [], "partitions": [], "all": True, "chunk": 10, "schema": 1,
}  # fmt: skip
SCANS = ("AllNodesScan", "NodeByLabelScan", "RelationshipTypeScan", "AllRelationshipsScan", "RelationshipIndexScan")


def operators(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("children", ()):
        yield from operators(child)


def write_every_property(graph: Neo4jIndex) -> None:
    """Writes each property that statements name: a server warns of property names that it has never stored."""
    full = memory("m", "anna", "acme", speaker="Ada", valid_to=NOON, expires_at=NOON, forgotten_at=NOON)
    full = replace(full, record=replace(full.record, scope=Scope("alice", "bot", "run"), further_runs=("other",)))
    later = memory("n", seq=2, minute=1, previous="m", drawn_from=("m",), replaces=("m",), compresses=("m",))
    related = relation("r", "anna", "acme", "m")
    related = replace(related, relation=replace(related.relation, confidence=0.5, invalid_at=NOON))
    graph.upsert([full, later], [related], [entity_state("anna", "Anna", "acme")])


@pytest.mark.parametrize("path", sorted(CYPHER.glob("runtime/*.cypher")), ids=lambda path: path.stem)
def test_no_statement_scans_all_nodes_or_relationships(graph: Neo4jIndex, driver: Driver, path: Path) -> None:
    write_every_property(graph)
    text = statement(f"runtime/{path.stem}")
    summary = driver.execute_query("EXPLAIN " + text, PARAMETERS).summary
    names = [operator["operatorType"] for operator in operators(summary.plan or {})]
    assert not [name for name in names if any(scan in name for scan in SCANS)]
    assert not [status for status in summary.gql_status_objects if status.is_notification]


@pytest.mark.parametrize("path", sorted(CYPHER.glob("*/*.cypher")), ids=lambda path: f"{path.parent.stem}/{path.stem}")
def test_every_file_says_what_it_does_and_in_which_cypher(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("// ")
    assert next(line for line in lines if not line.startswith("//")).startswith("CYPHER 5")
    assert not [line for line in lines if ";" in line and not line.startswith("//")]


def test_dates_are_by_the_clock_of_the_zone(at: Server, driver: Driver) -> None:
    ledger = str(uuid4())
    evening = replace(memory("m", "anna").record, at=datetime(2026, 5, 1, 23, 30, tzinfo=UTC))
    related = relation("r", "anna", "acme", "m")
    related = replace(related, relation=replace(related.relation, valid_at=evening.at, invalid_at=NOON))
    graph = Neo4jIndex(at.uri, at.username, at.password, "neo4j", ledger, ZoneInfo("Asia/Shanghai"))
    try:
        graph.wipe()
        graph.upsert([replace(memory("m", "anna"), record=evening)], [related])
        (shown,) = ask(
            driver,
            """MATCH (m:Memory {ledger: $ledger})
            MATCH (:Entity {ledger: $ledger})-[r:RELATES_TO]->()
            RETURN toString(date(m.date)) AS day, m.until AS until, toString(r.since) AS since""",
            ledger=ledger,
        )
        assert shown == {"day": "2026-05-02", "until": None, "since": "2026-05-02T07:30:00+08:00"}
    finally:
        graph.close()
        at.remove(ledger)


def test_a_hub_costs_no_more_than_its_best_mentions(graph: Neo4jIndex, driver: Driver) -> None:
    graph.upsert([memory("m", "hub", "rare", minute=30_000, row=1), memory("n", "rare", minute=30_001, row=2)])
    ask(
        driver,
        """MATCH (hub:Entity {ledger: $ledger, key: 'hub'})
        UNWIND range(1, 20000) AS n
        CREATE (m:Memory {ledger: $ledger, id: 'h' + n, partition: $partition, user_id: 'alice', kind: 'episode',
                          at: $at + n, valid_from: $at + n, row: n + 2, seq: 1})
        CREATE (m)-[:MENTIONS {ledger: $ledger, kind: 1, ekey: hub.id, rank: '2' + ($shift + n) + '000000000000'}]
               ->(hub)""",
        ledger=graph._ledger, partition=f"{graph._ledger}/{PARTITION}", at=micros(NOON), shift=10**17 + micros(NOON),
    )  # fmt: skip
    for seeds in (Seeds(["hub"], ["n"]), Seeds(["rare"], ["m"])):
        params = rows.neighbourhood_parameters(graph._ledger, VIEW, seeds, GraphBounds(frontier=10))
        result = driver.execute_query("PROFILE " + statement("runtime/neighbourhood"), params)
        hits = sum(operator["args"].get("DbHits", 0) for operator in operators(result.summary.profile))
        (record,) = result.records
        assert len(record["memories"]) > 10
        assert hits < 40 * len(record["memories"]) + 100


def test_searches_of_other_shapes_are_not_planned_anew(graph: Neo4jIndex) -> None:
    """Planning takes a second or more, and would exceed those searches' timeout."""
    neighbourhood(graph, "anna")
    for count in (1, 2, 12, 120):
        ids = [str(n) for n in range(count)]
        neighbourhood(graph, *ids, memories=ids)
    graph.neighbourhood(
        VIEW.__class__(VIEW.scope, NOON, "user:b", frozenset(list(VIEW.kinds)[:1]), NOON, show_expired=True),
        Seeds(["x" * 1000], ["y"]),
        GraphBounds(1, 1, 1, 1, 1),
    )


# --- beside others ---------------------------------------------------------------------------------------------------


def test_other_applications_nodes_are_left_alone(at: Server, graph: Neo4jIndex, driver: Driver) -> None:
    """Same labels, same property names, even the same ids; and relationships between their nodes and ours."""
    theirs = str(uuid4())
    try:
        for _ in range(2):  # ours constrain nothing of theirs
            ask(driver, "CREATE (:Memory {id: 'm', app: $app})-[:MENTIONS {app: $app}]->(:Entity {id: 'e', app: $app})",
                app=theirs)  # fmt: skip
        ask(driver, "CREATE (:Person {name: 'Anna', app: $app})-[:RELATES_TO {id: 'r'}]->(:Other {app: $app})",
            app=theirs)  # fmt: skip
        graph.upsert([memory("m", "anna", "acme")], [relation("r", "anna", "acme", "m")])
        assert neighbourhood(graph, "anna").memories == ("m",)
        graph.delete(["m"], ["r"])
        graph.upsert([memory("m", "anna", "acme")], [relation("r", "anna", "acme", "m")])
        graph.wipe()
        counts = ask(driver, "MATCH (n {app: $app}) RETURN count(n) AS n, sum(COUNT { (n)--() }) AS edges", app=theirs)
        assert counts == [{"n": 6, "edges": 6}]
    finally:
        ask(driver, "MATCH (n {app: $app}) DETACH DELETE n", app=theirs)


def test_two_ledgers_never_see_each_other(at: Server, graph: Neo4jIndex) -> None:
    with at.filled() as other:
        mine = [memory("m", "anna", "acme"), memory("n", "anna", minute=1, previous="m")]
        graph.upsert(
            mine,
            [relation("r", "anna", "acme", "m")],
            [entity_state("anna", "Anna K.", "acme"), entity_state("acme", "A")],
        )
        other.upsert([memory("m", "anna", "bob", seq=9)])
        assert list(other.list_held()) == [("m", 9)]
        assert neighbourhood(other, "anna").frequencies == {"anna": 1}
        assert neighbourhood(other, "anna", memories=["m", "n"]).memories == ("m",)
        other.delete(["m", "n"], ["r"])
        before = sorted(graph.list_held())
        other.wipe()
        assert sorted(graph.list_held()) == before
        assert neighbourhood(graph, "anna").frequencies == {"anna": 2, "acme": 1} or neighbourhood(
            graph, "anna"
        ).frequencies == {"anna": 2}


def test_eight_threads_write_overlapping_entities(graph: Neo4jIndex) -> None:
    def write(worker: int) -> None:
        for batch in range(4):
            keys = [f"e{(worker * 7 + batch * 3 + n) % 10}" for n in range(5)]
            some = [memory(f"{worker}-{batch}-{n}", "hub", *keys[: n + 1], row=worker * 100 + batch * 10 + n + 1)
                    for n in range(5)]  # fmt: skip
            graph.upsert(
                some, [relation(f"r{keys[0]}", keys[0], "hub", some[0].record.id, seq=worker * 10 + batch + 1)]
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert neighbourhood(graph, "hub", limits=GraphBounds(seed_mentions=1)).frequencies["hub"] == 160
    seqs = dict(graph.list_held())
    assert len([uid for uid in seqs if "-" in uid]) == 160


# --- lost, interrupted -----------------------------------------------------------------------------------------------


def test_a_graph_emptied_by_others_is_lost(graph: Neo4jIndex, driver: Driver) -> None:
    graph.upsert([memory("m", "anna")])
    ask(driver, "MATCH (n {ledger: $ledger}) DETACH DELETE n", ledger=graph._ledger)
    for act in (
        lambda: neighbourhood(graph, "anna"), lambda: graph.upsert([memory("m", "anna")]), lambda: graph.delete(["m"]),
        graph.count, lambda: list(graph.list_held()),
    ):  # fmt: skip
        with pytest.raises(StoreLost):
            act()
    graph.wipe()
    graph.upsert([memory("m", "anna")])
    assert neighbourhood(graph, "anna").memories == ("m",)


def test_a_graph_that_was_never_written_is_lost(at: Server) -> None:
    graph = at.graph()
    graph.check()
    with pytest.raises(StoreLost):
        neighbourhood(graph, "anna")
    graph.close()


def test_a_graph_without_indexes_is_lost(at: Server, graph: Neo4jIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new server, or one emptied with its schema, a statement that names an index does not even parse."""
    graph.upsert([memory("m", "anna")])
    elsewhere = lambda path: (
        statement(path)
        .replace("(ledger, ekey, rank)", "(ledger, ekey, none)")
        .replace("RELATES_TO(ledger, id)", "RELATES_TO(ledger, none)")
    )
    monkeypatch.setattr("graphmem.stores.neo4j.index.statement", elsewhere)
    for act in (lambda: neighbourhood(graph, "anna"), lambda: list(graph.list_held())):
        with pytest.raises(StoreLost):
            act()
    graph = at.graph()
    graph.check()
    graph.close()


def test_a_server_that_is_too_old(graph: Neo4jIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MIN_VERSION", (9999, 1))
    with pytest.raises(ConfigError, match="too old; use 5.26"):
        graph.check()


def test_another_schema(graph: Neo4jIndex, driver: Driver) -> None:
    graph.upsert([memory("m", "anna")])
    mark = "MATCH (n:GraphmemLedger {ledger: $ledger}) SET n.schema = $schema"
    ask(driver, mark, ledger=graph._ledger, schema=index.SCHEMA_VERSION + 1)
    for act in (graph.check, graph.wipe, lambda: neighbourhood(graph, "anna"), lambda: graph.upsert([memory("n")])):
        with pytest.raises(StoreError, match="upgrade graphmem") as caught:
            act()
        assert not isinstance(caught.value, StoreUnavailable)
    ask(driver, mark, ledger=graph._ledger, schema=index.SCHEMA_VERSION - 1)
    graph.check()
    with pytest.raises(StoreLost):
        neighbourhood(graph, "anna")
    graph.wipe()
    assert list(graph.list_held()) == []


def test_an_interrupted_wipe_is_continued(graph: Neo4jIndex, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.upsert([memory(f"m{n}", "anna", f"e{n}", minute=n) for n in range(30)])
    monkeypatch.setattr("graphmem.stores.neo4j.index.WIPE_CHUNK", 7)
    left = "MATCH (n {ledger: $ledger}) RETURN count(n) AS n"
    with monkeypatch.context() as broken:
        run = graph._server.run

        def fail(text: str, parameters: Any) -> Any:
            if "wipe" in text or ":Entity" in text and "CALL" in text:
                raise StoreUnavailable("killed")
            return run(text, parameters)

        broken.setattr(graph._server, "run", fail)
        with pytest.raises(StoreUnavailable):
            graph.wipe()
    assert ask(driver, left, ledger=graph._ledger) == [{"n": 32}]  # the entities and the marker
    graph.wipe()
    assert ask(driver, left, ledger=graph._ledger) == [{"n": 1}]


def test_many_memories_are_deleted_in_several_transactions(graph: Neo4jIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.upsert([memory(f"m{n}", "anna", minute=n) for n in range(25)])
    monkeypatch.setattr("graphmem.stores.neo4j.index.CHUNK", 10)
    assert graph.delete([f"m{n}" for n in range(24)]) == 48
    assert neighbourhood(graph, "anna").memories == ("m24",)
    assert graph.delete(["m24"]) == 3  # with the mention and the entity


# --- out of reach ----------------------------------------------------------------------------------------------------


class FreezingProxy:
    """A proxy of the server that can hang: it accepts requests and returns no answers."""

    def __init__(self, uri: str) -> None:
        host, _, port = uri.partition("//")[2].partition(":")
        self._server = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.uri = f"bolt://127.0.0.1:{self._listening.getsockname()[1]}"
        self.moving = Event()
        self.moving.set()
        self._open: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._start(self._accept)

    def _start(self, act: Any, *args: Any) -> None:
        self._threads.append(Thread(target=act, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            there = socket.create_connection(self._server)
            self._open += [here, there]
            self._start(self._pass_on, here, there)
            self._start(self._pass_on, there, here)

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                self.moving.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Lets readers end first: the driver leaks a connection that is shut while it is being made."""
        self.moving.set()
        for thread in enumerate_threads():
            if thread.name == "graphmem-neo4j":
                thread.join(TIMEOUT)
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()


def is_readable(graph: Neo4jIndex) -> bool:
    with suppress(StoreUnavailable):
        return neighbourhood(graph, "anna").memories == ("m",)
    return False


def test_a_server_that_hangs_during_a_read_is_given_up(at: Server) -> None:
    proxy = FreezingProxy(at.uri)
    with at.filled() as direct:
        graph = Neo4jIndex(proxy.uri, at.username, at.password, "neo4j", direct._ledger)
        direct.upsert([memory("m", "anna")])
        assert neighbourhood(graph, "anna").memories == ("m",)
        proxy.moving.clear()
        for _ in range(2):
            began = monotonic()
            with pytest.raises(StoreUnavailable):
                neighbourhood(graph, "anna")
            assert monotonic() - began > 1
        proxy.moving.set()
        wait_until(lambda: is_readable(graph))
        proxy.moving.clear()
        graph.close()
    proxy.close()


def count_readers() -> int:
    """Counts the threads that wait for a server."""
    return sum(thread.name == "graphmem-neo4j" for thread in enumerate_threads())


def test_readers_lost_to_a_hanging_server_are_bounded(at: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "READERS", 2)
    monkeypatch.setattr(client, "READ_TIMEOUT", 0.3)
    proxy = FreezingProxy(at.uri)
    hung = client.Neo4jClient(proxy.uri, at.username, at.password, "neo4j", user_agent="test")
    hung.read("RETURN 1", {}, 5)
    proxy.moving.clear()
    before = count_readers()
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(hung.read, "RETURN 1", {}, 0.3) for _ in range(6)]
        assert all(isinstance(job.exception(), StoreUnavailable) for job in jobs)
    assert count_readers() - before <= 2
    hung.close()
    proxy.close()


def test_a_connection_that_was_being_made_at_the_closing_is_closed(at: Server) -> None:
    proxy = FreezingProxy(at.uri)
    proxy.moving.clear()
    hung = client.Neo4jClient(proxy.uri, at.username, at.password, "neo4j", user_agent="test")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(hung.write, lambda transaction: transaction.run("RETURN 1").consume())
        wait_until(lambda: proxy._open)
        hung.close()
        proxy.moving.set()
        writing.exception()
    # Both ends of the proxy read until the connection is closed.
    for thread in proxy._threads[1:]:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in proxy._threads[1:])
    proxy.close()


def test_no_server_at_the_address(at: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    graph = Neo4jIndex(f"bolt://127.0.0.1:{port}", "neo4j", "secret", "neo4j", "x")
    for act in (graph.check, lambda: neighbourhood(graph, "anna")):
        with pytest.raises(StoreUnavailable, match="out of reach") as caught:
            act()
        assert "secret" not in str(caught.value)
    graph.close()


def test_the_wrong_database(at: Server) -> None:
    graph = Neo4jIndex(at.uri, at.username, at.password, "nosuch", "x")
    with pytest.raises(ConfigError, match=r"graph_store.config: .*DatabaseNotFound"):
        graph.check()
    with pytest.raises(StoreUnavailable, match="check url, username, password and database"):
        graph.upsert([memory("m")])
    graph.close()


def test_the_wrong_password(at: Server) -> None:
    graph = Neo4jIndex(
        at.uri, "nosuchuser", "wrong-secret", "neo4j", "x"
    )  # not the real user, which the server would lock
    with pytest.raises(ConfigError, match="Unauthorized|RateLimit") as caught:
        graph.check()
    assert "wrong-secret" not in str(caught.value)
    graph.close()


@pytest.mark.parametrize("url", ["http://x", "nonsense", "bolt://u:secret@h:1/?x=y", "bolt://h:abc"])
def test_an_invalid_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="graph_store.config.url") as caught:
        Neo4jIndex(url, "neo4j", "p", "neo4j", "x")
    assert "secret" not in str(caught.value)


def test_a_row_that_cannot_be_stored_is_refused_and_nothing_written(graph: Neo4jIndex) -> None:
    good, bad = memory("m", "anna"), memory("n", "anna", text="\ud800")
    with pytest.raises(StoreError, match="cannot be sent") as caught:
        graph.upsert([good, bad])
    assert not isinstance(caught.value, StoreUnavailable)
    assert list(graph.list_held()) == []
    graph.upsert([good])
    assert list(graph.list_held()) == [("m", 1)]


def test_no_graph_in_the_system_database() -> None:
    with pytest.raises(ConfigError, match="graph_store.config.database"):
        Neo4jIndex("bolt://h:1", "neo4j", "x", "system", "x")
