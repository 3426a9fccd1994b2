"""A language model behind any OpenAI-compatible endpoint: OpenAI, vLLM, llama.cpp, Ollama, LM Studio, gateways.

Azure: the resource's own `https://NAME.openai.azure.com/openai/v1` as base URL with its key; older addresses, with an
api-version, are not reached.
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
from graphmem.models.http import Connection, EndpointError, request_timeout, resolve_endpoint, send, strip_surrogates
from graphmem.models.lenient_json import MAX_SIZE, matches_schema, parse_json
from graphmem.models.protocols import Prompt, Reply, Usage
from graphmem.tracing import span

# How endpoints speak of answers' forms that they do not take. DeepSeek: "This response_format type is unavailable now";
# Groq: "does not support response format `json_schema`"; vLLM and llama.cpp: of the grammar that a schema becomes.
_FORMAT = (
    "response_format", "response format", "response_schema", "json_schema", "json schema", "json_object", "json mode",
    "json_validate_failed", "structured output", "grammar",
)  # fmt: skip
_FILTERS = frozenset(("content_filter", "content_policy_violation"))
_MILLION = 1_000_000
# Of one answer; what says more is mistaken, and sums have to fit into 64 bits.
_MOST_TOKENS = 1_000_000_000
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64


class _ResponseFormat(IntEnum):
    """The ladder: how an answer's form is asked for. A server may take any of these without the others."""

    SCHEMA = 0
    OBJECT = 1
    TEXT = 2


@dataclass(frozen=True, slots=True)
class _EndpointTraits:
    """What a model's endpoint takes."""

    form: _ResponseFormat = _ResponseFormat.SCHEMA
    limit: str = "max_tokens"


# By URL and model, for all that this process asks of them.
_learned: dict[tuple[str, str], _EndpointTraits] = {}
_learning = Lock()


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens; `cached` are those of the prompt that the endpoint had read before."""

    prompt: float = 0.0
    completion: float = 0.0
    cached: float | None = None

    def cost(self, prompt: int, cached: int, completion: int) -> float:
        """What so many tokens cost; `cached` are among `prompt`."""
        again = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * again + completion * self.completion) / _MILLION


@dataclass(slots=True)
class _UsageCounter:
    """What an answer takes, request by request."""

    prices: Prices
    begun: float = field(default_factory=monotonic)
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def note(self, told: Any) -> None:
        """Adds an answer's `usage`, as far as it is one."""
        usage = told if isinstance(told, dict) else {}
        details = usage.get("prompt_tokens_details")
        prompt = _count(usage.get("prompt_tokens"))
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
        self.prompt += prompt
        self.cached += min(_count(cached), prompt)
        self.completion += _count(usage.get("completion_tokens"))

    @property
    def usage(self) -> Usage:
        cost = self.prices.cost(self.prompt, self.cached, self.completion)
        return Usage(self.calls, self.prompt, self.completion, self.cached, monotonic() - self.begun, cost)


def _count(value: Any) -> int:
    return min(value, _MOST_TOKENS) if isinstance(value, int) and value > 0 else 0


