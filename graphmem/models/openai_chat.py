"""The LanguageModel for any OpenAI-compatible endpoint: OpenAI, vLLM, llama.cpp, Ollama, LM Studio, gateways.

For Azure, use the resource's own `https://NAME.openai.azure.com/openai/v1` as base URL, with its key. Older Azure
addresses, with an api-version, are not supported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any

from graphmem.errors import (
    LLMError,
    LLMRefused,
    LLMRejected,
    LLMTruncated,
    LLMUnavailable,
    LLMUnusable,
)
from graphmem.models.http import (
    EndpointError,
    content_text,
    request_timeout,
    resolve_endpoint,
    sdk_client,
    send,
    strip_surrogates,
)
from graphmem.models.lenient_json import MAX_SIZE, matches_schema, parse_json
from graphmem.plugins import Prompt, Reply, Usage
from graphmem.tracing import span

# Words by which endpoints refuse a response format. DeepSeek: "This response_format type is unavailable now"; Groq:
# "does not support response format `json_schema`"; vLLM and llama.cpp name the grammar that they make of a schema.
_RESPONSE_FORMAT_WORDS = (
    "response_format", "response format", "response_schema", "json_schema", "json schema", "json_object", "json mode",
    "json_validate_failed", "structured output", "grammar",
)  # fmt: skip
_CONTENT_FILTER_CODES = frozenset(("content_filter", "content_policy_violation"))
_MILLION = 1_000_000
# The highest token count accepted for one answer. Higher ones are errors, and sums have to fit into 64 bits.
_MAX_TOKEN_COUNT = 1_000_000_000
# Limits of OpenAI for the name of a schema.
_INVALID_IN_SCHEMA_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_SCHEMA_NAME_LENGTH = 64


class _ResponseFormat(IntEnum):
    """The ways to request JSON, in the order in which they are tried. A server may accept any of them alone."""

    SCHEMA = 0
    OBJECT = 1
    TEXT = 2


@dataclass(frozen=True, slots=True)
class _EndpointTraits:
    """The response format, and the name of the parameter for `max_tokens`, that an endpoint accepts for a model."""

    response_format: _ResponseFormat = _ResponseFormat.SCHEMA
    limit_parameter: str = "max_tokens"


# By URL and model, for the whole process.
_known_traits: dict[tuple[str, str], _EndpointTraits] = {}
_traits_lock = Lock()


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens; `cached` is the price of prompt tokens from the endpoint's cache (None: `prompt`)."""

    prompt: float = 0.0
    completion: float = 0.0
    cached: float | None = None

    def cost(self, prompt: int, cached: int, completion: int) -> float:
        """Returns the cost of these numbers of tokens; `cached` tokens are among `prompt`."""
        cached_price = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * cached_price + completion * self.completion) / _MILLION


@dataclass(slots=True)
class _UsageCounter:
    """Sums up the usage of all requests that one answer takes."""

    prices: Prices
    started_at: float = field(default_factory=monotonic)
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def add(self, reported: Any) -> None:
        """Adds the `usage` field of a response; ignores missing and invalid parts."""
        usage = reported if isinstance(reported, dict) else {}
        details = usage.get("prompt_tokens_details")
        prompt = _token_count(usage.get("prompt_tokens"))
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
        self.prompt += prompt
        self.cached += min(_token_count(cached), prompt)
        self.completion += _token_count(usage.get("completion_tokens"))

    @property
    def usage(self) -> Usage:
        cost = self.prices.cost(self.prompt, self.cached, self.completion)
        return Usage(self.calls, self.prompt, self.completion, self.cached, monotonic() - self.started_at, cost)


def _token_count(value: Any) -> int:
    return min(value, _MAX_TOKEN_COUNT) if isinstance(value, int) and value > 0 else 0


