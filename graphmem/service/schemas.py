"""What requests to the service have in common: ids of a scope, and the strictness of bodies and queries."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from fastapi import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from graphmem.service import limits

IGNORED_HEADER = "X-Graphmem-Ignored"
# How the description of a field begins that changes nothing.
IGNORED = "Ignored."

_OFFSET_AFTER_SPACE = re.compile(r"([T ]\d\d\S*) (\d\d:?\d\d)")

T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]
"""A list in a body. Its first unusable item ends the check: pydantic would make an error of each."""

LeastRelevance = Annotated[float, Field(ge=0, le=1)] | Literal["default"] | None
"""The least relevance of a hit: null for all hits, "default" for that of a context."""


class Ids(BaseModel):
    """The ids of a scope. An unknown field is refused: one that is ignored could widen the scope."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    def named(self) -> dict[str, str | None]:
        """Returns the ids for `Caller.scope`."""
        return {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}


Moment = str | float
"""ISO 8601 text, or seconds since 1970."""


def _with_plus(text: str) -> str:
    """Returns a time with the "+" before its UTC offset, which a query reads as a space."""
    if len(text) > limits.MAX_MOMENT_CHARS:
        return text  # it is no time, as the memory says; the expression would take long for it
    return _OFFSET_AFTER_SPACE.sub(r"\1+\2", text.strip())


QueryMoment = Annotated[str, AfterValidator(_with_plus)]
"""A `Moment` in a query, where all is text."""


class Body(BaseModel):
    """The body of a request: no unknown fields, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_many_fields(cls, body: Any) -> Any:
        """Refuses more fields than any request has, before pydantic makes an error of each."""
        if isinstance(body, dict) and len(body) > limits.MAX_FIELDS:
            raise PydanticCustomError("too_many_fields", f"should have at most {limits.MAX_FIELDS} fields")
        return body


class Mem0Fields(BaseModel):
    """Fields that clients of mem0 send and that change nothing here: these, and `further_ignored` of a request."""

    further_ignored: ClassVar[frozenset[str]] = frozenset()

    rerank: Any = Field(default=None, description=IGNORED)
    version: Any = Field(default=None, description=IGNORED)
    output_format: Any = Field(default=None, description=IGNORED)
    async_mode: Any = Field(default=None, description=IGNORED)
    enable_graph: Any = Field(default=None, description=IGNORED)
    keyword_search: Any = Field(default=None, description=IGNORED)
    fields: Any = Field(default=None, description=IGNORED)
    latest_only: Any = Field(default=None, description=IGNORED)

    def name_ignored(self, response: Response, *further: str, used: Collection[str] = ()) -> None:
        """Names the ignored fields of this request, but the `used`, and `further` ones, in a header of the response."""
        names = self.model_fields_set & ({*Mem0Fields.model_fields, *self.further_ignored} - {*used}) | {*further}
        if named_before := response.headers.get(IGNORED_HEADER):
            names |= set(named_before.split(", "))
        if names:
            response.headers[IGNORED_HEADER] = ", ".join(sorted(names))


class IdsBody(Body, Ids):
    """A body that names ids."""

    model_config = ConfigDict(extra="forbid", strict=True)


def given(**values: Any) -> dict[str, Any]:
    """Returns the values that are not None: those that a request gives."""
    return {name: value for name, value in values.items() if value is not None}
