"""The memory proxy: what is added to a chat, whose memories it is, what is left alone, and what is stored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.service import client_of, headers
from support.waiting import wait_until

from graphmem import Memory
from graphmem.service.proxy.answers import WaitingAnswers
from graphmem.testing import ModelEndpoint, behaviours
from graphmem.testing.behaviours import Behaviour

FACT = "I am allergic to seafood."
QUESTION = "Am I allergic to seafood?"
CHAT = "/v1/chat/completions"
KEY = "key-of-the-endpoint"
Message = dict[str, Any]


@contextmanager
def proxied(
    memory: Memory,
    upstream: ModelEndpoint,
    role: str | None = "user",
    sent: Mapping[str, str] | None = None,
    **proxy: Any,
) -> Iterator[TestClient]:
    """A client of a proxy in front of an endpoint, by default with a key of the user "ana"."""
    settings = {"upstream_url": upstream.url, "upstream_key": KEY, **proxy}
    with client_of(memory, role=role, proxy=settings) as client:
        client.headers.update(sent or {})
        yield client


@pytest.fixture
def upstream() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(default="I see.") as endpoint:
        yield endpoint


@pytest.fixture
def client(memory: Memory, upstream: ModelEndpoint) -> Iterator[TestClient]:
    memory.add(FACT, user_id="ana")
    with proxied(memory, upstream) as client:
        yield client


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def ask(client: TestClient, messages: list[Message] | str = QUESTION, **more: Any) -> Any:
    """Sends a chat; `headers` in `more` are those of the request, the rest is of the body."""
    sent = more.pop("headers", {})
    messages = [user(messages)] if isinstance(messages, str) else messages
    return client.post(CHAT, json={"model": "m", "messages": messages, **more}, headers=sent)


def forwarded(upstream: ModelEndpoint) -> list[Message]:
    """The messages that the endpoint got last."""
    messages: list[Message] = upstream.requests[-1].body["messages"]
    return messages


def stored(memory: Memory, user_id: str = "ana") -> list[str]:
    """The texts of a user's memories, oldest first."""
    return [one["memory"] for one in memory.get_all(user_id=user_id)["results"]][::-1]


def wait_until_stored(memory: Memory, *texts: str, user_id: str = "ana") -> None:
    """Waits until these are a user's memories, and no others."""
    wait_until(lambda: sorted(stored(memory, user_id)) == sorted(texts))


# --- what is added ----------------------------------------------------------------------------------------------------


