"""The language model through the real SDK and HTTP, against a server with every known fault."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from support.exception_text import full_error_text
from support.fakes import fake_models
from support.log_guard import listening
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.errors import (
    ConfigError,
    LLMError,
    LLMRefused,
    LLMRejected,
    LLMTruncated,
    LLMUnavailable,
    LLMUnusable,
)
from graphmem.models.http import resolve_endpoint
from graphmem.models.openai_chat import OpenaiChatModel, Prices
from graphmem.plugins import LanguageModel, Prompt, Usage
from graphmem.testing import Behaviour, ModelEndpoint, behaviours
from graphmem.wiring import open_backends

SECRET = "hunter2-Zq7"
TEXT = "I drink matcha"
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}
PROMPT = Prompt("facts", "List the facts.", TEXT, SCHEMA)
FACTS = {"facts": ["drinks matcha", 'it\'s "hot"']}
CONTENT = json.dumps(FACTS)
names = (f"model-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def _short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    import openai._base_client

    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[ModelEndpoint, OpenaiChatModel]]]:
    """`serve(*script, refuses=(), **model)`: an endpoint and a model of a new name there."""
    resources: list[Any] = []

    def start(*script: Behaviour | str, refuses: Any = (), cached: int = 0, **config: Any) -> Any:
        endpoint = ModelEndpoint(script, default=CONTENT, refuses=refuses, cached_tokens=cached).__enter__()
        model = OpenaiChatModel(next(names), base_url=endpoint.url, api_key=SECRET, **config)
        resources.extend((model, endpoint))
        return endpoint, model

    yield start
    for one in resources:
        one.close()


def error_inside_200(code: int | str, message: str = TEXT) -> Behaviour:
    """An error with status 200, as OpenRouter sends those of a model's provider."""
    return Behaviour(status=200, error={"message": message, "code": code})


def forms(endpoint: ModelEndpoint) -> list[str]:
    return [request.body.get("response_format", {}).get("type", "text") for request in endpoint.requests]


def check_failure(model: LanguageModel, kind: type[LLMError], prompt: Prompt = PROMPT) -> LLMError:
    with pytest.raises(LLMError) as caught:
        model.answer(prompt)
    error = caught.value
    assert type(error) is kind
    assert isinstance(error.usage, Usage)
    error_text = full_error_text(error) + full_error_text(error.__context__)
    for private in (SECRET, TEXT, "List the facts", "matcha", "127.0.0.1"):
        assert private not in error_text, error_text
    return error


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_prompt_is_one_request(serve: Any) -> None:
    endpoint, model = serve(cached=10, prices=Prices(1000, 5000, 100))
    reply = model.answer(PROMPT)
    assert reply.value == FACTS
    (request,) = endpoint.requests
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.body == {
        "model": model.name,
        "messages": [{"role": "system", "content": "List the facts."}, {"role": "user", "content": TEXT}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "facts", "strict": True, "schema": SCHEMA}},
    }
    usage = reply.usage
    prompt_tokens, completion_tokens = len(json.dumps(request.body["messages"])) // 4, -(-len(CONTENT) // 4)
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (
        1, prompt_tokens, completion_tokens, 10,
    )  # fmt: skip
    assert usage.cost == pytest.approx((1000 * (prompt_tokens - 10) + 100 * 10 + 5000 * completion_tokens) / 1e6)
    assert 0 < usage.seconds < TIMEOUT


def test_impossible_token_counts_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    token_counts = {
        "prompt_tokens": 10**30,
        "completion_tokens": 2**63,
        "prompt_tokens_details": {"cached_tokens": 10**40},
    }
    body = {"choices": [{"message": {"content": CONTENT}}], "usage": token_counts}
    with ModelEndpoint() as endpoint:
        monkeypatch.setattr(endpoint, "respond", lambda request: (Behaviour(), json.dumps(body).encode()))
        model = OpenaiChatModel(next(names), base_url=endpoint.url, api_key=SECRET)
        usage = model.answer(PROMPT).usage
        assert usage.prompt_tokens == usage.completion_tokens == usage.cached_tokens == 10**9
        model.close()


def test_without_a_schema_the_answer_is_text(serve: Any) -> None:
    endpoint, model = serve("Plain {words", temperature=0.5, max_tokens=7)
    assert model.answer(Prompt("summary", "", TEXT)).value == "Plain {words"
    assert endpoint.requests[0].body == {
        "model": model.name, "messages": [{"role": "user", "content": TEXT}], "temperature": 0.5, "max_tokens": 7,
    }  # fmt: skip


