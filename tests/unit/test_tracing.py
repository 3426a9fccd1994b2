from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fakes import fake_models
from support.waiting import PATIENCE

from graphmem import Memory, Settings
from graphmem.errors import LLMUnavailable
from graphmem.models.openai_chat import OpenaiChatModel
from graphmem.models.openai_embeddings import OpenaiEmbedder
from graphmem.models.protocols import Prompt
from graphmem.testing import ModelEndpoint, behaviours
from graphmem.tracing import span

SAID = "I drink matcha"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """A process has one provider for good: nothing else in these tests may set another."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    assert SAID not in "".join(one.to_json() for one in exporter.get_finished_spans())


def test_spans_nest_and_record_the_class_of_an_error(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), span("outer", **{"gen_ai.operation.name": "x", "left.out": None}) as outer:
        outer.set_attributes(**{"gen_ai.memory.record.count": 2})
        with span("inner", client=True):
            pass
        raise KeyError(SAID)
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
        usage = model.answer(Prompt("x", "", SAID)).usage
        model.answer(Prompt("x", "", SAID, timeout=PATIENCE))
        with pytest.raises(Exception):
            model.answer(Prompt("x", "", SAID))
        model.close()
        with pytest.raises(LLMUnavailable):
            model.answer(Prompt("x", "", SAID))
    told, hurried, cut, closed, above = spans.get_finished_spans()
    assert (told.name, told.kind, told.parent.span_id) == ("chat m", trace.SpanKind.CLIENT, above.context.span_id)
    host, port = "127.0.0.1", int(endpoint.url.split(":")[2].removesuffix("/v1"))
    assert dict(told.attributes) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5, "server.address": host, "server.port": port,
        "gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }  # fmt: skip
    assert dict(hurried.attributes) == dict(told.attributes)
    assert (cut.attributes["error.type"], closed.attributes["error.type"]) == ("LLMTruncated", "LLMUnavailable")
    assert cut.attributes["gen_ai.usage.input_tokens"] == usage.prompt_tokens


def test_embeddings_are_spans(spans: InMemorySpanExporter) -> None:
    with ModelEndpoint(dims=8) as endpoint:
        embedder = OpenaiEmbedder("e", base_url=endpoint.url, dims=8, batch_size=1)
        embedder.embed([SAID, "tea"])
        embedder.close()
    found = spans.get_finished_spans()
    assert [one.name for one in found] == ["embeddings e"] * 2
    assert found[0].attributes["gen_ai.operation.name"] == "embeddings"
    assert found[0].attributes["gen_ai.usage.input_tokens"] == len(SAID) // 4 + 1


def test_without_opentelemetry_nothing_happens() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from graphmem.tracing import span\n"
        "with span('x', a=1) as one: one.set_attributes(b=2)\n"
        "assert span('y') is span('z')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stages_of_an_add_are_spans(spans: InMemorySpanExporter) -> None:
    found = json.dumps({"facts": [{"text": SAID, "messages": [0]}]})
    again = json.dumps({"facts": [{"text": f"{SAID} daily", "messages": [0]}]})
    with ModelEndpoint([found, again, '{"memory": []}']) as endpoint:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "traced"}
        settings = Settings.from_dict(fake_models(llm={"config": llm}))
        with Memory(":memory:", settings=settings) as memory:
            memory.add(SAID, user_id="u7")
            memory.add(f"{SAID} daily", user_id="u7")
            memory.search("matcha", user_id="u7")
    made = {one.name: one for one in spans.get_finished_spans()}
    assert set(made) == {
        "upsert_memory", "find facts", "chat traced", "find near memories", "decide", "commit", "search_memory",
    }  # fmt: skip
    top = made["upsert_memory"].context.span_id
    assert made["find facts"].parent.span_id == made["decide"].parent.span_id == top
    assert made["chat traced"].parent.span_id == made["decide"].context.span_id
    assert made["search_memory"].attributes["gen_ai.memory.record.count"] == 2
    assert "u7" not in "".join(one.to_json() for one in made.values())