def test_memories_stand_at_the_end_of_the_system_message(client: TestClient, upstream: ModelEndpoint) -> None:
    answer = ask(client, [{"role": "system", "content": "Be nice."}, user(QUESTION)])
    assert answer.json()["choices"][0]["message"]["content"] == "I see."
    assert answer.headers["x-graphmem"] == "on; memories=1"
    system, question = forwarded(upstream)
    assert system["content"].startswith("Be nice.\n\n<memories>")
    assert FACT in system["content"]
    assert question == user(QUESTION)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "developer", "content": "Be nice."}, ["Be nice.\n\n{}"]),
        ({"role": "system", "content": [{"type": "text", "text": "Be nice."}]}, ["Be nice.", "{}"]),
        ({"role": "system", "content": ""}, ["{}"]),
    ],
)
def test_each_form_of_instructions_takes_them(
    client: TestClient, upstream: ModelEndpoint, message: Message, expected: list[str]
) -> None:
    ask(client, [message, user(QUESTION)])
    content = forwarded(upstream)[0]["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    block = texts[-1][texts[-1].index("<memories>") :]
    assert texts == [text.format(block) for text in expected]


def test_without_instructions_they_are_a_system_message_in_front(client: TestClient, upstream: ModelEndpoint) -> None:
    ask(client)
    assert [message["role"] for message in forwarded(upstream)] == ["system", "user"]


def test_they_can_stand_in_front_of_the_last_user_message(memory: Memory, upstream: ModelEndpoint) -> None:
    memory.add(FACT, user_id="ana")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with proxied(memory, upstream, inject="user") as client:
        ask(client, [{"role": "system", "content": "Be nice."}, user(QUESTION)])
        assert forwarded(upstream)[0]["content"] == "Be nice."
        assert forwarded(upstream)[1]["content"].endswith(f"</memories>\n\n{QUESTION}")
        ask(client, [{"role": "user", "content": [{"type": "text", "text": QUESTION}, image]}])
        block, *rest = forwarded(upstream)[0]["content"]
        assert FACT in block["text"]
        assert rest == [{"type": "text", "text": QUESTION}, image]


def test_nothing_else_of_a_request_changes(client: TestClient, upstream: ModelEndpoint) -> None:
    more = {
        "temperature": 0.30000000000000004, "seed": 10**20, "tools": [{"type": "function", "function": {"name": "f"}}],
        "unknown": {"é": [None, True]}, "stop": ["\n"],
    }  # fmt: skip
    ask(client, **more)
    sent = dict(upstream.requests[-1].body)
    assert sent.pop("messages")[0]["role"] == "system"
    assert sent == {"model": "m", **more}


def test_a_turn_with_tools_keeps_its_block(client: TestClient, memory: Memory, upstream: ModelEndpoint) -> None:
    ask(client)
    block = forwarded(upstream)[0]
    memory.add("I am also allergic to nuts.", user_id="ana")
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
    answer = ask(client, [user(QUESTION), called, {"role": "tool", "tool_call_id": "1", "content": "42"}])
    assert answer.headers["x-graphmem"] == "on; memories=reused"
    assert forwarded(upstream)[0] == block
    ask(client)
    assert "nuts" in forwarded(upstream)[0]["content"]


# --- whose memories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "members"),
    [
        ({"X-Graphmem-User": "ana", "X-OpenWebUI-User-Id": "bob"}, {"user": "bob"}),
        ({"X-OpenWebUI-User-Id": "ana"}, {"user": "bob"}),
        ({}, {"user": "ana", "safety_identifier": "bob"}),
        ({}, {"safety_identifier": "ana"}),
    ],
)
def test_an_application_names_the_user(
    memory: Memory, upstream: ModelEndpoint, sent: dict[str, str], members: dict[str, str]
) -> None:
    memory.add(FACT, user_id="ana")
    with proxied(memory, upstream, "app") as client:
        assert ask(client, headers=sent, **members).headers["x-graphmem"] == "on; memories=1"
        assert FACT in str(forwarded(upstream))
        wait_until_stored(memory, FACT, QUESTION)
        assert stored(memory, "bob") == []


def test_a_users_key_has_that_users_memories(client: TestClient, memory: Memory, upstream: ModelEndpoint) -> None:
    ask(client, user="bob", headers={"X-OpenWebUI-User-Id": "bob"})
    assert FACT in str(forwarded(upstream))
    refused = ask(client, headers={"X-Graphmem-User": "bob"})
    assert refused.status_code == 403
    assert len(upstream.requests) == 1
    wait_until_stored(memory, FACT, QUESTION)


def test_a_user_is_named_in_any_script(memory: Memory, upstream: ModelEndpoint) -> None:
    memory.add(FACT, user_id="小雨")
    with proxied(memory, upstream, "app") as client:
        answer = ask(client, headers={"X-Graphmem-User": "小雨".encode()})
        assert answer.headers["x-graphmem"] == "on; memories=1"


def test_an_agent_has_memories_of_its_own(memory: Memory, upstream: ModelEndpoint) -> None:
    memory.add(FACT, user_id="ana", agent_id="maid")
    with proxied(memory, upstream) as client:
        assert ask(client, headers={"X-Graphmem-Agent": "maid"}).headers["x-graphmem"] == "on; memories=1"
        assert ask(client, headers={"X-Graphmem-Agent": "cook"}).headers["x-graphmem"] == "on; memories=0"


