"""Spans for OpenTelemetry, if its API is installed (extra `otel`) and the program has set up a tracer; else no-ops.

Names and attributes follow OpenTelemetry's GenAI conventions: numbers, and names of operations, models and hosts. They
never contain words of messages, ids of users or the texts of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import SpanKind, Tracer

Attribute: TypeAlias = str | int | float | bool | Sequence[str] | None
"""The value of an attribute; None leaves it out."""


class Span:
    """A span in progress; attributes that are known only later are added to it. Without a tracer it does nothing."""

    def __init__(self, recorded: OtelSpan | None = None) -> None:
        self._recorded = recorded

    def set_attributes(self, **attributes: Attribute) -> None:
        """Adds attributes, such as `set_attributes(**{"gen_ai.usage.input_tokens": 12})`; None is left out."""
        if self._recorded is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._recorded.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Replaces the span's name by one that is known only later."""
        if self._recorded is not None:
            self._recorded.update_name(name)

    def fail(self) -> None:
        """Marks the span as that of a failure."""
        if self._recorded is not None:
            from opentelemetry.trace import StatusCode  # noqa: PLC0415  (an extra)

            self._recorded.set_status(StatusCode.ERROR)


_NO_SPAN = nullcontext(Span())


def span(name: str, /, *, client: bool = False, **attributes: Attribute) -> AbstractContextManager[Span]:
    """Returns a context manager that records a span around a block, as a child of the current span.

    `client`: the block waits for another process. An exception is recorded only by its class, as `error.type`, and
    raised again; its text, which may contain anything, is not recorded.
    """
    tracer = _tracer()
    if tracer is None:
        return _NO_SPAN
    from opentelemetry.trace import SpanKind  # noqa: PLC0415  (an extra)

    return _record_span(tracer, name, SpanKind.CLIENT if client else SpanKind.INTERNAL, attributes)


def request_span(name: str, headers: Mapping[str, str]) -> AbstractContextManager[Span]:
    """Returns a context manager that records the span of a request that this process answers.

    It is a child of the span that the header `traceparent` (W3C Trace Context) names, if there is one.
    """
    tracer = _tracer()
    if tracer is None:
        return _NO_SPAN
    from opentelemetry.trace import SpanKind  # noqa: PLC0415  (an extra)
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    parent = TraceContextTextMapPropagator().extract(headers)
    return _record_span(tracer, name, SpanKind.SERVER, {}, parent)


def operation(name: str) -> AbstractContextManager[Span]:
    """Returns the span of a GenAI memory operation, such as "search_memory", as a context manager."""
    attributes: dict[str, Attribute] = {"gen_ai.operation.name": name}
    return span(name, client=False, **attributes)


def trace_headers() -> dict[str, str]:
    """Returns the headers (W3C Trace Context) by which another service continues the trace of the current span."""
    headers: dict[str, str] = {}
    if _tracer() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        TraceContextTextMapPropagator().inject(headers)
    return headers


@contextmanager
def _record_span(
    tracer: Tracer, name: str, kind: SpanKind, attributes: dict[str, Attribute], parent: Context | None = None
) -> Iterator[Span]:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415  (an extra)

    with tracer.start_as_current_span(
        name, parent, kind=kind, record_exception=False, set_status_on_exception=False
    ) as otel_span:
        recorded_span = Span(otel_span)
        recorded_span.set_attributes(**attributes)
        try:
            yield recorded_span
        except BaseException as error:
            otel_span.set_attribute("error.type", type(error).__name__)
            otel_span.set_status(StatusCode.ERROR)
            raise


@cache
def _tracer() -> Tracer | None:
    try:
        from opentelemetry import trace  # noqa: PLC0415  (an extra)
    except ImportError:
        return None
    # This tracer does nothing until the program sets up a provider, which it then uses.
    return trace.get_tracer("graphmem")
