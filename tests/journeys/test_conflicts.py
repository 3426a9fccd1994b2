"""Facts that contradict each other (seed 002 §9.1), through the public interface: which one counts, since when, why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from support.fake_llm import CHANGED, DELETE, UPDATE, Scripted, fact, near_config

from graphmem import Memory
from graphmem.ingest.facts.compositions import compose_command, composed
from graphmem.lifecycle.decay import Operation
from graphmem.stores.ledger import memories
from graphmem.testing import ModelEndpoint

ANN: dict[str, Any] = {"user_id": "ann7"}
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
QUESTION = "用户住在哪里？"

# Words of a message, the fact that a model draws from them, and its relation.
BEIJING = ("我住在北京。", "用户住在北京", ("user", "lives in", "北京"))
SHANGHAI = ("我搬到上海了。", "用户住在上海", ("user", "lives in", "上海"))
AT_A = ("我在A公司工作。", "用户在A公司工作", ("user", "works at", "A公司"))
LEFT_A = ("我跳槽了，离开了A公司。", "用户已从A公司离职", ("user", "left", "A公司"))
COFFEE = ("我喜欢咖啡。", "用户喜欢咖啡", ("user", "likes", "咖啡"))
LATTE = ("我喜欢拿铁。", "用户喜欢拿铁", ("user", "likes", "拿铁"))
Said = tuple[str, str, tuple[str, str, str]]
OpenMemory = Callable[..., Memory]


@pytest.fixture
def model() -> Scripted:
    """A model that takes each pair of facts for a change."""
    said = [BEIJING, SHANGHAI, AT_A, LEFT_A, COFFEE, LATTE]
    pairs = [(BEIJING, SHANGHAI), (SHANGHAI, BEIJING), (AT_A, LEFT_A), (LEFT_A, AT_A), (COFFEE, LATTE)]
    return Scripted(
        {words: [fact(text, relation)] for words, text, relation in said},
        {(new[1], old[1]): CHANGED for old, new in pairs},
    )


@pytest.fixture
def open_memory(make_memory: OpenMemory, model: Scripted) -> Iterator[OpenMemory]:
    """`open_memory(**settings)`: a memory in this process, and one with all stores on servers."""
    with ModelEndpoint(default=model) as endpoint:
        yield lambda **more: make_memory(**near_config(endpoint.url, **more))


@pytest.fixture
def memory(open_memory: OpenMemory) -> Memory:
    return open_memory()


def say(memory: Memory, said: Said, days: float = 0) -> list[Any]:
    return list(memory.add(said[0], **ANN, timestamp=NOON + days * DAY)["results"])


def be_sure(model: Scripted, **confidences: float | None) -> None:
    """Gives the facts of BEIJING and SHANGHAI these confidences; None: the model gives none."""
    for (words, *_), confidence in zip((BEIJING, SHANGHAI), confidences.values(), strict=True):
        (one,) = model.facts_by_text[words]
        assert isinstance(one, dict)
        one.pop("confidence") if confidence is None else one.update(confidence=confidence)


def facts_at(memory: Memory, days: float | None = None) -> set[str]:
    """The facts of a day, None: of today. A list, a search and the relations must agree."""
    when = {} if days is None else {"as_of": NOON + days * DAY}
    listed = memory.get_all(**ANN, kinds="fact", **when)
    facts = {one["memory"] for one in listed["results"]}
    assert {one["memory"] for one in memory.search(QUESTION, **ANN, kinds="fact", **when)["results"]} == facts
    places = {one["target"] for one in listed["relations"] if one["relationship"] == "lives in"}
    assert places == {place for place in ("北京", "上海") if f"用户住在{place}" in facts}
    messages = {one["memory"] for one in memory.search(QUESTION, **ANN, kinds="episode", **when)["results"]}
    assert messages == {words for words, text, _ in (BEIJING, SHANGHAI) if text in facts}
    return facts


def decided(memory: Memory, uid: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Event, reason, rule and the other memory of each change."""
    events = memory.explain(uid)["events"]
    return [(one["event"], one["reason"], one["rule"], one["replaced_by"]) for one in events]


