"""Recalling memories for a chat and storing saved chats over REST; a failing memory is no error of either."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.chat_cases import CASES
from support.databases import SQLITE_ONLY
from support.service import client_of, settings_of
from support.waiting import TIMEOUT, wait_until

from graphmem import ChatLink, Memory, chat_worker
from graphmem.errors import StoreUnavailable
from graphmem.retrieval import context, fallback
from graphmem.service import chat_settings, limits
from graphmem.service.app import service_app
from graphmem.service.rest import chats
from graphmem.stores.ledger import ledger_state
from graphmem.testing import ModelEndpoint, behaviours

Make = Callable[..., Memory]
ANA = {"user_id": "ana"}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is cut short because the machine is slow."""
    monkeypatch.setattr(limits, "RECALL_SECONDS", TIMEOUT)
    monkeypatch.setattr(fallback, "REWRITE_SECONDS", TIMEOUT)
    monkeypatch.setattr(limits, "SAVED_SECONDS", TIMEOUT)
    monkeypatch.setattr(limits, "CHATS_SECONDS", TIMEOUT)


def make_turns(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def post(client: TestClient, path: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


def recall(client: TestClient, question: str, recent: Any = (), **more: Any) -> dict[str, Any]:
    return post(client, "/recall", {**ANA, "question": question, "recent": list(recent), **more})


def save(client: TestClient, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return post(client, "/chats/saved", {**ANA, "messages": messages, **more}, 202)


def stored_texts(memory: Memory, **scope: Any) -> list[str]:
    """The stored messages, oldest first."""
    page = memory.get_all(**(scope or ANA), kinds="episode", limit=100)["results"]
    return [one["memory"] for one in reversed(page)]


# --- context ----------------------------------------------------------------------------------------------------------


def test_a_context_has_the_memories_for_a_question(memory: Memory, client: TestClient) -> None:
    for text in ("I like tea", "Work begins at nine"):
        memory.add(text, **ANA)
    block = post(client, "/context", {**ANA, "query": "Do I like tea?"})["context"]
    assert block == memory.context("Do I like tea?", **ANA)
    assert "nine" not in block
    for option in ({"threshold": None}, {"min_relevance": None}, {"min_relevance": 0}):
        assert "nine" in post(client, "/context", {**ANA, "query": "Do I like tea?", **option})["context"]
    for option in ({"min_relevance": 1}, {"threshold": None, "min_relevance": "default"}):
        assert "nine" not in post(client, "/context", {**ANA, "query": "Do I like tea?", **option})["context"]
    assert post(client, "/context", {**ANA, "query": "Do I like tea?", "max_chars": 100})["context"] == ""
    client.put("/settings", params=ANA, json={"max_chars": 100})
    assert post(client, "/context", {**ANA, "query": "Do I like tea?"})["context"] == ""


def test_a_context_of_a_closed_memory_is_a_problem(memory: Memory) -> None:
    with client_of(memory, role=None, needs_key=False) as client:
        memory.close()
        assert post(client, "/context", {**ANA, "query": "tea"}, 503)["code"] == "store_unavailable"


def test_a_recall_takes_the_least_relevance(memory: Memory, client: TestClient) -> None:
    for text in ("I like tea", "Work begins at nine"):
        memory.add(text, **ANA)
    expected = memory.search("Do I like tea?", **ANA)["results"][0]["relevance"]
    (hit,) = recall(client, "Do I like tea?")["results"]
    assert hit["relevance"] == pytest.approx(expected)
    assert len(recall(client, "Do I like tea?", min_relevance=None)["results"]) == 2
    answer = recall(client, "Do I like tea?", min_relevance=1)
    assert (answer["block"], answer["results"]) == ("", [])


@pytest.mark.parametrize("least", [2, -0.1, "high", True])
@pytest.mark.parametrize(("path", "text"), [("/context", "query"), ("/recall", "question"), ("/search", "query")])
def test_an_unusable_least_relevance_is_named(client: TestClient, path: str, text: str, least: Any) -> None:
    problem = post(client, path, {**ANA, text: "tea", "min_relevance": least}, 422)
    assert problem["detail"].startswith("min_relevance: should be ")


# --- the three steps of a recall --------------------------------------------------------------------------------------


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CASES[request.param]


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def chat(make_memory: Make, endpoint: ModelEndpoint, case: dict[str, Any]) -> Iterator[TestClient]:
    """A service with graphmem's own models, a scripted language model and the memories of the case."""
    llm = {"provider": "openai", "config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "test-model"}}
    memory = make_memory(embedder={"provider": "minilm"}, extractor={"provider": "spacy"}, llm=llm)
    memory.add(make_turns(*case["memories"]), **ANA, infer=False)
    with client_of(memory) as client:
        yield client


@SQLITE_ONLY
def test_a_clear_question_takes_one_step(chat: TestClient, endpoint: ModelEndpoint, case: dict[str, Any]) -> None:
    question, word = case["clear"]
    answer = recall(chat, question, make_turns(*case["turns"]))
    (step,) = answer["steps"]
    assert (step["kind"], step["query"], step["enough"]) == ("question", question, True)
    assert step["found"] == len(answer["results"])
    assert 0 < step["took_ms"] <= answer["took_ms"]
    assert word in answer["block"]
    assert word in answer["results"][0]["memory"]
    assert answer["took_ms"] > 0
    assert "failed" not in answer
    assert endpoint.requests == []


@SQLITE_ONLY
def test_a_vague_question_is_searched_with_its_conversation(
    chat: TestClient, endpoint: ModelEndpoint, case: dict[str, Any]
) -> None:
    long = make_turns("x " * 1000, "y")
    question = {"role": "user", "content": case["vague"]}
    answer = recall(chat, case["vague"], [*long, *make_turns(*case["turns"]), question])
    first, second = answer["steps"]
    assert (first["query"], first["enough"], second["enough"]) == (case["vague"], False, True)
    assert (first["kind"], second["kind"]) == ("question", "conversation")
    assert first["relevance"] < first["relevance_needed"] == second["relevance_needed"]
    assert second["query"] == "\n".join(["y", *case["turns"], case["vague"]])
    assert len(second["query"]) <= 1200
    assert case["found"] in answer["block"]
    assert endpoint.requests == []


@SQLITE_ONLY
def test_a_question_that_finds_too_little_is_rewritten(
    chat: TestClient, endpoint: ModelEndpoint, case: dict[str, Any]
) -> None:
    endpoint.then(f'```\nQuery: "{case["rewritten"]}"\n```')
    turns = make_turns(*case["indirect"])
    answer = recall(chat, case["vague"], turns, user_name="小雨", char_name="Max")
    assert [step["enough"] for step in answer["steps"]] == [False, False, True]
    assert [step["kind"] for step in answer["steps"]] == ["question", "conversation", "rewrite"]
    assert answer["steps"][2]["query"] == case["rewritten"]
    assert case["found"] in answer["block"]
    (request,) = endpoint.requests
    system, data = (message["content"] for message in request.body["messages"])
    assert json.loads(data) == {
        "user_name": "小雨",
        "char_name": "Max",
        "user_question": case["vague"],
        "recent_conversation": f"小雨: {case['indirect'][0]}\nMax: {case['indirect'][1]}",
    }
    chat.put("/settings", params=ANA, json={"rewrite_prompt": "Ours."})
    recall(chat, case["vague"], turns)
    recall(chat, case["vague"], turns, rewrite_prompt="Mine.")
    prompts = [request.body["messages"][0]["content"] for request in endpoint.requests]
    assert [prompt.partition("\n")[0] for prompt in prompts[1:]] == ["Ours.", "Mine."]
    assert not system.startswith("Ours.")
    chat.put("/settings", params=ANA, json={"rewrite": False})
    assert len(recall(chat, case["vague"], turns)["steps"]) == 2
    assert len(endpoint.requests) == 3
    recall(chat, case["vague"], turns, rewrite=True)
    assert len(endpoint.requests) == 4


@SQLITE_ONLY
@pytest.mark.parametrize("case", [CASES["en"]])
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (behaviours.failed(400), "failed"),
        (behaviours.failed(500), "failed"),
        (behaviours.silent(), "timeout"),
        (behaviours.empty_content(), "failed"),
        ("```", "no_query"),
    ],
)
def test_a_failing_rewrite_keeps_what_was_found(
    chat: TestClient,
    endpoint: ModelEndpoint,
    case: dict[str, Any],
    behaviour: Any,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reason == "timeout":
        monkeypatch.setattr(fallback, "REWRITE_SECONDS", 0.3)
    endpoint.then(behaviour)
    answer = recall(chat, case["vague"], make_turns(*case["indirect"]))
    assert len(answer["steps"]) == 2
    assert "failed" not in answer
    assert answer["rewrite_failed"] == reason
    assert endpoint.requests or reason == "timeout"


@SQLITE_ONLY
@pytest.mark.parametrize("case", [CASES["en"]])
@pytest.mark.parametrize("reply", ["Where does Ana live?", behaviours.failed(400)])
def test_the_calls_that_rewrite_a_question_are_counted_for_its_scope(
    chat: TestClient, endpoint: ModelEndpoint, case: dict[str, Any], reply: Any
) -> None:
    endpoint.then(reply)
    recall(chat, case["vague"], make_turns(*case["indirect"]))

    def usage_of(**scope: str) -> list[tuple[str, int]]:
        usage = chat.get("/stats", params=scope).json()["usage"]
        return [(one["operation"], one["calls"]) for one in usage]

    wait_until(lambda: usage_of() == usage_of(**ANA) == [("rewrite", 1)])
    assert usage_of(user_id="bob") == []


@SQLITE_ONLY
@pytest.mark.parametrize("case", [CASES["en"]])
def test_a_recall_does_not_fail_if_its_calls_cannot_be_counted(
    chat: TestClient,
    endpoint: ModelEndpoint,
    case: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise StoreUnavailable("full")

    monkeypatch.setattr(ledger_state, "record_usage", fail)
    endpoint.then(case["rewritten"])
    answer = recall(chat, case["vague"], make_turns(*case["indirect"]))
    assert case["found"] in answer["block"]
    assert "failed" not in answer
    wait_until(lambda: "a call of the language model was not counted (StoreUnavailable)" in caplog.text)


def test_a_block_has_as_many_memories_and_characters_as_asked_for(memory: Memory, client: TestClient) -> None:
    for n in range(8):
        memory.add(f"tea number {n}", **ANA)
    assert recall(client, "tea")["block"].count("tea number") == 5
    client.put("/settings", params=ANA, json={"top_k": 3})
    answer = recall(client, "tea")
    assert (answer["block"].count("tea number"), len(answer["results"]), answer["steps"][0]["found"]) == (3, 3, 3)
    assert recall(client, "tea", top_k=2)["block"].count("tea number") == 2
    assert 0 < len(recall(client, "tea", max_chars=150)["block"]) <= 150
    client.put("/settings", params=ANA, json={"recall": False})
    assert recall(client, "tea")["steps"] == []
    assert recall(client, "tea", recall=True)["steps"] != []


@pytest.mark.parametrize(
    "body",
    [{"top_k": 0}, {"top_k": False}, {"max_chars": 20_001}, {"max_chars": 0}, {"question": ""}, {"recent": "hello"},
     {"recent": [7]}, {"rewrite": 1}, {"rewrite_prompt": " "}, {"rewrite_prompt": 7}, {"app_id": "x"}],
)  # fmt: skip
def test_an_unusable_field_of_a_recall_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    (name,) = body
    assert name in post(client, "/recall", {**ANA, "question": "tea", **body}, 422)["detail"]


@pytest.mark.parametrize("body", [{"question": "  "}, {"reference_date": "tomorrow"}])
def test_an_unusable_argument_of_a_recall_is_no_failure_of_the_memory(client: TestClient, body: Any) -> None:
    (name,) = body
    assert name in post(client, "/recall", {**ANA, "question": "tea", **body}, 400)["detail"]


def test_messages_that_cannot_be_read_are_left_out_of_a_conversation(memory: Memory, client: TestClient) -> None:
    memory.add("I like tea", **ANA)
    assert "tea" in recall(client, "Do I like tea?", [{"role": []}, {"content": 7}])["block"]


def test_each_role_recalls_for_its_users(memory: Memory) -> None:
    memory.add("Ana likes tea", **ANA)
    memory.add("Bob likes tea", user_id="bob")
    question = {"question": "Who likes tea?"}
    with client_of(memory, role="user") as client:
        assert "Bob" not in post(client, "/recall", question)["block"]
        assert post(client, "/recall", {**question, "user_id": "bob"}, 403)["code"] == "other_scope"
        post(client, "/context", {"query": "tea", "user_id": "bob"}, 403)
        post(client, "/chats/saved", {"messages": [], "user_id": "bob"}, 403)
    for role in ("app", "admin"):
        with client_of(memory, role=role) as client:
            post(client, "/recall", question, 400)
            assert "Bob" in post(client, "/recall", {**question, "user_id": "bob"})["block"]
    with client_of(memory, role="metrics") as client:
        post(client, "/recall", {**question, **ANA}, 403)


# --- a memory that fails ----------------------------------------------------------------------------------------------


def test_a_recall_is_answered_when_the_memory_is_closed(memory: Memory) -> None:
    with client_of(memory, role=None, needs_key=False) as client:
        memory.close()
        answer = recall(client, "Do I like tea?")
        assert (answer["block"], answer["steps"], answer["results"]) == ("", [], [])
        assert answer["failed"] == "store_unavailable"
        assert save(client, make_turns("I like tea")) == {"accepted": False, "failed": "store_unavailable"}


@pytest.mark.parametrize("hanging", ["search", "settings"])
def test_a_recall_is_answered_within_its_time_limit(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    release = threading.Event()
    place = {"search": chat_worker, "settings": chats}[hanging]
    name = {"search": "search", "settings": "settings_in_force"}[hanging]
    monkeypatch.setattr(limits, "RECALL_SECONDS", 0.3)
    with client_of(memory) as client:
        monkeypatch.setattr(place, name, lambda *_, **__: release.wait(TIMEOUT) and None)
        try:
            answer = recall(client, "Do I like tea?")
        finally:
            release.set()
    assert (answer["block"], answer["failed"]) == ("", "timeout")


def test_an_error_inside_is_a_failure_by_its_kind(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a private text")

    monkeypatch.setattr(chat_worker, "search", fail)
    with client_of(memory) as client:
        answer = recall(client, "Do I like tea?")
    assert (answer["block"], answer["failed"]) == ("", "internal_server_error")


def test_a_saved_chat_is_accepted_while_the_memory_hangs(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    adding, release = threading.Event(), threading.Event()
    add, in_force = Memory.add, chat_settings.settings_in_force

    def add_slowly(*args: Any, **more: Any) -> Any:
        adding.set()
        assert release.wait(TIMEOUT), "the test did not release the call"
        return add(*args, **more)

    def read_slowly(*args: Any, **more: Any) -> Any:
        assert release.wait(TIMEOUT), "the test did not release the call"
        return in_force(*args, **more)

    monkeypatch.setattr(Memory, "add", add_slowly)
    with client_of(memory) as client:
        assert save(client, make_turns("I like tea")) == {"accepted": True}
        assert adding.wait(TIMEOUT)  # the thread that stores has read the settings
        monkeypatch.setattr(chats, "settings_in_force", read_slowly)
        monkeypatch.setattr(limits, "SAVED_SECONDS", 0.01)
        assert save(client, make_turns("I like cake")) == {"accepted": True}
        release.set()
    assert stored_texts(memory) == ["I like tea", "I like cake"]


@SQLITE_ONLY
def test_chats_are_accepted_and_memories_recalled_while_another_process_writes(
    make_memory: Make, tmp_path: Path
) -> None:
    memory, other = make_memory(tmp_path), make_memory(tmp_path)
    memory.add("I like tea", **ANA)
    with client_of(memory) as client:
        with other.engine.ledger.write():
            assert save(client, make_turns("I like cake")) == {"accepted": True}
            assert "tea" in recall(client, "Do I like tea?")["block"]
            assert "I like cake" not in [one["memory"] for one in memory.get_all(**ANA)["results"]]
        wait_until(lambda: "I like cake" in stored_texts(memory))


# --- saved chats ------------------------------------------------------------------------------------------------------


CHAT = make_turns("I like tea", "Noted", "ok", "Good", "And cake", "Sweet", "And ham", "Fine", "And figs", "Yes")


def save_in_turn(memories: list[Memory], size: int, **more: Any) -> None:
    """Saves the growing CHAT, each time twice and by the next of these memories: its last `size` messages."""
    for end in range(2, len(CHAT) + 1, 2):
        memory = memories[end // 2 % len(memories)]
        for _ in range(2):  # the end of a service stores what it has accepted
            with client_of(memory) as client:
                assert save(client, CHAT[max(0, end - size) : end], **more)["accepted"]


@pytest.mark.parametrize("size", [6, *(pytest.param(size, marks=pytest.mark.thorough) for size in (100, 4, 2))])
def test_each_message_is_stored_once_whichever_process_gets_the_chat(
    make_memory: Make, tmp_path: Path, size: int
) -> None:
    memories = [make_memory(tmp_path), make_memory(tmp_path)]
    save_in_turn(memories, size)
    assert stored_texts(memories[0]) == [one["content"] for one in CHAT]


def test_an_erased_message_stays_erased_when_the_last_part_of_its_chat_is_saved_again(memory: Memory) -> None:
    with client_of(memory) as client:
        save(client, CHAT[:4])
    erased = next(one for one in memory.get_all(**ANA)["results"] if one["memory"] == "ok")
    memory.delete(erased["id"])
    with client_of(memory) as client:
        save(client, CHAT[2:6])
    assert stored_texts(memory) == ["I like tea", "Noted", "Good", "And cake", "Sweet"]


def test_the_same_messages_have_the_same_ids_as_those_of_a_chat_link(memory: Memory) -> None:
    with ChatLink(memory, **ANA, time_limit=TIMEOUT) as link:
        link.saved(CHAT[:4])
    with client_of(memory) as client:
        save(client, CHAT[:6])
    assert stored_texts(memory) == [one["content"] for one in CHAT[:6]]


def test_as_many_rounds_are_stored_as_the_request_or_the_settings_say(memory: Memory) -> None:
    with client_of(memory) as client:
        save(client, CHAT[:8], user_id="a")
        save(client, CHAT[:8], user_id="b", rounds=1)
        client.put("/settings", json={"rounds": 3})
        save(client, CHAT[:8], user_id="c")
    assert [len(stored_texts(memory, user_id=user)) for user in "abc"] == [4, 2, 6]


def test_a_message_that_cannot_be_stored_does_not_prevent_the_others(memory: Memory) -> None:
    with client_of(memory) as client:
        save(client, [{"role": "user", "content": "\0"}, *make_turns("I like tea"), {"role": []}, {}])
    assert stored_texts(memory) == ["I like tea"]


def test_a_message_keeps_its_id_time_name_and_metadata(memory: Memory) -> None:
    message = {"role": "user", "name": "Tom", "content": "I like tea", "id": "7", "timestamp": "2025-12-28T10:00:00Z"}
    with client_of(memory) as client:
        for _ in range(2):
            save(client, [{**message, "metadata": {"chatfile": "a.jsonl"}}], agent_id="Max", run_id="r1")
    (one,) = memory.get_all(**ANA, agent_id="Max", run_id="r1")["results"]
    assert (one["actor_id"], one["at"][:10], one["metadata"]) == ("Tom", "2025-12-28", {"chatfile": "a.jsonl"})


def test_the_end_of_the_service_stores_what_was_accepted(
    make_memory: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, add = threading.Event(), Memory.add

    def add_slowly(*args: Any, **more: Any) -> Any:
        assert release.wait(TIMEOUT), "the test did not release the call"
        return add(*args, **more)

    monkeypatch.setattr(Memory, "add", add_slowly)
    memory = make_memory(tmp_path)
    service = service_app(memory, settings_of(), needs_key=False, close_memory=True)
    with TestClient(service) as client:
        for n in range(5):
            assert save(client, make_turns(f"message {n}", f"answer {n}")) == {"accepted": True}
        threading.Timer(0.1, release.set).start()
    monkeypatch.undo()
    assert len(stored_texts(make_memory(tmp_path))) == 10


def test_nothing_is_recalled_or_stored_where_the_settings_say_so(memory: Memory) -> None:
    memory.add("I like tea", **ANA)
    with client_of(memory) as client:
        client.put("/settings", params=ANA, json={"recall": False, "save": False})
        answer = recall(client, "Do I like tea?")
        assert (answer["block"], answer["steps"], answer["results"]) == ("", [], [])
        assert "failed" not in answer
        assert post(client, "/context", {**ANA, "query": "tea"}) == {"context": ""}
        assert save(client, make_turns("I like cake")) == {"accepted": False}
        assert save(client, make_turns("I like cake"), user_id="bob") == {"accepted": True}
    assert stored_texts(memory) == ["I like tea"]
    assert stored_texts(memory, user_id="bob") == ["I like cake"]


def test_a_chat_whose_settings_are_read_too_late_for_the_answer_is_not_stored_either(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SAVED_SECONDS", 0.0)
    with client_of(memory) as client:
        client.put("/settings", params=ANA, json={"save": False})
        save(client, make_turns("I like tea"))
    assert stored_texts(memory) == []


def test_a_block_is_marked_as_data(memory: Memory, client: TestClient) -> None:
    memory.add("I like tea", **ANA)
    assert recall(client, "Do I like tea?")["block"].startswith(context.OPEN)