def test_lone_surrogates_in_a_prompt_are_replaced(serve: Any) -> None:
    _, model = serve()
    assert model.answer(Prompt("a b/ü" * 30, "x\ud800", "y\udfff", SCHEMA)).value == FACTS


# --- response formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (("json_schema",), ["json_schema", "json_object"]),
        (("json_object",), ["json_schema"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", "text"]),
    ],
)
def test_a_refused_response_format_is_replaced_and_remembered(
    serve: Any, refuses: tuple[str, ...], expected: list[str]
) -> None:
    endpoint, model = serve(refuses=refuses)
    reply = model.answer(PROMPT)
    assert (reply.value, reply.usage.calls) == (FACTS, len(expected))
    assert forms(endpoint) == expected
    again = OpenaiChatModel(model.name, base_url=endpoint.url)
    assert again.answer(PROMPT).usage.calls == 1
    assert forms(endpoint)[len(expected) :] == expected[-1:]
    system = endpoint.requests[-1].body["messages"][0]["content"]
    assert system.startswith("List the facts.")
    assert ("JSON Schema" in system and '"additionalProperties":false' in system) == (expected[-1] != "json_schema")
    again.close()


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize(
    "message",
    [
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "This model does not support response format `json_schema`.",
        "Failed to compile grammar: x",
        "No endpoints found that can handle structured outputs",
    ],
)
def test_refusals_of_a_response_format_are_recognised(serve: Any, status: int, message: str) -> None:
    endpoint, model = serve(behaviours.failed(status, message))
    assert model.answer(PROMPT).value == FACTS
    assert forms(endpoint) == ["json_schema", "json_object"]


def test_a_server_that_ignores_the_schema_gets_it_in_the_prompt(serve: Any) -> None:
    endpoint, model = serve("I think you like tea.", behaviours.fenced(), '{"wrong": 1}', CONTENT)
    assert model.answer(PROMPT).value == FACTS
    assert forms(endpoint) == ["json_schema", "json_object"]
    assert model.answer(PROMPT).value == {"wrong": 1}
    assert forms(endpoint)[2:] == ["json_object"]


def test_a_response_format_that_did_not_help_is_not_remembered(serve: Any) -> None:
    refusal = behaviours.failed(400, "bad response_format")
    endpoint, model = serve(refusal, refusal, refusal)
    assert check_failure(model, LLMRejected).usage.calls == 3
    assert forms(endpoint) == ["json_schema", "json_object", "text"]
    assert model.answer(PROMPT).usage.calls == 1
    assert forms(endpoint)[-1] == "json_schema"


def test_max_tokens_is_renamed_for_models_that_need_it(serve: Any) -> None:
    endpoint, model = serve(refuses=("max_tokens", "json_schema"), max_tokens=9)
    assert model.answer(PROMPT).usage.calls == 3
    assert [("max_tokens" in one.body, one.body.get("max_completion_tokens")) for one in endpoint.requests] == [
        (True, None), (True, None), (False, 9),
    ]  # fmt: skip
    assert model.answer(PROMPT).usage.calls == 1


@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_a_refused_parameter_is_named(serve: Any, name: str) -> None:
    endpoint, model = serve(refuses=(name,), **{name: 0.2})
    assert f"llm.config.{name}" in str(check_failure(model, LLMRejected))
    assert [request.body[name] for request in endpoint.requests] == [0.2]


def test_a_refused_limit_is_named(serve: Any) -> None:
    too_many = behaviours.failed(400, "max_tokens is too large: 9. This model supports at most 8", param="max_tokens")
    _, model = serve(too_many, max_tokens=9)
    assert "llm.config.max_tokens" in str(check_failure(model, LLMRejected))


# --- odd answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [
        behaviours.well(), behaviours.fenced(), behaviours.surrounded(), behaviours.trailing_commas(),
        behaviours.single_quotes(), behaviours.slow(0.05),
    ],
)  # fmt: skip
def test_answers_that_are_parsed_from_one_request(serve: Any, behaviour: Behaviour) -> None:
    endpoint, model = serve(behaviour)
    reply = model.answer(PROMPT)
    assert (reply.value, reply.usage.calls, len(endpoint.requests)) == (FACTS, 1, 1)


