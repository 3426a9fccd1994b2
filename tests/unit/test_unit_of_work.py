"""The unit of work: the effect of each command on rows, events and counts."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from support.columns import reader_of
from support.databases import SQLITE_ONLY
from support.fakes import DIMS, NOON, merging

from graphmem.commands.dispatch import commit
from graphmem.commands.types import (
    ChangeSet,
    DeleteMemory,
    ForgetMemory,
    ReaffirmFact,
    ReindexMemory,
    RememberMemory,
    RestoreMemory,
    RetireMemory,
    StoreEnrichment,
    UpdateMemory,
)
from graphmem.errors import NotFoundError, ValidationError
from graphmem.ingest.messages import message_commands
from graphmem.model import VECTOR, EmbeddingSpec, Extraction, Kind, Message, Scope, View, micros
from graphmem.plugins import Embedded
from graphmem.stores.ledger import (
    change_feed,
    embedded_graph,
    events,
    graph_reads,
    index_blocks,
    integrity,
    memories,
    outbox,
    sessions,
    tombstones,
    visibility,
    vitals,
)
from graphmem.stores.ledger.schema import (
    embeddings,
    entities,
    ledger,
    links,
    mentions,
    partitions,
    relations,
    supports,
    terms,
)
from graphmem.stores.ledger.schema import events as events_table
from graphmem.stores.ledger.schema import jobs as jobs_table
from graphmem.stores.ledger.schema import memories as rows
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.text import content_hash

HOUR = timedelta(hours=1)
ALICE = Scope("alice")


def history(clerk: Any, uid: str) -> list[Any]:
    with clerk.ledger.read() as connection:
        return events.history(connection, uid)


def list_relations(clerk: Any, view: Any = None) -> set[tuple[str, str, str]]:
    """The relations in view."""
    with clerk.ledger.read() as connection:
        visible_relations = graph_reads.all_relations(connection, view or clerk.view())
    return {(relation.source, relation.predicate, relation.target) for relation in visible_relations}


def count_mentions(clerk: Any) -> dict[str, int]:
    return dict(map(tuple, clerk.rows(select(entities.c.key, entities.c.mentions))))


def list_uses(clerk: Any) -> list[int]:
    return sorted(row[0] for row in clerk.rows(select(embeddings.c.uses).where(embeddings.c.form == VECTOR)))


def seq(clerk: Any) -> int:
    with clerk.ledger.read() as connection:
        return outbox.extent(connection).newest


def make_kind(clerk: Any, record: Any, kind: Kind, *, drawn_from: Any = (), source_only: bool = False) -> Any:
    """Turns a memory into a fact, a summary or a source message, without a language model."""
    with clerk.ledger.write() as connection:
        changed_record = replace(record, kind=kind, source_only=source_only, seq=outbox.next_seq(connection))
        memories.update(connection, changed_record)
        for other in drawn_from:
            connection.execute(links.insert().values(memory=record.row, kind="drawn_from", other=other.row))
    return changed_record


# --- adding ----------------------------------------------------------------------------------------------------------


def test_adding_a_message_stores_its_words_event_and_task_at_once(clerk: Any) -> None:
    record = clerk.say("Anna paints", enrich=False)
    assert clerk.counts() | {"memories": 1, "events": 1, "jobs": 1, "embeddings": 0} == clerk.counts()
    (event,) = history(clerk, record.id)
    assert (event.event, event.old_text, event.new_text) == ("ADD", None, "Anna paints")


def test_a_change_set_is_committed_whole_or_not_at_all(clerk: Any) -> None:
    messages = [Message("user", "one", clerk.view().now), Message("user", "two", clerk.view().now)]
    with pytest.raises(NotFoundError):
        clerk.commit(*message_commands(messages, ALICE, clerk.ledger.digests), DeleteMemory("no such"))
    assert clerk.counts()["memories"] == clerk.counts()["events"] == clerk.counts()["jobs"] == 0
    assert seq(clerk) == 0


def test_a_known_message_id_with_other_words_refuses_the_whole_change_set(clerk: Any) -> None:
    steps = lambda *pairs: message_commands(
        [Message("user", text, clerk.view().now, id=uid) for uid, text in pairs], ALICE, clerk.ledger.digests
    )
    clerk.commit(*steps(("m1", "one")))
    with pytest.raises(ValidationError, match="other words"):
        clerk.commit(*steps(("m2", "two"), ("m1", "another")))
    assert clerk.counts()["memories"] == 1


def test_sequence_numbers_grow_and_are_never_used_twice(clerk: Any) -> None:
    records = [clerk.say(f"memory {n}") for n in range(3)]
    clerk.commit(UpdateMemory(records[0].id, metadata={"a": 1}), DeleteMemory(records[1].id))
    with clerk.ledger.read() as connection:
        memory_seqs = [record.seq for record in memories.changed_after(connection, 0, 100)]
        tombstone_seqs = [tombstone.seq for tombstone in tombstones.tombstones_after(connection, 0, 100)]
        last = outbox.extent(connection).newest
    assert last == max(memory_seqs + tombstone_seqs)
    assert len(set(memory_seqs + tombstone_seqs)) == 3


# --- enriching -------------------------------------------------------------------------------------------------------


def test_enriching_adds_vectors_terms_and_graph_and_completes_the_task(clerk: Any) -> None:
    clerk.say("Anna meets Bob")
    assert count_mentions(clerk) == {"anna": 1, "bob": 1}
    assert list_relations(clerk) == {("anna", "meets", "bob")}
    assert (list_uses(clerk), clerk.counts()["jobs"]) == ([1], 0)
    assert clerk.rows(select(partitions.c.size)) == [(1,)]
    assert clerk.find_damage() == []


def enrichment(clerk: Any, record: Any, **more: Any) -> StoreEnrichment:
    text = record.embedded_text
    fields = {"embedded": Embedded(clerk.embedder.embed([text])[0], ()), "extraction": Extraction(), **more}
    return StoreEnrichment(
        record.id,
        record.version,
        EmbeddingSpec(clerk.embedder.model, DIMS),
        content_hash(record.partition, text),
        **fields,
    )


def test_enriching_twice_counts_once(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob")
    outcome = clerk.commit(enrichment(clerk, record))[0]
    assert (outcome.event, outcome.reason) == ("NONE", "done already")
    assert (list_uses(clerk), clerk.find_damage()) == ([1], [])


def test_an_enrichment_of_changed_words_is_dropped(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob", enrich=False)
    late = enrichment(clerk, record)
    clerk.commit(UpdateMemory(record.id, text="Carl sleeps"))
    assert clerk.commit(late)[0].event == "NONE"
    assert clerk.counts()["jobs"] == 1
    clerk.enrich()
    assert count_mentions(clerk) == {"carl": 1}


def test_an_enrichment_of_an_erased_memory_is_dropped(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob", enrich=False)
    late = enrichment(clerk, record)
    clerk.commit(DeleteMemory(record.id))
    assert clerk.commit(late)[0].event == "NONE"
    assert clerk.counts()["embeddings"] == 0


def test_vectors_erased_in_the_meantime_are_computed_again(clerk: Any) -> None:
    first = clerk.say("the same words")
    second = clerk.say("the same words", enrich=False)
    without_vectors = enrichment(clerk, second, embedded=None)
    clerk.commit(DeleteMemory(first.id))
    assert clerk.commit(without_vectors)[0].event == "NONE"
    assert clerk.counts()["jobs"] == 1
    clerk.enrich()
    assert (list_uses(clerk), clerk.find_damage()) == ([1], [])


def test_reindexing_derives_everything_again(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob")
    clerk.commit(ReindexMemory(record.id))
    assert (clerk.counts()["embeddings"], count_mentions(clerk), list_relations(clerk)) == (0, {}, set())
    clerk.enrich()
    assert (list_uses(clerk), count_mentions(clerk)) == ([1], {"anna": 1, "bob": 1})
    assert [event.event for event in history(clerk, record.id)] == ["ADD"]
    assert clerk.find_damage() == []


# --- counts of use ---------------------------------------------------------------------------------------------------


def test_equal_texts_share_one_vector_until_the_last_is_erased(clerk: Any) -> None:
    one, two = clerk.say("the same words"), clerk.say("the same words")
    other = clerk.say("the same words", scope=Scope("bob"))
    assert list_uses(clerk) == [1, 2]  # of each partition its own
    clerk.commit(DeleteMemory(one.id))
    clerk.commit(UpdateMemory(two.id, text="something else"))
    assert list_uses(clerk) == [1]
    assert clerk.commit(DeleteMemory(other.id))[0].erased.derived == 2  # its vector and its tokens
    assert list_uses(clerk) == []


def test_every_window_of_a_long_text_is_kept_and_counted(clerk: Any) -> None:
    text = " ".join(f"word{n}" for n in range(500))
    record = clerk.say(text)
    assert list_uses(clerk) == [1, 1, 1]
    assert clerk.commit(DeleteMemory(record.id))[0].erased.points == 3
    assert list_uses(clerk) == []


def test_terms_are_counted_once_for_each_memory_and_partition(clerk: Any) -> None:
    clerk.say("tea tea tea")
    erased_record = clerk.say("tea time")
    clerk.say("tea", scope=Scope("bob"))
    list_frequencies = lambda: sorted(row[0] for row in clerk.rows(select(terms.c.df)))
    assert list_frequencies() == [1, 1, 2]  # bob's tea; time; alice's tea
    clerk.commit(DeleteMemory(erased_record.id))
    assert list_frequencies() == [1, 1]
    assert clerk.find_damage() == []


def test_an_entity_lives_as_long_as_it_is_mentioned(clerk: Any) -> None:
    one, two = clerk.say("Anna meets Bob"), clerk.say("Anna sleeps")
    assert count_mentions(clerk) == {"anna": 2, "bob": 1}
    clerk.commit(DeleteMemory(one.id))
    assert count_mentions(clerk) == {"anna": 1}
    clerk.commit(UpdateMemory(two.id, text="nobody sleeps"))
    assert count_mentions(clerk) == {}


def test_a_relation_lives_as_long_as_it_is_supported(clerk: Any) -> None:
    one, two = clerk.say("Anna meets Bob."), clerk.say("Anna meets Bob. So what.", at=60)
    assert clerk.counts()["supports"] == 2
    clerk.commit(DeleteMemory(one.id))
    assert list_relations(clerk) == {("anna", "meets", "bob")}
    assert clerk.rows(select(relations.c.at)) == [(micros(two.at),)]
    clerk.commit(DeleteMemory(two.id))
    assert list_relations(clerk) == set()
    assert clerk.counts()["relations"] == clerk.counts()["supports"] == 0
    assert {row[0] for row in clerk.rows(select(tombstones_table.c.kind))} == {"memory", "relation"}


def test_a_relation_in_a_view_has_only_supports_inside_it(clerk: Any) -> None:
    mine = clerk.say("Anna meets Bob. Mine", scope=Scope("alice", "a"))
    clerk.say("Anna meets Bob. Theirs", scope=Scope("alice", "b"), at=60)
    with clerk.ledger.read() as connection:
        (relation,) = graph_reads.all_relations(connection, clerk.view(Scope("alice", "a")))
    assert (relation.memory_ids, relation.valid_at) == ((mine.id,), mine.valid_from)


def test_one_text_supports_a_relation_once(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob. Anna meets Bob!")
    assert clerk.counts()["supports"] == 1
    clerk.commit(DeleteMemory(record.id))
    assert clerk.counts()["relations"] == 0


# --- updating --------------------------------------------------------------------------------------------------------


def test_an_update_keeps_the_old_words_in_history_and_nowhere_else(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob")
    outcome = clerk.commit(UpdateMemory(record.id, text="Carl meets Dora", reason="misheard"))[0]
    clerk.enrich()
    assert (outcome.previous, clerk.record(record.id).text) == ("Anna meets Bob", "Carl meets Dora")
    assert set(count_mentions(clerk)) == {"carl", "dora"}
    event = history(clerk, record.id)[-1]
    assert (event.event, event.old_text, event.new_text, event.reason) == (
        "UPDATE", "Anna meets Bob", "Carl meets Dora", "misheard",
    )  # fmt: skip
    assert event.previous_state["text"] == "Anna meets Bob"
    assert clerk.find_damage() == []


def test_updating_metadata_embeds_nothing_again(clerk: Any) -> None:
    record = clerk.say("Anna paints")
    clerk.commit(UpdateMemory(record.id, metadata={"a": 1}))
    assert (clerk.counts()["jobs"], list_uses(clerk)) == (0, [1])
    assert clerk.record(record.id).metadata == {"a": 1}
    assert clerk.record(record.id).version == record.version


def test_an_update_that_changes_nothing_is_none(clerk: Any) -> None:
    record = clerk.say("Anna paints")
    assert clerk.commit(UpdateMemory(record.id, text="Anna paints"))[0].event == "NONE"
    assert clerk.record(record.id) == record
    assert len(history(clerk, record.id)) == 1


def test_an_expiration_can_be_set_and_removed(clerk: Any) -> None:
    record = clerk.say("Anna paints")
    clerk.commit(UpdateMemory(record.id, expires_at=record.at + HOUR))
    assert clerk.record(record.id).expires_at == record.at + HOUR
    clerk.commit(UpdateMemory(record.id, metadata={"a": 1}))
    assert clerk.record(record.id).expires_at == record.at + HOUR
    clerk.commit(UpdateMemory(record.id, expires_at=None))
    assert clerk.record(record.id).expires_at is None


# --- retiring --------------------------------------------------------------------------------------------------------


def test_retiring_ends_a_memory_and_the_relations_it_supports(clerk: Any) -> None:
    old, new = clerk.say("Anna lives in Rome"), clerk.say("Anna lives in Oslo", at=60)
    outcome = clerk.commit(RetireMemory(old.id, at=new.at, reason="moved", successor=new.id))[0]
    assert (outcome.event, outcome.record.valid_to) == ("RETIRE", new.at)
    assert list_relations(clerk) == {("anna", "lives in", "oslo")}
    assert list_relations(clerk, clerk.view(as_of=old.at)) == {("anna", "lives in", "rome")}
    ended = clerk.rows(select(supports.c.invalid_at).where(supports.c.memory == old.row))
    assert ended == [(micros(new.at),)]
    event = history(clerk, old.id)[-1]
    assert (event.event, event.reason, event.previous_state["valid_to"]) == ("RETIRE", "moved", None)
    with clerk.ledger.read() as connection:
        assert [target.id for target in memories.records_linked_from(connection, new.row, "replaces")] == [old.id]


def test_an_older_message_retires_no_newer_memory(clerk: Any) -> None:
    record = clerk.say("Anna lives in Rome", at=60)
    outcome = clerk.commit(RetireMemory(record.id, at=record.at - HOUR, reason="x"))[0]
    assert outcome.event == "NONE"
    assert clerk.record(record.id).valid_to is None


def test_a_retired_memory_is_not_retired_again(clerk: Any) -> None:
    record = clerk.say("Anna lives in Rome")
    clerk.commit(RetireMemory(record.id, at=record.at + HOUR, reason="x"))
    assert clerk.commit(RetireMemory(record.id, at=record.at + 2 * HOUR, reason="y"))[0].event == "NONE"
    assert clerk.record(record.id).valid_to == record.at + HOUR


def test_a_retired_memory_can_be_restored(clerk: Any) -> None:
    old, new = clerk.say("Anna lives in Rome"), clerk.say("Anna lives in Oslo", at=60)
    clerk.commit(RetireMemory(old.id, at=new.at, reason="moved", successor=new.id))
    assert clerk.commit(RestoreMemory(old.id, "did not"))[0].event == "RESTORE"
    assert clerk.record(old.id).valid_to is None
    assert len(list_relations(clerk)) == 2
    with clerk.ledger.read() as connection:
        assert memories.records_linked_from(connection, new.row, "replaces") == []
    assert clerk.commit(RestoreMemory(old.id, "again"))[0].event == "NONE"
    assert clerk.find_damage() == []


def test_a_retired_memory_stays_retired_when_updated(clerk: Any) -> None:
    record = clerk.say("Anna lives in Rome")
    clerk.commit(RetireMemory(record.id, at=record.at + HOUR, reason="x"))
    clerk.commit(UpdateMemory(record.id, text="Anna lives in Roma"))
    clerk.enrich()
    assert list_relations(clerk) == set()
    assert list_relations(clerk, clerk.view(as_of=record.at)) == {("anna", "lives in", "roma")}


# --- erasing ---------------------------------------------------------------------------------------------------------


def test_erasing_leaves_a_tombstone_and_a_history_without_words(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob")
    clerk.commit(UpdateMemory(record.id, text="Anna meets Carl"))
    clerk.enrich()
    outcome = clerk.commit(DeleteMemory(record.id))[0]
    assert (outcome.event, outcome.erased.ids, outcome.erased.rows) == ("DELETE", (record.id,), 1)
    assert [event.event for event in history(clerk, record.id)] == ["ADD", "UPDATE", "DELETE"]
    wordless = [(e.old_text, e.new_text, e.previous_state, e.reason) for e in history(clerk, record.id)]
    assert wordless == [(None, None, None, None)] * 3
    left = clerk.counts()
    assert {left[name] for name in ("memories", "entities", "mentions", "relations", "embeddings", "jobs")} == {0}
    assert clerk.rows(select(func.count()).select_from(terms)) == [(0,)]
    assert clerk.find_damage() == []


def test_erasing_an_unknown_id_is_not_found(clerk: Any) -> None:
    with pytest.raises(NotFoundError):
        clerk.commit(DeleteMemory("no such"))


def test_a_change_set_within_a_scope_finds_no_memory_outside_it(clerk: Any) -> None:
    record = clerk.say("Anna paints", scope=Scope("alice", "a"))
    for step in (
        DeleteMemory(record.id),
        UpdateMemory(record.id, text="x"),
        RetireMemory(record.id, record.at, "x"),
        RestoreMemory(record.id, "x"),
    ):
        with pytest.raises(NotFoundError):
            clerk.commit(step, within=Scope("alice", "b"))
    assert clerk.commit(DeleteMemory(record.id), within=Scope("alice"))[0].event == "DELETE"


@SQLITE_ONLY
def test_the_memories_of_a_run_are_found_by_index(clerk: Any) -> None:
    view = View(Scope(run_id="r"), NOON)
    statement = select(rows.c.id).where(*visibility.conditions(visibility.shape(view)))
    with clerk.ledger.read() as connection:
        query = statement.compile(connection, compile_kwargs={"render_postcompile": True})
        parameters = query.construct_params({**visibility.values(view, None)})
        steps = connection.exec_driver_sql(
            f"EXPLAIN QUERY PLAN {query}", tuple(parameters[name] for name in query.positiontup or ())
        )
        plan = [step[3] for step in steps]
    assert "SEARCH memories USING INDEX memories_run (run_id=?)" in plan
    assert "SEARCH further_runs USING PRIMARY KEY (run_id=?)" in plan
    assert not [step for step in plan if step.startswith("SCAN")]


def test_erasing_a_fact_erases_its_source_messages(clerk: Any) -> None:
    source = make_kind(clerk, clerk.say("I moved to Oslo"), Kind.EPISODE, source_only=True)
    visible_message = clerk.say("I did")
    fact = make_kind(clerk, clerk.say("Alice lives in Oslo"), Kind.FACT, drawn_from=[source, visible_message])
    outcome = clerk.commit(DeleteMemory(fact.id))[0]
    assert (outcome.erased.ids, outcome.erased.rows) == ((fact.id, source.id), 2)
    with clerk.ledger.read() as connection:
        assert set(memories.records(connection, [source.id, visible_message.id, fact.id])) == {visible_message.id}
    assert clerk.find_damage() == []


def test_expired_messages_are_neither_summarised_nor_shown(clerk: Any) -> None:
    run, past = Scope("alice", run_id="r"), datetime(2024, 1, 1, tzinfo=UTC)
    clerk.say("The code is 4711", scope=run, expires_at=past)
    kept = clerk.say("I moved to Oslo", scope=run, at=1)
    clerk.say("The code is 4712", scope=run, at=2, expires_at=past)
    last = clerk.say("Hello", scope=run, at=3)
    with clerk.ledger.read() as connection:
        assert sessions.session_episodes(connection, run, "r", 0, 9, last.row) == [kept]
        assert sessions.messages_before(connection, last, 9) == [kept]
        assert not sessions.has_episodes(connection, run, "r", 2, 0, last.row)


def test_erasing_a_source_erases_the_summaries_but_not_the_facts(clerk: Any) -> None:
    source = clerk.say("I moved to Oslo")
    fact = make_kind(clerk, clerk.say("Alice lives in Oslo"), Kind.FACT, drawn_from=[source])
    summary = make_kind(clerk, clerk.say("Alice and Oslo"), Kind.SUMMARY, drawn_from=[source])
    outcome = clerk.commit(DeleteMemory(source.id))[0]
    assert (outcome.erased.ids, outcome.erased.rows) == ((source.id, summary.id), 2)
    with clerk.ledger.read() as connection:
        assert set(memories.records(connection, [source.id, summary.id, fact.id])) == {fact.id}


@pytest.mark.parametrize("kind", [Kind.SUMMARY, Kind.EPISODE])
def test_a_memory_erased_with_another_may_be_named_in_the_same_change_set(clerk: Any, kind: Kind) -> None:
    one, two = clerk.say("I moved to Oslo"), clerk.say("Oslo it is")
    if kind is Kind.SUMMARY:
        make_kind(clerk, two, kind, drawn_from=[one])
    else:
        make_kind(clerk, two, kind, source_only=True)
        make_kind(clerk, one, Kind.FACT, drawn_from=[two])
    outcomes = clerk.commit(DeleteMemory(one.id), DeleteMemory(two.id))
    assert [(outcome.event, len(outcome.erased.ids)) for outcome in outcomes] == [("DELETE", 2), ("NONE", 0)]
    assert clerk.counts()["memories"] == 0
    with pytest.raises(NotFoundError):
        clerk.commit(DeleteMemory(two.id))


# --- erasing what was merged -----------------------------------------------------------------------------------------


def stored_ids(clerk: Any) -> set[str]:
    return {uid for (uid,) in clerk.rows(select(rows.c.uid))}


def test_erasing_a_memory_erases_all_that_it_stands_for(clerk: Any) -> None:
    """Also what was merged into these before, with the sources of facts and the summaries of all of them."""
    other = clerk.say("She likes Bergen")
    source = make_kind(clerk, clerk.say("I moved to Oslo"), Kind.EPISODE, source_only=True)
    first = make_kind(clerk, clerk.say("Lives in Oslo"), Kind.FACT, drawn_from=[source])
    second, kept = clerk.say("Her home is Oslo"), clerk.say("She lives in Oslo")
    summary = make_kind(clerk, clerk.say("Of Oslo"), Kind.SUMMARY, drawn_from=[source])
    clerk.commit(*merging(first.id, second.id), now=NOON)
    clerk.commit(*merging(second.id, kept.id), now=NOON + HOUR)
    (outcome,) = clerk.commit(DeleteMemory(kept.id))
    assert set(outcome.erased.ids) == {kept.id, second.id, first.id, source.id, summary.id}
    assert outcome.erased.rows == 5
    assert stored_ids(clerk) == {other.id}
    assert clerk.rows(select(events_table.c.reason).where(events_table.c.reason.is_not(None))) == []
    assert clerk.rows(select(links)) == []
    assert clerk.find_damage() == []


def test_erasing_what_was_merged_leaves_the_memory_that_stands_for_it(clerk: Any) -> None:
    merged, kept = clerk.say("Her home is Oslo"), clerk.say("She lives in Oslo")
    clerk.commit(*merging(merged.id, kept.id))
    (outcome,) = clerk.commit(DeleteMemory(merged.id))
    assert outcome.erased.ids == (merged.id,)
    assert (stored_ids(clerk), clerk.rows(select(links))) == ({kept.id}, [])
    assert clerk.record(kept.id).text == "She lives in Oslo"


def test_what_came_back_is_not_erased_with_what_it_was_merged_into(clerk: Any) -> None:
    merged, kept = clerk.say("Her home is Oslo"), clerk.say("She lives in Oslo")
    clerk.commit(*merging(merged.id, kept.id), RememberMemory(merged.id, "asked"))
    clerk.commit(DeleteMemory(kept.id))
    assert stored_ids(clerk) == {merged.id}


def test_the_one_that_stands_for_a_memory_is_delivered_again_whenever_that_changes(clerk: Any) -> None:
    merged, kept = clerk.say("Her home is Oslo"), clerk.say("She lives in Oslo")
    delivered = []
    for commands in (merging(merged.id, kept.id), [RememberMemory(merged.id, "asked")]):
        before = seq(clerk)
        clerk.commit(*commands)
        with clerk.ledger.read() as connection:
            changed = memories.changed_after(connection, before, 9)
            states = change_feed.memory_states(connection, changed)
        delivered.append({state.record.id: state.compresses for state in states})
    assert delivered == [{merged.id: (), kept.id: (merged.id,)}, {merged.id: (), kept.id: ()}]


def test_deleting_a_run_leaves_what_was_merged_and_said_elsewhere_too(clerk: Any) -> None:
    run = Scope("alice", run_id="r")
    elsewhere, here, kept = (clerk.say(f"Oslo it is, {n} times", scope=run, at=n) for n in range(3))
    clerk.commit(ReaffirmFact(elsewhere.id, Scope("alice", run_id="s")))
    clerk.commit(*merging(elsewhere.id, kept.id), *merging(here.id, kept.id))
    clerk.commit(DeleteMemory(kept.id, run_id="r"))
    assert stored_ids(clerk) == {elsewhere.id}
    assert clerk.record(elsewhere.id).runs == ("s",)
    assert clerk.find_damage() == []


def test_what_is_purged_leaves_all_that_still_shows_its_words(clerk: Any) -> None:
    """Unlike what is deleted: the memory it was merged into, the source of another fact, and a summary stay."""
    source = make_kind(clerk, clerk.say("I moved to Oslo"), Kind.EPISODE, source_only=True)
    own_source = make_kind(clerk, clerk.say("Yes, Oslo"), Kind.EPISODE, source_only=True)
    faded = make_kind(clerk, clerk.say("Lives in Oslo"), Kind.FACT, drawn_from=[source, own_source])
    other = make_kind(clerk, clerk.say("Moved"), Kind.FACT, drawn_from=[source])
    kept = clerk.say("She lives in Oslo")
    summary = make_kind(clerk, clerk.say("Of Oslo"), Kind.SUMMARY, drawn_from=[source, own_source])
    clerk.commit(*merging(faded.id, kept.id))
    (outcome,) = clerk.commit(DeleteMemory(faded.id, forgotten_before=NOON))
    assert outcome.erased.ids == (faded.id, own_source.id)
    assert stored_ids(clerk) == {source.id, other.id, kept.id, summary.id}
    assert clerk.rows(select(jobs_table.c.kind)) == []  # nothing is summed up anew


def test_a_purge_leaves_what_came_back_meanwhile_or_was_forgotten_later(clerk: Any) -> None:
    back, later = clerk.say("Tea"), clerk.say("Cocoa")
    clerk.commit(ForgetMemory(back.id, "x"), RememberMemory(back.id, "said again"))
    clerk.commit(ForgetMemory(later.id, "x"), now=NOON + HOUR)
    purge = [DeleteMemory(one.id, missing_ok=True, forgotten_before=NOON) for one in (back, later)]
    assert [outcome.event for outcome in clerk.commit(*purge)] == ["NONE", "NONE"]
    assert stored_ids(clerk) == {back.id, later.id}


def test_a_summary_that_was_forgotten_is_not_made_again(clerk: Any) -> None:
    run = Scope("alice", run_id="r")
    source, _ = clerk.say("I moved to Oslo", scope=run), clerk.say("Tea", scope=run, at=1)
    summary = make_kind(clerk, clerk.say("Of Oslo", scope=run), Kind.SUMMARY, drawn_from=[source])
    clerk.commit(ForgetMemory(summary.id, "asked"))
    assert clerk.commit(DeleteMemory(source.id))[0].erased.ids == (source.id, summary.id)
    assert clerk.rows(select(jobs_table.c.kind)) == []


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_lasts_until_a_pause_longer_than_the_gap(clerk: Any) -> None:
    records = [clerk.say(f"memory {n}", at=minute) for n, minute in enumerate([0, 30, 60, 90.1])]
    assert records[0].session == records[1].session == records[2].session != records[3].session


def test_the_gap_can_be_set(clerk: Any) -> None:
    clerk.say("one")
    steps = message_commands(
        [Message("user", "two", clerk.view().now - timedelta(days=1) + 5 * HOUR)], ALICE, clerk.ledger.digests
    )
    record = commit(clerk.ledger, ChangeSet(steps, clerk.view().now), 6 * HOUR)[0].record
    assert len({row[0] for row in clerk.rows(select(memories.memories.c.session))}) == 1
    assert record.session


def test_a_run_is_a_session(clerk: Any) -> None:
    records = [clerk.say("x", scope=Scope("alice", None, "r1"), at=minute) for minute in (0, 500)]
    assert {record.session for record in records} == {"r1"}


def test_a_passage_is_a_session_of_its_own_within_a_run_too(clerk: Any) -> None:
    run = Scope("alice", None, "r1")
    passages = [
        f"{name}\n{name} is a town by the sea. {'It has a harbour and a castle. ' * 4}" for name in ("Bo", "Ek")
    ]
    passage_records = [clerk.say(text, scope=run) for text in passages]
    turn_records = [clerk.say(text, scope=run) for text in ("I read about Bo.", "And about Ek.")]
    assert len({record.session for record in passage_records} | {"r1"}) == 3
    assert {record.session for record in turn_records} == {"r1"}


def test_scopes_have_sessions_of_their_own(clerk: Any) -> None:
    scopes = [Scope("alice"), Scope("alice", "a"), Scope("alice", "b"), Scope("bob"), Scope(None, "a")]
    assert len({clerk.say("x", scope=scope).session for scope in scopes}) == 5


def test_a_late_import_joins_the_earlier_session_and_updates_its_successor(clerk: Any) -> None:
    first = clerk.say("one", at=0)
    later = clerk.say("three", at=50)
    assert first.session != later.session
    between = clerk.say("two", at=25)
    assert between.session == first.session
    assert clerk.record(later.id).session == later.session  # never merged afterwards
    before_first = clerk.say("zero", at=-10)
    assert before_first.session == first.session
    assert clerk.record(first.id).seq > first.seq
    assert clerk.record(later.id).seq == later.seq


def test_a_late_import_joins_the_later_session_if_there_is_no_earlier_one(clerk: Any) -> None:
    later = clerk.say("two", at=10)
    assert clerk.say("one", at=0).session == later.session


def test_erasing_an_episode_updates_its_successor(clerk: Any) -> None:
    _, erased_record, after = (clerk.say(f"memory {n}", at=n) for n in range(3))
    clerk.commit(DeleteMemory(erased_record.id))
    assert clerk.record(after.id).seq > after.seq


def test_episodes_of_one_moment_are_in_the_order_of_arrival(clerk: Any) -> None:
    records = [clerk.say(f"memory {n}") for n in range(3)]
    with clerk.ledger.read() as connection:
        pairs = embedded_graph.next_pairs(connection, clerk.view(), [record.id for record in records])
    assert pairs == sorted([(records[0].id, records[1].id), (records[1].id, records[2].id)])


# --- derived columns -------------------------------------------------------------------------------------------------

TEXTS = ["Anna meets Bob", "Bob meets Carl.", "Anna meets Bob. Carl sleeps", "tea and cake", "Carl likes Tea", "…"]


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_right_after_any_sequence_of_commands(clerk: Any, seed: int) -> None:
    chance = random.Random(seed)
    memory_ids: list[str] = []
    for _ in range(60):
        operation = chance.choice(["add", "add", "add", "update", "retire", "restore", "delete", "reindex", "enrich"])
        memory_id = chance.choice(memory_ids) if memory_ids else None
        if operation == "add" or memory_id is None:
            scope = chance.choice([ALICE, Scope("alice", "a"), Scope("bob"), Scope(None, "a")])
            text = chance.choice(TEXTS)
            memory_ids.append(clerk.say(text, scope=scope, at=chance.randint(0, 200), enrich=chance.random() < 0.6).id)
        elif operation == "update":
            clerk.commit(UpdateMemory(memory_id, text=chance.choice(TEXTS)))
        elif operation == "retire":
            clerk.commit(RetireMemory(memory_id, at=clerk.record(memory_id).at + HOUR, reason="x"))
        elif operation == "restore":
            clerk.commit(RestoreMemory(memory_id, "x"))
        elif operation == "delete":
            clerk.commit(DeleteMemory(memory_id))
            memory_ids.remove(memory_id)
        elif operation == "reindex":
            clerk.commit(ReindexMemory(memory_id))
        else:
            clerk.enrich()
        assert clerk.find_damage() == []
    for uid in memory_ids:
        clerk.commit(DeleteMemory(uid))
    left = clerk.counts()
    assert {n: left[n] for n in left if n not in ("events", "partitions") and left[n]} == {}
    assert clerk.rows(select(func.count()).select_from(terms)) == [(0,)]
    assert {row[0] for row in clerk.rows(select(partitions.c.size))} <= {0}


def test_wrong_counts_are_named_and_repaired(clerk: Any) -> None:
    clerk.say("Anna meets Bob")
    with clerk.ledger.write() as connection:
        connection.execute(rows.update().values(previous=7))
        connection.execute(entities.update().values(mentions=7))
        connection.execute(embeddings.update().values(uses=7))
        connection.execute(partitions.update().values(size=7))
        connection.execute(terms.update().values(df=7))
    assert clerk.find_damage() == [
        "memories.previous",
        "entities.mentions",
        "embeddings.uses",
        "partitions.size",
        "terms.df",
    ]
    with clerk.ledger.write() as connection:
        integrity.recompute_derived(connection)
    assert clerk.find_damage() == []
    assert (count_mentions(clerk), list_uses(clerk)) == ({"anna": 1, "bob": 1}, [1])


def test_wiping_empties_everything_but_keeps_the_sequence_number(clerk: Any) -> None:
    clerk.say("Anna meets Bob")
    last_seq, uuid = seq(clerk), clerk.ledger.uuid
    with clerk.ledger.write() as connection:
        integrity.wipe(connection)
    assert set(clerk.counts().values()) == {0}
    assert clerk.rows(select(ledger.c.uuid, ledger.c.epoch)) == [(uuid, 1)]
    assert clerk.say("again").seq > last_seq


def test_vectors_are_read_as_they_were_stored(clerk: Any) -> None:
    text = " ".join(f"word{n}" for n in range(500))
    record, (windows, *_) = clerk.say(text), clerk.embedder.embed([text])
    with clerk.ledger.read() as connection:
        for vector in windows:  # the best window counts, and each of them is there
            assert reader_of(clerk).cosines(connection, [record.row], vector) == {
                record.row: index_blocks.compare(windows, vector).max()
            }
        assert reader_of(clerk).cosines(connection, [], windows[0]) == {}


def test_after_an_erasure_only_the_history_names_the_memory(clerk: Any) -> None:
    record = clerk.say("Anna meets Bob")
    clerk.commit(DeleteMemory(record.id))
    for table in (mentions, supports, links, jobs_table):
        assert clerk.rows(select(func.count()).select_from(table)) == [(0,)]
    assert clerk.rows(select(events_table.c.memory).distinct()) == [(record.id,)]


def test_a_memory_that_is_said_again_has_one_access_more(clerk: Any) -> None:
    """Being said again strengthens as being found does (seed 002 §6.2)."""
    home = clerk.say("Her home is Oslo")
    for number in (1, 2):
        clerk.commit(ReaffirmFact(home.id, Scope("alice")))
        with clerk.ledger.read() as connection:
            assert vitals.state_of(connection, clerk.record(home.id)).accesses == number
