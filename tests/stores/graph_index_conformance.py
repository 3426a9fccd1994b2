"""Conformance tests of `GraphIndex`, beyond those of `Graph`. A backend subclasses them and implements `fresh`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from graph_conformance import (
    ALICE,
    COMMON_NOUN,
    NAME,
    NOUN_PHRASE,
    GraphContract,
    enrich,
    far,
    fill_ledger,
    store_memory,
    unordered,
)

from graphmem.commands.types import DeleteMemory, RetireMemory, UpdateMemory
from graphmem.errors import StoreUnavailable
from graphmem.model import (
    Entity,
    EntityType,
    GraphBounds,
    Kind,
    MemoryRecord,
    MentionEdge,
    Relation,
    Scope,
    Seeds,
    Subgraph,
    View,
    from_micros,
)
from graphmem.plugins import EntityState, Graph, GraphIndex, MemoryState, RelationState, Support
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.stores.projection import GraphSink, Projection
from graphmem.text import entity_id

PARTITION = "user:alice"
NOON = from_micros(1_714_564_800_000_000)
VIEW = View(ALICE, NOON + timedelta(days=1), partition=PARTITION)


def memory(uid: str, *keys: str, seq: int = 1, minute: int = 0, previous: str | None = None, **more: Any) -> Any:
    """A memory's state, made by hand; `kinds` are the kinds of its mentions by key."""
    at, kinds = NOON + timedelta(minutes=minute), more.pop("kinds", {})
    links = {name: more.pop(name) for name in ("drawn_from", "replaces", "compresses") if name in more}
    row = more.pop("row", minute + 1)
    fields = {"kind": Kind.EPISODE, "text": uid, "at": at, "valid_from": at, "created_at": at, "updated_at": at}
    record = MemoryRecord(uid, PARTITION, ALICE, session="s", seq=seq, row=row, **{**fields, **more})
    mentions = tuple((Entity(key, key.title(), EntityType.OTHER, 1), kinds.get(key, NAME)) for key in keys)
    return MemoryState(record, mentions, previous, **links)


def relation(uid: str, source: str, target: str, *memories: str, seq: int = 2, predicate: str = "meets") -> Any:
    names = {"source_name": source.title(), "target_name": target.title()}
    edge = Relation(
        id=uid, source=source, target=target, predicate=predicate, memory_ids=memories, facts=("They met.",),
        valid_at=NOON, **names,
    )  # fmt: skip
    supports = tuple(Support(memory, "They met.", 1_714_564_800_000_000, None) for memory in memories)
    return RelationState(edge, PARTITION, seq, supports)


def entity_state(key: str, name: str, *same_as: str, seq: int = 3) -> EntityState:
    return EntityState(entity_id(PARTITION, key), PARTITION, key, name, EntityType.PERSON, seq, same_as)