# --- by time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_imported_late", [False, True], ids=["in order", "the earlier one last"])
def test_what_was_said_later_counts_whichever_came_first(memory: Memory, *, is_imported_late: bool) -> None:
    """Kind 1, a contradiction: 用户住在北京, 用户住在上海."""
    if is_imported_late:
        (later,), (earlier,) = say(memory, SHANGHAI, 10), say(memory, BEIJING)
        reason = "said earlier: another value of 'lives in'"
        assert (earlier["event"], earlier["reason"], earlier["replaced_by"]) == ("ADD", reason, later["id"])
        assert (earlier["valid_to"], "valid_to" in later) == (later["at"], False)
    else:
        (earlier,), (later, retired) = say(memory, BEIJING), say(memory, SHANGHAI, 10)
        reason = "another value of 'lives in'"
        assert (retired["event"], retired["id"], retired["reason"]) == ("DELETE", earlier["id"], reason)
    assert facts_at(memory) == facts_at(memory, 10) == facts_at(memory, 99) == {"用户住在上海"}
    assert facts_at(memory, 0) == facts_at(memory, 9.9) == {"用户住在北京"}
    assert facts_at(memory, -1) == set()
    assert decided(memory, earlier["id"]) == [("ADD", None, None, None), ("RETIRE", reason, "time", later["id"])]
    assert decided(memory, later["id"]) == [("ADD", None, None, None)]
    assert memory.explain(earlier["id"])["replaced_by"] == [later["id"]]
    assert memory.explain(later["id"])["replaces"] == [earlier["id"]]
    assert memory.verify()["ok"]


def test_that_a_fact_had_ended_when_it_was_stored_can_be_undone(memory: Memory) -> None:
    say(memory, SHANGHAI, 10)
    uid = say(memory, BEIJING)[0]["id"]
    memory.undo(memory.explain(uid)["events"][-1]["id"])
    assert facts_at(memory) == {"用户住在北京", "用户住在上海"}
    assert [(event, rule, other) for event, _, rule, other in decided(memory, uid)] == [
        ("ADD", None, None), ("RETIRE", "time", None), ("RESTORE", None, None)
    ]  # fmt: skip
    assert memory.verify()["ok"]


def test_a_fact_ends_when_an_imported_memory_becomes_valid(memory: Memory) -> None:
    """It may have been said before the fact, of a day after it."""
    _, text, _ = SHANGHAI
    later = {"type": "memory", "kind": "fact", "text": text, **ANN, "role": "user", "at": "2024-04-01"}
    memory.import_([{**later, "id": "00000000-0000-4000-8000-000000000001", "valid_from": "2024-05-11T12:00:00Z"}])
    memory.flush()
    (earlier,) = say(memory, BEIJING)
    assert (earlier["event"], earlier["valid_to"][:10]) == ("ADD", "2024-05-11")
    listed = [memory.get_all(**ANN, kinds="fact", as_of=NOON + days * DAY)["results"] for days in (1, 11)]
    assert [[one["memory"] for one in page] for page in listed] == [["用户住在北京"], ["用户住在上海"]]


def test_a_fact_is_true_until_the_update_of_the_memory_that_contradicts_it(memory: Memory, model: Scripted) -> None:
    """The memory began before the fact was said, but said something else then."""
    in_china, text = "用户住在中国", "用户住在中国上海"
    model.facts_by_text = {**model.facts_by_text, "我住在中国。": [fact(in_china)]}
    model.decisions = {("用户住在上海", in_china): UPDATE(text), ("用户住在北京", text): CHANGED}
    memory.add("我住在中国。", **ANN, timestamp=NOON - 5 * DAY)
    say(memory, SHANGHAI, 10)
    (earlier,) = say(memory, BEIJING)
    assert earlier["valid_to"] == (NOON + 10 * DAY).isoformat(timespec="microseconds")
    then = {one["memory"] for one in memory.get_all(**ANN, kinds="fact", as_of=NOON + DAY)["results"]}
    assert then == {in_china, "用户住在北京"}


def test_what_was_said_after_the_sources_of_a_composed_memory_counts(memory: Memory, model: Scripted) -> None:
    """It is valid since the cycle that made it, which was later than a message that is imported now."""
    model.facts_by_text = {**model.facts_by_text, "我家在北京。": [fact("用户家在北京")]}
    ids = [say(memory, BEIJING)[0]["id"]]
    ids += [one["id"] for one in memory.add("我家在北京。", **ANN, timestamp=NOON + DAY)["results"]]
    with memory.engine.ledger.read() as connection:
        sources = list(memories.records(connection, ids).values())
    record = composed(Operation.MERGE, 0, BEIJING[1], sources)
    memory.engine.commit([compose_command(record, sources, hides=True)])
    memory.flush()
    (later, retired) = say(memory, SHANGHAI, 10)
    assert (later["event"], retired["event"], retired["id"]) == ("ADD", "DELETE", record.id)
    assert [one["memory"] for one in memory.get_all(**ANN, kinds="fact")["results"]] == ["用户住在上海"]


def test_a_message_that_is_erased_during_the_request_gives_no_past_fact(memory: Memory, model: Scripted) -> None:
    (later,) = say(memory, SHANGHAI, 10)

    def erase() -> None:
        messages = memory.get_all(**ANN, kinds="episode")["results"]
        memory.delete(next(one["id"] for one in messages if one["memory"] == BEIJING[0]))

    model.before_deciding = erase
    assert say(memory, BEIJING) == []
    assert memory.stats()["pending"] == []
    assert [one["id"] for one in memory.get_all(**ANN, kinds="fact", show_retired=True)["results"]] == [later["id"]]