class OpenaiChatModel:
    """A LanguageModel at an OpenAI-compatible endpoint. Imports the SDK and connects at the first prompt.

    `timeout` limits each try, in seconds; transient failures are retried twice. A prompt's own `timeout` limits the
    whole answer, and then there is one try. `temperature`, `top_p` and `max_tokens` are sent unless None. Without
    `api_key` and `base_url`, OPENAI_API_KEY and OPENAI_BASE_URL apply. `section` is that of its settings, for errors.
    Raises ConfigError (see `resolve_endpoint`).
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        timeout: float = 60.0,
        prices: Prices | None = None,
        section: str = "llm.config",
    ) -> None:
        self.name = model
        self._section = section
        self._endpoint = resolve_endpoint(section, api_key, base_url)
        self._temperature = temperature
        self._top_p = top_p
        self._max_tokens = max_tokens
        self._timeout = timeout
        self._prices = prices or Prices()
        self._connection = sdk_client(self._endpoint, timeout, LLMUnavailable)

    def answer(self, prompt: Prompt) -> Reply:
        counter = _UsageCounter(self._prices)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self.name,
            "gen_ai.request.temperature": self._temperature,
            "gen_ai.request.top_p": self._top_p,
            "gen_ai.request.max_tokens": self._max_tokens,
            **self._endpoint.attributes,
        }
        with span(f"chat {self.name}", client=True, **attributes) as traced:
            try:
                value = (
                    self._answer(prompt, counter) if prompt.timeout is None else self._answer_in_time(prompt, counter)
                )
            except LLMError as error:
                error.usage = counter.usage
                raise
            finally:
                traced.set_attributes(
                    **{
                        "gen_ai.usage.input_tokens": counter.prompt,
                        "gen_ai.usage.output_tokens": counter.completion,
                        "gen_ai.usage.cache_read.input_tokens": counter.cached,
                    }
                )
        return Reply(value, counter.usage)

    def close(self) -> None:
        self._connection.close()

    def _answer_in_time(self, prompt: Prompt, counter: _UsageCounter) -> Any:
        """Returns the answer's value within the prompt's own time limit. Raises LLMUnavailable after it.

        The request runs in a separate thread, because the transport's timeouts cover neither the lookup of the host
        nor an answer that arrives in many small parts.
        """
        limit = min(prompt.timeout or self._timeout, self._timeout)
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(self._answer(prompt, counter, counter.started_at + limit))
            except BaseException as error:  # noqa: BLE001  (raised again by `future.result`)
                future.set_exception(error)

        Thread(target=partial(copy_context().run, work), name="graphmem-model", daemon=True).start()
        try:
            return future.result(limit)
        except TimeoutError:
            raise self._timeout_error() from None

    def _timeout_error(self) -> LLMUnavailable:
        return self._unavailable(EndpointError(timed_out=True))

    def _unavailable(self, error: EndpointError) -> LLMUnavailable:
        message = f"the language model {error.describe(self._endpoint, self.name)}"
        return LLMUnavailable(message, is_timeout=error.timed_out)

    def _answer(self, prompt: Prompt, counter: _UsageCounter, deadline: float | None = None) -> Any:
        """Returns the answer's value. Sends further requests with other traits if the endpoint refuses some.

        `deadline` is a time of the monotonic clock.
        """
        endpoint_and_model = self._endpoint.url, self.name
        traits = _known_traits.get(endpoint_and_model, _EndpointTraits())
        while True:
            response = self._send_request(prompt, traits, counter, deadline)
            if isinstance(response, EndpointError):
                next_traits = self._next_traits(traits, response, prompt)
                if next_traits is None:
                    raise self._error(response)
                traits = next_traits
                continue
            text = _answer_text(response, self._section)
            if prompt.schema is None:
                value = text
            elif traits.response_format > _ResponseFormat.SCHEMA:
                value = parse_json(text, prompt.schema)
            elif (parsed := _parse_strict_answer(text, prompt.schema)) is None:
                # A server without support for schemas ignores them: the model has not seen the schema.
                traits = replace(traits, response_format=_ResponseFormat.OBJECT)
                continue
            else:
                value = parsed[0]
            with _traits_lock:
                earlier = _known_traits.get(endpoint_and_model, _EndpointTraits())
                # Combined with the earlier ones: another thread may have found a different limitation meanwhile.
                limit_parameter = max(earlier.limit_parameter, traits.limit_parameter, key=len)
                response_format = max(earlier.response_format, traits.response_format)
                _known_traits[endpoint_and_model] = _EndpointTraits(response_format, limit_parameter)
            return value

    def _send_request(
        self, prompt: Prompt, traits: _EndpointTraits, counter: _UsageCounter, deadline: float | None
    ) -> Any:
        """Sends one request and returns the response's body, or an EndpointError."""
        client = self._connection.client()
        if deadline is not None:
            remaining = deadline - monotonic()
            if remaining <= 0:
                raise self._timeout_error()
            client = client.with_options(timeout=request_timeout(remaining), max_retries=0)
        counter.calls += 1
        call = partial(client.chat.completions.with_raw_response.create, **self._request_arguments(prompt, traits))
        response = send(call)
        counter.calls += response.tries - 1
        if isinstance(response, EndpointError):
            return response
        body = response.body if isinstance(response.body, dict) else {}
        counter.add(body.get("usage"))
        return body

    def _request_arguments(self, prompt: Prompt, traits: _EndpointTraits) -> dict[str, Any]:
        system, request = prompt.system, dict[str, Any]()
        if prompt.schema is not None:
            if traits.response_format is _ResponseFormat.SCHEMA:
                name = _INVALID_IN_SCHEMA_NAME.sub("_", prompt.operation)[:_MAX_SCHEMA_NAME_LENGTH] or "answer"
                json_schema = {"name": name, "strict": True, "schema": dict(prompt.schema)}
                request["response_format"] = {"type": "json_schema", "json_schema": json_schema}
            else:
                schema = json.dumps(prompt.schema, ensure_ascii=False, separators=(",", ":"))
                wanted = "Answer with one JSON value that is valid by this JSON Schema, and with nothing else:"
                system = f"{system}\n\n{wanted}\n{schema}"
            if traits.response_format is _ResponseFormat.OBJECT:
                request["response_format"] = {"type": "json_object"}
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if self._top_p is not None:
            request["top_p"] = self._top_p
        if self._max_tokens is not None:
            request[traits.limit_parameter] = self._max_tokens
        texts = (("system", system), ("user", prompt.user))
        messages: list[dict[str, Any]] = [
            {"role": role, "content": strip_surrogates(text)} for role, text in texts if text
        ]
        if prompt.images:
            words = [{"type": "text", "text": message["content"]} for message in messages if message["role"] == "user"]
            images = [{"type": "image_url", "image_url": {"url": url}} for url in prompt.images]
            shown = {"role": "user", "content": [*words, *images]}
            messages = [*(message for message in messages if message["role"] != "user"), shown]
        return {"model": self.name, "messages": messages, **request}

    def _next_traits(self, traits: _EndpointTraits, error: EndpointError, prompt: Prompt) -> _EndpointTraits | None:
        """Returns the traits for another request after a refused one; None if no change would help."""
        newer = "max_completion_tokens"
        if self._max_tokens is not None and traits.limit_parameter != newer and error.mentions_any(newer):
            return replace(traits, limit_parameter=newer)
        response_format = traits.response_format
        if (
            prompt.schema is not None
            and response_format < _ResponseFormat.TEXT
            and error.mentions_any(*_RESPONSE_FORMAT_WORDS)
        ):
            return replace(traits, response_format=_ResponseFormat(response_format + 1))
        return None

    def _error(self, error: EndpointError) -> LLMError:
        if error.is_transient:
            return self._unavailable(error)
        if error.code in _CONTENT_FILTER_CODES:
            return LLMRefused(
                f"the endpoint's content filter withheld the request (HTTP {error.status}); nothing was answered"
            )
        if not error.is_too_large:
            for key, value, names in (
                ("temperature", self._temperature, ("temperature",)),
                ("top_p", self._top_p, ("top_p",)),
                ("max_tokens", self._max_tokens, ("max_tokens", "max_completion_tokens")),
            ):
                if value is not None and error.mentions_any(*names):
                    return LLMRejected(
                        f"the language model does not take {self._section}.{key} as it is set (HTTP {error.status}); "
                        "change it, or leave it out"
                    )
        return LLMRejected(f"the language model {error.describe(self._endpoint, self.name)}")