@pytest.mark.parametrize(
    "message",
    [
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": '{"facts": ["Wrong"]}'}]},
                {"type": "text", "text": CONTENT[:9]},
                {"type": "output_text", "text": CONTENT[9:]},
                {"type": ["odd"]},
                7,
            ]
        },
        {"content": [CONTENT]},
        {"content": None, "tool_calls": [{"type": "function", "function": {"name": "facts", "arguments": CONTENT}}]},
        {"content": json.dumps({"name": "facts", "arguments": FACTS})},
        {"content": json.dumps({"name": "facts", "arguments": CONTENT})},
        {"content": json.dumps({"name": "facts", "parameters": FACTS})},
        {"content": json.dumps({"type": "function", "function": {"name": "facts", "arguments": FACTS}})},
        {"content": json.dumps({"FACTS": FACTS["facts"]})},
    ],
    ids=[
        "parts",
        "parts that are texts",
        "tool call",
        "tool call as text",
        "arguments as text",
        "parameters",
        "tool call as text with its type",
        "case of names",
    ],  # fmt: skip
)
def test_answers_in_other_forms_are_parsed_from_one_request(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    with ModelEndpoint() as endpoint:
        monkeypatch.setattr(endpoint, "respond", lambda request: (Behaviour(), body))
        model = OpenaiChatModel(next(names), base_url=endpoint.url, api_key=SECRET)
        reply = model.answer(PROMPT)
        assert (reply.value, reply.usage.calls) == (FACTS, 1)
        model.close()


def test_values_of_wrong_types_are_not_rejected(serve: Any) -> None:
    _, model = serve(behaviours.wrong_types())
    assert model.answer(PROMPT).value == {"facts": "several"}


def test_an_endless_answer_is_unusable(serve: Any) -> None:
    endpoint, model = serve(f'{{"facts": ["{"a" * 500_000}"]}}')
    assert "500,000" in str(check_failure(model, LLMUnusable))
    assert len(endpoint.requests) == 1  # another response format would not make it shorter


def test_a_hundred_facts_in_another_language(serve: Any) -> None:
    many = {"facts": [f"事实 {number}" for number in range(100)]}
    _, model = serve(json.dumps(many, ensure_ascii=False))
    assert model.answer(PROMPT).value == many


@pytest.mark.parametrize(
    ("behaviour", "kind", "phrase", "requests"),
    [
        (behaviours.truncated(), LLMTruncated, "max_tokens", 1),
        (behaviours.length(), LLMTruncated, "max_tokens", 1),
        (behaviours.empty_content(), LLMUnusable, "empty", 1),
        (behaviours.empty_body(), LLMUnusable, "openai_base_url", 1),
        (behaviours.refused(f"no {SECRET}"), LLMRefused, "declined", 1),
        (behaviours.filtered(), LLMRefused, "filter", 1),
        (behaviours.failed(400, TEXT, code="content_filter"), LLMRefused, "filter", 1),
        (behaviours.failed(401, f"Incorrect API key provided: {SECRET}"), LLMRejected, "OPENAI_API_KEY", 1),
        (behaviours.failed(403, SECRET), LLMRejected, "rights", 1),
        (behaviours.failed(404, f"no model for {TEXT}"), LLMRejected, "openai_base_url", 1),
        (behaviours.failed(400, TEXT, code="context_length_exceeded"), LLMRejected, "too large", 1),
        (behaviours.failed(413, TEXT), LLMRejected, "too large", 1),
        (behaviours.failed(400, TEXT), LLMRejected, "HTTP 400", 1),
        (behaviours.rate_limited(0.01), LLMUnavailable, "less often", 3),
        (behaviours.failed(429, "no", code="insufficient_quota"), LLMUnavailable, "credit", 3),
        (behaviours.failed(500, SECRET), LLMUnavailable, "HTTP 500", 3),
        (behaviours.failed(503, TEXT), LLMUnavailable, "HTTP 503", 3),
        (behaviours.dropped(), LLMUnavailable, "cannot be reached", 3),
        (behaviours.silent(), LLMUnavailable, "llm.config.timeout", 3),
    ],
)
def test_failures_by_error(serve: Any, behaviour: Behaviour, kind: type[LLMError], phrase: str, requests: int) -> None:
    endpoint, model = serve(behaviour, behaviour, behaviour, timeout=0.1 if behaviour.end == "silent" else 60)
    error = check_failure(model, kind)
    assert phrase in str(error)
    wait_until(lambda: len(endpoint.requests) >= requests)  # a request that timed out may arrive late
    assert (len(endpoint.requests), error.usage.calls) == (requests, requests)
    has_answer = behaviour.status == 200 and behaviour.end == "whole"
    assert (error.usage.prompt_tokens > 0) == has_answer
    assert error.usage.seconds > 0


@pytest.mark.parametrize(
    "behaviour", [behaviours.rate_limited(0.01), behaviours.failed(500), behaviours.dropped(), behaviours.failed(408)]
)
def test_transient_failures_are_retried(serve: Any, behaviour: Behaviour) -> None:
    endpoint, model = serve(behaviour)
    reply = model.answer(PROMPT)
    assert (reply.value, reply.usage.calls, len(endpoint.requests)) == (FACTS, 2, 2)


@pytest.mark.parametrize("status", [408, 429, 502, 503])
def test_a_transient_error_inside_an_http_200_is_retried(serve: Any, status: int) -> None:
    endpoint, model = serve(error_inside_200(status))
    reply = model.answer(PROMPT)
    assert (reply.value, reply.usage.calls, len(endpoint.requests)) == (FACTS, 2, 2)


@pytest.mark.parametrize(
    ("behaviour", "kind", "phrase", "requests"),
    [
        (error_inside_200(402), LLMRejected, "credit", 1),
        (error_inside_200(401), LLMRejected, "OPENAI_API_KEY", 1),
        (error_inside_200("context_length_exceeded"), LLMRejected, "too large", 1),
        (error_inside_200("429"), LLMUnavailable, "less often", 3),
        (error_inside_200(502), LLMUnavailable, "HTTP 502", 3),
    ],
)
def test_errors_inside_an_http_200_are_those_of_their_status(
    serve: Any, behaviour: Behaviour, kind: type[LLMError], phrase: str, requests: int
) -> None:
    endpoint, model = serve(behaviour, behaviour, behaviour)
    assert phrase in str(check_failure(model, kind))
    assert len(endpoint.requests) == requests


def test_an_error_of_the_first_choice_inside_an_http_200_is_one_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"code": 502, "message": f"Provider disconnected at {TEXT}"}
    body = {"choices": [{"error": error, "finish_reason": "error", "message": {"content": '{"facts": ["drinks'}}]}
    with ModelEndpoint() as endpoint:
        monkeypatch.setattr(endpoint, "respond", lambda request: (Behaviour(), json.dumps(body).encode()))
        model = OpenaiChatModel(next(names), base_url=endpoint.url, api_key=SECRET)
        assert "HTTP 502" in str(check_failure(model, LLMUnavailable))
        model.close()


