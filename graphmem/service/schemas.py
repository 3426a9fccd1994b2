"""What requests to the service have in common: ids of a scope, and the strictness of bodies and queries."""

from __future__ import annotations

from typing import Any, ClassVar

from fastapi import Response
from pydantic import BaseModel, ConfigDict

IGNORED_HEADER = "X-Graphmem-Ignored"


class Ids(BaseModel):
    """The ids of a scope. An unknown field is refused: one that is ignored could widen the scope."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    def named(self) -> dict[str, str | None]:
        """Returns the ids for `Caller.scope`."""
        return {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}


class Body(BaseModel):
    """The body of a request: no unknown fields, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Fields that clients of mem0 send and that change nothing here.
    ignored: ClassVar[frozenset[str]] = frozenset()

    def name_ignored(self, response: Response) -> None:
        """Names the ignored fields of this request in a header of the response."""
        if names := sorted(self.model_fields_set & self.ignored):
            response.headers[IGNORED_HEADER] = ", ".join(names)


class IdsBody(Body, Ids):
    """A body that names ids."""

    model_config = ConfigDict(extra="forbid", strict=True)


def given(**values: Any) -> dict[str, Any]:
    """Returns the values that are not None: those that a request gives."""
    return {name: value for name, value in values.items() if value is not None}
