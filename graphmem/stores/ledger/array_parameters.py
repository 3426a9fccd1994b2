"""Lists as one parameter. Expanded into hundreds of them, building a statement takes longer than running it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import JSON, ColumnElement, Dialect, Select, Text, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class ArrayParameter(TypeDecorator[list[Any]]):
    """A list of numbers or strings: an array, or JSON text where there are none."""

    impl = Text
    cache_ok = True

    def __init__(self, item: TypeEngine[Any]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """As the database takes it."""
        return dialect.type_descriptor(ARRAY(self.item) if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        """As the driver takes it."""
        return list(value or []) if dialect.name == "postgresql" else json.dumps(value or [])


class _InArray(FunctionElement[bool]):
    """`column IN list`. No Boolean by its type: SQLite would be given `(…) = 1` then, which no index serves."""

    inherit_cache = True


@compiles(_InArray, "sqlite")
def _in_json(element: _InArray, compiler: SQLCompiler, **more: Any) -> str:
    column, wanted = (compiler.process(clause, **more) for clause in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({wanted})))"  # noqa: S608  (of compiled parts)


@compiles(_InArray, "postgresql")
def _any_of(element: _InArray, compiler: SQLCompiler, **more: Any) -> str:
    column, wanted = (compiler.process(clause, **more) for clause in element.clauses)
    return f"({column} = ANY ({wanted}))"


def in_array(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether a column's value is in the list that the parameter `name` holds."""
    return _InArray(column, bindparam(name, type_=ArrayParameter(column.type)))


class _InSubquery(FunctionElement[bool]):
    """`row IN (SELECT …)`. PostgreSQL takes an index for that beside an OR only where it is an array."""

    inherit_cache = True


@compiles(_InSubquery, "sqlite")
def _in_select(element: _InSubquery, compiler: SQLCompiler, **more: Any) -> str:
    row, wanted = (compiler.process(clause, **more) for clause in element.clauses)
    return f"({row} IN {wanted})"


@compiles(_InSubquery, "postgresql")
def _any_of_select(element: _InSubquery, compiler: SQLCompiler, **more: Any) -> str:
    row, wanted = (compiler.process(clause, **more) for clause in element.clauses)
    return f"({row} = ANY (ARRAY{wanted}))"


def in_subquery(row: ColumnElement[Any], statement: Select[Any]) -> ColumnElement[bool]:
    """Whether a row is among those that a statement finds."""
    return _InSubquery(row, statement.scalar_subquery())


class _JsonObjectAgg(FunctionElement[dict[str, Any]]):
    """An aggregate: the second column's values by the first's."""

    type = JSON()
    inherit_cache = True


@compiles(_JsonObjectAgg, "sqlite")
def _group_object(element: _JsonObjectAgg, compiler: SQLCompiler, **more: Any) -> str:
    return f"json_group_object({compiler.process(element.clauses, **more)})"


@compiles(_JsonObjectAgg, "postgresql")
def _object_agg(element: _JsonObjectAgg, compiler: SQLCompiler, **more: Any) -> str:
    return f"json_object_agg({compiler.process(element.clauses, **more)})"


def json_object_agg(name: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[dict[str, Any]]:
    """Two columns of a group of rows as one dictionary."""
    return _JsonObjectAgg(name, value)