def test_a_refused_response_format_inside_an_http_200_is_replaced(serve: Any) -> None:
    endpoint, model = serve(error_inside_200(400, "response_format is not supported"))
    assert model.answer(PROMPT).value == FACTS
    assert forms(endpoint) == ["json_schema", "json_object"]


def test_retry_after_is_honoured(serve: Any) -> None:
    _, model = serve(behaviours.rate_limited(0.2))
    begun = time.monotonic()
    model.answer(PROMPT)
    assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Hello</html>", b"[]", b'"x"', b"{}", b'{"choices": 5}', b'{"choices": [7]}', b'{"choices": []}',
        b'{"choices": [{"message": 1}], "usage": "x"}', b'{"choices": [{"message": {"content": {"a": 1}}}]}',
        b'{"error": {"message": "upstream"}}', b"\xff", b"[" * 100_000,
        b'{"choices": [{"message": {"content": null}}], "usage": {"prompt_tokens": "many", "completion_tokens": -1}}',
    ],
)  # fmt: skip
def test_answers_of_another_form_are_unusable(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelEndpoint() as endpoint:
        monkeypatch.setattr(endpoint, "respond", lambda request: (Behaviour(), body))
        model = OpenaiChatModel(next(names), base_url=endpoint.url, api_key=SECRET)
        error = check_failure(model, LLMUnusable)
        assert error.usage == Usage(1, seconds=error.usage.seconds)
        model.close()


def test_an_unreachable_endpoint() -> None:
    model = OpenaiChatModel("m", base_url="http://127.0.0.1:9/v1")
    assert check_failure(model, LLMUnavailable).usage.calls == 3
    model.close()


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", [behaviours.silent(), behaviours.slow(TIMEOUT)])
def test_a_prompt_with_a_timeout_ends_in_time(serve: Any, behaviour: Behaviour) -> None:
    _, model = serve(behaviour, timeout=2 * TIMEOUT)
    model._connection.client()  # loads the SDK and its certificates before the timeout begins
    error = check_failure(model, LLMUnavailable, Prompt("rewrite", "", TEXT, timeout=0.3))
    assert error.usage.seconds < TIMEOUT


def test_a_prompt_with_a_timeout_is_not_retried(serve: Any) -> None:
    endpoint, model = serve(behaviours.rate_limited(0.01))
    error = check_failure(model, LLMUnavailable, Prompt("rewrite", "", TEXT, timeout=TIMEOUT))
    assert (len(endpoint.requests), error.usage.calls) == (1, 1)


def test_a_prompt_with_a_timeout_ends_during_a_slow_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    from threading import Event, Thread

    enough, over = Event(), Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send_slowly() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    for _ in range(int(TIMEOUT * 50)):
                        connection.sendall(b" ")
                        if enough.wait(0.02):
                            break
                    over.set()

        thread = Thread(target=send_slowly, daemon=True)
        thread.start()
        model = OpenaiChatModel("m", base_url=f"http://127.0.0.1:{server.getsockname()[1]}")
        model._connection.client()
        check_failure(model, LLMUnavailable, Prompt("rewrite", "", TEXT, timeout=0.3))
        assert not over.is_set()  # the server is still sending
        enough.set()
        model.close()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # ends accept() if no request came
        thread.join(TIMEOUT)


def test_a_prompt_with_a_timeout_is_answered(serve: Any) -> None:
    endpoint, model = serve(refuses=("json_schema",))
    assert model.answer(Prompt("facts", "", TEXT, SCHEMA, timeout=TIMEOUT)).value == FACTS
    assert len(endpoint.requests) == 2


# --- endpoint and key ------------------------------------------------------------------------------------------------


def test_url_and_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenaiChatModel("m")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    OpenaiChatModel("m").close()
    with ModelEndpoint(default="hi") as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url + "/")
        for key in (None, "own"):
            model = OpenaiChatModel("m", api_key=key)
            model.answer(Prompt("x", "", "y"))
            model.close()
        monkeypatch.delenv("OPENAI_API_KEY")
        model = OpenaiChatModel("m")
        model.answer(Prompt("x", "", "y"))
        model.close()
        keys = [request.headers["authorization"] for request in endpoint.requests]
        assert keys == [f"Bearer {SECRET}", "Bearer own", "Bearer none"]


