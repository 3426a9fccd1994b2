"""Spans for OpenTelemetry, where its API is installed (extra `otel`) and the program has set a tracer up; else nothing.

Names and attributes are GenAI's of the semantic conventions: numbers, and names of operations, models and hosts. Never
words that somebody said, ids of users, or what an error tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Attribute: TypeAlias = str | int | float | bool | Sequence[str] | None
"""None: there is nothing to tell, and the attribute is left out."""


class Span:
    """What goes on under a name. Attributes that are known only later are noted on it."""

    def __init__(self, recorded: OtelSpan | None = None) -> None:
        self._recorded = recorded

    def set_attributes(self, **attributes: Attribute) -> None:
        """Adds attributes, such as `set_attributes(**{"gen_ai.usage.input_tokens": 12})`."""
        if self._recorded is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._recorded.set_attribute(name, value)


_NOTHING = nullcontext(Span())


def span(name: str, /, *, client: bool = False, **attributes: Attribute) -> AbstractContextManager[Span]:
    """A span around a block, child of the one under way. `client`: the block waits for another process.

    An exception leaves its class as `error.type` and goes on; its text, which is free to hold anything, is not told.
    """
    tracer = _tracer()
    return _NOTHING if tracer is None else _recorded(tracer, name, attributes, client=client)


def operation(name: str) -> AbstractContextManager[Span]:
    """The span of one of GenAI's memory operations, such as "search_memory"."""
    about: dict[str, Attribute] = {"gen_ai.operation.name": name}
    return span(name, client=False, **about)


@contextmanager
def _recorded(tracer: Tracer, name: str, attributes: dict[str, Attribute], *, client: bool) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415  (an extra)

    kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
    with tracer.start_as_current_span(name, kind=kind, record_exception=False, set_status_on_exception=False) as made:
        found = Span(made)
        found.set_attributes(**attributes)
        try:
            yield found
        except BaseException as error:
            made.set_attribute("error.type", type(error).__name__)
            made.set_status(StatusCode.ERROR)
            raise


@cache
def _tracer() -> Tracer | None:
    try:
        from opentelemetry import trace  # noqa: PLC0415  (an extra)
    except ImportError:
        return None
    # Without a provider this one does nothing, and it finds the one that is set up later.
    return trace.get_tracer("graphmem")
