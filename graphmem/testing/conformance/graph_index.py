"""Conformance tests of `GraphIndex`: what it holds, its versions, and delivery out of order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from graphmem.errors import StoreUnavailable
from graphmem.model import (
    Entity,
    EntityType,
    GraphBounds,
    Kind,
    MemoryRecord,
    MentionEdge,
    MentionKind,
    Relation,
    Scope,
    Seeds,
    Subgraph,
    View,
    from_micros,
)
from graphmem.plugins import EntityState, GraphIndex, MemoryState, RelationState, Support
from graphmem.text import entity_id

NAME, NOUN_PHRASE, COMMON_NOUN = MentionKind.NAME, MentionKind.NOUN_PHRASE, MentionKind.COMMON_NOUN
ALICE, BOUNDS = Scope("alice"), GraphBounds()
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
    names: dict[str, Any] = {"source_name": source.title(), "target_name": target.title()}
    edge = Relation(
        id=uid, source=source, target=target, predicate=predicate, memory_ids=memories, facts=("They met.",),
        valid_at=NOON, **names,
    )  # fmt: skip
    supports = tuple(Support(memory, "They met.", 1_714_564_800_000_000, None) for memory in memories)
    return RelationState(edge, PARTITION, seq, supports)


def entity_state(key: str, name: str, *same_as: str, seq: int = 3) -> EntityState:
    return EntityState(entity_id(PARTITION, key), PARTITION, key, name, EntityType.PERSON, seq, same_as)


class GraphIndexContract:
    """One test for each promise of the protocol. A backend subclasses it and gives a fixture `graph`, an empty one."""

    index: GraphIndex

    @pytest.fixture
    def graph(self) -> Any:
        """Yields an empty index, and closes it."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _take(self, graph: GraphIndex) -> None:
        self.index = graph

    def neighbourhood(
        self, *keys: str, memories: Any = (), limits: GraphBounds = BOUNDS, view: View = VIEW
    ) -> Subgraph:
        return self.index.neighbourhood(view, Seeds(keys, memories), limits)

    def test_it_is_a_graph_index(self) -> None:
        assert isinstance(self.index, GraphIndex)

    def test_wiping_empties_it_and_it_can_be_filled_again(self) -> None:
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
        steps: list[Callable[[], None]] = [
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