def test_the_older_name_of_the_url_counts_only_without_the_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_BASE", "https://older.example/v1")
    older = resolve_endpoint("llm.config", None, None)
    assert (older.url, older.key) == ("https://older.example/v1", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://newer.example/v1")
    assert resolve_endpoint("llm.config", None, None).url == "https://newer.example/v1"
    assert resolve_endpoint("llm.config", None, "https://older.example/v1").key == "none"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(serve: Any, status: int) -> None:
    """A redirect would send the texts to a host that is not configured."""
    with ModelEndpoint(default=CONTENT) as elsewhere:
        there = {"Location": f"{elsewhere.url}/chat/completions?key={SECRET}"}
        endpoint, model = serve(Behaviour(status=status, headers=there))
        error = check_failure(model, LLMRejected)
        assert "llm.config.openai_base_url" in str(error) and str(status) in str(error)
        assert (len(endpoint.requests), elsewhere.requests) == (1, [])


def test_openai_variables_are_not_sent_to_a_configured_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_ORG_ID", SECRET)
    monkeypatch.setenv("OPENAI_PROJECT_ID", SECRET)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"authorization: Bearer {SECRET}\nX-Gateway: {SECRET}")
    with ModelEndpoint([behaviours.failed(401)] * 2, default="hi") as endpoint:

        def send_prompts(**config: Any) -> str:
            model = OpenaiChatModel("m", base_url=endpoint.url, **config)
            try:
                model.answer(Prompt("x", "", "y"))
                model.answer(Prompt("x", "", "y", timeout=TIMEOUT))
            except LLMRejected as error:
                return str(error)
            finally:
                model.close()
            return json.dumps([dict(one.headers) for one in endpoint.requests[-2:]])

        assert "beside its URL (OPENAI_API_KEY is not sent)" in send_prompts()
        assert "OPENAI_API_KEY" in send_prompts(api_key="own")
        assert SECRET not in send_prompts() and send_prompts().count("Bearer none") == 2
        assert SECRET not in send_prompts(api_key="own") and send_prompts(api_key="own").count("Bearer own") == 2
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "GRAPHMEM_LLM__CONFIG__OPENAI_BASE_URL"):
            with monkeypatch.context() as patch:
                patch.setenv(name, f"{endpoint.url}/")
                assert send_prompts().count(f"Bearer {SECRET}") == 2


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://api.openai.com/v1", SECRET),
        ("https://eu.api.openai.com/v1/", SECRET),
        ("http://api.openai.com/v1", "none"),
        ("https://api.openai.com.evil.example/v1", "none"),
        ("https://evil-api.openai.com/v1", "none"),
        ("https://api.openai.com@evil.example/v1", "none"),
    ],
)
def test_the_key_of_the_environment_is_sent_to_openai_only(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert resolve_endpoint("llm.config", None, url).key == key


@pytest.mark.parametrize(
    "url",
    [f"h/{SECRET}", f"ftp://{SECRET}@h/v1", f"http://h/v1?key={SECRET}", f"http://h/v1#{SECRET}", "http://", "http://[h",
     f"http://h:{SECRET}/", "http://h:99999999"],
)  # fmt: skip
def test_invalid_urls(url: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.config\.openai_base_url") as caught:
        OpenaiChatModel("m", base_url=url)
    assert SECRET not in full_error_text(caught.value)


@pytest.mark.parametrize("key", [f"{SECRET}\nx", f"{SECRET}é"])
def test_invalid_keys(key: str) -> None:
    with pytest.raises(ConfigError, match="api_key") as caught:
        OpenaiChatModel("m", api_key=key)
    assert SECRET not in full_error_text(caught.value)


def test_a_password_in_the_url_is_sent_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with (
        ModelEndpoint([behaviours.rate_limited(0.01), "hi"]) as endpoint,
        caplog.at_level(logging.INFO, "httpx2"),
        listening() as listener,
    ):
        url = endpoint.url.replace("://", f"://us%40er:{SECRET}@")
        model = OpenaiChatModel("m", base_url=url)
        assert SECRET not in repr(model) + repr(vars(model))
        model.answer(Prompt("x", "", TEXT))
        model.close()
        assert {one.headers["authorization"] for one in endpoint.requests} == {"Basic dXNAZXI6aHVudGVyMi1acTc="}
        lines = "".join(listener.lines)
        assert "127.0.0.1" not in lines and SECRET not in lines and TEXT not in lines


# --- the rest --------------------------------------------------------------------------------------------------------


def test_several_threads_at_once(serve: Any) -> None:
    endpoint, model = serve(refuses=("json_schema",))
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: model.answer(PROMPT), range(32)))
    assert all(reply.value == FACTS for reply in replies)
    assert sum(reply.usage.calls for reply in replies) == len(endpoint.requests)
    assert forms(endpoint).count("json_object") == 32


