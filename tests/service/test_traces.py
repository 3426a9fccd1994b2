"""Spans of the service's requests, around those of the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient
from support.service import client_of
from support.spans import span_exporter

from graphmem import Memory
from graphmem.testing import ModelEndpoint

ANA = {"user_id": "ana-of-the-trace"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    exporter = span_exporter()
    exporter.clear()
    return exporter


@pytest.fixture
def client(memory: Memory, spans: InMemorySpanExporter) -> Iterator[TestClient]:
    with client_of(memory) as client:
        yield client


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = (one for one in spans.get_finished_spans() if one.name == name)
    return found


def test_a_request_is_a_span_around_the_memorys(client: TestClient, spans: InMemorySpanExporter) -> None:
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    assert client.post("/search", json={"query": "tea", **ANA}, headers=sent).status_code == 200
    request, search = named(spans, "POST /search"), named(spans, "search_memory")
    assert request.kind is trace.SpanKind.SERVER
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/search", "http.response.status_code": 200,
    }  # fmt: skip
    assert request.parent is not None
    assert (f"{request.parent.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    assert search.parent is not None
    assert search.parent.span_id == request.context.span_id


def test_a_span_has_nothing_of_path_and_query(client: TestClient, spans: InMemorySpanExporter) -> None:
    client.get("/memories/a-private-id", params=ANA)
    client.get("/nowhere/a-private-id", params=ANA, headers={"traceparent": "nonsense"})
    assert named(spans, "GET /memories/{memory_id}").attributes
    unknown = named(spans, "GET")
    assert unknown.parent is None
    assert dict(unknown.attributes or {}) == {"http.request.method": "GET", "http.response.status_code": 404}
    text = "".join(one.to_json() for one in spans.get_finished_spans())
    assert "a-private-id" not in text
    assert ANA["user_id"] not in text


def test_the_trace_goes_on_at_the_endpoint_of_the_proxy(memory: Memory, spans: InMemorySpanExporter) -> None:
    with ModelEndpoint(default="I see.") as endpoint, client_of(memory, proxy={"upstream_url": endpoint.url}) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "tea"}]}
        sent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert client.post("/v1/chat/completions", json=body, headers=sent).status_code == 200
        request = named(spans, "POST /v1/chat/completions")
        (received,) = endpoint.requests
    assert {name.lower(): value for name, value in received.headers.items()}["traceparent"] == (
        f"00-{TRACE}-{request.context.span_id:016x}-01"
    )


def test_a_server_error_is_a_failed_span(memory: Memory, client: TestClient, spans: InMemorySpanExporter) -> None:
    client.get("/nowhere")  # the key is known from here on
    memory.close()
    assert client.post("/search", json={"query": "tea", **ANA}).status_code == 503
    failed = named(spans, "POST /search")
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.events == ()
