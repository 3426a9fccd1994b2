"""The base class of the MCP tools: checks of arguments, texts of errors, and JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, ClassVar, get_type_hints

import pydantic
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import GenerateJsonSchema

from graphmem.async_memory import AsyncMemory
from graphmem.errors import ValidationError
from graphmem.model import Scope
from graphmem.service.mcp.results import Result, shortened

# The tools that a model has in place of methods, which errors of `Memory` name.
_TOOLS = {
    "delete": "delete_memory", "explain": "explain_memory", "get_all": "get_memories", "history": "memory_history",
    "search": "search_memories", "update": "update_memory",
}  # fmt: skip
_ARGUMENT = re.compile(r"^(\S+) \([^()]*\): ")
_METHOD = re.compile(rf"\b({'|'.join(_TOOLS)})\(\)")


class _Schema(GenerateJsonSchema):
    """JSON Schemas without the titles that pydantic makes of fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class _InputSchema(_Schema):
    """Schemas of arguments: null counts as left out, and several clients take neither `anyOf` nor a list of types."""

    def nullable_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> Any:
        return (
            self.generate_inner(schema["schema"])
            if schema.get("default", ...) is None
            else super().default_schema(schema)
        )


class Tool(BaseModel):
    """One call of a tool: its checked arguments. A subclass is a tool, and its docstring the text for the model.

    No argument is converted to another type, as in a body of REST, but for what a field's own validator reads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool_name: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[bool] = False
    erases: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = False
    # Names of arguments in errors of `Memory`, with those that this tool has for them.
    own_names: ClassVar[Mapping[str, str]] = {}
    # What a model is told if the id that it gives is not found.
    not_found: ClassVar[str] = "memory_id: there is no memory with this id; search_memories gives the ids that exist"

    async def run(self, memory: AsyncMemory, scope: Scope) -> Result:
        """Makes the call. Raises the errors of `Memory`."""
        raise NotImplementedError

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Tool:
        """Checks arguments. Raises ValidationError, which says of each unusable one why; None counts as left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls.model_validate(given)
        except pydantic.ValidationError as error:
            problems = [_problem(cls, problem) for problem in error.errors(include_url=False, include_input=False)]
        raise ValidationError("; ".join(problems))

    @classmethod
    def error_text(cls, error: ValidationError) -> str:
        """Returns the text of an error of `Memory` with the name of this tool's argument, and without its value."""
        return _METHOD.sub(lambda match: _TOOLS[match[1]], text_without_value(error, cls.own_names))

    @classmethod
    def description(cls) -> str:
        """Returns what the tool is for, and what it is not for, in at most two sentences."""
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def input_schema(cls) -> dict[str, Any]:
        """Returns the JSON Schema of the arguments."""
        schema = cls.model_json_schema(schema_generator=_InputSchema)
        return {key: part for key, part in schema.items() if key not in {"title", "description"}}

    @classmethod
    def output_schema(cls) -> dict[str, Any]:
        """Returns the JSON Schema of the structured result."""
        result: type[Result] = get_type_hints(cls.run)["return"]
        return result.model_json_schema(schema_generator=_Schema)


def text_without_value(error: ValidationError, own_names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Returns the text of an error without the value; the argument is named as in `own_names` if it is there."""
    return _ARGUMENT.sub(lambda match: f"{own_names.get(match[1], match[1])}: ", error.without_value)


def _problem(tool: type[Tool], error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        nearest = get_close_matches(name, tool.model_fields, 1)
        known = ", ".join(tool.model_fields) or "none"
        hint = f"did you mean {nearest[0]}?" if nearest else f"it takes: {known}"
        return f"{shortened(name, 40)}: is no argument of this tool; {hint}"
    return f"{name}: {'is missing' if error['type'] == 'missing' else error['msg'].replace('Input should', 'should')}"
