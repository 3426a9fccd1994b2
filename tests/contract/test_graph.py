"""Both embedded graphs keep the contract, and give the same neighbourhoods."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from graph import ALICE, GraphContract, far, fill, tell, unordered

from graphmem.model import Kind, Limits, Scope, Seeds
from graphmem.remember.plan import Erase, Retire, Revise
from graphmem.stores.base import Graph, GraphIndex
from graphmem.stores.deliver import Graphs, Projection
from graphmem.stores.ledger import memories
from graphmem.stores.ledger.graphs import LedgerGraph
from graphmem.stores.networkx import NetworkxGraph


class TestLedgerGraph(GraphContract):
    def reading(self, clerk: Any) -> Graph:
        return LedgerGraph(clerk.ledger)


class TestNetworkxGraph(GraphContract):
    @pytest.fixture(autouse=True)
    def _fresh(self) -> None:
        self.copy = NetworkxGraph()
        self.projection: Projection | None = None

    def reading(self, clerk: Any) -> Graph:
        self.projection = self.projection or Projection("graph", clerk.ledger, Graphs(self.copy), shared=False)
        with clerk.ledger.read() as connection:
            spaces = memories.all_spaces(connection)
        self.projection.catch_up(spaces)
        return self.copy

    def test_it_is_a_graph_index(self) -> None:
        assert isinstance(self.copy, GraphIndex)

    def test_it_holds_memories_and_relations_with_their_versions(self, clerk: Any) -> None:
        record = tell(clerk, "anna", "acme")
        self.reading(clerk)
        held = dict(self.copy.held())
        assert held.pop(record.id) == record.change
        assert len(held) == 1
        assert list(self.copy.held(["user:bob"])) == []

    def test_deleting_counts_nodes_and_edges_and_knows_nothing_of_strangers(self, clerk: Any) -> None:
        record = tell(clerk, "anna", "acme")
        self.reading(clerk)
        (relation,) = [uid for uid, _ in self.copy.held() if uid != record.id]
        assert self.copy.delete(["no such"], ["no such"]) == 0
        assert self.copy.delete([record.id], [relation]) >= 4  # the memory, two mentions, the relation
        assert list(self.copy.held()) == []
        assert self.copy.delete([record.id], [relation]) == 0

    def test_wiping_empties_it(self, clerk: Any) -> None:
        tell(clerk, "anna", "acme")
        self.reading(clerk)
        self.copy.wipe()
        assert list(self.copy.held()) == []

    def test_an_erasure_takes_the_relation_with_its_last_support(self, clerk: Any) -> None:
        one, two = tell(clerk, "anna", "acme"), tell(clerk, "anna", "acme", at=far(1))
        self.reading(clerk)
        clerk.commit(Erase(one.id))
        self.reading(clerk)
        assert len(dict(self.copy.held())) == 2
        clerk.commit(Erase(two.id))
        self.reading(clerk)
        assert dict(self.copy.held()) == {}

    def test_a_memory_delivered_again_keeps_the_relations_it_supports(self, clerk: Any) -> None:
        record = tell(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(Revise(record.id, metadata={"seen": True}))
        self.reading(clerk)
        edges = self.copy._graph.edges(("entity", "user:alice", "anna"), keys=True, data=True)
        assert [data["relation"].predicate for *_, data in edges] == ["meets"]


@pytest.mark.parametrize("seed", range(3))
def test_both_give_the_same_neighbourhoods(clerk: Any, seed: int) -> None:
    told = fill(clerk, seed)
    mine, copy = LedgerGraph(clerk.ledger), NetworkxGraph()
    Projection("graph", clerk.ledger, Graphs(copy), shared=False).catch_up(["user:alice", "user:bob"])
    chance = random.Random(seed)
    for _ in range(25):
        seeds = Seeds(
            [f"e{chance.randint(0, 27)}" for _ in range(chance.randint(0, 3))],
            [record.id for record in chance.sample(told, chance.randint(0, 4))],
        )
        now = clerk.view().now
        view = clerk.view(
            Scope(chance.choice(["alice", "bob"]), chance.choice([None, "a"]), chance.choice([None, None, "r"])),
            kinds=frozenset(chance.choice([list(Kind), [Kind.EPISODE], [Kind.FACT]])),
            as_of=chance.choice([None, None, now - timedelta(hours=chance.randint(0, 30))]),
            show_expired=chance.random() < 0.5,
        )
        limits = chance.choice([Limits(), Limits(2, 3, 2, 1000), Limits(1, 100, 1, 1000), Limits(3, 0, 9, 1000)])
        assert unordered(mine.neighbourhood(view, seeds, limits)) == unordered(copy.neighbourhood(view, seeds, limits))


def test_a_copy_filled_step_by_step_is_like_one_filled_at_once(clerk: Any) -> None:
    slow, fast = NetworkxGraph(), NetworkxGraph()
    steps = Projection("slow", clerk.ledger, Graphs(slow), shared=False)
    spaces = ["user:alice"]
    told = []
    for n in range(12):
        told.append(tell(clerk, f"e{n % 3}", f"e{n % 4 + 3}", at=(n * 7) % 12))
        steps.catch_up(spaces)
        if n % 4 == 3:
            clerk.commit(Erase(told.pop(0).id))
            steps.catch_up(spaces)
            clerk.commit(Retire(told[0].id, at=told[0].at, reason="x"))
            steps.catch_up(spaces)
    Projection("fast", clerk.ledger, Graphs(fast), shared=False).catch_up(spaces)
    seeds = Seeds(["e0", "e4"], [told[-1].id])
    view = clerk.view(ALICE)
    assert sorted(slow.held()) == sorted(fast.held())
    assert unordered(slow.neighbourhood(view, seeds, Limits())) == unordered(fast.neighbourhood(view, seeds, Limits()))
