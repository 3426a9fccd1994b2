"""Episodes that are mere sources of facts: folded into a fact's hit, and gone with the last fact drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from support.facts import MAY, fact, heard, store, summary

from graphmem import Memory
from graphmem.commands.types import Command, RestoreMemory, RetireMemory, UpdateMemory
from graphmem.stores.ledger import memories


def hits(memory: Memory, query: str = "tea in Oslo", **more: Any) -> dict[str, list[str]]:
    """The hits by id, each with its sources."""
    found = memory.search(query, user_id="u", **more)["results"]
    return {hit["id"]: [source["id"] for source in hit.get("sources", [])] for hit in found}


def test_a_source_message_is_grouped_with_its_fact(memory: Memory) -> None:
    source = heard(memory, "I drink tea in Oslo, you know", actor_id="Ana")
    drawn = fact(memory, "Ana drinks tea in Oslo", source)
    (hit,) = memory.search("tea in Oslo", user_id="u")["results"]
    assert hit["id"] == drawn
    assert hit["sources"] == [
        {
            "id": source,
            "memory": "I drink tea in Oslo, you know",
            "at": "2024-05-01T12:00:00.000000+00:00",
            "role": "user",
            "actor_id": "Ana",
        }
    ]


def test_the_fact_takes_the_better_place_of_the_two(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    store(memory, "tea in Oslo and in Bergen")
    drawn = fact(memory, "Ana has a favourite drink", source)
    found = memory.search("tea in Oslo", user_id="u")["results"]
    assert (found[0]["id"], found[0]["score"]) == (drawn, 1.0)
    assert found[0]["similarity"] < found[1]["similarity"]
    assert hits(memory, top_k=1) == {drawn: [source]}


def test_grouped_sources_do_not_count_towards_the_limit(memory: Memory) -> None:
    drawn = {}
    for n in range(3):
        source = heard(memory, f"tea in Oslo {n}")
        drawn[fact(memory, f"tea in Oslo, cup {n}", source)] = [source]
    assert hits(memory, top_k=3) == drawn


def test_a_search_by_kinds_groups_no_sources(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", source)
    assert hits(memory, kinds="episode") == {source: []}
    assert hits(memory, kinds="fact") == {drawn: []}
    assert hits(memory, kinds=["fact", "episode"]) == {source: [], drawn: []}


def test_a_message_that_is_no_source_message_is_a_hit_of_its_own(memory: Memory) -> None:
    spoken = store(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", spoken)
    source = heard(memory, "more tea in Oslo")
    about = summary(memory, "It is about tea in Oslo", source, drawn)
    assert hits(memory) == {spoken: [], drawn: [], source: [], about: []}


def test_a_threshold_is_for_the_fact_itself(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    fact(memory, "Ana has a favourite drink", source)
    assert hits(memory, threshold=0.9) == {source: []}


def test_without_sources_nothing_is_asked_for_them(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(memories, "facts_of", asked)
    spoken = store(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", spoken)
    assert hits(memory) == {spoken: [], drawn: []}
    source = heard(memory, "and more tea in Oslo")
    assert source in hits(memory, kinds="episode")
    with pytest.raises(AssertionError):
        hits(memory)


# --- gone with the last fact ------------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def commit(memory: Memory, *steps: Command) -> None:
    """Steps as decisions make them."""
    memory._engine.commit(steps)
    memory.flush()


def listed(memory: Memory, **more: Any) -> set[str]:
    """Everything that is valid, sources included."""
    kinds = ["episode", "fact", "summary"]
    return {one["id"] for one in memory.get_all(user_id="u", kinds=kinds, **more)["results"]}


def found(memory: Memory, **more: Any) -> set[str]:
    """What a search for them gives, folded or not, which must be what is listed, in every store."""
    folded = hits(memory, **more)
    assert {*folded, *(uid for sources in folded.values() for uid in sources)} == listed(memory, **more)
    return listed(memory, **more)


def test_a_source_message_is_hidden_and_shown_again_with_the_last_of_its_facts(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo, coffee in Bergen")
    one, other = fact(memory, "Ana drinks tea in Oslo", source), fact(memory, "Ana drinks coffee in Bergen", source)
    commit(memory, RetireMemory(one, MAY + 2 * DAY, "moved"))
    assert found(memory) == {source, other}
    commit(memory, RetireMemory(other, MAY + DAY, "moved"))
    assert found(memory) == set()
    assert found(memory, as_of=MAY) == {source, one, other}
    assert found(memory, as_of=MAY + DAY * 1.5) == {source, one}  # since the later of the two
    told = memory.get(source)
    assert told is not None
    assert told["valid_to"] == "2024-05-03T12:00:00.000000+00:00"
    commit(memory, RestoreMemory(other, "a mistake"))
    assert found(memory) == {source, other}
    assert memory.history(source) == []
    assert memory.verify()["ok"]


def test_a_source_without_facts_and_a_memory_of_its_own_stay(memory: Memory) -> None:
    source, spoken = heard(memory, "tea in Oslo"), store(memory, "tea in Oslo, said Tom")
    about = summary(memory, "It is about tea in Oslo", source)
    drawn = fact(memory, "Ana drinks tea in Oslo", spoken)
    commit(memory, RetireMemory(drawn, MAY + DAY, "moved"))
    assert found(memory) == {source, spoken, about}


def test_a_summary_does_not_keep_a_source_message_visible(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    drawn, about = fact(memory, "Ana drinks tea in Oslo", source), summary(memory, "It is about tea in Oslo", source)
    commit(memory, RetireMemory(drawn, MAY + DAY, "moved"))
    assert found(memory) == {about}


def test_a_correction_hides_the_source_messages_it_corrects(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", source)
    before = datetime.now(UTC)
    memory.update(drawn, "Ana drinks coffee in Oslo")
    assert found(memory) == {drawn}
    assert found(memory, as_of=before) == {drawn, source}
    assert memory.history(source) == []
    memory.update(drawn, metadata={"sure": True})  # says nothing of its words
    assert found(memory) == {drawn}
    commit(memory, UpdateMemory(drawn, text="Ana drinks tea in Oslo", reason="undone"))
    assert found(memory) == {drawn, source}
    assert memory.verify()["ok"]


def test_a_refinement_leaves_the_sources(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", source)
    memory.update(drawn, metadata={"sure": True})
    commit(memory, UpdateMemory(drawn, text="Ana drinks green tea in Oslo", reason="said more"))
    assert found(memory) == {drawn, source}


def test_a_corrected_and_a_retired_fact_keep_no_source_message_visible(memory: Memory) -> None:
    source = heard(memory, "tea in Oslo, coffee in Bergen")
    one, other = fact(memory, "Ana drinks tea in Oslo", source), fact(memory, "Ana drinks coffee in Bergen", source)
    memory.update(one, "Ana drinks water in Oslo")
    assert found(memory) == {one, other, source}
    commit(memory, RetireMemory(other, MAY + DAY, "moved"))
    assert found(memory) == {one}
    commit(memory, RetireMemory(one, MAY + DAY, "moved"), RestoreMemory(one, "a mistake"))
    assert found(memory) == {one}  # it is back, and says what its source did not
    commit(memory, RestoreMemory(other, "a mistake"))
    assert found(memory) == {one, other, source}


def test_undoing_corrections_one_by_one_restores_each_earlier_visibility(memory: Memory) -> None:
    first = heard(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", first)
    memory.update(drawn, "Ana drinks coffee in Oslo")
    later = heard(memory, "coffee in Oslo, and cake")
    with memory._engine.ledger.write() as connection:
        fact_row, later_row = (memories.records(connection, [uid])[uid].row for uid in (drawn, later))
        memories.add_link(connection, fact_row, "drawn_from", later_row)
    commit(memory, UpdateMemory(drawn, text="Ana drinks coffee in Oslo, and eats cake", reason="said more"))
    assert found(memory) == {drawn, later}
    memory.update(drawn, "Ana fasts in Oslo")
    assert found(memory) == {drawn}
    commit(memory, UpdateMemory(drawn, text="Ana drinks coffee in Oslo, and eats cake", reason="undone"))
    assert found(memory) == {drawn, later}
    commit(memory, UpdateMemory(drawn, text="Ana drinks coffee in Oslo", reason="undone"))
    assert found(memory) == {drawn, later}
    commit(memory, UpdateMemory(drawn, text="Ana drinks tea in Oslo", reason="undone"))
    assert found(memory) == {drawn, first, later}


def test_a_hidden_source_is_hidden_after_an_import_and_can_be_shown_there(
    memory: Memory, make_memory: Callable[..., Any]
) -> None:
    source = heard(memory, "tea in Oslo")
    drawn = fact(memory, "Ana drinks tea in Oslo", source)
    memory.update(drawn, "Ana drinks coffee in Oslo")
    memory.update(drawn, "Ana drinks water in Oslo")
    written = StringIO()
    memory.export(written)
    other = make_memory()
    assert other.import_(StringIO(written.getvalue()))["skipped_links"] == 0
    again = StringIO()
    other.export(again)
    assert again.getvalue().splitlines()[1:-1] == written.getvalue().splitlines()[1:-1]
    assert found(other) == {drawn}
    commit(other, UpdateMemory(drawn, text="Ana drinks coffee in Oslo", reason="undone"))
    assert found(other) == {drawn}
    commit(other, UpdateMemory(drawn, text="Ana drinks tea in Oslo", reason="undone"))
    assert found(other) == {drawn, source}


def test_erasing_a_fact_erases_every_summary_with_its_words(memory: Memory) -> None:
    source, spoken = heard(memory, "tea in Oslo"), store(memory, "tea in Oslo, said Tom")
    drawn, other = fact(memory, "Ana drinks tea in Oslo", source, spoken), fact(memory, "Ana is in Oslo", source)
    about = [
        summary(memory, "It is about tea in Oslo", drawn),
        summary(memory, "They drink tea in Oslo", source, spoken),
    ]
    about.append(summary(memory, "They drink tea", about[1]))
    kept = summary(memory, "Tom says tea in Oslo", spoken)
    assert set(memory.delete(drawn)["deleted"]) == {drawn, source, *about}
    assert listed(memory) == {spoken, other, kept}
    assert memory.verify()["ok"]


# --- the prompt block -------------------------------------------------------------------------------------------------


def test_facts_have_the_room_first_and_their_sources_are_not_repeated(memory: Memory) -> None:
    for n in range(3):
        store(memory, f"tea in Oslo, said Tom {n}", at=(MAY + n * DAY).isoformat())
    source = heard(memory, "I drink my tea in Oslo")
    fact(memory, "Ana drinks tea in Oslo", source, at=(MAY - DAY).isoformat())
    summary(memory, "Everybody is having tea", at=(MAY + DAY * 1.5).isoformat())
    everything = memory.context("tea in Oslo", user_id="u").splitlines()[2:-1]
    assert [line[15:] for line in everything] == [
        "tea in Oslo, said Tom 2",
        "Everybody is having tea",
        "tea in Oslo, said Tom 1",
        "tea in Oslo, said Tom 0",
        "Ana drinks tea in Oslo",
    ]
    little = memory.context("tea in Oslo", user_id="u", max_chars=170).splitlines()[2:-1]
    assert [line[15:] for line in little] == ["Everybody is having tea", "Ana drinks tea in Oslo"]