def _parse_strict_answer(text: str, schema: Mapping[str, Any]) -> tuple[Any] | None:
    """Returns the value in a tuple; None if the server evidently did not enforce the strict schema."""
    try:
        value = parse_json(text, schema)
    except LLMUnusable:
        return None
    return (value,) if matches_schema(value, schema) else None


def _answer_text(body: Mapping[str, Any], section: str) -> str:
    """Returns the text of a complete answer. Raises LLMRefused, LLMTruncated, LLMUnusable."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    if message.get("refusal"):
        raise LLMRefused("the model declined to answer; nothing of it is used")
    if choice.get("finish_reason") == "content_filter":
        raise LLMRefused("the endpoint's content filter withheld the answer; nothing of it is used")
    if choice.get("finish_reason") == "length":
        raise LLMTruncated(
            f"the model's answer reached the limit of its length; raise {section}.max_tokens, or use a model that "
            "answers at more length"
        )
    content = content_text(message.get("content"))
    if not content:  # a gateway may have made a tool of the schema
        calls = message.get("tool_calls")
        call = calls[0] if isinstance(calls, list) and len(calls) == 1 else None
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        content = arguments if isinstance(arguments, str) else None
    if content is not None and len(content) > MAX_SIZE:
        raise LLMUnusable(
            f"the model's answer has more than {MAX_SIZE:,} characters; set {section}.max_tokens, or use a model that "
            "gives shorter answers"
        )
    if content is not None and content.strip():
        return content
    raise LLMUnusable(
        f"the model's answer is empty; check that {section}.openai_base_url is that of an OpenAI-compatible endpoint "
        "(mostly it ends in /v1), and that the model is one for chats"
    )