@pytest.mark.parametrize("name", [None, "", "x" * 100_000, "a\x00b", "*"])
def test_without_a_usable_user_there_is_no_memory(memory: Memory, upstream: ModelEndpoint, name: str | None) -> None:
    with proxied(memory, upstream, "app") as client:
        answer = ask(client, user=name)
        assert answer.status_code == 200
        assert answer.headers["x-graphmem"] == f"off; {'unusable-user' if name else 'no-user'}"
        assert forwarded(upstream) == [user(QUESTION)]


def test_the_default_user_is_that_of_an_admin(memory: Memory, upstream: ModelEndpoint) -> None:
    memory.add(FACT, user_id="ana")
    settings = {"proxy": {"upstream_url": upstream.url}, "default_user": "ana"}
    with client_of(memory, role=None, needs_key=False, **settings) as client:
        assert ask(client).headers["x-graphmem"] == "on; memories=1"


def test_a_key_is_needed_and_the_endpoint_does_not_see_it(
    client: TestClient, memory: Memory, upstream: ModelEndpoint
) -> None:
    ask(client, headers={"Cookie": "a=b", "OpenAI-Organization": "org"})
    sent = upstream.requests[-1].headers
    assert sent["authorization"] == f"Bearer {KEY}"
    assert sent["openai-organization"] == "org"
    assert not {"x-api-key", "cookie"} & set(sent)
    assert "gm_" not in str(sent)
    assert ask(client, headers={"X-API-Key": "wrong"}).status_code == 401
    assert ask(client, headers=headers(memory, "metrics")).status_code == 403
    assert len(upstream.requests) == 1


def test_clients_can_keep_the_endpoints_key(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream, forward_authorization=True) as client:
        ask(client, headers={"Authorization": "Bearer of-the-client"})
        assert upstream.requests[-1].headers["authorization"] == "Bearer of-the-client"
        ask(client)
        assert "authorization" not in upstream.requests[-1].headers
        # Where it is not sent on, it would be a second key of the service.
        assert client.get("/memories", headers={"Authorization": "Bearer of-the-client"}).status_code == 400


def test_the_services_keys_are_never_sent_on(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream, forward_authorization=True) as client:
        ours = client.headers["X-API-Key"]
        ask(client, headers={"Authorization": "Bearer theirs", "api-key": ours, "x-goog-api-key": f"key={ours}"})
        assert "gm_" not in str(upstream.requests[-1].headers)
        assert ask(client, headers={"Authorization": f"Token {ours}"}).status_code == 401
        del client.headers["X-API-Key"]
        refused = ask(client, headers={"Authorization": f"Bearer {ours}"})
        assert (refused.status_code, "X-API-Key" in refused.json()["detail"]) == (401, True)
        assert len(upstream.requests) == 1
    with client_of(
        memory, None, needs_key=False, proxy={"upstream_url": upstream.url, "forward_authorization": True}
    ) as client:
        ask(client, headers={"Authorization": "Bearer theirs"})
        assert upstream.requests[-1].headers["authorization"] == "Bearer theirs"


def test_nothing_of_one_user_reaches_the_endpoint_with_another_ones_request(
    memory: Memory, upstream: ModelEndpoint
) -> None:
    upstream.then(Behaviour("I see.", headers={"Set-Cookie": "sid=of-ana; Path=/"}))
    sent = {
        "X-Graphmem-User": "ana",
        "X-OpenWebUI-User-Email": "ana@x.org",
        "X-Forwarded-For": "1.2.3.4",
        "X-Who": "ana",
    }
    with proxied(memory, upstream, "app", user_headers=["X-Who"]) as client:
        assert "set-cookie" not in ask(client, headers=sent).headers
        assert "ana" not in str(upstream.requests[-1].headers)
        ask(client, headers={"X-Graphmem-User": "bob"})
        assert not {"cookie", "x-forwarded-for"} & set(upstream.requests[-1].headers)


def test_a_password_in_the_endpoints_url_is_its_only_key(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream, upstream_url=upstream.url.replace("://", "://me:secret@")) as client:
        assert ask(client).status_code == 200
        assert upstream.requests[-1].headers["authorization"] == "Basic bWU6c2VjcmV0"


