"""`forget`, `pin` and `undo` of both: what is forgotten is hidden everywhere, and nowhere gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, added, ids, texts
from support.fake_llm import NONE, Scripted, fact
from support.fakes import fake_models
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.errors import NotFoundError, ValidationError
from graphmem.testing import ModelEndpoint

ANA = {"user_id": "u1"}


def events(memory: Memory, uid: str) -> list[tuple[str, str | None]]:
    return [(event["event"], event["reason"]) for event in memory.explain(uid, **ANA)["events"]]


@pytest.fixture
def parsing_memory(make_memory: Make) -> Memory:
    return make_memory(extractor={"provider": "spacy"})


def test_a_forgotten_memory_is_found_and_listed_only_on_request(parsing_memory: Memory) -> None:
    memory = parsing_memory
    tea, milk = added(memory, "tea with Clara"), added(memory, "tea with milk")
    assert memory.entity("Clara", **ANA) is not None
    changed = memory.forget(tea, reason="too old", **ANA)
    assert (changed["message"], changed["forgotten_at"][:4]) == ("Memory forgotten.", str(datetime.now(UTC).year))
    assert ids(memory.search("tea", **ANA)) == ids(memory.get_all(**ANA)) == [milk]
    assert memory.get_all(**ANA)["total"] == 1
    assert "Clara" not in memory.context("tea", **ANA, min_relevance=None)
    assert memory.entity("Clara", **ANA) is None
    assert "Clara" not in str(memory.graph(**ANA))
    assert set(ids(memory.search("tea", **ANA, show_forgotten=True))) == {tea, milk}
    assert ids(memory.get_all(**ANA, show_forgotten=True)) == [milk, tea]
    assert memory.get(tea, **ANA)["forgotten_at"] == changed["forgotten_at"]
    assert (memory.stats()["memories"], memory.stats()["listed"], memory.stats()["forgotten"]) == (2, 1, 1)
    assert memory.verify()["ok"]


def test_forgotten_memories_do_not_count_in_the_size_that_relevance_takes_into_account(
    parsing_memory: Memory,
) -> None:
    """In a large partition each memory is less probably the one asked for, and the default floor is lower."""
    memory = parsing_memory

    def share_of_size() -> float:
        hits = memory.search("tea", **ANA, explain=True)["results"]
        return float(hits[0]["explain"]["relevance"].get("size", 0.0))

    added(memory, "tea with Clara")
    alone = share_of_size()
    others = [added(memory, f"day {day} had rain") for day in range(9)]
    assert share_of_size() < alone
    for uid in others:
        memory.forget(uid, **ANA)
    assert share_of_size() == alone


def test_a_search_as_of_a_time_before_finds_what_was_forgotten_after_it(parsing_memory: Memory) -> None:
    memory = parsing_memory
    said = datetime.now(UTC) - timedelta(days=9)
    uid = added(memory, {"role": "user", "content": "tea with Clara", "timestamp": said})
    memory.forget(uid, **ANA)
    before = datetime.now(UTC) - timedelta(days=1)
    assert ids(memory.search("tea", **ANA, as_of=before)) == ids(memory.get_all(**ANA, as_of=before)) == [uid]
    assert memory.entity("Clara", **ANA, as_of=before) is not None
    assert ids(memory.search("tea", **ANA)) == []


def test_undo_shows_it_again_and_the_history_says_both(memory: Memory) -> None:
    uid = added(memory, "tea with Clara")
    memory.forget(uid, reason="too old", **ANA)
    (event,) = [event["id"] for event in memory.history(uid, **ANA) if event["event"] == "FORGET"]
    assert memory.undo(event, **ANA)["message"] == "Taken back."
    assert ids(memory.search("tea", **ANA)) == ids(memory.get_all(**ANA)) == [uid]
    assert events(memory, uid)[1:] == [("FORGET", "too old"), ("REMEMBER", f"undo of {event}")]
    with pytest.raises(ValidationError, match="taken back already"):
        memory.undo(event, **ANA)
    assert memory.verify()["ok"]


def test_to_forget_twice_changes_nothing(memory: Memory) -> None:
    uid = added(memory, "tea")
    first = memory.forget(uid, **ANA)
    again = memory.forget(uid, **ANA)
    assert again["message"] == "Nothing to change: it is forgotten already."
    assert again["forgotten_at"] == first["forgotten_at"]
    assert len(memory.history(uid, **ANA)) == 2


def test_pins_are_kept_and_shown(memory: Memory) -> None:
    uid = added(memory, "tea")
    assert memory.pin(uid, **ANA)["pinned"]
    assert memory.pin(uid, **ANA)["message"] == "Nothing to change: it is pinned already."
    assert memory.get(uid, **ANA)["pinned"]
    assert "pinned" not in memory.unpin(uid, **ANA)
    assert memory.unpin(uid, **ANA)["message"] == "Nothing to change: it is not pinned."
    assert memory.verify()["ok"]


CHANGES: dict[str, Callable[[Memory, str, dict[str, str]], Any]] = {
    "forget": lambda memory, uid, scope: memory.forget(uid, **scope),
    "pin": lambda memory, uid, scope: memory.pin(uid, **scope),
    "unpin": lambda memory, uid, scope: memory.unpin(uid, **scope),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_users_memory_is_not_found(memory: Memory, change: str) -> None:
    uid = added(memory, "tea")
    for stranger in ({"user_id": "u2"}, {"user_id": "u1", "agent_id": "a"}):
        with pytest.raises(NotFoundError):
            CHANGES[change](memory, uid, stranger)
    with pytest.raises(NotFoundError):
        CHANGES[change](memory, "00000000-0000-4000-8000-000000000000", ANA)
    assert ids(memory.search("tea", **ANA)) == [uid]


@pytest.mark.parametrize("reason", ["", 7, "x" * 257, "a\nb"])
def test_a_reason_that_is_none_is_refused(memory: Memory, reason: Any) -> None:
    uid = added(memory, "tea")
    with pytest.raises(ValidationError, match=r"^reason"):
        memory.forget(uid, reason=reason, **ANA)
    assert ids(memory.get_all(**ANA)) == [uid]


@pytest.mark.parametrize("key", [{}, {"id": "m1"}])
def test_a_forgotten_message_that_is_said_again_comes_back_without_a_twin(memory: Memory, key: dict[str, str]) -> None:
    message = {"role": "user", "content": "tea with Clara", **key}
    uid = added(memory, message)
    memory.forget(uid, **ANA)
    (again,) = memory.add([message], **ANA)["results"]
    assert (again["id"], again["event"], again["reason"]) == (uid, "REMEMBER", "said again")
    assert ids(memory.search("tea", **ANA)) == ids(memory.get_all(**ANA, show_forgotten=True)) == [uid]
    assert [name for name, _ in events(memory, uid)] == ["ADD", "FORGET", "REMEMBER"]


def test_other_words_of_another_user_or_speaker_bring_nothing_back(memory: Memory) -> None:
    uid = added(memory, "tea with Clara")
    memory.forget(uid, **ANA)
    others = [("tea with Anna", ANA), ("tea with Clara", {"user_id": "u2"}), ("tea with Clara", {**ANA, "run_id": "r"})]
    for words, scope in others:
        assert memory.add(words, **scope)["results"][0]["event"] == "ADD"
    assert memory.add({"role": "assistant", "content": "tea with Clara"}, **ANA)["results"][0]["event"] == "ADD"
    assert memory.get(uid, **ANA)["forgotten_at"]


def test_a_forgotten_memory_that_is_changed_is_shown_again(memory: Memory) -> None:
    uid = added(memory, "tea with Clara")
    memory.forget(uid, **ANA)
    assert "forgotten_at" not in memory.update(uid, "cocoa with Clara", **ANA)
    assert texts(memory.search("cocoa", **ANA)) == ["cocoa with Clara"]


def test_an_erased_memory_leaves_no_trace_of_having_been_forgotten(memory: Memory) -> None:
    uid = added(memory, "tea with Clara")
    memory.forget(uid, **ANA)
    memory.add("tea with Clara", **ANA)
    memory.forget(uid, reason="secret reason", **ANA)
    memory.delete(uid, **ANA)
    assert memory.get_all(**ANA, show_forgotten=True)["total"] == 0
    with memory.engine.ledger.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM vitals").scalar() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM events WHERE reason IS NOT NULL").scalar() == 0


def test_layers_pins_and_what_is_forgotten_survive_an_export(memory: Memory, make_memory: Make, tmp_path: Path) -> None:
    kept, forgotten = added(memory, "tea"), added(memory, "cocoa")
    memory.pin(kept, **ANA)
    memory.forget(forgotten, reason="too old", **ANA)
    memory.export(tmp_path / "x.jsonl")
    target = make_memory()
    target.import_(tmp_path / "x.jsonl")
    assert target.get(kept, **ANA) == memory.get(kept, **ANA)
    assert target.get(forgotten, **ANA) == memory.get(forgotten, **ANA)
    assert target.get(forgotten, **ANA)["forgotten_at"]
    (event,) = [event["id"] for event in target.history(forgotten, **ANA) if event["event"] == "FORGET"]
    target.undo(event, **ANA)
    assert set(ids(target.search("cocoa", **ANA))) >= {forgotten}
    assert target.verify()["ok"]


@pytest.fixture
def endpoint():
    with ModelEndpoint() as running:
        yield running


def with_model(endpoint: ModelEndpoint) -> Memory:
    config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "forgetting", "timeout": TIMEOUT}
    return Memory(":memory:", settings=Settings.from_dict(fake_models(llm={"provider": "openai", "config": config})))


def answer(*facts: Any) -> str:
    return json.dumps({"facts": list(facts)})


def test_the_messages_of_a_forgotten_fact_are_hidden_and_come_back_with_it(endpoint: ModelEndpoint) -> None:
    endpoint.then(answer(fact("Drinks tea"), fact("Knows Clara")))
    with with_model(endpoint) as memory:
        first, second = ids(memory.add("I drink tea with Clara.", **ANA, infer=True))
        kinds = ["episode", "fact"]
        memory.forget(first, **ANA)
        assert memory.get_all(**ANA, kinds=kinds)["total"] == 2  # the other fact shows the message
        memory.forget(second, **ANA)
        assert memory.get_all(**ANA, kinds=kinds)["total"] == 0
        assert memory.search("tea with Clara", **ANA)["results"] == []
        (event,) = [event["id"] for event in memory.history(second, **ANA) if event["event"] == "FORGET"]
        memory.undo(event, **ANA)
        assert sorted(texts(memory.get_all(**ANA, kinds=kinds))) == ["I drink tea with Clara.", "Knows Clara"]
        assert memory.verify()["ok"]


def test_a_forgotten_fact_that_is_said_again_in_near_words_comes_back(endpoint: ModelEndpoint) -> None:
    """The model is shown it, and tells that it says the same (§14)."""
    script = Scripted(
        {"I like fado.": [fact("Likes fado music")], "Fado it is.": [fact("Likes music of fado")]},
        {("Likes music of fado", "Likes fado music"): NONE},
    )
    with ModelEndpoint(default=script) as scripted, with_model(scripted) as memory:
        (likes,) = ids(memory.add("I like fado.", **ANA, infer=True))
        memory.forget(likes, **ANA)
        memory.add("Fado it is.", **ANA, infer=True)
        assert ids(memory.get_all(**ANA)) == [likes]
        assert [event for event, _ in events(memory, likes)] == ["ADD", "FORGET", "REMEMBER"]
