"""Recollection, the core of the adapters: whose memories a run is about, recall, placement, capture."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from support.databases import SQLITE_ONLY
from support.fakes import slow_embedder
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, Memory, chat_worker
from graphmem.chat import MAX_SECONDS
from graphmem.chat_worker import ChatWorker
from graphmem.errors import CLOSED, ConfigError, StoreLocked, ValidationError
from graphmem.integrations import base
from graphmem.integrations.base import Recollection, required
from graphmem.retrieval import context

LONG_LIMIT: dict[str, Any] = {"time_limit": min(TIMEOUT, MAX_SECONDS)}


def make_turns(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def list_texts(memory: Memory, **scope: Any) -> list[str]:
    memories = memory.get_all(**(scope or {"user_id": "ana"}), limit=100)["results"]
    return [one["memory"] for one in reversed(memories)]


def our_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "graphmem"]


@pytest.fixture
def make_recollection(memory: Memory) -> Iterator[Callable[..., Recollection]]:
    """`make_recollection(**arguments)`: of `memory` and the user "ana" by default, closed at the end."""
    opened: list[Recollection] = []

    def make(**arguments: Any) -> Recollection:
        opened.append(Recollection(memory, **{"user_id": "ana", **LONG_LIMIT, **arguments}))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def recollection(make_recollection: Callable[..., Recollection]) -> Recollection:
    return make_recollection()


# --- identity ---------------------------------------------------------------------------------------------------------


def test_ids_come_from_the_runs_context(memory: Memory, make_recollection: Callable[..., Recollection]) -> None:
    recollection = make_recollection(user_id=lambda run: run["user"], agent_id="max", run_id=lambda run: run["thread"])
    recollection.capture({"user": "ana", "thread": 7}, make_turns("I like tea"), "s")
    recollection.capture({"user": "tom", "thread": 7}, make_turns("I like milk"), "s")
    assert recollection.flush()
    memory.flush()
    assert list_texts(memory, user_id="ana", agent_id="max", run_id="7") == ["I like tea"]
    assert "milk" in recollection.recall({"user": "tom", "thread": 7}, "Who likes milk or tea?")
    assert "tea" not in recollection.recall({"user": "tom", "thread": 7}, "Do I like tea?")


def test_memories_of_another_user_are_read_if_told_so(
    memory: Memory, make_recollection: Callable[..., Recollection]
) -> None:
    memory.add("The shared tea is green", user_id="team")
    recollection = make_recollection(recall_user_id="team")
    assert "green" in recollection.recall(None, "Which tea?")
    recollection.capture(None, make_turns("I like tea"), "s")
    recollection.flush()
    assert list_texts(memory, user_id="team") == ["The shared tea is green"]
    assert list_texts(memory) == ["I like tea"]


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        (lambda _: None, "NoneType"),
        (lambda _: "", "str"),
        (lambda _: "*", "str"),
        (lambda _: "x" * 257, "str"),
        (lambda run: run.user, "AttributeError"),
        (lambda: "ana", "TypeError"),
        (lambda run: _user_of(run), "coroutine"),
    ],
)
def test_a_run_of_nobody_recalls_and_stores_nothing_and_is_logged_once(
    memory: Memory,
    make_recollection: Callable[..., Recollection],
    caplog: pytest.LogCaptureFixture,
    user: Any,
    cause: str,
) -> None:
    memory.add("I like tea", user_id="ana")
    recollection = make_recollection(user_id=user)
    for _ in range(2):
        assert recollection.recall(object(), "tea") == ""
        recollection.capture(object(), make_turns("I like milk"), "s")
    recollection.flush()
    assert memory.stats()["memories"] == 1
    (warning,) = our_warnings(caplog)
    assert warning.startswith(f"the user_id of a run is not known or cannot be used ({cause}), ")


def test_a_uuid_is_an_id(memory: Memory, make_recollection: Callable[..., Recollection]) -> None:
    user = UUID(int=7)
    for given in (user, lambda _: user):
        recollection = make_recollection(user_id=given, agent_id=lambda run: run)
        recollection.capture(user, make_turns("I like tea"), f"session {given}")
        recollection.flush()
    assert list_texts(memory, user_id=str(user), agent_id=str(user)) == ["I like tea"] * 2


def test_an_agent_that_is_asked_for_but_not_known_widens_no_scope(
    memory: Memory, make_recollection: Callable[..., Recollection]
) -> None:
    memory.add("I like tea", user_id="ana", agent_id="other")
    assert make_recollection(agent_id=lambda _: None).recall(None, "tea") == ""


async def _user_of(run: Any) -> str:
    return "ana"


@pytest.mark.parametrize(
    "bad",
    [
        {"user_id": None},
        {"user_id": ""},
        {"user_id": _user_of},
        {"recall_user_id": ""},
        {"agent_id": "*"},
        {"top_k": 0},
        {"max_chars": 0},
        {"min_relevance": 2},
        {"time_limit": 0},
        {"placement": "above"},
    ],
)
def test_unusable_arguments_are_refused(memory: Memory, bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"^{next(iter(bad))}="):
        Recollection(memory, **{"user_id": "ana", **bad})


def test_only_a_memory_is_taken() -> None:
    with pytest.raises(ValidationError, match="AsyncMemory"):
        Recollection("memory", user_id="ana")  # type: ignore[arg-type]


# --- recall -----------------------------------------------------------------------------------------------------------


def test_a_block_keeps_its_limits(memory: Memory, make_recollection: Callable[..., Recollection]) -> None:
    for n in range(6):
        memory.add(f"tea number {n}", user_id="ana")
    block = make_recollection(top_k=3).recall(None, "tea")
    assert block.startswith(context.OPEN)
    assert block.count("tea number") == 3
    assert len(make_recollection(max_chars=150).recall(None, "tea")) <= 150


def test_a_recollection_takes_the_least_relevance(
    memory: Memory, make_recollection: Callable[..., Recollection]
) -> None:
    memory.add("I like tea", user_id="ana")
    question = "Which engine drives the spacecraft?"
    assert make_recollection().recall(None, question) == ""
    assert "tea" in make_recollection(min_relevance=None).recall(None, question)
    assert make_recollection(min_relevance=1).recall(None, "Do I like tea?") == ""


def test_a_vague_question_is_searched_with_the_turns_before_it(memory: Memory, recollection: Recollection) -> None:
    memory.add("tea and cake", user_id="ana")
    assert recollection.recall(None, "Hm?") == ""
    assert "tea and cake" in recollection.recall(None, "Hm?", make_turns("What about the cake?", "Which one?"))


CLARA = "My sister Clara works at the aquarium in Lisbon."
SORRY = "Sorry, I do not know that."


def test_a_question_that_was_asked_often_does_not_displace_its_answer(
    memory: Memory, recollection: Recollection
) -> None:
    memory.add(CLARA, user_id="ana", timestamp="2024-05-01")
    for day in range(1, 31):
        memory.add(make_turns("In which city does Clara work?", SORRY), user_id="ana", timestamp=f"2024-06-{day:02}")
    block = recollection.recall(None, "In which city does Clara work?")
    assert CLARA in block
    assert block.count(SORRY) == 1


def test_the_block_repeats_no_message_of_the_conversation(
    memory: Memory, make_recollection: Callable[..., Recollection]
) -> None:
    memory.add("Clara's tea is green", user_id="ana", timestamp="2024-05-01")
    said = [f"Clara's tea number {n}" for n in range(30)]
    memory.add(make_turns(*said, "Tell me of Clara's tea"), user_id="ana", timestamp="2024-06-01")
    recollection = make_recollection(top_k=1)
    assert "number" in recollection.recall(None, "Tell me of Clara's tea")
    block = recollection.recall(None, "Tell me of Clara's tea", make_turns(*said[:-1], f" {said[-1]}\n"))
    assert block.count("\n- ") == 1
    assert "Clara's tea is green" in block


def test_equal_words_of_different_speakers_are_both_recalled(memory: Memory, recollection: Recollection) -> None:
    for name in ("Ana", "Tom"):
        memory.add([{"role": "user", "name": name, "content": "I like green tea"}] * 2, user_id="ana")
    assert recollection.recall(None, "Who likes tea?").count("I like green tea") == 2


def test_a_block_is_kept_within_a_turn_and_searched_anew_in_the_next(
    memory: Memory, recollection: Recollection
) -> None:
    memory.add("tea is green", user_id="ana")
    block = recollection.recall(None, "Which tea?", session_key="s")
    memory.add("tea is black", user_id="ana")
    assert recollection.recall(None, f"{block}\n\nWhich tea?", session_key="s") == block
    assert "black" in recollection.recall(None, "Which tea?", session_key="other")
    assert "black" in recollection.recall(None, "Which tea?", make_turns("Hi", "Hello"), session_key="s")
    recollection.capture(None, make_turns("Which tea?"), "s", ends_turn=False)
    assert recollection.recall(None, "Which tea?", session_key="s") == block
    recollection.capture(None, make_turns("Which tea?", "The green one"), "s")
    assert "black" in recollection.recall(None, "Which tea?", session_key="s")


def test_a_question_that_starts_a_turn_is_searched_anew(memory: Memory, recollection: Recollection) -> None:
    assert recollection.recall(None, "Which tea?") == ""
    memory.add("The tea is green", user_id="ana")
    assert recollection.recall(None, "Which tea?") == ""
    assert "green" in recollection.recall(None, "Which tea?", starts_turn=True)
    assert "green" in recollection.recall(None, "Which tea?")


def test_a_block_is_not_reused_for_long(
    memory: Memory, recollection: Recollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recollection.recall(None, "Which tea?") == ""
    memory.add("tea is green", user_id="ana")
    assert recollection.recall(None, "Which tea?") == ""
    now = base.monotonic
    monkeypatch.setattr(base, "monotonic", lambda: now() + base.BLOCK_SECONDS + 1)
    assert "green" in recollection.recall(None, "Which tea?")


def test_kept_blocks_are_limited(recollection: Recollection, monkeypatch: pytest.MonkeyPatch) -> None:
    recollection._blocks._size = 3
    for n in range(9):
        recollection.recall(None, f"question {n}")
    assert [turn.question for turn in recollection._blocks] == [
        recollection._worker.keyed(f"question {n}") for n in (6, 7, 8)
    ]


def test_a_slow_memory_gives_nothing_at_the_time_limit(
    memory: Memory,
    make_recollection: Callable[..., Recollection],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = Event()
    monkeypatch.setattr(chat_worker, "search", lambda *_: release.wait(TIMEOUT))
    recollection = make_recollection(time_limit=0.1)
    assert recollection.recall(None, "tea") == ""
    assert asyncio.run(recollection.arecall(None, "milk")) == ""
    release.set()
    assert our_warnings(caplog) == ["a recall was not done within its time limit"] * 2


async def test_awaited_recalls_need_no_thread_of_the_event_loop(memory: Memory, recollection: Recollection) -> None:
    memory.add("I like tea", user_id="ana")
    release = Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, release.wait, TIMEOUT)
    assert "I like tea" in await recollection.arecall(None, "Do I like tea?")
    release.set()
    assert await blocked


async def test_a_recall_that_took_too_long_is_not_tried_again_in_its_turn(
    make_recollection: Callable[..., Recollection], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = Event()
    monkeypatch.setattr(chat_worker, "search", lambda *_: release.wait(TIMEOUT))
    recollection = make_recollection(time_limit=0.1)
    for _ in range(3):
        assert await recollection.arecall(None, "tea") == ""
        assert recollection.recall(None, "milk") == ""
    release.set()
    assert our_warnings(caplog) == ["a recall was not done within its time limit"] * 2


def test_a_failing_memory_raises_nothing(
    memory: Memory,
    recollection: Recollection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    monkeypatch.setattr(chat_worker, "search", fail)
    monkeypatch.setattr(Memory, "add", fail)
    for n, failure in enumerate((RuntimeError("x"), StoreLocked("x"))):  # noqa: B007
        assert recollection.recall(None, f"tea {n}") == ""
    recollection.capture(None, make_turns("I like tea"), "s")
    recollection.flush()
    assert our_warnings(caplog) == [
        "a recall failed (RuntimeError)",
        "a recall failed (StoreLocked)",
        "a saved chat was not stored (StoreLocked)",
    ]


def test_a_closed_memory_and_a_closed_recollection_raise_nothing(
    memory: Memory, recollection: Recollection, caplog: pytest.LogCaptureFixture
) -> None:
    memory.close()
    assert recollection.recall(None, "tea") == ""
    recollection.close()
    assert recollection.recall(None, "milk") == ""
    recollection.capture(None, make_turns("I like tea"), "s")
    cause = f"(StoreUnavailable: {CLOSED})"
    assert our_warnings(caplog) == [f"a recall failed {cause}"] * 2 + [f"messages of a run were not stored {cause}"]


@pytest.mark.parametrize("value", [None, 7, [None], [{"role": []}], [{"content": 7}]])
def test_messages_of_unknown_shape_raise_nothing(memory: Memory, recollection: Recollection, value: Any) -> None:
    recollection.capture(None, value, "s")
    assert recollection.recall(None, value, value) == ""
    assert memory.stats()["memories"] == 0


# --- placement --------------------------------------------------------------------------------------------------------


def test_the_block_goes_in_front_of_the_last_user_message(recollection: Recollection) -> None:
    messages = [*make_turns("Hi", "Hello", "What now?"), {"role": "tool", "content": "42"}]
    placed = recollection.place(messages, "BLOCK")
    assert placed[2]["content"] == "BLOCK\n\nWhat now?"
    assert placed[:2] + placed[3:] == messages[:2] + messages[3:]
    assert messages[2]["content"] == "What now?"
    parts = [{"type": "text", "text": "What now?"}]
    assert recollection.place([{"role": "user", "content": parts}], "BLOCK") == [
        {"role": "user", "content": [{"type": "text", "text": "BLOCK"}, *parts]}
    ]
    assert recollection.place(messages[1:2], "BLOCK") == messages[1:2]
    assert recollection.place(messages, "") == messages


def test_the_block_goes_into_the_system_message_if_told_so(make_recollection: Callable[..., Recollection]) -> None:
    messages = [{"role": "system", "content": "Be kind."}, *make_turns("Hi")]
    placed = make_recollection(placement="system").place(messages, "BLOCK")
    assert placed == [{"role": "system", "content": "Be kind.\n\nBLOCK"}, messages[1]]


# --- capture ----------------------------------------------------------------------------------------------------------


def test_each_message_is_stored_once_however_it_is_handed_over(
    memory: Memory, make_recollection: Callable[..., Recollection]
) -> None:
    texts = ["I like tea", "ok", "yes", "ok", "yes", "ok", "And cake", "Fine"]
    whole = make_turns(*texts)
    first, second = make_recollection(), make_recollection()
    for end in range(2, len(whole) + 1, 2):  # grown, and retried
        first.capture(None, whole[:end], "s")
        first.capture(None, whole[:end], "s", rounds=1)
    first.capture(None, whole[6:], "s")  # its end
    first.flush()
    block = f"{context.OPEN}- [2025-01-02] tea\n{context.CLOSE}"
    second.capture(None, second.place(whole, block), "s")  # in another process, as it was sent to a model
    second.flush()
    assert list_texts(memory) == texts


@pytest.mark.parametrize("end", ["\0", "\ud800", " tea" * 300_000])
def test_texts_that_no_store_can_hold_are_recalled_for_and_stored_in_part(
    memory: Memory, recollection: Recollection, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    memory.add("The tea is green", user_id="ana", timestamp="2024-05-01")
    question = f"Which tea?{end}"
    assert "green" in recollection.recall(None, question, make_turns(f"Hi{end}", "Hello"))
    recollection.capture(None, [{"role": "user", "content": question, "name": "x" * 257}], "s")
    recollection.flush()
    assert list_texts(memory)[-1].startswith("Which tea?")
    assert our_warnings(caplog) == []


def test_two_sessions_may_have_the_same_words(memory: Memory, recollection: Recollection) -> None:
    recollection.capture(None, make_turns("Hi", "Hello"), "s")
    recollection.capture(None, make_turns("Hi", "Hello"), "t")
    recollection.flush()
    assert sorted(list_texts(memory)) == ["Hello", "Hello", "Hi", "Hi"]


def test_an_erased_message_is_not_stored_again(memory: Memory, recollection: Recollection) -> None:
    for _ in range(2):
        recollection.capture(None, make_turns("Hi", "Hello"), "s")
        recollection.flush()
        memory.delete_all(user_id="ana")
    assert list_texts(memory) == []


def test_capture_returns_at_once_and_keeps_the_newest_of_too_many(
    memory: Memory,
    make_recollection: Callable[..., Recollection],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, release, add = Event(), Event(), Memory.add

    def add_slowly(*args: Any, **more: Any) -> Any:
        begun.set()
        assert release.wait(TIMEOUT), "the test did not release the call"
        return add(*args, **more)

    monkeypatch.setattr(Memory, "add", add_slowly)
    monkeypatch.setattr(chat_worker, "MAX_QUEUED", 3)
    recollection = make_recollection(time_limit=0.1)
    recollection.capture(None, make_turns("message 0"), "s0")
    assert begun.wait(TIMEOUT)
    for n in range(1, 6):
        recollection.capture(None, make_turns(f"message {n}"), f"s{n}")
    assert not recollection.flush()
    recollection.close()
    release.set()
    assert recollection._worker.drain(TIMEOUT)
    assert list_texts(memory) == ["message 0", "message 3", "message 4", "message 5"]
    assert our_warnings(caplog) == [
        "messages of a chat are not stored: too many wait for a slow memory",
        "messages of a chat are not stored: too many wait for a slow memory",
        "a chat was closed while a saving or recall of it was running",
    ]


@SQLITE_ONLY
def test_what_is_flushed_is_recalled(make_memory: Callable[..., Memory]) -> None:
    with Recollection(make_memory(embedder=slow_embedder()), user_id="ana", **LONG_LIMIT) as recollection:
        recollection.capture(None, make_turns("Clara lives in Lisbon."), "first")
        assert recollection.flush()
        assert "Lisbon" in recollection.recall(None, "Who lives in Lisbon?", session_key="second")


def test_owners_take_turns_in_being_stored(memory: Memory) -> None:
    worker, begun, release, order = ChatWorker(memory, TIMEOUT, 1), Event(), Event(), list[str]()

    def hold() -> bool:
        begun.set()
        return release.wait(TIMEOUT)

    works = [worker.submit(hold, "ana")]
    assert begun.wait(TIMEOUT)
    for name in ("ana 0", "ana 1", "ana 2", "ben 0", "ben 1"):
        works.append(worker.submit(lambda name=name: order.append(name) is None, name.partition(" ")[0]))
    release.set()
    assert all(work.result(TIMEOUT) for work in works)
    assert order == ["ana 0", "ben 0", "ana 1", "ben 1", "ana 2"]
    worker.close(TIMEOUT)


def test_the_known_sessions_are_limited(recollection: Recollection) -> None:
    recollection._sessions._size = 3
    for n in range(9):
        recollection.capture(None, make_turns("Hi"), f"s{n}")
    assert [key for _, key in recollection._sessions] == ["s6", "s7", "s8"]


# --- asyncio, packages ------------------------------------------------------------------------------------------------


def test_an_async_memory_and_the_awaited_methods(memory: Memory) -> None:
    async def run() -> str:
        async with Recollection(AsyncMemory(sync=memory), user_id=lambda run: run, **LONG_LIMIT) as recollection:
            recollection.capture("ana", make_turns("I like tea"), "s")
            assert await recollection.aflush()
            memory.flush()
            return await recollection.arecall("ana", "Do I like tea?")

    assert "I like tea" in asyncio.run(run())


def test_an_absent_package_is_named_with_its_extra() -> None:
    with (
        pytest.raises(ConfigError, match=r"absent_package is not installed; .* pip install '\.\[absent\]'"),
        required("absent_package", extra="absent"),
    ):
        import absent_package.agents  # noqa: F401


def test_a_package_that_lacks_one_of_its_own_says_so_itself() -> None:
    with pytest.raises(ModuleNotFoundError), required("graphmem", extra="x"):
        import absent_package  # noqa: F401


@pytest.mark.thorough
def test_the_package_imports_no_adapter() -> None:
    code = "import sys, graphmem; graphmem.ChatLink; sys.exit(any('integrations' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.thorough  # another process imports graphmem
def test_without_celery_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['celery'] = None\nimport graphmem.integrations.celery"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: celery is not installed; install the extra celery: " in result.stderr