def test_a_redirect_of_the_endpoint_does_not_reach_the_client(client: TestClient, upstream: ModelEndpoint) -> None:
    upstream.then(Behaviour("", status=307, headers={"Location": "http://elsewhere.example/v1"}))
    answer = client.post(CHAT, json={"model": "m", "messages": [user(QUESTION)]}, follow_redirects=False)
    assert answer.status_code == 502
    assert "location" not in answer.headers


# --- what is left alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"headers": {"X-Graphmem": "off"}}, "requested"),
        ({"n": 2}, "several-answers"),
        ({"messages": [{"role": "system", "content": "Go."}]}, "no-question"),
        ({"messages": "### Task:\nGenerate a concise, 3-5 word title with an emoji."}, "skipped"),
        ({"messages": "### Task:\nGenerate 1-3 broad tags."}, "skipped"),
        ({"messages": "Analyze this conversation and provide:\n1. The detected language"}, "skipped"),
        ({"messages": "Please write a short, five-word title for this conversation."}, "skipped"),
    ],
)
def test_such_requests_have_no_memory(
    client: TestClient, memory: Memory, upstream: ModelEndpoint, request_: dict[str, Any], reason: str
) -> None:
    assert ask(client, **request_).headers["x-graphmem"] == f"off; {reason}"
    assert "<memories>" not in str(forwarded(upstream))
    ask(client, "I like tea.")
    wait_until_stored(memory, FACT, "I like tea.")


def test_a_suffix_of_the_models_name_turns_memory_off(client: TestClient, upstream: ModelEndpoint) -> None:
    assert ask(client, model="gpt:nomemory").headers["x-graphmem"] == "off; model"
    assert upstream.requests[-1].body == {"model": "gpt", "messages": [user(QUESTION)]}


@pytest.mark.parametrize("body", [b"not JSON", b"[1]", b'{"messages": "x"}', b'{"messages": [1, 2]}', b"\xff"])
def test_what_is_no_chat_goes_to_the_endpoint_as_it_is(
    client: TestClient, upstream: ModelEndpoint, body: bytes
) -> None:
    answer = client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert answer.headers["x-graphmem"] == "off; no-chat"
    assert len(upstream.requests) == 1


def test_embeddings_and_models_pass_through(client: TestClient, upstream: ModelEndpoint) -> None:
    answer = client.post("/v1/embeddings", json={"model": "e", "input": ["tea"]})
    assert answer.json()["data"][0]["object"] == "embedding"
    assert "x-graphmem" not in answer.headers
    assert client.get("/v1/models").json()["data"][0]["id"] == "test-model"
    assert client.get("/v1/models").json()["data"][0]["id"] == "test-model"
    assert [request.path for request in upstream.requests] == ["/v1/embeddings", "/v1/models"]


@pytest.mark.parametrize(
    "behaviour", [behaviours.failed(401), behaviours.rate_limited(7), behaviours.failed(500), behaviours.failed(400)]
)
def test_errors_of_the_endpoint_come_as_they_are(
    client: TestClient, upstream: ModelEndpoint, behaviour: behaviours.Behaviour
) -> None:
    upstream.then(behaviour)
    answer = ask(client)
    assert answer.status_code == behaviour.status
    assert answer.json() == {"error": behaviour.error}
    assert answer.headers.get("retry-after") == behaviour.headers.get("Retry-After")


def test_an_endpoint_out_of_reach_is_an_error_in_openais_form(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream) as client:
        upstream.close()
        for answer in (ask(client), client.get("/v1/models"), client.post("/v1/embeddings", json={})):
            assert answer.status_code == 502
            assert answer.json()["error"]["code"] == "upstream_unreachable"
    wait_until_stored(memory, QUESTION)


def test_without_an_endpoint_the_error_names_the_setting(memory: Memory) -> None:
    with client_of(memory) as client:
        answer = client.post(CHAT, json={"messages": [user(QUESTION)]})
        assert answer.status_code == 409
        assert "serve.proxy.upstream_url" in answer.json()["detail"]


