"""Source messages of facts: grouped with the hit of their fact, and hidden with the last fact drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from support.facts import MAY, fact, source_message, store, summary

from graphmem import Memory
from graphmem.commands.types import Command, RestoreMemory, RetireMemory, UpdateMemory
from graphmem.stores.ledger import memories


def search_with_sources(memory: Memory, query: str = "tea in Oslo", **more: Any) -> dict[str, list[str]]:
    """Searches. Returns the ids of the hits, each with the ids of its sources."""
    results = memory.search(query, user_id="u", **more)["results"]
    return {hit["id"]: [source["id"] for source in hit.get("sources", [])] for hit in results}


def test_a_source_message_is_grouped_with_its_fact(memory: Memory) -> None:
    source = source_message(memory, "I drink tea in Oslo, you know", actor_id="Ana")
    fact_id = fact(memory, "Ana drinks tea in Oslo", source)
    (hit,) = memory.search("tea in Oslo", user_id="u")["results"]
    assert hit["id"] == fact_id
    assert hit["sources"] == [
        {
            "id": source,
            "memory": "I drink tea in Oslo, you know",
            "at": "2024-05-01T12:00:00.000000+00:00",
            "role": "user",
            "actor_id": "Ana",
        }
    ]


def test_a_fact_takes_the_better_rank_of_itself_and_its_source(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    store(memory, "tea in Oslo and in Bergen")
    fact_id = fact(memory, "Ana has a favourite drink", source)
    results = memory.search("tea in Oslo", user_id="u", explain=True)["results"]
    assert (results[0]["id"], results[0]["score"]) == (fact_id, 1.0)
    shares = results[0]["explain"]["shares"]
    assert shares["raised"]["share"] > 0
    assert sum(share["share"] for share in shares.values()) == pytest.approx(1.0)
    assert results[0]["similarity"] < results[1]["similarity"]
    assert search_with_sources(memory, top_k=1) == {fact_id: [source]}


def test_grouped_sources_do_not_count_towards_the_limit(memory: Memory) -> None:
    expected = {}
    for n in range(3):
        source = source_message(memory, f"tea in Oslo {n}")
        expected[fact(memory, f"tea in Oslo, cup {n}", source)] = [source]
    assert search_with_sources(memory, top_k=3) == expected


def test_grouped_sources_do_not_count_towards_an_automatic_limit(memory: Memory) -> None:
    facts = {}
    for n in range(4):
        source = source_message(memory, f"tea in Oslo {n}")
        facts[fact(memory, f"tea in Oslo, cup {n}", source)] = [source]
        store(memory, f"The car number {n} is red")
    assert search_with_sources(memory, top_k="auto") == facts


def test_a_search_by_kinds_groups_no_sources(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", source)
    assert search_with_sources(memory, kinds="episode") == {source: []}
    assert search_with_sources(memory, kinds="fact") == {fact_id: []}
    assert search_with_sources(memory, kinds=["fact", "episode"]) == {source: [], fact_id: []}


def test_a_message_that_is_no_source_message_is_a_hit_of_its_own(memory: Memory) -> None:
    message = store(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", message)
    source = source_message(memory, "more tea in Oslo")
    summary_id = summary(memory, "It is about tea in Oslo", source, fact_id)
    assert search_with_sources(memory) == {message: [], fact_id: [], source: [], summary_id: []}


def test_a_threshold_applies_to_the_fact_itself(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    fact(memory, "Ana has a favourite drink", source)
    assert search_with_sources(memory, threshold=0.9) == {source: []}


def test_without_source_messages_their_facts_are_not_queried(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(memories, "facts_of", fail)
    message = store(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", message)
    assert search_with_sources(memory) == {message: [], fact_id: []}
    source = source_message(memory, "and more tea in Oslo")
    assert source in search_with_sources(memory, kinds="episode")
    with pytest.raises(AssertionError):
        search_with_sources(memory)


# --- hidden with the last fact ----------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def commit(memory: Memory, *commands: Command) -> None:
    """Commits commands as decisions do, and delivers them."""
    memory.engine.commit(commands)
    memory.flush()


def list_ids(memory: Memory, **more: Any) -> set[str]:
    """The ids of all valid memories, source messages included."""
    kinds = ["episode", "fact", "summary"]
    return {one["id"] for one in memory.get_all(user_id="u", kinds=kinds, **more)["results"]}


def search_ids(memory: Memory, **more: Any) -> set[str]:
    """The ids of all hits and of their sources, which must be those of all valid memories."""
    sources_by_hit = search_with_sources(memory, **more)
    assert {*sources_by_hit, *(uid for sources in sources_by_hit.values() for uid in sources)} == list_ids(
        memory, **more
    )
    return list_ids(memory, **more)


def test_a_source_message_is_hidden_and_shown_again_with_the_last_of_its_facts(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo, coffee in Bergen")
    one, other = fact(memory, "Ana drinks tea in Oslo", source), fact(memory, "Ana drinks coffee in Bergen", source)
    commit(memory, RetireMemory(one, MAY + 2 * DAY, "moved"))
    assert search_ids(memory) == {source, other}
    commit(memory, RetireMemory(other, MAY + DAY, "moved"))
    assert search_ids(memory) == set()
    assert search_ids(memory, as_of=MAY) == {source, one, other}
    assert search_ids(memory, as_of=MAY + DAY * 1.5) == {source, one}  # hidden since the later retirement
    hidden_source = memory.get(source)
    assert hidden_source is not None
    assert hidden_source["valid_to"] == "2024-05-03T12:00:00.000000+00:00"
    commit(memory, RestoreMemory(other, "a mistake"))
    assert search_ids(memory) == {source, other}
    assert memory.history(source) == []
    assert memory.verify()["ok"]


def test_source_messages_without_facts_and_other_messages_stay_visible(memory: Memory) -> None:
    source, message = source_message(memory, "tea in Oslo"), store(memory, "tea in Oslo, said Tom")
    summary_id = summary(memory, "It is about tea in Oslo", source)
    fact_id = fact(memory, "Ana drinks tea in Oslo", message)
    commit(memory, RetireMemory(fact_id, MAY + DAY, "moved"))
    assert search_ids(memory) == {source, message, summary_id}


def test_a_summary_does_not_keep_a_source_message_visible(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    fact_id, summary_id = (
        fact(memory, "Ana drinks tea in Oslo", source),
        summary(memory, "It is about tea in Oslo", source),
    )
    commit(memory, RetireMemory(fact_id, MAY + DAY, "moved"))
    assert search_ids(memory) == {summary_id}


def test_a_correction_hides_the_source_messages_it_corrects(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", source)
    before = datetime.now(UTC)
    memory.update(fact_id, "Ana drinks coffee in Oslo")
    assert search_ids(memory) == {fact_id}
    assert search_ids(memory, as_of=before) == {fact_id, source}
    assert memory.history(source) == []
    memory.update(fact_id, metadata={"sure": True})  # leaves the text
    assert search_ids(memory) == {fact_id}
    commit(memory, UpdateMemory(fact_id, text="Ana drinks tea in Oslo", reason="undone"))
    assert search_ids(memory) == {fact_id, source}
    assert memory.verify()["ok"]


def test_a_refinement_leaves_the_sources_visible(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", source)
    memory.update(fact_id, metadata={"sure": True})
    commit(memory, UpdateMemory(fact_id, text="Ana drinks green tea in Oslo", reason="said more"))
    assert search_ids(memory) == {fact_id, source}


def test_a_corrected_and_a_retired_fact_keep_no_source_message_visible(memory: Memory) -> None:
    source = source_message(memory, "tea in Oslo, coffee in Bergen")
    one, other = fact(memory, "Ana drinks tea in Oslo", source), fact(memory, "Ana drinks coffee in Bergen", source)
    memory.update(one, "Ana drinks water in Oslo")
    assert search_ids(memory) == {one, other, source}
    commit(memory, RetireMemory(other, MAY + DAY, "moved"))
    assert search_ids(memory) == {one}
    commit(memory, RetireMemory(one, MAY + DAY, "moved"), RestoreMemory(one, "a mistake"))
    assert search_ids(memory) == {one}  # restored, with a text that its source does not state
    commit(memory, RestoreMemory(other, "a mistake"))
    assert search_ids(memory) == {one, other, source}


def test_undoing_corrections_one_by_one_restores_each_earlier_visibility(memory: Memory) -> None:
    first = source_message(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", first)
    memory.update(fact_id, "Ana drinks coffee in Oslo")
    later = source_message(memory, "coffee in Oslo, and cake")
    with memory.engine.ledger.write() as connection:
        fact_row, later_row = (memories.records(connection, [uid])[uid].row for uid in (fact_id, later))
        memories.add_link(connection, fact_row, "drawn_from", later_row)
    commit(memory, UpdateMemory(fact_id, text="Ana drinks coffee in Oslo, and eats cake", reason="said more"))
    assert search_ids(memory) == {fact_id, later}
    memory.update(fact_id, "Ana fasts in Oslo")
    assert search_ids(memory) == {fact_id}
    commit(memory, UpdateMemory(fact_id, text="Ana drinks coffee in Oslo, and eats cake", reason="undone"))
    assert search_ids(memory) == {fact_id, later}
    commit(memory, UpdateMemory(fact_id, text="Ana drinks coffee in Oslo", reason="undone"))
    assert search_ids(memory) == {fact_id, later}
    commit(memory, UpdateMemory(fact_id, text="Ana drinks tea in Oslo", reason="undone"))
    assert search_ids(memory) == {fact_id, first, later}


def test_a_hidden_source_is_hidden_after_an_import_and_can_be_shown_there(
    memory: Memory, make_memory: Callable[..., Any]
) -> None:
    source = source_message(memory, "tea in Oslo")
    fact_id = fact(memory, "Ana drinks tea in Oslo", source)
    memory.update(fact_id, "Ana drinks coffee in Oslo")
    memory.update(fact_id, "Ana drinks water in Oslo")
    export = StringIO()
    memory.export(export)
    other = make_memory()
    assert other.import_(StringIO(export.getvalue()))["skipped_links"] == 0
    second_export = StringIO()
    other.export(second_export)
    assert second_export.getvalue().splitlines()[1:-1] == export.getvalue().splitlines()[1:-1]
    assert search_ids(other) == {fact_id}
    commit(other, UpdateMemory(fact_id, text="Ana drinks coffee in Oslo", reason="undone"))
    assert search_ids(other) == {fact_id}
    commit(other, UpdateMemory(fact_id, text="Ana drinks tea in Oslo", reason="undone"))
    assert search_ids(other) == {fact_id, source}


def test_erasing_a_fact_erases_every_summary_with_its_words(memory: Memory) -> None:
    source, message = source_message(memory, "tea in Oslo"), store(memory, "tea in Oslo, said Tom")
    fact_id, other = fact(memory, "Ana drinks tea in Oslo", source, message), fact(memory, "Ana is in Oslo", source)
    summary_ids = [
        summary(memory, "It is about tea in Oslo", fact_id),
        summary(memory, "They drink tea in Oslo", source, message),
    ]
    summary_ids.append(summary(memory, "They drink tea", summary_ids[1]))
    other_summary = summary(memory, "Tom says tea in Oslo", message)
    assert set(memory.delete(fact_id)["deleted"]) == {fact_id, source, *summary_ids}
    assert list_ids(memory) == {message, other, other_summary}
    assert memory.verify()["ok"]


# --- the prompt block -------------------------------------------------------------------------------------------------


def test_a_short_context_prefers_facts_and_does_not_repeat_their_sources(memory: Memory) -> None:
    for n in range(3):
        store(memory, f"tea in Oslo, said Tom {n}", at=(MAY + n * DAY).isoformat())
    source = source_message(memory, "I drink my tea in Oslo")
    fact(memory, "Ana drinks tea in Oslo", source, at=(MAY - DAY).isoformat())
    summary(memory, "Everybody is having tea", at=(MAY + DAY * 1.5).isoformat())
    long_context = memory.context("tea in Oslo", user_id="u").splitlines()[2:-1]
    assert [line[15:] for line in long_context] == [
        "tea in Oslo, said Tom 2",
        "Everybody is having tea",
        "tea in Oslo, said Tom 1",
        "tea in Oslo, said Tom 0",
        "Ana drinks tea in Oslo",
    ]
    short_context = memory.context("tea in Oslo", user_id="u", max_chars=170).splitlines()[2:-1]
    assert [line[15:] for line in short_context] == ["Everybody is having tea", "Ana drinks tea in Oslo"]