class GraphIndexContract(GraphContract):
    """One test for each promise of the protocol."""

    index: GraphIndex

    def fresh(self, ledger: Ledger) -> GraphIndex:
        """An empty index for this ledger; the same for the same one."""
        raise NotImplementedError

    def leave(self, ledger: Ledger) -> None:
        """Removes the index of this ledger."""

    @pytest.fixture(autouse=True)
    def _projected_from_the_ledger(self, clerk: Any) -> Iterator[None]:
        self.index = self.fresh(clerk.ledger)
        self.projection = Projection("graph", clerk.ledger, GraphSink(self.index), shared=True)
        self.index.wipe()
        yield
        self.index.close()
        self.leave(clerk.ledger)

    def reading(self, clerk: Any) -> Graph:
        self.projection.catch_up([])
        return self.index

    def neighbourhood(
        self, *keys: str, memories: Any = (), limits: GraphBounds = GraphBounds(), view: View = VIEW
    ) -> Subgraph:
        return self.index.neighbourhood(view, Seeds(keys, memories), limits)

    # --- contents ---------------------------------------------------------------------------------------------

    def test_it_is_a_graph_index(self) -> None:
        assert isinstance(self.index, GraphIndex)

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

    def test_wiping_empties_it_and_it_can_be_filled_again(self, clerk: Any) -> None:
        state = memory("m", "anna")
        self.index.upsert([state], [relation("r", "anna", "acme", "m")], [entity_state("anna", "Anna K.")])
        assert len(list(self.index.list_held())) == 3
        self.index.wipe()
        assert list(self.index.list_held()) == []
        self.index.upsert([state])
        assert self.neighbourhood("anna").memories == ("m",)

    def test_empty_calls_change_nothing(self) -> None:
        self.index.upsert()
        self.index.delete([])
        assert list(self.index.list_held()) == []

    def test_a_closed_graph_is_unavailable(self) -> None:
        self.index.close()
        for act in (
            lambda: self.index.upsert([memory("m")]),
            lambda: self.index.delete(["m"]),
            lambda: self.neighbourhood("anna"),
        ):
            with pytest.raises(StoreUnavailable):
                act()

    def test_erasing_the_last_support_removes_the_relation(self, clerk: Any) -> None:
        one, two = store_memory(clerk, "anna", "acme"), store_memory(clerk, "anna", "acme", at=far(1))
        self.reading(clerk)
        clerk.commit(DeleteMemory(one.id))
        self.reading(clerk)
        assert len(dict(self.index.list_held())) == 2
        clerk.commit(DeleteMemory(two.id))
        self.reading(clerk)
        assert dict(self.index.list_held()) == {}

    # --- versions ---------------------------------------------------------------------------------------------

    def test_an_older_memory_changes_nothing(self) -> None:
        self.index.upsert([memory("m", "anna", seq=5)])
        self.index.upsert([memory("m", "bob", seq=4, previous="gone")])
        assert list(self.index.list_held()) == [("m", 5)]
        assert self.neighbourhood("anna", "bob").mentions == (MentionEdge("m", "anna", NAME),)

    def test_a_memory_of_the_same_version_may_be_delivered_again(self) -> None:
        for _ in range(2):
            self.index.upsert([memory("m", "anna", seq=5)])
        assert self.neighbourhood("anna") == Subgraph(("m",), {"anna": 1}, (MentionEdge("m", "anna", NAME),))

    def test_an_older_relation_and_older_names_change_nothing(self) -> None:
        newer = relation("r", "anna", "acme", "m", "n", seq=9), entity_state("anna", "Anna K.", seq=9)
        older = relation("r", "anna", "acme", "m", seq=8), entity_state("anna", "Anna", seq=8)
        self.index.upsert([memory("m", "anna", "acme"), memory("n", "anna", "acme")])
        for related, named in (newer, older):
            self.index.upsert((), [related], [named])
        assert dict(self.index.list_held()) == {"m": 1, "n": 1, "r": 9, entity_id(PARTITION, "anna"): 9}

    def test_of_two_versions_in_one_call_the_newer_is_written(self) -> None:
        self.index.upsert([memory("m", "anna", seq=2), memory("m", "bob", seq=1)])
        assert list(self.index.list_held()) == [("m", 2)]
        assert self.neighbourhood("anna", "bob").mentions == (MentionEdge("m", "anna", NAME),)

    def test_a_new_version_removes_the_links_of_the_old_one(self) -> None:
        chain = [memory("a", minute=0), memory("b", minute=1, previous="a"), memory("c", minute=2, previous="b")]
        self.index.upsert([*chain, memory("m", "anna", "acme", "bob", seq=2, minute=3, previous="c")])
        self.index.upsert([memory("m", "acme", seq=3, minute=3, previous="a", kinds={"acme": NOUN_PHRASE})])
        subgraph = self.neighbourhood("anna", "bob", "acme", memories=["m", "c"])
        assert subgraph.mentions == (MentionEdge("m", "acme", NOUN_PHRASE),)
        assert subgraph.frequencies == {"acme": 1}
        assert set(subgraph.next_pairs) == {("a", "b"), ("b", "c"), ("a", "m")}

    def test_a_memory_delivered_again_keeps_its_incoming_links(self) -> None:
        self.index.upsert([memory("a", minute=0), memory("b", minute=1, previous="a")])
        self.index.upsert([memory("a", minute=0, seq=2)])
        assert self.neighbourhood(memories=["b"]).next_pairs == (("a", "b"),)

    def test_a_relation_outlives_a_new_version_of_its_memory(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(UpdateMemory(record.id, metadata={"seen": True}))
        self.reading(clerk)
        assert len(dict(self.index.list_held())) == 2
        assert not any(self.projection.verify().values())

    # --- delivery out of order --------------------------------------------------------------------------------

    def test_placeholders_are_neither_visible_nor_listed(self) -> None:
        self.index.upsert([memory("b", previous="a", drawn_from=("c",), replaces=("d",), compresses=("e",))])
        assert list(self.index.list_held()) == [("b", 1)]
        subgraph = self.neighbourhood(memories=["a", "b", "c", "d", "e"])
        assert (subgraph.memories, subgraph.next_pairs) == (("b",), ())

    def test_a_memory_may_be_delivered_after_its_incoming_links(self) -> None:
        a, b, c = memory("a", minute=0), memory("b", minute=1, previous="a"), memory("c", minute=2, previous="b")
        self.index.upsert([c])
        self.index.upsert([a])
        assert self.neighbourhood(memories=["c"]).memories == ("c",)
        self.index.upsert([b])
        assert self.neighbourhood(memories=["c"]).memories == ("c", "b", "a")
        assert self.neighbourhood(memories=["c"]).next_pairs == (("a", "b"), ("b", "c"))

    def test_a_relation_may_be_delivered_before_its_memories_and_deleted_without_them(self) -> None:
        self.index.upsert((), [relation("r", "anna", "acme", "m")])
        assert dict(self.index.list_held()) == {"r": 2}
        assert self.neighbourhood("anna", "acme") == Subgraph()
        self.index.upsert([memory("m", "anna", "acme", seq=9)])
        assert self.neighbourhood("anna").frequencies == {"anna": 1}
        self.index.delete(["m"], ["r"])
        assert list(self.index.list_held()) == []

    def test_an_entity_state_may_be_delivered_before_any_memory(self) -> None:
        self.index.upsert((), (), [entity_state("anna", "Anna K.", "ann"), entity_state("ann", "Ann", "anna")])
        assert self.neighbourhood("anna") == Subgraph()
        self.index.upsert([memory("m", "anna"), memory("n", "ann")])
        assert len(dict(self.index.list_held())) == 4
        subgraph = self.neighbourhood("anna", "ann")
        assert (set(subgraph.memories), subgraph.frequencies) == ({"m", "n"}, {"anna": 1, "ann": 1})

    def test_an_entity_state_can_be_deleted(self) -> None:
        self.index.upsert(
            [memory("m", "anna")], (), [entity_state("anna", "Anna K."), entity_state("ann", "Ann", "anna")]
        )
        self.index.delete([], [], [entity_id(PARTITION, "ann"), entity_id(PARTITION, "anna")])
        assert list(self.index.list_held()) == [("m", 1)]
        assert self.neighbourhood("anna").memories == ("m",)

    @pytest.mark.parametrize("order", range(6))
    def test_the_order_of_delivery_does_not_matter(self, order: int) -> None:
        states = [
            memory("a", "anna", minute=0, seq=7),
            memory("b", "anna", "acme", minute=1, previous="a", seq=2),
        ]
        steps = [
            lambda: self.index.upsert(states[:1]),
            lambda: self.index.upsert(states[1:]),
            lambda: self.index.upsert(
                (), [relation("r", "anna", "acme", "b", seq=3)], [entity_state("anna", "A.", seq=4)]
            ),
        ]
        for step in list(permutations(steps))[order]:
            step()
        assert dict(self.index.list_held()) == {"a": 7, "b": 2, "r": 3, entity_id(PARTITION, "anna"): 4}
        subgraph = self.neighbourhood("anna")
        assert subgraph.memories == ("b", "a")
        assert (subgraph.frequencies, subgraph.next_pairs) == ({"anna": 2}, (("a", "b"),))
        assert subgraph.unshared_mentions == {("b", NAME): 1}

    # --- ranks ------------------------------------------------------------------------------------------------

    def test_mentions_of_all_years_are_ranked_by_date(self) -> None:
        years = {"old": 2, "new": 9998, "unix": 1970, "before": 1969}
        states = [
            replace(state, record=replace(state.record, at=NOON.replace(year=year)))
            for year, state in ((year, memory(uid, "anna")) for uid, year in years.items())
        ]
        self.index.upsert(states)
        assert self.neighbourhood("anna").memories == ("new", "unix", "before", "old")

    def test_of_equally_good_mentions_the_one_stored_first_comes_first(self) -> None:
        self.index.upsert([memory(str(row), "anna", row=row) for row in (900, 1, 20, 10_000_000)])
        assert self.neighbourhood("anna").memories == ("1", "20", "900", "10000000")

    def test_mentions_by_common_noun_do_not_make_a_hub(self) -> None:
        things = [memory(f"t{n}", "rice", minute=n, kinds={"rice": COMMON_NOUN}) for n in range(5)]
        self.index.upsert([*things, memory("m", "rice", minute=9)])
        subgraph = self.neighbourhood("rice")
        assert (subgraph.memories, subgraph.frequencies) == (("m",), {"rice": 6})

    # --- compared with the ledger -----------------------------------------------------------------------------

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