@pytest.mark.parametrize("key", ["wrong", None])
def test_errors_of_the_service_are_also_in_openais_form(client: TestClient, key: str | None) -> None:
    del client.headers["X-API-Key"]
    answer = ask(client, headers={} if key is None else {"Authorization": f"Bearer {key}"})
    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == answer.json()["detail"]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_changed_setting_is_in_force_at_the_next_request(
    client: TestClient, memory: Memory, upstream: ModelEndpoint
) -> None:
    def change(**values: Any) -> None:
        assert client.put("/settings", json=values).status_code == 200

    change(inject="user")
    ask(client, "Am I allergic?")
    assert [message["role"] for message in forwarded(upstream)] == ["user"]
    change(recall=False)
    assert ask(client, "Am I really allergic?").headers["x-graphmem"] == "on; recall=off"
    change(save=False)
    ask(client, "Never stored.")
    change(save=True)
    ask(client, "Stored again.")
    wait_until_stored(memory, FACT, "Am I allergic?", "Am I really allergic?", "Stored again.")


def test_the_configuration_has_the_defaults_of_settings(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream, top_k=2, inject="user", save=False) as client:
        settings = client.get("/settings").json()["settings"]
        assert (settings["top_k"], settings["inject"], settings["save"]) == (2, "user", False)


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_the_users_words_are_stored_at_once_and_an_answer_when_the_client_keeps_it(
    client: TestClient, memory: Memory, upstream: ModelEndpoint
) -> None:
    ask(client, "I like tea.")
    wait_until_stored(memory, FACT, "I like tea.")
    ask(client, [user("I like tea."), assistant("I see."), user("And cake.")])
    wait_until_stored(memory, FACT, "I like tea.", "I see.", "And cake.")


def test_an_answer_that_was_replaced_is_never_stored(memory: Memory, upstream: ModelEndpoint) -> None:
    upstream.then("The first answer.", "The second answer.", "Fine.")
    with proxied(memory, upstream) as client:
        ask(client, "I like tea.")
        ask(client, "I like tea.")
        ask(client, [user("I like tea."), assistant("The second answer."), user("And cake.")])
        wait_until_stored(memory, "I like tea.", "The second answer.", "And cake.")
    assert sorted(stored(memory)) == sorted(["I like tea.", "The second answer.", "And cake.", "Fine."])


def test_the_last_answer_is_stored_when_nothing_replaced_it(memory: Memory, upstream: ModelEndpoint) -> None:
    with proxied(memory, upstream, settle_seconds=0.05) as client:
        ask(client, "I like tea.")
        wait_until_stored(memory, "I like tea.", "I see.")
        # The client sends back what was stored so.
        ask(client, [user("I like tea."), assistant("I see."), user("And cake.")])
        wait_until(lambda: len(stored(memory)) == 4)
    assert sorted(stored(memory)) == ["And cake.", "I like tea.", "I see.", "I see."]


def test_neither_reasoning_nor_the_block_nor_instructions_are_stored(memory: Memory, upstream: ModelEndpoint) -> None:
    memory.add(FACT, user_id="ana")
    upstream.then("<think>They ask for tea.</think>\n\nTea it is.")
    with proxied(memory, upstream, inject="user") as client:
        ask(client, [{"role": "system", "content": "Be nice."}, user(QUESTION)])
        sent_back = forwarded(upstream)[1]
        ask(client, [sent_back, assistant("<think>They ask for tea.</think>\n\nTea it is."), user("Thanks a lot.")])
    assert sorted(stored(memory)) == sorted([FACT, QUESTION, "Tea it is.", "Thanks a lot.", "I see."])


def test_only_the_last_rounds_of_a_long_chat_are_stored(client: TestClient, memory: Memory) -> None:
    chat = [turn for n in range(5000) for turn in (user(f"Word {n}."), assistant(f"Answer {n}."))]
    assert ask(client, [*chat, user("The end.")]).status_code == 200
    wait_until_stored(memory, FACT, "Word 4999.", "Answer 4999.", "The end.")