def test_another_ledger_tells_the_same_of_a_past_fact(memory: Memory, make_memory: OpenMemory, tmp_path: Any) -> None:
    say(memory, SHANGHAI, 10)
    uid = say(memory, BEIJING)[0]["id"]
    memory.export(tmp_path / "memory.jsonl")
    other = make_memory()
    other.import_(tmp_path / "memory.jsonl")
    assert decided(other, uid) == decided(memory, uid)


CITIES = ("北京", "上海", "广州")
OTHER_ORDERS = [(0, 1, 2), (1, 0, 2), (1, 2, 0)]


def say_cities(memory: Memory, model: Scripted, order: tuple[int, ...]) -> dict[int, str]:
    """Tells of a city for each ten days, in this order; returns the ids of the facts by number."""
    texts = [f"用户住在{city}" for city in CITIES]
    model.facts_by_text = {
        f"我在{city}。": [fact(text, ("user", "lives in", city))] for city, text in zip(CITIES, texts, strict=True)
    }
    model.decisions = dict.fromkeys(permutations(texts, 2), CHANGED)
    ids = {}
    for n in order:
        results = memory.add(f"我在{CITIES[n]}。", **ANN, timestamp=NOON + 10 * n * DAY)["results"]
        ids[n] = next(one["id"] for one in results if one["event"] == "ADD")
    return ids


@pytest.mark.parametrize(
    "order",
    [(0, 2, 1), (2, 0, 1), (2, 1, 0), *(pytest.param(order, marks=pytest.mark.thorough) for order in OTHER_ORDERS)],
)
def test_each_moment_has_the_fact_that_was_said_last_before_it(
    memory: Memory, model: Scripted, order: tuple[int, ...]
) -> None:
    """Of an old chat with several values that is imported, and in whatever order it is."""
    ids = say_cities(memory, model, order)
    for n, city in enumerate(CITIES):
        for day in (10 * n, 10 * n + 9.9):
            when = {"as_of": NOON + day * DAY}
            listed = memory.get_all(**ANN, kinds=["fact", "episode"], **when)
            assert {one["memory"] for one in listed["results"]} == {f"用户住在{city}", f"我在{city}。"}
            assert [one["target"] for one in listed["relations"]] == [city]
            found = memory.search(QUESTION, **ANN, kinds=["fact", "episode"], **when)["results"]
            assert {one["memory"] for one in found} == {f"用户住在{city}", f"我在{city}。"}
    for n in range(2):
        origin = memory.explain(ids[n])
        assert origin["replaced_by"] == [origin["events"][-1]["replaced_by"]] == [ids[n + 1]]
    assert memory.verify()["ok"]


def test_that_a_fact_ended_earlier_than_was_known_can_be_undone(memory: Memory, model: Scripted) -> None:
    ids = say_cities(memory, model, (0, 2, 1))
    first, second = [one for one in memory.explain(ids[0])["events"] if one["event"] == "RETIRE"]
    assert (first["replaced_by"], second["replaced_by"]) == (None, ids[1])
    memory.undo(second["id"])
    assert memory.get(ids[0])["valid_to"] == (NOON + 20 * DAY).isoformat(timespec="microseconds")
    beijing, shanghai, guangzhou = ({f"用户住在{city}", f"我在{city}。"} for city in CITIES)
    listed = [memory.get_all(**ANN, kinds=["fact", "episode"], as_of=NOON + day * DAY) for day in (5, 15, 25)]
    assert [{one["memory"] for one in page["results"]} for page in listed] == [beijing, beijing | shanghai, guangzhou]
    assert [{one["target"] for one in page["relations"]} for page in listed] == [{"北京"}, {"北京", "上海"}, {"广州"}]
    retired, _, restored = memory.explain(ids[0])["events"][1:]
    assert (retired["replaced_by"], restored["event"]) == (ids[2], "RESTORE")
    memory.undo(first["id"])
    assert memory.get(ids[0])["valid_to"] is None
    assert memory.explain(ids[0])["replaced_by"] == []
    assert memory.verify()["ok"]


