"""Lists as single bind parameters, and conditions on lists and subqueries.

SQLAlchemy's `in_` expands a list into a parameter for each item; with hundreds of them, building the statement takes
longer than running it.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ARRAY, JSON, ColumnElement, Dialect, Select, TableValuedAlias, Text, bindparam, column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class ArrayParameter(TypeDecorator[list[Any]]):
    """A list of numbers or strings as one parameter: an array on PostgreSQL, JSON text on SQLite."""

    impl = Text
    cache_ok = True

    def __init__(self, item: TypeEngine[Any]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Returns the parameter's type in the database."""
        return dialect.type_descriptor(ARRAY(self.item) if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        """Returns the value to hand to the driver."""
        return list(value or []) if dialect.name == "postgresql" else json.dumps(value or [])


class _InArray(FunctionElement[bool]):
    """`column IN list`. Its type is not Boolean: SQLAlchemy would write `(…) = 1` on SQLite, which uses no index."""

    inherit_cache = True


@compiles(_InArray, "sqlite")
def _in_json(element: _InArray, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({values})))"  # noqa: S608  (built from compiled parts)


@compiles(_InArray, "postgresql")
def _any_of(element: _InArray, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({column} = ANY ({values}))"


def in_array(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Returns the condition that a column's value is in the list given as the parameter `name`."""
    return _InArray(column, bindparam(name, type_=ArrayParameter(column.type)))


class _ArrayRows(FunctionElement[Any]):
    """A list as rows with the column `value`."""

    inherit_cache = True


@compiles(_ArrayRows, "sqlite")
def _json_each(element: _ArrayRows, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_ArrayRows, "postgresql")
def _unnest(element: _ArrayRows, compiler: SQLCompiler, **options: Any) -> str:
    return f"(SELECT unnest({compiler.process(element.clauses, **options)}) AS value)"


def array_rows(name: str, item: TypeEngine[Any]) -> TableValuedAlias:
    """Returns the list given as the parameter `name` as a table with the column `value`; `item` is its type."""
    rows = _ArrayRows(bindparam(name, type_=ArrayParameter(item)))
    return rows.table_valued(column("value", item), name=f"{name}_rows")


class _InSubquery(FunctionElement[bool]):
    """`row IN (SELECT …)`. Beside an OR, PostgreSQL uses an index for it only if it is written as an array."""

    inherit_cache = True


@compiles(_InSubquery, "sqlite")
def _in_select(element: _InSubquery, compiler: SQLCompiler, **options: Any) -> str:
    row, subquery = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({row} IN {subquery})"


@compiles(_InSubquery, "postgresql")
def _any_of_select(element: _InSubquery, compiler: SQLCompiler, **options: Any) -> str:
    row, subquery = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({row} = ANY (ARRAY{subquery}))"


def in_subquery(row: ColumnElement[Any], statement: Select[Any]) -> ColumnElement[bool]:
    """Returns the condition that a row is among those that a statement selects."""
    return _InSubquery(row, statement.scalar_subquery())


class _JsonObjectAgg(FunctionElement[dict[str, Any]]):
    """Aggregate: a JSON object with keys from the first column and values from the second."""

    type = JSON()
    inherit_cache = True


@compiles(_JsonObjectAgg, "sqlite")
def _group_object(element: _JsonObjectAgg, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_object({compiler.process(element.clauses, **options)})"


@compiles(_JsonObjectAgg, "postgresql")
def _object_agg(element: _JsonObjectAgg, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_object_agg({compiler.process(element.clauses, **options)})"


def json_object_agg(name: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[dict[str, Any]]:
    """Aggregates two columns of a group of rows into a dictionary."""
    return _JsonObjectAgg(name, value)
