from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fakes import fake_models
from support.spans import span_exporter
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.errors import LLMUnavailable
from graphmem.models.openai_chat import OpenaiChatModel
from graphmem.models.openai_embeddings import OpenaiEmbedder
from graphmem.plugins import Prompt
from graphmem.testing import ModelEndpoint, behaviours
from graphmem.tracing import span

TEXT = "I drink matcha"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = span_exporter()
    exporter.clear()
    yield exporter
    assert TEXT not in "".join(one.to_json() for one in exporter.get_finished_spans())


def test_spans_nest_and_record_the_class_of_an_error(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), span("outer", **{"gen_ai.operation.name": "x", "left.out": None}) as outer:
        outer.set_attributes(**{"gen_ai.memory.record.count": 2})
        with span("inner", client=True):
            pass
        raise KeyError(TEXT)
    inner, outer = spans.get_finished_spans()
    assert (inner.kind, outer.kind) == (trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL)
    assert inner.parent.span_id == outer.context.span_id
    assert dict(outer.attributes) == {
        "gen_ai.operation.name": "x", "gen_ai.memory.record.count": 2, "error.type": "KeyError",
    }  # fmt: skip
    assert (outer.status.status_code, outer.status.description, outer.events) == (trace.StatusCode.ERROR, None, ())


def test_a_chat_is_a_span(spans: InMemorySpanExporter) -> None:
    with ModelEndpoint(["hi", "hi", behaviours.length("hi")], cached_tokens=2) as endpoint, span("add"):
        model = OpenaiChatModel("m", base_url=endpoint.url, temperature=0.5)
        usage = model.answer(Prompt("x", "", TEXT)).usage
        model.answer(Prompt("x", "", TEXT, timeout=TIMEOUT))
        with pytest.raises(Exception):
            model.answer(Prompt("x", "", TEXT))
        model.close()
        with pytest.raises(LLMUnavailable):
            model.answer(Prompt("x", "", TEXT))
    plain_span, timed_span, truncated_span, closed_span, parent_span = spans.get_finished_spans()
    assert (plain_span.name, plain_span.kind, plain_span.parent.span_id) == (
        "chat m", trace.SpanKind.CLIENT, parent_span.context.span_id,
    )  # fmt: skip
    host, port = "127.0.0.1", int(endpoint.url.split(":")[2].removesuffix("/v1"))
    assert dict(plain_span.attributes) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5, "server.address": host, "server.port": port,
        "gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }  # fmt: skip
    assert dict(timed_span.attributes) == dict(plain_span.attributes)
    assert (truncated_span.attributes["error.type"], closed_span.attributes["error.type"]) == (
        "LLMTruncated", "LLMUnavailable",
    )  # fmt: skip
    assert truncated_span.attributes["gen_ai.usage.input_tokens"] == usage.prompt_tokens


def test_embeddings_are_spans(spans: InMemorySpanExporter) -> None:
    with ModelEndpoint(dims=8) as endpoint:
        embedder = OpenaiEmbedder("e", base_url=endpoint.url, dims=8, batch_size=1)
        embedder.embed([TEXT, "tea"])
        embedder.close()
    embedding_spans = spans.get_finished_spans()
    assert [one.name for one in embedding_spans] == ["embeddings e"] * 2
    assert embedding_spans[0].attributes["gen_ai.operation.name"] == "embeddings"
    assert embedding_spans[0].attributes["gen_ai.usage.input_tokens"] == len(TEXT) // 4 + 1


def test_without_opentelemetry_nothing_happens() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from graphmem.tracing import span\n"
        "with span('x', a=1) as one: one.set_attributes(b=2)\n"
        "assert span('y') is span('z')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stages_of_an_add_are_spans(spans: InMemorySpanExporter) -> None:
    first_facts = json.dumps({"facts": [{"text": TEXT, "messages": [0]}]})
    second_facts = json.dumps({"facts": [{"text": f"{TEXT} daily", "messages": [0]}]})
    with ModelEndpoint([first_facts, second_facts, '{"memory": []}']) as endpoint:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "traced"}
        settings = Settings.from_dict(fake_models(llm={"config": llm}))
        with Memory(":memory:", settings=settings) as memory:
            memory.add(TEXT, user_id="u7")
            memory.add(f"{TEXT} daily", user_id="u7")
            memory.search("matcha", user_id="u7")
    spans_by_name = {one.name: one for one in spans.get_finished_spans()}
    assert set(spans_by_name) == {
        "upsert_memory", "find facts", "chat traced", "find near memories", "decide", "commit", "search_memory",
    }  # fmt: skip
    top = spans_by_name["upsert_memory"].context.span_id
    assert spans_by_name["find facts"].parent.span_id == spans_by_name["decide"].parent.span_id == top
    assert spans_by_name["chat traced"].parent.span_id == spans_by_name["decide"].context.span_id
    assert spans_by_name["search_memory"].attributes["gen_ai.memory.record.count"] == 2
    assert "u7" not in "".join(one.to_json() for one in spans_by_name.values())