# --- by confidence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_imported_late", [False, True], ids=["in order", "the earlier one last"])
def test_the_surer_one_counts_although_it_was_said_earlier(
    open_memory: OpenMemory, model: Scripted, *, is_imported_late: bool
) -> None:
    be_sure(model, beijing=0.95, shanghai=0.6)
    memory = open_memory(conflicts="confidence")
    said = [(SHANGHAI, 10), (BEIJING, 0)] if is_imported_late else [(BEIJING, 0), (SHANGHAI, 10)]
    results = [one for each, days in said for one in say(memory, each, days)]
    surer, other = (next(one["id"] for one in results if one["memory"] == each[1]) for each in (BEIJING, SHANGHAI))
    assert facts_at(memory) == facts_at(memory, 0) == facts_at(memory, 10) == {"用户住在北京"}
    reason = "confidence 0.95 against 0.60"
    assert decided(memory, other) == [("ADD", None, None, None), ("RETIRE", reason, "confidence", surer)]
    memory.undo(memory.explain(other)["events"][-1]["id"])
    assert facts_at(memory) == {"用户住在北京", "用户住在上海"}
    assert memory.verify()["ok"]


@pytest.mark.parametrize(
    ("conflicts", "beijing", "shanghai"),
    [("time", 0.95, 0.6), ("confidence", 0.8, 0.6), ("confidence", 0.95, None), ("confidence", None, 0.3)],
    ids=["not configured", "not by more than 0.2", "unknown", "also unknown"],
)
def test_else_time_decides(
    open_memory: OpenMemory, model: Scripted, conflicts: str, beijing: float | None, shanghai: float | None
) -> None:
    be_sure(model, beijing=beijing, shanghai=shanghai)
    memory = open_memory(conflicts=conflicts)
    say(memory, SHANGHAI, 10)
    (earlier,) = say(memory, BEIJING)
    assert facts_at(memory) == {"用户住在上海"}
    assert decided(memory, earlier["id"])[-1][2] == "time"


def test_a_surer_fact_that_the_model_does_not_add_is_kept(open_memory: OpenMemory, model: Scripted) -> None:
    """It has another value, so it is more than a denial, also where the confidences decide."""
    be_sure(model, beijing=0.95, shanghai=0.6)
    model.decisions = {(BEIJING[1], SHANGHAI[1]): DELETE}
    memory = open_memory(conflicts="confidence")
    say(memory, SHANGHAI, 10)
    say(memory, BEIJING)
    assert facts_at(memory) == {"用户住在北京"}


# --- the other two kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_imported_late", [False, True], ids=["in order", "the earlier one last"])
def test_what_is_over_is_retired_by_what_says_so(memory: Memory, *, is_imported_late: bool) -> None:
    """Kind 2, over with time: 用户在A公司工作, 但用户已跳槽."""
    said = [(AT_A, 0), (LEFT_A, 10)]
    for each, days in reversed(said) if is_imported_late else said:
        say(memory, each, days)
    (over,) = memory.get_all(**ANN, kinds="fact", retired_only=True)["results"]
    assert over["memory"] == "用户在A公司工作"
    assert [one["memory"] for one in memory.get_all(**ANN, kinds="fact")["results"]] == ["用户已从A公司离职"]
    prefix = "said earlier: " if is_imported_late else ""
    assert decided(memory, over["id"])[-1][1:3] == (f"{prefix}no longer so", "time")


def test_what_overlaps_coexists(memory: Memory) -> None:
    """Kind 3, 用户喜欢咖啡, 用户喜欢拿铁: "不冲突，可共存", also if the model takes it for a contradiction."""
    say(memory, COFFEE)
    result = memory.add(LATTE[0], **ANN, timestamp=NOON + DAY)
    assert result["usage"]["dropped"] == {"no contradiction": 1}
    assert {one["memory"] for one in memory.get_all(**ANN, kinds="fact")["results"]} == {"用户喜欢咖啡", "用户喜欢拿铁"}


@pytest.mark.parametrize("is_imported_late", [False, True], ids=["in order", "the earlier one last"])
def test_what_refines_a_fact_becomes_one_text_with_it(
    memory: Memory, model: Scripted, *, is_imported_late: bool
) -> None:
    """The third rule, "合并: 尝试合并为一条"."""
    both = "用户喜欢咖啡，尤其是拿铁"
    model.decisions = {(LATTE[1], COFFEE[1]): UPDATE(both), (COFFEE[1], LATTE[1]): UPDATE(both)}
    said = [(COFFEE, 0), (LATTE, 1)]
    first, second = (say(memory, each, days) for each, days in (reversed(said) if is_imported_late else said))
    assert [(one["event"], one["id"], one["memory"]) for one in second] == [("UPDATE", first[0]["id"], both)]
    assert decided(memory, first[0]["id"])[-1] == ("UPDATE", "refined by another fact", "merge", None)
    memory.update(first[0]["id"], "用户喜欢茶")
    assert decided(memory, first[0]["id"])[-1] == ("UPDATE", None, None, None)
    memory.undo(memory.explain(first[0]["id"])["events"][-1]["id"])
    assert decided(memory, first[0]["id"])[-1][2] is None