class OpenaiChatModel:
    """A LanguageModel. Nothing is imported or connected before the first prompt.

    `timeout` is in seconds, of each try; there are two more tries where those help. A prompt's own `timeout` is of
    everything, in one try. `temperature`, `top_p` and `max_tokens` are sent if they are given. Without `api_key` and
    `base_url`, OPENAI_API_KEY and OPENAI_BASE_URL count (see `resolve_endpoint`). ConfigError if there is no key for
    OpenAI's own endpoint.
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
    ) -> None:
        self.name = model
        self._endpoint = resolve_endpoint("llm.config", api_key, base_url)
        self._temperature = temperature
        self._top_p = top_p
        self._max_tokens = max_tokens
        self._timeout = timeout
        self._prices = prices or Prices()
        self._connection = Connection(self._endpoint, timeout, LLMUnavailable)

    def answer(self, prompt: Prompt) -> Reply:
        tally = _UsageCounter(self._prices)
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self.name,
            "gen_ai.request.temperature": self._temperature,
            "gen_ai.request.top_p": self._top_p,
            "gen_ai.request.max_tokens": self._max_tokens,
            **self._endpoint.attributes,
        }
        with span(f"chat {self.name}", client=True, **about) as traced:
            try:
                value = self._asked(prompt, tally) if prompt.timeout is None else self._hurried(prompt, tally)
            except LLMError as error:
                error.usage = tally.usage
                raise
            finally:
                traced.set_attributes(
                    **{
                        "gen_ai.usage.input_tokens": tally.prompt,
                        "gen_ai.usage.output_tokens": tally.completion,
                        "gen_ai.usage.cache_read.input_tokens": tally.cached,
                    }
                )
        return Reply(value, tally.usage)

    def close(self) -> None:
        self._connection.close()

    def _hurried(self, prompt: Prompt, tally: _UsageCounter) -> Any:
        """The answer within the prompt's own time limit.

        In a thread of its own: no limit of the transport covers looking up a host, or an answer that comes in drops.
        """
        limit = min(prompt.timeout or self._timeout, self._timeout)
        found: Future[Any] = Future()

        def work() -> None:
            try:
                found.set_result(self._asked(prompt, tally, tally.begun + limit))
            except BaseException as error:  # noqa: BLE001  (it is raised where the result is asked for)
                found.set_exception(error)

        Thread(target=partial(copy_context().run, work), name="graphmem-model", daemon=True).start()
        try:
            return found.result(limit)
        except TimeoutError:
            raise self._late() from None

    def _late(self) -> LLMUnavailable:
        return LLMUnavailable(f"the language model {EndpointError(timed_out=True).describe(self._endpoint, self.name)}")

    def _asked(self, prompt: Prompt, tally: _UsageCounter, until: float | None = None) -> Any:
        """The answer, down the ladder if need be. `until` is a time of the monotonic clock."""
        place = self._endpoint.url, self.name
        manners = _learned.get(place, _EndpointTraits())
        while True:
            found = self._sent(prompt, manners, tally, until)
            if isinstance(found, EndpointError):
                changed = self._otherwise(manners, found, prompt)
                if changed is None:
                    raise self._error(found)
                manners = changed
                continue
            text = _text(found)
            if prompt.schema is None:
                value = text
            elif manners.form > _ResponseFormat.SCHEMA:
                value = parse_json(text, prompt.schema)
            elif (read := _schema_kept(text, prompt.schema)) is None:
                # A server that does not know of schemas passes over it; the model has not seen it.
                manners = replace(manners, form=_ResponseFormat.OBJECT)
                continue
            else:
                value = read[0]
            _learn(place, manners)
            return value

    def _sent(self, prompt: Prompt, manners: _EndpointTraits, tally: _UsageCounter, until: float | None) -> Any:
        """One request: the body of the answer, or the Refusal."""
        client = self._connection.client()
        if until is not None:
            left = until - monotonic()
            if left <= 0:
                raise self._late()
            client = client.with_options(timeout=request_timeout(left), max_retries=0)
        tally.calls += 1
        call = partial(client.chat.completions.with_raw_response.create, **self._request(prompt, manners))
        found = send(call)
        tally.calls += found.tries - 1
        if isinstance(found, EndpointError):
            return found
        body = found.body if isinstance(found.body, dict) else {}
        tally.note(body.get("usage"))
        return body

    def _request(self, prompt: Prompt, manners: _EndpointTraits) -> dict[str, Any]:
        system, request = prompt.system, dict[str, Any]()
        if prompt.schema is not None:
            if manners.form is _ResponseFormat.SCHEMA:
                name = _NO_NAME.sub("_", prompt.operation)[:_LONGEST_NAME] or "answer"
                asked = {"name": name, "strict": True, "schema": dict(prompt.schema)}
                request["response_format"] = {"type": "json_schema", "json_schema": asked}
            else:
                system = f"{system}\n\n{_in_words(prompt.schema)}"
            if manners.form is _ResponseFormat.OBJECT:
                request["response_format"] = {"type": "json_object"}
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if self._top_p is not None:
            request["top_p"] = self._top_p
        if self._max_tokens is not None:
            request[manners.limit] = self._max_tokens
        told = (("system", system), ("user", prompt.user))
        messages = [{"role": role, "content": strip_surrogates(text)} for role, text in told if text]
        return {"model": self.name, "messages": messages, **request}

    def _otherwise(self, manners: _EndpointTraits, refusal: EndpointError, prompt: Prompt) -> _EndpointTraits | None:
        """How to ask instead; None if there is no other way."""
        newer = "max_completion_tokens"
        if self._max_tokens is not None and manners.limit != newer and refusal.mentions_any(newer):
            return replace(manners, limit=newer)
        if prompt.schema is not None and manners.form < _ResponseFormat.TEXT and refusal.mentions_any(*_FORMAT):
            return replace(manners, form=_ResponseFormat(manners.form + 1))
        return None

    def _error(self, refusal: EndpointError) -> LLMError:
        if refusal.is_transient:
            return LLMUnavailable(f"the language model {refusal.describe(self._endpoint, self.name)}")
        if refusal.code in _FILTERS:
            return LLMRefused("the endpoint's content filter withheld the request; nothing was answered")
        if not refusal.is_too_large:
            for key, value, names in (
                ("temperature", self._temperature, ("temperature",)),
                ("top_p", self._top_p, ("top_p",)),
                ("max_tokens", self._max_tokens, ("max_tokens", "max_completion_tokens")),
            ):
                if value is not None and refusal.mentions_any(*names):
                    return LLMRejected(
                        f"the language model does not take llm.config.{key} as it is set (HTTP {refusal.status}); "
                        "change it, or leave it out"
                    )
        return LLMRejected(f"the language model {refusal.describe(self._endpoint, self.name)}")


def _learn(place: tuple[str, str], manners: _EndpointTraits) -> None:
    with _learning:
        known = _learned.get(place, _EndpointTraits())
        # Others may have learned something else meanwhile.
        limit = max(known.limit, manners.limit, key=len)
        _learned[place] = _EndpointTraits(max(known.form, manners.form), limit)


def _in_words(schema: Mapping[str, Any]) -> str:
    shown = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON value that is valid by this JSON Schema, and with nothing else:\n{shown}"


def _schema_kept(text: str, schema: Mapping[str, Any]) -> tuple[Any] | None:
    """The value, if the answer is of the form that a strict schema leaves no way around."""
    try:
        value = parse_json(text, schema)
    except LLMUnusable:
        return None
    return (value,) if matches_schema(value, schema) else None


def _text(body: Mapping[str, Any]) -> str:
    """The words of an answer, if it is whole. Raises LLMRefused, LLMTruncated, LLMUnusable."""
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
            "the model's answer reached the limit of its length; raise llm.config.max_tokens, or use a model that "
            "answers at more length"
        )
    content = message.get("content")
    if isinstance(content, str) and len(content) > MAX_SIZE:
        raise LLMUnusable(
            f"the model's answer has more than {MAX_SIZE:,} characters; set llm.config.max_tokens, or use a model that "
            "keeps to what it is asked for"
        )
    if isinstance(content, str) and content.strip():
        return content
    raise LLMUnusable(
        "the model's answer is empty; check that llm.config.openai_base_url is that of an OpenAI-compatible endpoint "
        "(mostly it ends in /v1), and that the model is one for chats"
    )