def test_a_closed_model_raises(serve: Any) -> None:
    endpoint, model = serve()
    model.answer(PROMPT)
    for _ in range(2):
        model.close()
    assert check_failure(model, LLMUnavailable).usage.calls == 0
    assert len(endpoint.requests) == 1


def test_a_memory_opens_and_closes_it() -> None:
    prices = {"prompt": 1, "completion": 2}
    with ModelEndpoint(default="hi") as endpoint:
        config = {"openai_base_url": endpoint.url, "max_tokens": 5, "temperature": 0, "top_p": 0.3, "prices": prices}
        config["timeout"] = TIMEOUT
        parts = open_backends(Settings.from_dict(fake_models(llm={"config": config})), in_memory=True)
        assert parts.llm is not None
        assert parts.llm.answer(Prompt("x", "", "y")).usage.cost > 0
        assert endpoint.requests[0].body.items() >= {"max_tokens": 5, "temperature": 0, "top_p": 0.3}.items()
        parts.close()
        check_failure(parts.llm, LLMUnavailable)
        Memory(":memory:", settings=Settings.from_dict(fake_models(llm={"config": config}))).close()


def test_nothing_is_imported_before_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, graphmem.wiring, graphmem.models.openai_chat as p; p.OpenaiChatModel('m', api_key='k');"
        "assert not {'openai', 'json_repair', 'opentelemetry', 'httpx2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