def test_a_chat_whose_beginning_was_cut_off_is_not_stored_twice(client: TestClient, memory: Memory) -> None:
    chat = [user("I like tea."), assistant("I see."), user("And cake."), assistant("Good."), user("And pie.")]
    ask(client, chat)
    wait_until_stored(memory, FACT, "And cake.", "Good.", "And pie.")
    ask(client, [*chat[2:], assistant("Sweet."), user("And jam.")])
    wait_until_stored(memory, FACT, "And cake.", "Good.", "And pie.", "Sweet.", "And jam.")


@pytest.mark.parametrize("last", [assistant("Sure:"), {"role": "system", "content": "[Stay in character]"}])
def test_words_are_stored_whatever_message_stands_behind_them(
    memory: Memory, upstream: ModelEndpoint, last: Message
) -> None:
    chat: list[Message] = []
    with proxied(memory, upstream) as client:
        for n in range(4):
            chat.append(user(f"Word {n}."))
            assert ask(client, [*chat, last]).headers["x-graphmem"].startswith("on; ")
            chat.append(assistant(f"Answer {n}."))
    words = [f"Word {n}." for n in range(4)]
    assert [text for text in stored(memory) if text.startswith("Word")] == words
    assert {f"Answer {n}." for n in range(3)} <= set(stored(memory))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("settle_seconds", [0.01, 600])
def test_a_client_that_sends_the_end_of_a_chat_gets_nothing_stored_twice(
    memory: Memory, upstream: ModelEndpoint, size: int, settle_seconds: float
) -> None:
    upstream.then(*[f"Answer {n}." for n in range(6)])
    chat: list[Message] = []
    with proxied(memory, upstream, settle_seconds=settle_seconds) as client:
        for n in range(6):
            chat.append(user(f"Word {n}."))
            ask(client, chat[-size:])
            chat.append(assistant(f"Answer {n}."))
            if settle_seconds < 1:
                wait_until(lambda n=n: f"Answer {n}." in stored(memory))
    assert sorted(stored(memory)) == sorted(message["content"] for message in chat)


def test_an_answer_that_waits_later_than_it_counts_is_stored_all_the_same(
    memory: Memory, upstream: ModelEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored before it may take longer than the time after which it counts."""
    resolve = WaitingAnswers.resolve

    def slow(*args: Any) -> None:
        time.sleep(0.3)
        resolve(*args)

    monkeypatch.setattr(WaitingAnswers, "resolve", slow)
    upstream.then("Answer.")
    with proxied(memory, upstream, settle_seconds=0.01) as client:
        ask(client, [user("Word.")])
        wait_until(lambda: "Answer." in stored(memory))


@pytest.mark.parametrize("settle_seconds", [0.01, 600])
def test_two_chats_at_a_time_are_each_stored_once(
    memory: Memory, upstream: ModelEndpoint, settle_seconds: float
) -> None:
    chats: dict[str, list[Message]] = {"one": [], "two": []}
    with proxied(memory, upstream, settle_seconds=settle_seconds) as client:
        for n in range(4):
            for name, chat in chats.items():
                chat.append(user(f"Word {n} of {name}."))
                upstream.then(f"Answer {n} of {name}.")
                ask(client, chat, headers={"X-Graphmem-Session": name})
                chat.append(assistant(f"Answer {n} of {name}."))
                if settle_seconds < 1:
                    wait_until(lambda text=chat[-1]["content"]: text in stored(memory))
    expected = sorted(message["content"] for chat in chats.values() for message in chat)
    assert sorted(stored(memory)) == expected


def test_two_chats_may_begin_with_the_same_words(client: TestClient, memory: Memory) -> None:
    for session in ("one", "two"):
        ask(client, "I had pizza today.", headers={"X-Graphmem-Session": session})
    wait_until_stored(memory, FACT, "I had pizza today.", "I had pizza today.")
