"""Conformance tests of `GraphIndex` with a ledger, beyond those of `Graph` and of `graphmem.testing.conformance`.

A backend subclasses them and implements `fresh`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from graph_conformance import (
    GraphContract,
    enrich,
    far,
    fill_ledger,
    store_memory,
    unordered,
)

from graphmem.commands.types import DeleteMemory, RetireMemory, UpdateMemory
from graphmem.model import GraphBounds, Kind, Scope, Seeds
from graphmem.plugins import Graph, GraphIndex
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.stores.projection import GraphSink, Projection
from graphmem.testing.conformance import GraphIndexContract
from graphmem.testing.conformance.graph_index import PARTITION


class ProjectedGraphContract(GraphIndexContract, GraphContract):
    """One test for each promise of the protocol that needs a ledger."""

    def fresh(self, ledger: Ledger) -> GraphIndex:
        """An empty index for this ledger; the same for the same one."""
        raise NotImplementedError

    def leave(self, ledger: Ledger) -> None:
        """Removes the index of this ledger."""

    @pytest.fixture
    def graph(self, clerk: Any) -> Iterator[GraphIndex]:
        index = self.fresh(clerk.ledger)
        self.projection = Projection("graph", clerk.ledger, GraphSink(index), shared=True)
        index.wipe()
        yield index
        index.close()
        self.leave(clerk.ledger)

    def reading(self, clerk: Any) -> Graph:
        self.projection.catch_up([])
        return self.index

    def test_memories_and_relations_are_listed_with_their_versions(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        versions = dict(self.index.list_held())
        assert versions.pop(record.id) == record.seq
        assert len(versions) == 1
        assert list(self.index.list_held(["user:bob"])) == []
        assert sorted(self.index.list_held([PARTITION])) == sorted(self.index.list_held())

    def test_its_contents_match_the_ledger(self, clerk: Any) -> None:
        fill_ledger(clerk, 5, 20)
        self.reading(clerk)
        assert not any(self.projection.verify().values())

    def test_deleting_counts_nodes_and_edges_and_ignores_unknown_ids(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        (relation,) = [uid for uid, _ in self.index.list_held() if uid != record.id]
        assert self.index.delete(["no such"], ["no such"], ["no such"]) == 0
        assert self.index.delete([record.id], [relation]) >= 4  # the memory, two mentions, the relation
        assert list(self.index.list_held()) == []
        assert self.index.delete([record.id], [relation]) == 0

    def test_erasing_the_last_support_removes_the_relation(self, clerk: Any) -> None:
        one, two = store_memory(clerk, "anna", "acme"), store_memory(clerk, "anna", "acme", at=far(1))
        self.reading(clerk)
        clerk.commit(DeleteMemory(one.id))
        self.reading(clerk)
        assert len(dict(self.index.list_held())) == 2
        clerk.commit(DeleteMemory(two.id))
        self.reading(clerk)
        assert dict(self.index.list_held()) == {}

    def test_a_relation_outlives_a_new_version_of_its_memory(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(UpdateMemory(record.id, metadata={"seen": True}))
        self.reading(clerk)
        assert len(dict(self.index.list_held())) == 2
        assert not any(self.projection.verify().values())

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
    def test_it_gives_the_same_neighbourhoods_as_the_ledger(self, clerk: Any, seed: int) -> None:
        records = fill_ledger(clerk, seed)
        mine, copy = EmbeddedGraph(clerk.ledger), self.reading(clerk)
        chance = random.Random(seed)
        for _ in range(25):
            seeds = Seeds(
                [f"e{chance.randint(0, 27)}" for _ in range(chance.randint(0, 3))],
                [record.id for record in chance.sample(records, chance.randint(0, 4))],
            )
            now = clerk.view().now
            view = clerk.view(
                Scope(chance.choice(["alice", "bob"]), chance.choice([None, "a"]), chance.choice([None, None, "r"])),
                kinds=frozenset(chance.choice([list(Kind), [Kind.EPISODE], [Kind.FACT]])),
                as_of=chance.choice([None, None, now - timedelta(hours=chance.randint(0, 30))]),
                show_expired=chance.random() < 0.5,
                show_retired=chance.random() < 0.5,
            )
            limits = chance.choice(
                [GraphBounds(), GraphBounds(2, 3, 2, 1000), GraphBounds(1, 100, 1, 1000), GraphBounds(3, 0, 9, 1000)]
            )
            theirs = copy.neighbourhood(view, seeds, limits)
            assert unordered(mine.neighbourhood(view, seeds, limits)) == unordered(theirs)

    def test_step_by_step_delivery_gives_the_same_contents_as_a_rebuild(self, clerk: Any) -> None:
        records = []
        for n in range(12):
            records.append(store_memory(clerk, f"e{n % 3}", f"e{n % 4 + 3}", at=(n * 7) % 12))
            self.projection.catch_up([])
            if n % 4 == 3:
                clerk.commit(DeleteMemory(records.pop(0).id))
                self.projection.catch_up([])
                clerk.commit(RetireMemory(records[0].id, at=records[0].at, reason="x"))
                self.projection.catch_up([])
                clerk.commit(UpdateMemory(records[1].id, text="other words"))
                enrich(clerk, clerk.record(records[1].id), ["e9"])
        self.projection.catch_up([])
        seeds = Seeds(["e0", "e4", "e9"], [records[-1].id])
        slow = sorted(self.index.list_held()), unordered(self.index.neighbourhood(clerk.view(), seeds, GraphBounds()))
        self.projection.rebuild([])
        fast = sorted(self.index.list_held()), unordered(self.index.neighbourhood(clerk.view(), seeds, GraphBounds()))
        assert slow == fast
        assert not any(self.projection.verify().values())
