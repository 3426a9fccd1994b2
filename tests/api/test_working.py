"""What was said just before: from working memory, which gives the same as the ledger would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.contract import Make
from support.databases import SQLITE_ONLY
from support.fakes import fake_models
from support.statement_count import counted
from support.working_story import GAP, WORKING, Step, steps, tell

from graphmem import ChatLink, Memory, Settings
from graphmem.errors import ConfigError
from graphmem.model import Scope
from graphmem.retrieval.context import strip_block
from graphmem.stores.ledger import sessions
from graphmem.text import estimate_tokens

ANA: dict[str, Any] = {"user_id": "ana"}
STORY: list[Step] = [
    ("add", 0, 0, 0), ("add", 0, 0, 1), ("add", 1, 0, 2), ("add all", 0, 1, 0), ("document", 0, 0, 0),
    ("add", 0, 4, 1), ("add elsewhere", 0, 0, 0), ("add", 0, 0, 3), ("change", 0, 0, 1), ("undo", 0, 0, 1),
    ("forget", 0, 0, 2), ("undo", 0, 0, 2), ("change elsewhere", 0, 1, 1), ("expire", 0, 0, 1), ("import", 0, 0, 0),
    ("delete elsewhere", 0, 1, 0), ("delete", 0, 0, 1), ("add", 0, 6, 0), ("add", 0, 8, 0), ("add", 2, 0, 4),
    ("delete all", 1, 0, 0), ("add", 3, 0, 0), ("reset", 0, 0, 0), ("add", 0, 0, 0),
]  # fmt: skip


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return make_memory(working={})


def texts(memory: Memory, **scope: Any) -> list[str]:
    return [one.text for one in memory.engine.said_before(Scope(**(scope or ANA)))]


@pytest.mark.thorough
@SQLITE_ONLY
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=steps)
def test_working_memory_gives_what_the_ledger_gives(make_memory: Make, story: list[Step]) -> None:
    memory = make_memory(working={"config": WORKING})
    tell(memory, story)
    memory.close()


@pytest.mark.thorough
def test_a_story_of_all_that_can_happen(make_memory: Make) -> None:
    tell(make_memory(working={"config": WORKING}), STORY)


def test_a_short_story(make_memory: Make) -> None:
    tell(make_memory(working={"config": WORKING}), STORY[:3] + STORY[6:9])


def test_an_answer_reads_one_statement_and_no_text_after_the_first(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("I like tea", **ANA)
    assert texts(memory) == ["I like tea"]
    memory.add([{"role": "assistant", "content": "Noted."}], **ANA)
    monkeypatch.setattr(sessions, "last_said", None)
    with counted() as counts:
        assert texts(memory) == ["I like tea", "Noted."]
    assert counts["statements"] == 1


def test_without_the_setting_there_is_none_and_nothing_is_read(make_memory: Make) -> None:
    memory = make_memory()
    memory.add("I like tea", **ANA)
    with counted() as counts:
        assert texts(memory) == []
    assert counts["statements"] == 0
    assert "working_provider" not in memory.stats()


def test_a_pause_ends_it_and_old_chats_are_none(memory: Memory) -> None:
    now = datetime.now(UTC)
    memory.add("I like tea", **ANA, timestamp=now - 3 * GAP)
    assert texts(memory) == []
    memory.add("I like coffee", **ANA, timestamp=now - timedelta(minutes=20))
    memory.add("No, cocoa", **ANA)
    assert texts(memory) == ["I like coffee", "No, cocoa"]


@pytest.mark.parametrize("has_handler", [False, True])
def test_the_end_of_a_session_clears_it(memory: Memory, has_handler: bool) -> None:
    """Of this scope alone. What is said next is a new sitting, also where the list is lost or full."""
    if has_handler:
        memory.on("session.end", lambda _: None)
    memory.add(["I like tea", "And cake"], **ANA)
    memory.add("I like beer", **ANA, run_id="1")
    assert texts(memory) == ["I like tea", "And cake"]
    assert memory.end_session(**ANA) == {"ended": has_handler}
    assert (texts(memory), texts(memory, **ANA, run_id="1")) == ([], ["I like beer"])
    memory.add("Now to something else", **ANA)
    assert texts(memory) == texts(memory) == ["Now to something else"]
    uid = memory.add("It is late", **ANA)["results"][0]["id"]
    memory.engine.backends.working.clear(Scope(**ANA, run_id="1"))
    assert texts(memory) == ["Now to something else", "It is late"]
    memory.delete(uid)
    for number in range(60):
        memory.add(f"Talk {number}", **ANA)
    assert texts(memory)[-1] == "Talk 59" and "And cake" not in texts(memory)
    memory.end_session(**ANA)
    assert texts(memory) == []


def test_the_last_message_stays_and_of_a_long_one_the_end(make_memory: Make) -> None:
    memory = make_memory(working={"config": {"tokens": 10}})
    memory.add("Before.", **ANA)
    memory.add("word " * 100 + "and tea", **ANA)
    for _ in range(2):
        (text,) = texts(memory)
        assert len(text) == 40
        assert text.endswith("word and tea")


def test_erased_and_changed_words_leave_at_once(memory: Memory) -> None:
    store: Any = memory.engine.backends.working
    uids = [memory.add(text, **ANA)["results"][0]["id"] for text in ("I like quince", "I like medlar", "I like sloe")]
    changes = {
        "quince": lambda: memory.delete(uids[0]),
        "medlar": lambda: memory.update(uids[1], text="I like tea"),
        "sloe": lambda: memory.delete_all(**ANA),
        "damson": memory.reset,
    }
    for word, change in changes.items():
        if word == "damson":
            memory.add("I like damson", **ANA)
        assert word in "".join(texts(memory))
        assert word in str(store._lists)
        change()
        assert word not in str(store._lists)
        assert word not in "".join(texts(memory))


def test_the_profile_ends_with_what_was_said_last_under_these_ids(memory: Memory) -> None:
    memory.add([f"Talk number {number}" for number in range(30)], **ANA)
    memory.add("With the bot", **ANA, agent_id="bot")
    memory.add("Of Ben", user_id="ben")
    block = memory.profile(**ANA, max_tokens=300)["context"]
    lines = [line.partition("] ")[2] for line in block.splitlines() if "] " in line]
    assert len(lines) == len(set(lines))
    numbers = [int(line.rpartition(" ")[2]) for line in lines if "number" in line]
    assert numbers[-3:] == [27, 28, 29]
    assert estimate_tokens(block) <= 300
    assert "Of Ben" not in block
    with_bot = memory.profile(**ANA, agent_id="bot")["context"]
    assert "With the bot" in with_bot
    assert "Talk" not in with_bot
    assert strip_block(block) == ""


@pytest.mark.parametrize("working", [True, False])
def test_a_question_about_the_talk_is_understood_with_the_turns_before(make_memory: Make, working: bool) -> None:
    memory = make_memory(**({"working": {}} if working else {}))
    memory.add("The wedding is in the castle", **ANA, timestamp="2024-05-02")
    memory.add("The castle of Ben is old", user_id="ben")
    turns = [("user", "Tell me about the wedding in the castle"), ("assistant", "It is lovely")]
    memory.add([{"role": role, "content": text} for role, text in turns], **ANA)
    question = "And when is it?"
    memory.add(question, **ANA)  # a chat is saved before it is asked
    with ChatLink(memory, **ANA, time_limit=60) as link:
        assert ("The wedding is" in link.recall(question)) == working
        assert ("The wedding is" in link.recall(question, [{"role": "user", "content": question}])) == working
        assert ("The wedding is" in memory.context(question, **ANA)) == working
        assert "wedding" not in memory.context(question, user_id="ben")
        assert "Ben" not in memory.context(question, **ANA)
    assert memory.context(question, **ANA) == ""  # the link has ended the session


def test_the_turns_before_take_no_place_of_what_they_help_to_find(make_memory: Make) -> None:
    memory = make_memory(working={})
    memory.add("Sintra has a castle", **ANA, timestamp="2024-05-02")
    for number in range(9):
        memory.add(f"We talked of the castle {number} times", **ANA)
    with ChatLink(memory, **ANA, time_limit=60) as link:
        block = link.recall("And when is it?", top_k=1, min_relevance=None)
    assert "Sintra" in block


def test_the_statistics_name_it(memory: Memory) -> None:
    stats = memory.stats()
    assert (stats["working_provider"], stats["working_available"]) == ("memory", True)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"provider": "redis"}, "working.config.url"),
        ({"provider": "redis", "config": {"url": ""}}, "working.config.url"),
        ({"provider": "memcached"}, "working.provider"),
        ({"config": {"rounds": 0}}, "working.config.rounds"),
        ({"config": {"url": "redis://:hunter22@host"}}, "needs the working.provider 'redis'"),
    ],
)
def test_a_bad_setting_is_named_without_its_value(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as raised:
        Settings.from_dict({"working": config})
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize("url", ["tea:6379", "redis://tea/0?db=a", "redis://tea/0?milk=1", "redis://tea/0?protocol=9"])
def test_an_unusable_url_of_redis_is_refused_before_it_is_used(url: str) -> None:
    pytest.importorskip("redis")
    from graphmem.stores.working.redis import RedisWorkingMemory

    with pytest.raises(ConfigError, match="working.config.url: is no URL of a Redis server, or has options") as raised:
        RedisWorkingMemory(url, "ledger", 60, 10)
    assert url not in str(raised.value)


def test_a_memory_on_no_disk_leaves_nothing_on_a_server() -> None:
    working = {"provider": "redis", "config": {"url": "redis://:hunter22@127.0.0.1:1"}}
    with pytest.raises(ConfigError, match="working: a server is configured"):
        Memory(":memory:", settings=Settings.from_dict(fake_models(working=working)))
