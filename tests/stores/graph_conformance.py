"""Conformance tests of `Graph`. A backend runs them by subclassing `GraphContract` and implementing `reading`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.fakes import DIMS

from graphmem.commands.types import (
    DeleteMemory,
    ForgetMemory,
    ReaffirmFact,
    RememberMemory,
    RetireMemory,
    StoreEnrichment,
    UpdateMemory,
)
from graphmem.model import (
    EmbeddingSpec,
    EntityType,
    Extraction,
    GraphBounds,
    Kind,
    MemoryRecord,
    Mention,
    MentionEdge,
    MentionKind,
    Scope,
    Seeds,
    Statement,
    Subgraph,
    View,
)
from graphmem.plugins import Embedded, Graph
from graphmem.stores.ledger import memories, outbox
from graphmem.text import content_hash

NAME, TITLE, NOUN_PHRASE, COMMON_NOUN = (
    MentionKind.NAME,
    MentionKind.TITLE,
    MentionKind.NOUN_PHRASE,
    MentionKind.COMMON_NOUN,
)
ALICE = Scope("alice")


def store_memory(clerk: Any, *keys: str, kinds: Mapping[str, MentionKind] | None = None, **more: Any) -> MemoryRecord:
    """Stores a memory that mentions exactly these keys, with a relation from each to the next."""
    record: MemoryRecord = clerk.say(" ".join(keys) or "nothing", enrich=False, **more)
    enrich(clerk, record, keys, kinds)
    return clerk.record(record.id)


def enrich(clerk: Any, record: MemoryRecord, keys: Any, kinds: Mapping[str, MentionKind] | None = None) -> None:
    mentions = tuple(Mention(k, k.title(), EntityType.OTHER, (kinds or {}).get(k, NAME)) for k in keys)
    statements = tuple(Statement(a, "meets", b, record.text) for a, b in zip(keys, keys[1:], strict=False))
    text = record.embedded_text
    embedded = Embedded(clerk.embedder.embed([text])[0], ())
    forms = EmbeddingSpec(clerk.embedder.model, DIMS)
    step = StoreEnrichment(
        record.id,
        record.version,
        forms,
        content_hash(record.partition, text),
        embedded,
        Extraction(mentions, statements),
    )
    assert clerk.commit(step)[0].event == "ENRICH"


def far(number: int) -> float:
    """Minutes that put memories into sessions of their own."""
    return number * 120.0


class GraphContract:
    """One test for each promise of the protocol."""

    def reading(self, clerk: Any) -> Graph:
        """The graph, up to date with the clerk's ledger."""
        raise NotImplementedError

    def around(
        self, clerk: Any, *keys: str, memories: Any = (), limits: GraphBounds = GraphBounds(), view: View | None = None
    ) -> Subgraph:
        seeds = Seeds(keys, [record.id for record in memories])
        return self.reading(clerk).neighbourhood(view or clerk.view(), seeds, limits)

    # --- neighbourhoods ---------------------------------------------------------------------------------------

    def test_an_empty_partition_has_an_empty_neighbourhood(self, clerk: Any) -> None:
        assert self.around(clerk, "anna") == Subgraph()

    def test_unknown_seeds_have_an_empty_neighbourhood(self, clerk: Any) -> None:
        store_memory(clerk, "anna")
        assert self.around(clerk, "zoe", memories=[replace(clerk.say("x"), id="no such id")]) == Subgraph()

    def test_an_entity_gives_the_memories_that_mention_it(self, clerk: Any) -> None:
        one, _, three = (
            store_memory(clerk, "anna", "acme"),
            store_memory(clerk, "bob", at=far(1)),
            store_memory(clerk, "anna", at=far(2)),
        )
        subgraph = self.around(clerk, "anna")
        assert set(subgraph.memories) == {one.id, three.id}

    def test_all_mentions_of_each_memory_are_included(self, clerk: Any) -> None:
        one = store_memory(clerk, "anna", "acme", "berlin", kinds={"acme": TITLE, "berlin": NOUN_PHRASE})
        two = store_memory(clerk, "acme", "berlin", at=far(1))
        subgraph = self.around(clerk, "anna")
        assert set(subgraph.mentions) == {
            MentionEdge(one.id, "anna", NAME), MentionEdge(one.id, "acme", TITLE),
            MentionEdge(one.id, "berlin", NOUN_PHRASE),
            MentionEdge(two.id, "acme", NAME), MentionEdge(two.id, "berlin", NAME),
        }  # fmt: skip
        assert subgraph.frequencies == {"anna": 1, "acme": 2, "berlin": 2}

    def test_unshared_mentions_of_a_memory_are_counted_by_kind(self, clerk: Any) -> None:
        one = store_memory(clerk, "anna", "acme", "bergen", "berlin", kinds={"berlin": NOUN_PHRASE})
        store_memory(clerk, "acme", at=far(1))
        subgraph = self.around(clerk, memories=[one], limits=GraphBounds(frontier=0))
        assert subgraph.unshared_mentions == {(one.id, NAME): 2, (one.id, NOUN_PHRASE): 1}
        assert {edge.entity for edge in subgraph.mentions} == {"acme"}

    def test_a_seed_entity_of_a_single_memory_is_a_node(self, clerk: Any) -> None:
        one = store_memory(clerk, "anna", "acme")
        subgraph = self.around(clerk, "anna", memories=[one])
        assert (subgraph.mentions, subgraph.unshared_mentions) == (
            (MentionEdge(one.id, "anna", NAME),),
            {(one.id, NAME): 1},
        )

    def test_a_mention_by_common_noun_links_nothing(self, clerk: Any) -> None:
        one = store_memory(clerk, "rice", "anna", kinds={"rice": COMMON_NOUN})
        store_memory(clerk, "rice", at=far(1))
        assert self.around(clerk, "anna").memories == (one.id,)
        subgraph = self.around(clerk, "rice", memories=[one])
        assert {edge.kind for edge in subgraph.mentions} <= {NAME}

    def test_mentions_of_entities_beyond_the_frontier_are_included(self, clerk: Any) -> None:
        one, _ = store_memory(clerk, "anna", "acme", "berlin"), store_memory(clerk, "anna", "acme", "berlin", at=far(1))
        subgraph = self.around(clerk, memories=[one], limits=GraphBounds(frontier=0))
        assert subgraph.memories == (one.id,)
        assert {edge.entity for edge in subgraph.mentions} == {"anna", "acme", "berlin"}

    def test_document_frequencies_count_the_whole_partition(self, clerk: Any) -> None:
        store_memory(clerk, "anna", scope=Scope("alice", "a"))
        store_memory(clerk, "anna", "acme", scope=Scope("alice", "b"))
        store_memory(clerk, "anna", scope=Scope("bob"))
        agent_view = clerk.view(Scope("alice", "b"))
        subgraph = self.around(clerk, "anna", view=agent_view)
        assert subgraph.frequencies == {"anna": 2}

    def test_document_frequencies_fall_when_a_memory_is_erased(self, clerk: Any) -> None:
        store_memory(clerk, "anna")
        erased_record = store_memory(clerk, "anna", at=far(1))
        clerk.commit(DeleteMemory(erased_record.id))
        assert self.around(clerk, "anna").frequencies["anna"] == 1

    def test_a_seed_memory_adds_its_neighbours_in_the_session(self, clerk: Any) -> None:
        first, second, third, fourth = (store_memory(clerk, at=minute) for minute in (0, 1, 2, 3))
        subgraph = self.around(clerk, memories=[second], limits=GraphBounds(steps=1))
        assert set(subgraph.memories) == {first.id, second.id, third.id}
        assert set(subgraph.next_pairs) == {(first.id, second.id), (second.id, third.id), (third.id, fourth.id)}

    def test_the_bound_on_steps_counts_before_and_after(self, clerk: Any) -> None:
        memory_ids = [store_memory(clerk, at=minute).id for minute in range(9)]
        middle = clerk.record(memory_ids[4])
        for steps in range(5):
            subgraph = self.around(clerk, memories=[middle], limits=GraphBounds(steps=steps))
            assert set(subgraph.memories) == set(memory_ids[4 - steps : 5 + steps])

    def test_a_seed_memory_adds_memories_that_share_its_entities(self, clerk: Any) -> None:
        seed, other = store_memory(clerk, "anna", "acme"), store_memory(clerk, "acme", at=far(1))
        store_memory(clerk, "bob", at=far(2))
        assert set(self.around(clerk, memories=[seed]).memories) == {seed.id, other.id}

    def test_the_seed_memories_neighbours_do_not_lead_on(self, clerk: Any) -> None:
        seed, beside = store_memory(clerk), store_memory(clerk, "acme", at=1)
        store_memory(clerk, "acme", at=far(3))
        assert set(self.around(clerk, memories=[seed]).memories) == {seed.id, beside.id}

    def test_a_seed_entity_leads_on_to_a_second_hop(self, clerk: Any) -> None:
        near, beyond = store_memory(clerk, "anna", "acme"), store_memory(clerk, "acme", "bob", at=far(1))
        store_memory(clerk, "bob", at=far(2))
        assert self.around(clerk, "anna").memories == (near.id, beyond.id)

    def test_no_memory_comes_twice(self, clerk: Any) -> None:
        records = [store_memory(clerk, "anna", "acme", at=n) for n in range(4)]
        subgraph = self.around(clerk, "anna", "acme", memories=records)
        assert sorted(subgraph.memories) == sorted(record.id for record in records)
        assert len(set(subgraph.mentions)) == len(subgraph.mentions) == 8
        assert subgraph.unshared_mentions == {}

    # --- limits -----------------------------------------------------------------------------------------------

    def test_the_best_mentions_come_first_by_kind_then_newest(self, clerk: Any) -> None:
        old_title = store_memory(clerk, "anna", kinds={"anna": TITLE}, at=far(0))
        new_phrase = store_memory(clerk, "anna", kinds={"anna": NOUN_PHRASE}, at=far(9))
        old_name, new_name = store_memory(clerk, "anna", at=far(1)), store_memory(clerk, "anna", at=far(2))
        order = [old_title.id, new_name.id, old_name.id, new_phrase.id]
        for most in range(1, 5):
            subgraph = self.around(clerk, "anna", limits=GraphBounds(seed_mentions=most))
            assert set(subgraph.memories) == set(order[:most])

    def test_of_equally_good_mentions_the_one_stored_first_is_taken(self, clerk: Any) -> None:
        records = [store_memory(clerk, "anna", at=0) for _ in range(3)]
        assert self.around(clerk, "anna", limits=GraphBounds(seed_mentions=1)).memories == (records[0].id,)

    def test_the_rarest_entities_are_the_frontier(self, clerk: Any) -> None:
        seed = store_memory(clerk, "hub", "rare", "middling")
        hubs = [store_memory(clerk, "hub", at=far(n)) for n in range(1, 5)]
        rare, middling = (
            store_memory(clerk, "rare", at=far(6)),
            [store_memory(clerk, "middling", at=far(n)) for n in (7, 8)],
        )
        wanted = {1: {rare.id}, 2: {rare.id, *(m.id for m in middling)}}
        wanted[3] = wanted[2] | {h.id for h in hubs}
        for most, ids in wanted.items():
            assert set(self.around(clerk, memories=[seed], limits=GraphBounds(frontier=most)).memories) == {
                seed.id,
                *ids,
            }

    def test_seed_entities_take_no_place_in_the_frontier(self, clerk: Any) -> None:
        seed, other = store_memory(clerk, "anna", "zed"), store_memory(clerk, "zed", at=far(1))
        store_memory(clerk, "zed", at=far(2))
        subgraph = self.around(clerk, "anna", memories=[seed], limits=GraphBounds(frontier=1, frontier_mentions=9))
        assert other.id in subgraph.memories

    def test_frontier_mentions_have_a_limit_of_their_own(self, clerk: Any) -> None:
        seed = store_memory(clerk, "acme")
        newest = [store_memory(clerk, "acme", at=far(n)) for n in range(1, 6)][-2:]
        limits = GraphBounds(seed_mentions=1, frontier_mentions=2)
        subgraph = self.around(clerk, memories=[seed], limits=limits)
        assert set(subgraph.memories) == {seed.id, *(record.id for record in newest)}

    def test_memories_are_cut_seeds_first_then_seed_entities_then_frontier(self, clerk: Any) -> None:
        seed = store_memory(clerk, "frontier", at=far(1))
        beyond, named = store_memory(clerk, "frontier", at=far(2)), store_memory(clerk, "anna", at=far(3))
        order = [seed.id, named.id, beyond.id]
        for most in (1, 2, 3):
            subgraph = self.around(clerk, "anna", memories=[seed], limits=GraphBounds(memories=most))
            assert subgraph.memories == tuple(order[:most])
            assert {edge.memory for edge in subgraph.mentions} == set(order[:most])
            assert subgraph.unshared_mentions == {}

    def test_seed_memories_are_cut_in_the_order_given(self, clerk: Any) -> None:
        records = [store_memory(clerk, at=far(n)) for n in range(4)]
        seeds = [records[2], records[0], records[3], records[1]]
        subgraph = self.around(clerk, memories=seeds, limits=GraphBounds(memories=2))
        assert subgraph.memories == (records[2].id, records[0].id)

    def test_seed_entities_are_cut_in_the_order_given(self, clerk: Any) -> None:
        record_of = {key: store_memory(clerk, key, at=far(n)) for n, key in enumerate(["anna", "bob", "carl"])}
        subgraph = self.around(clerk, "carl", "anna", "bob", limits=GraphBounds(memories=2))
        assert subgraph.memories == (record_of["carl"].id, record_of["anna"].id)

    def test_more_entities_than_one_statement_takes_are_no_problem(self, clerk: Any) -> None:
        keys = [f"e{n}" for n in range(40)]
        records = [store_memory(clerk, key, at=far(n)) for n, key in enumerate(keys)]
        assert set(self.around(clerk, *keys).memories) == {record.id for record in records}

    # --- views ------------------------------------------------------------------------------------------------

    def test_the_view_is_applied_before_the_limits(self, clerk: Any) -> None:
        mine = store_memory(clerk, "anna", scope=Scope("alice", "mine"))
        for n in range(1, 30):
            store_memory(clerk, "anna", scope=Scope("alice", "other"), at=far(n))
        subgraph = self.around(
            clerk, "anna", view=clerk.view(Scope("alice", "mine")), limits=GraphBounds(seed_mentions=1)
        )
        assert subgraph.memories == (mine.id,)

    def test_partitions_are_separate(self, clerk: Any) -> None:
        mine = store_memory(clerk, "anna", "acme")
        theirs = store_memory(clerk, "anna", "acme", scope=Scope("bob"))
        assert self.around(clerk, "anna", memories=[mine, theirs]).memories == (mine.id,)
        assert self.around(clerk, "anna", view=clerk.view(Scope("bob"))).memories == (theirs.id,)

    def test_a_seed_outside_the_view_leads_nowhere(self, clerk: Any) -> None:
        hidden = store_memory(clerk, "acme", scope=Scope("alice", "other"))
        store_memory(clerk, "acme", scope=Scope("alice", "mine"), at=far(1))
        assert self.around(clerk, memories=[hidden], view=clerk.view(Scope("alice", "mine"))) == Subgraph()

    def test_a_run_sees_facts_reaffirmed_in_it(self, clerk: Any) -> None:
        first, second, third = (
            store_memory(clerk, "anna", "acme", scope=Scope("alice", None, run), at=far(n))
            for n, run in enumerate("rrt")
        )
        next_ = store_memory(clerk, "acme", scope=Scope("alice", None, "r"), at=far(1) + 1)
        run_view = clerk.view(Scope("alice", None, "s"))
        assert self.around(clerk, "anna", memories=[first, third], view=run_view) == Subgraph()
        for record in (first, second, next_):
            clerk.commit(ReaffirmFact(record.id, Scope("alice", None, "s")))
        subgraph = self.around(clerk, "anna", memories=[third], view=run_view, limits=GraphBounds(steps=1))
        assert set(subgraph.memories) == {first.id, second.id, next_.id}
        assert set(subgraph.next_pairs) == {(first.id, second.id), (second.id, next_.id)}
        assert set(self.around(clerk, memories=[second], view=run_view, limits=GraphBounds(1, 0, 0, 0)).memories) == {
            first.id, second.id, next_.id
        }  # fmt: skip
        own = self.around(clerk, "anna", view=clerk.view(Scope("alice", None, "r")))
        assert set(own.memories) == {first.id, second.id, next_.id}
        clerk.commit(DeleteMemory(second.id, run_id="s"))
        assert second.id not in self.around(clerk, "anna", memories=[second], view=run_view).memories
        assert second.id in self.around(clerk, "anna", memories=[second]).memories

    def test_neighbours_outside_the_view_are_left_out_of_the_chain(self, clerk: Any) -> None:
        first, hidden, last = (store_memory(clerk, at=minute) for minute in range(3))
        clerk.commit(RetireMemory(hidden.id, at=hidden.at, reason="x"))
        subgraph = self.around(clerk, memories=[first, last])
        assert (set(subgraph.memories), subgraph.next_pairs) == ({first.id, last.id}, ())

    def test_kinds_dates_and_expiry_are_respected(self, clerk: Any) -> None:
        now = clerk.view().now
        plain, expired = (
            store_memory(clerk, "anna"),
            store_memory(clerk, "anna", at=far(1), expires_at=now - timedelta(hours=1)),
        )
        retired = store_memory(clerk, "anna", at=far(2))
        clerk.commit(RetireMemory(retired.id, at=now - timedelta(hours=2), reason="x"))
        list_memories = lambda **more: set(self.around(clerk, "anna", view=clerk.view(**more)).memories)
        assert list_memories() == {plain.id}
        assert list_memories(show_expired=True) == {plain.id, expired.id}
        assert list_memories(show_retired=True) == {plain.id, retired.id}
        assert list_memories(as_of=now - timedelta(hours=3)) == {plain.id, expired.id, retired.id}
        assert list_memories(as_of=plain.at) == {plain.id}
        assert list_memories(kinds=frozenset({Kind.FACT})) == set()

    def test_forgotten_memories_are_left_out_from_then_on(self, clerk: Any) -> None:
        """`as_of` a moment before and after a cycle."""
        kept, forgotten = store_memory(clerk, "anna", at=0), store_memory(clerk, "anna", at=1)
        at = clerk.view().now - timedelta(hours=1)
        clerk.commit(ForgetMemory(forgotten.id, "retention below 0.1"), now=at)
        list_memories = lambda **more: set(self.around(clerk, "anna", view=clerk.view(**more)).memories)
        assert list_memories() == list_memories(as_of=at) == {kept.id}
        assert list_memories(show_forgotten=True) == {kept.id, forgotten.id}
        assert list_memories(as_of=at - timedelta(microseconds=1)) == {kept.id, forgotten.id}
        clerk.commit(RememberMemory(forgotten.id, "asked"))
        assert list_memories() == {kept.id, forgotten.id}

    # --- after changes ----------------------------------------------------------------------------------------

    def test_the_chain_closes_over_an_erased_memory(self, clerk: Any) -> None:
        first, erased_record, last = (store_memory(clerk, at=minute) for minute in range(3))
        self.reading(clerk)
        clerk.commit(DeleteMemory(erased_record.id))
        assert self.around(clerk, memories=[first]).next_pairs == ((first.id, last.id),)

    def test_a_late_import_takes_its_place_in_the_chain(self, clerk: Any) -> None:
        first, last = store_memory(clerk, at=0), store_memory(clerk, at=10)
        self.reading(clerk)
        between = store_memory(clerk, at=5)
        subgraph = self.around(clerk, memories=[between])
        assert set(subgraph.next_pairs) == {(first.id, between.id), (between.id, last.id)}

    def test_an_updated_memory_loses_its_old_mentions(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna")
        self.reading(clerk)
        clerk.commit(UpdateMemory(record.id, text="Bob was here"))
        assert self.around(clerk, "anna") == Subgraph()
        enrich(clerk, clerk.record(record.id), ["bob"])
        assert self.around(clerk, "bob").memories == (record.id,)

    def test_an_erased_memory_leaves_nothing(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(DeleteMemory(record.id))
        assert self.around(clerk, "anna", "acme", memories=[record]) == Subgraph()


def fill_ledger(clerk: Any, seed: int, count: int = 50) -> list[MemoryRecord]:
    """A ledger of random memories of two users, some of them facts, retired, expired, updated or deleted."""
    chance = random.Random(seed)
    records = []
    for n in range(count):
        scope = Scope(
            chance.choice(["alice", "bob"]), chance.choice([None, "a", "b"]), chance.choice([None, None, "r"])
        )
        keys = chance.sample([f"e{int(chance.triangular(0, 25, 0))}" for _ in range(12)], chance.randint(0, 4))
        keys = list(dict.fromkeys(keys))
        kinds = {key: chance.choice(list(MentionKind)) for key in keys}
        expires = chance.choice([None, None, None, clerk.view().now + timedelta(hours=chance.randint(-20, 5))])
        record = clerk.say(f"memory {n}", at=chance.randint(0, 300), scope=scope, enrich=False, expires_at=expires)
        if chance.random() < 0.2:
            with clerk.ledger.write() as connection:
                fact = replace(record, kind=Kind.FACT, seq=outbox.next_seq(connection))
                memories.update(connection, fact)
                # Facts are in no session's order.
                before, after = memories.previous_row(connection, fact.row), memories.next_row(connection, fact.row)
                if after is not None:
                    memories.set_previous(connection, after, before, outbox.next_seq(connection))
                memories.set_previous(connection, fact.row, None, outbox.next_seq(connection))
        enrich(clerk, clerk.record(record.id), keys, kinds)
        records.append(record)
    for record in chance.sample(records, count // 4):
        operation = chance.choice(["retire", "update", "delete", "touch"])
        if operation == "retire":
            clerk.commit(RetireMemory(record.id, at=record.at + timedelta(hours=chance.randint(0, 30)), reason="x"))
        elif operation == "delete":
            clerk.commit(DeleteMemory(record.id))
            records.remove(record)
        elif operation == "touch":
            clerk.commit(UpdateMemory(record.id, metadata={"n": 1}))
        else:
            clerk.commit(UpdateMemory(record.id, text=f"{record.text} revised"))
            enrich(clerk, clerk.record(record.id), [f"e{chance.randint(0, 25)}"])
    return records


def unordered(subgraph: Subgraph) -> Any:
    """A subgraph without the order that the protocol leaves open."""
    return (
        set(subgraph.memories),
        dict(subgraph.frequencies),
        set(subgraph.mentions),
        dict(subgraph.unshared_mentions),
        set(subgraph.next_pairs),
    )
