"""Parsing of a language model's decisions: no explicit change is lost, whatever the form of the answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphmem.ingest.facts import decision, pipeline
from graphmem.ingest.facts.decision import DecisionResult, FactDraft, KnownMemory
from graphmem.ingest.facts.extraction import Fact
from graphmem.model import Kind, MemoryRecord, Scope, Statement

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
Entry = dict[str, Any]


def record(text: str, days: int = 0, **more: Any) -> MemoryRecord:
    at, scope = NOON + timedelta(days=days), Scope("u1")
    return MemoryRecord("id", scope.partition, scope, Kind.FACT, text, at, at, at, at, "s", **{"role": "user", **more})


def parse_answer(memories: list[str], facts: list[str], answer: Any) -> DecisionResult:
    drafts = [FactDraft(Fact(text, None, 1.0, (0,)), record(text, 1)) for text in facts]
    return decision.parse_answer(answer, drafts, [KnownMemory(record(text)) for text in memories])


def parse_actions(memories: list[str], facts: list[str], entries: list[Entry]) -> list[tuple[str, int | None, str]]:
    """(event, number of the memory, text of the memory afterwards) for each action."""
    return as_tuples(parse_answer(memories, facts, {"memory": entries}))


def as_tuples(result: DecisionResult) -> list[tuple[str, int | None, str]]:
    return [
        (one.type.value, one.memory, one.text if one.type.value in {"ADD", "UPDATE"} else "") for one in result.actions
    ]


def test_a_request_has_the_days_between_its_rows_and_speakers_where_no_text_names_them() -> None:
    """A name or a day in each row would take as many tokens as a short text."""
    ana = {"speaker": "Ana"}
    memories = [record("Ana sings", **ana), record("Sings", **ana), record("Ana cooks", speaker="Ben"), record("Cooks")]
    memories.append(record("Anatole sails", 2, **ana))
    drafts = [FactDraft(Fact("Ana swims", None, 1.0, (0,)), record("Ana swims", 3, **ana))]
    request = json.loads(decision.build_request(drafts, [KnownMemory(one) for one in memories]).user)
    assert request == {
        "memories": [
            "2024-05-15", [0, "Ana sings"], [1, "Ana", "Sings"], [2, "Ben", "Ana cooks"], [3, "Cooks"],
            "2024-05-17", [4, "Ana", "Anatole sails"],
        ],
        "facts": ["2024-05-18", [0, "Ana swims"]],
    }  # fmt: skip


def none_entry(n: int, text: str) -> Entry:
    return {"id": str(n), "text": text, "event": "NONE"}


SISTER, DOG = "Has a sister named Jesica", "Jesica has a dog"
CRICKET, WATCHES, FRIENDS = (
    "User likes to play cricket",
    "User likes to watch cricket",
    "Loves to play cricket with friends",
)
CHEESE, HAM, NO_CHEESE = "Loves cheese pizza", "Loves ham pizza", "Dislikes cheese pizza"


@pytest.mark.parametrize("first", [True, False], ids=["NONE first", "NONE last"])
@pytest.mark.parametrize(
    ("memories", "facts", "unchanged", "change", "expected"),
    [
        ([SISTER], [DOG], 0, {"id": "1", "text": DOG, "event": "ADD"}, ("ADD", None, DOG)),
        ([CRICKET, WATCHES], [FRIENDS], 1, {"id": "0", "text": FRIENDS, "event": "UPDATE"}, ("UPDATE", 0, FRIENDS)),
        ([CHEESE, HAM], [NO_CHEESE], 1, {"id": "0", "text": CHEESE, "event": "DELETE"}, ("DELETE", 0, "")),
    ],
    ids=["ADD", "UPDATE", "DELETE"],
)
def test_a_change_is_applied_beside_a_none_for_a_similar_memory(
    memories: list[str],
    facts: list[str],
    unchanged: int,
    change: Entry,
    expected: tuple[str, int | None, str],
    first: bool,
) -> None:
    entries = [none_entry(unchanged, memories[unchanged]), change]
    assert parse_actions(memories, facts, entries if first else entries[::-1]) == [expected]


def test_a_change_wins_over_a_none_for_the_same_fact_by_number() -> None:
    entries = [
        {"fact": 0, "event": "NONE", "id": 0, "text": SISTER},
        {"fact": 0, "event": "ADD", "id": None, "text": DOG},
    ]
    assert parse_actions([SISTER], [DOG], entries) == [("ADD", None, DOG)]
    entries = [
        {"fact": 0, "event": "NONE", "id": 1, "text": HAM},
        {"fact": 0, "event": "DELETE", "id": 0, "text": CHEESE},
    ]
    # Memory 1 holds the fact already, and memory 0 is untrue: both entries take effect.
    assert parse_actions([CHEESE, HAM], [NO_CHEESE], entries) == [("DELETE", 0, ""), ("NONE", 1, "")]


def test_a_none_counts_for_the_fact_it_names_by_number() -> None:
    assert parse_actions(["Likes long walks"], ["Loves long walks"], [{"fact": 0, "event": "NONE", "id": 0}]) == [
        ("NONE", 0, "")
    ]


def test_a_none_without_number_counts_only_with_exactly_the_text_of_the_fact() -> None:
    assert parse_actions(["Likes tea."], ["likes tea"], [none_entry(0, "Likes tea.")]) == [("NONE", 0, "")]
    assert parse_actions(["Likes tea"], ["Likes green tea"], [none_entry(0, "Likes tea")]) == [
        ("ADD", None, "Likes green tea")
    ]


def test_several_memories_are_updated_by_one_fact() -> None:
    entries = [
        {"fact": 0, "event": "UPDATE", "id": 0, "text": "Has a dog named Rex"},
        {"fact": 0, "event": "UPDATE", "id": 1, "text": "Walks Rex every day"},
    ]
    assert [one[:2] for one in parse_actions(["Has a dog", "Walks the dog"], ["Rex is the dog"], entries)] == [
        ("UPDATE", 0),
        ("UPDATE", 1),
    ]


def test_an_add_beside_an_update_of_the_same_fact_is_kept_unless_its_text_is_the_same() -> None:
    update = {"fact": 0, "event": "UPDATE", "id": 0, "text": "Has a sister named Jesica"}
    memories, fact = ["Has a sister"], "Jesica, the sister, has a dog"
    assert parse_actions(memories, [fact], [update, {"fact": 0, "event": "ADD", "text": DOG}]) == [
        ("UPDATE", 0, "Has a sister named Jesica"),
        ("ADD", None, fact),
    ]
    same = {**update, "text": fact}
    assert parse_actions(memories, [fact], [same, {"fact": 0, "event": "ADD", "text": fact}]) == [("UPDATE", 0, fact)]


def test_a_fact_with_exactly_the_text_is_matched_before_one_that_contains_it() -> None:
    facts = ["Has a dog named Rex and two cats", "Has a dog"]
    update = {"id": "0", "text": "Has a dog", "event": "UPDATE", "old_memory": "Has a pet"}
    assert parse_actions(["Has a pet"], facts, [update]) == [("ADD", None, facts[0]), ("UPDATE", 0, "Has a dog")]


def test_a_delete_belongs_to_the_fact_that_contradicts_the_memory() -> None:
    facts = ["Lisbon is hot in summer", "Moved to Rome"]
    entries = [{"id": "0", "text": "Lives in Lisbon", "event": "DELETE"}, {"text": "Moved to Rome", "event": "ADD"}]
    assert parse_actions(["Lives in Lisbon"], facts, entries) == [
        ("ADD", None, facts[0]),
        ("DELETE", 0, ""),
        ("ADD", None, "Moved to Rome"),
    ]


def test_a_change_that_matches_no_text_belongs_to_the_only_fact_without_an_entry() -> None:
    facts = ["Plays chess", "喜欢绿茶"]
    entries = [
        {"text": "Plays chess", "event": "ADD"},
        {"id": "0", "text": "Likes tea of all kinds", "event": "UPDATE"},
    ]
    assert parse_actions(["Likes tea"], facts, entries) == [
        ("ADD", None, "Plays chess"),
        ("UPDATE", 0, "Likes tea of all kinds"),
    ]


def test_a_change_that_belongs_to_no_fact_is_counted_and_the_facts_are_added() -> None:
    result = parse_answer(
        ["Likes tea"], ["Plays chess", "Has a cat"], {"memory": [{"id": 0, "event": "UPDATE", "text": "喝茶"}]}
    )
    assert [one.type.value for one in result.actions] == ["ADD", "ADD"]
    assert result.dropped == {"of no fact": 1}


def test_decisions_over_the_limit_are_counted_and_the_fact_is_added() -> None:
    entries = [none_entry(0, "Likes tea")] * decision.MAX_DECISIONS + [
        {"id": "0", "text": "Likes black tea", "event": "UPDATE"}
    ]
    result = parse_answer(["Likes tea"], ["Likes black tea"], {"memory": entries})
    assert [one.type.value for one in result.actions] == ["ADD"]
    assert result.dropped == {"over the limit of decisions": 1}


def test_an_answer_that_lists_every_memory_as_none_adds_the_fact() -> None:
    memories = [f"Likes number {n}" for n in range(20)]
    result = parse_answer(
        memories, ["Likes number 21"], {"memory": [none_entry(n, text) for n, text in enumerate(memories)]}
    )
    assert [(one.type.value, one.text) for one in result.actions] == [("ADD", "Likes number 21")]
    assert result.dropped == {}


def test_a_fact_with_another_value_is_added_where_the_answer_only_deletes() -> None:
    memories, facts = ["Lives in Oslo", "Has a dog named Rex"], ["Rex is a poodle", "Moved to Bergen"]
    entries = [
        {"id": "0", "text": "Lives in Oslo", "event": "DELETE"},
        {"id": "1", "text": "Has a poodle named Rex", "event": "UPDATE"},
    ]
    assert parse_actions(memories, facts, entries) == [
        ("UPDATE", 1, "Has a poodle named Rex"),
        ("DELETE", 0, ""),
        ("ADD", None, "Moved to Bergen"),
    ]
    numbered = [{"fact": 0, "event": "DELETE", "id": 0}]
    assert parse_actions(["Lives in Oslo"], ["Moved to Bergen"], numbered) == [
        ("DELETE", 0, ""),
        ("ADD", None, "Moved to Bergen"),
    ]


@pytest.mark.parametrize(
    ("memory", "fact"),
    [
        ("Is reading The Hobbit", "Finished The Hobbit"),
        ("Takes a course in pottery", "Completed the pottery course in May"),
        ("Has homework in geometry", "The geometry homework is done"),
        ("Studies law in Bonn", "Graduated in law"),
        ("Plans a trip to Japan", "Went to Japan in April"),
        ("Leo is preparing for his driving test", "Leo passed his driving test"),
        ("Wants to buy a house in Porto", "Has bought a house in Porto"),
        ("Trains for the Berlin marathon", "Ran the Berlin marathon"),
        ("Works on a novel", "The novel has been published"),
        ("Lee El Quijote", "Terminó de leer El Quijote"),
        ("Lit Madame Bovary", "A fini Madame Bovary"),
        ("Читает Идиота", "Закончила читать Идиота"),
        ("正在读红楼梦", "读完了红楼梦"),
        ("打算去日本旅行", "四月去了日本旅行"),
        ("Schreibt an der Doktorarbeit", "Die Doktorarbeit ist abgeschlossen"),
    ],
)
def test_what_is_completed_retires_the_plan_and_is_kept(memory: str, fact: str) -> None:
    entries = [{"fact": 0, "event": "DELETE", "id": 0, "text": memory}]
    assert parse_actions([memory], [fact], entries) == [("DELETE", 0, ""), ("ADD", None, fact)]


@pytest.mark.parametrize(
    ("memory", "fact"),
    [
        ("Plans to visit Japan", "Plans to read about Japan"),
        ("Plans to visit Japan", "Wanted to visit Japan as a child"),
        ("Plans to visit Japan", "Interested in the trains of Japan"),
        ("Is reading The Hobbit", "Painted the kitchen"),
        ("Loves the sea", "Moored the boat by the sea"),
        ("Does yoga", "Has done yoga for ten years"),
        ("打算去日本旅行", "喜欢日本旅行"),
        ("打算去日本旅行", "了解日本的历史"),
    ],
)
def test_what_is_only_alike_completes_nothing(memory: str, fact: str) -> None:
    result = parse_answer([memory], [fact], {"memory": [{"fact": 0, "event": "DELETE", "id": 0, "text": memory}]})
    assert ([one.type.value for one in result.actions], result.dropped) == (["ADD"], {"no contradiction": 1})


@pytest.mark.parametrize(
    "dropped_entry", [{"event": "ADD", "text": "喜欢茶"}, {"fact": 7, "event": "ADD", "text": CHEESE}]
)
def test_a_fact_is_added_beside_a_delete_if_an_add_was_dropped(dropped_entry: Entry) -> None:
    facts = [NO_CHEESE, "Sold the bicycle"]
    memories = ["Loves cheese pizza", "Owns a bicycle"]
    entries = [{"fact": 0, "event": "DELETE", "id": 0}, {"fact": 1, "event": "DELETE", "id": 1}, dropped_entry]
    assert [one[0] for one in parse_actions(memories, facts, entries)] == ["DELETE", "ADD", "DELETE", "ADD"]
    assert [one[0] for one in parse_actions(memories, facts, entries[:2])] == ["DELETE", "DELETE"]


@pytest.mark.parametrize("event", ["UPDATE", "DELETE"])
def test_an_entry_whose_id_and_old_text_name_two_memories_changes_neither(event: str) -> None:
    entry = {"id": "1", "event": event, "text": "Likes green tea", "old_memory": "Likes tea"}
    result = parse_answer(["Likes tea", "Lives in Oslo"], ["Likes green tea"], {"memory": [entry]})
    assert [(one.type.value, one.text) for one in result.actions] == [("ADD", "Likes green tea")]
    assert result.dropped == {"id of another memory": 1}


@pytest.mark.parametrize(
    "entry",
    [
        {"event": "NONE", "text": None},
        {"event": "UPDATE", "text": "Lives in Bergen, formerly in Oslo"},
        {"event": "DELETE", "text": None},
    ],
    ids=lambda entry: entry["event"],
)
@pytest.mark.parametrize(
    ("of_memory", "of_fact", "are_two"),
    [
        ({"speaker": "Ana"}, {"speaker": "Ben"}, True),
        ({"role": "user"}, {"role": "assistant"}, True),
        ({"speaker": "Ana"}, {"speaker": "Ana"}, False),
        ({"speaker": "Ana"}, {}, False),
        ({}, {"speaker": "Ben"}, False),
    ],
)
def test_the_words_of_one_speaker_change_nothing_that_another_said(
    entry: Entry, of_memory: Entry, of_fact: Entry, *, are_two: bool
) -> None:
    """Both leave the subject out, so that neither words nor relations tell the two apart."""
    memory, fact = KnownMemory(record("Lives in Oslo", **of_memory)), record("Moved to Bergen", 1, **of_fact)
    drafts = [FactDraft(Fact(fact.text, None, 1.0, (0,)), fact)]
    result = decision.parse_answer({"memory": [{"fact": 0, "id": 0, **entry}]}, drafts, [memory])
    added = ("ADD", None, "Moved to Bergen")
    if are_two:
        assert (as_tuples(result), result.dropped) == ([added], {"of others": 1})
    else:
        assert as_tuples(result)[0][:2] == (entry["event"], 0)
        assert result.dropped == {}


def test_what_another_tells_of_a_speaker_retires_no_word_of_that_speaker() -> None:
    """Not even where relations say that both are about Ana: hers is firsthand, and his stands beside it."""
    said = [record("Lives in Oslo", speaker="Ana"), record("Ana has moved to Bergen", 1, speaker="Ben")]
    oslo, bergen = (Statement("ana", "lives in", place, "") for place in ("oslo", "bergen"))
    drafts = [FactDraft(Fact(said[1].text, None, 1.0, (0,), statements=(bergen,)), said[1])]
    memories = [KnownMemory(said[0], (oslo,))]
    result = decision.parse_answer({"memory": [{"fact": 0, "event": "DELETE", "id": 0}]}, drafts, memories)
    assert (as_tuples(result), result.dropped) == ([("ADD", None, said[1].text)], {"of others": 1})


def test_an_answer_without_texts_but_for_an_update_is_enough() -> None:
    memories = ["Likes tea", "Lives in Oslo", "Has a dog", "Loves cheese pizza"]
    facts = ["Likes tea a lot", "Moved to Bergen", "Has a dog named Rex", NO_CHEESE, "Sings"]
    entries = [
        {"fact": 0, "event": "NONE", "id": 0, "text": None},
        {"fact": 1, "event": "DELETE", "id": 1, "text": None},
        {"fact": 1, "event": "ADD", "id": None, "text": None},
        {"fact": 2, "event": "UPDATE", "id": 2, "text": "Has a dog named Rex"},
        {"fact": 3, "event": "DELETE", "id": 3, "text": None},
        {"fact": 4, "event": "ADD", "id": None, "text": None},
    ]
    result = parse_answer(memories, facts, {"memory": entries})
    assert (as_tuples(result), result.dropped) == (
        [
            ("NONE", 0, ""),
            ("DELETE", 1, ""),
            ("ADD", None, "Moved to Bergen"),
            ("UPDATE", 2, "Has a dog named Rex"),
            ("DELETE", 3, ""),
            ("ADD", None, "Sings"),
        ],
        {},
    )
    # An UPDATE without a text says nothing of what is to be remembered: the fact is kept beside the memory.
    result = parse_answer(
        ["Has a dog"], ["The dog is named Rex"], {"memory": [{**entries[3], "fact": 0, "id": 0, "text": None}]}
    )
    assert (as_tuples(result), result.dropped) == ([("ADD", None, "The dog is named Rex")], {"no text": 1})


def test_the_schema_of_an_answer_allows_null_in_place_of_a_text() -> None:
    entry = decision.DECISION_SCHEMA["properties"]["memory"]["items"]
    assert entry["properties"]["text"]["type"] == ["string", "null"]
    assert set(entry["required"]) == {"fact", "event", "id", "text"}


def test_an_add_takes_in_what_still_holds_of_a_deleted_memory() -> None:
    entries = [
        {"fact": 0, "event": "DELETE", "id": 0, "text": None},
        {"fact": 0, "event": "ADD", "id": None, "text": "Moved to Bergen with Tom"},
    ]
    assert parse_actions(["Lives in Oslo with Tom"], ["Moved to Bergen"], entries) == [
        ("DELETE", 0, ""),
        ("ADD", None, "Moved to Bergen with Tom"),
    ]


@pytest.mark.parametrize(
    ("text", "speaker", "expected"),
    [
        ("Ana plays chess", "Ana", "plays chess"),
        ("Plays chess", "Ana", "Plays chess"),
        ("Anabel plays chess", "Ana", "Anabel plays chess"),
        ("Ana", "Ana", "Ana"),
        ("Ana plays chess", None, "Ana plays chess"),
    ],
)
def test_a_fact_is_compared_without_the_name_of_its_speaker(text: str, speaker: str | None, expected: str) -> None:
    assert FactDraft(Fact(text, None, 1.0, (0,)), record(text, speaker=speaker)).nameless_text == expected


@pytest.mark.parametrize(("facts", "shared", "expected"), [(9, False, [6, 3]), (12, True, [12]), (14, True, [12, 2])])
def test_a_request_compares_at_most_twelve_facts_and_sixty_memories(
    facts: int, expected: list[int], *, shared: bool
) -> None:
    near_ids = [[f"{0 if shared else fact}-{n}" for n in range(pipeline.NEAREST_LIMIT)] for fact in range(facts)]
    assert [len(group) for group in pipeline._request_groups(range(facts), near_ids)] == expected
