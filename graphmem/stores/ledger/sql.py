"""SQL that differs between SQLite and PostgreSQL, lists as single bind parameters, and the decoding of column values.

SQLAlchemy's `in_` expands a list into a parameter for each item; with hundreds of them, building the statement takes
longer than running it. A column value that this code cannot have written means that the ledger is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    RowMapping,
    Select,
    Table,
    TableValuedAlias,
    bindparam,
    column,
    literal_column,
)
from sqlalchemy import Text as AnyText
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement, GenericFunction
from sqlalchemy.types import TypeDecorator, TypeEngine

from graphmem.errors import StoreUnavailable
from graphmem.folding import (
    ANUSVARA,
    DROPPED,
    HAMZA_ON_WAW,
    HAMZA_ON_YEH,
    NASAL,
    SEVERAL_LETTERS,
    fold,
    translation_to,
    without_marks,
)
from graphmem.model import EntityType, MentionKind, from_micros

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

P = ParamSpec("P")
T = TypeVar("T")
# Rows that are fetched at a time where the reader may stop at any: a memory or an event can have megabytes.
FEW = {"yield_per": 16}
# Text that sorts by code point on both databases, whatever collation the PostgreSQL database has.
Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an INSERT into a table that can take an ON CONFLICT clause."""
    return upsert_for(connection.dialect.name, table)


def upsert_for(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an upsert (see `upsert`) for a dialect's name, for statements that are built once for each database."""
    if dialect != "postgresql":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415  (imports all its drivers' modules)

    return postgresql.insert(table)


class larger(GenericFunction[int]):  # noqa: N801  (a function in statements)
    """SQL: the larger of two values."""

    inherit_cache = True


@compiles(larger, "postgresql")
def _greatest(element: larger, compiler: SQLCompiler, **options: Any) -> str:
    return f"greatest{compiler.function_argspec(element, **options)}"


@compiles(larger, "sqlite")
def _max(element: larger, compiler: SQLCompiler, **options: Any) -> str:
    return f"max{compiler.function_argspec(element, **options)}"


class contains_word(GenericFunction[bool]):  # noqa: N801  (a function in statements)
    """SQL: whether a text contains a folded word (of `folding.without_marks`), whatever its spelling there.

    Two more arguments are the translation of `folding.translation_to` that the word needs. Make it with
    `contains_word.of`.
    """

    type = Boolean()
    inherit_cache = True

    @classmethod
    def of(cls, text: ColumnElement[str], word: str) -> contains_word:
        """Returns the condition for a word in any spelling."""
        bare_word = without_marks(fold(word))
        return cls(text, bare_word, *translation_to(bare_word))


@compiles(contains_word, "postgresql")
def _strpos(element: contains_word, compiler: SQLCompiler, **options: Any) -> str:
    text, word, others, letters = (compiler.process(clause, **options) for clause in element.clauses)
    # Whatever the database's own collation is: that of "C" knows the capitals of ASCII only.
    text = f'normalize(lower(normalize({text}, NFKC) COLLATE "und-x-icu"), NFKC)'
    for pattern, letter in ((HAMZA_ON_WAW, HAMZA_ON_YEH), (DROPPED, ""), (NASAL, ANUSVARA)):
        text = f"regexp_replace({text}, '{pattern}', '{letter}', 'g')"
    text = f"translate({text}, {others}, {letters})"
    for joined in SEVERAL_LETTERS:
        text = f"replace({text}, '{joined}', '{without_marks(fold(joined))}')"
    return f"(strpos({text}, {word}) > 0)"


@compiles(contains_word, "sqlite")
def _contains_word(element: contains_word, compiler: SQLCompiler, **options: Any) -> str:
    return f"contains_word{compiler.function_argspec(element, **options)}"


class now_micros(GenericFunction[int]):  # noqa: N801  (a function in statements)
    """SQL: the database's clock, shared by all machines, in microseconds since 1970-01-01 UTC."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_micros, "postgresql")
def _clock_timestamp(_element: now_micros, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(now_micros, "sqlite")
def _julianday(_element: now_micros, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


# --- lists as parameters ----------------------------------------------------------------------------------------------


class ArrayParameter(TypeDecorator[list[Any]]):
    """A list of numbers or strings as one parameter: an array on PostgreSQL, JSON text on SQLite."""

    impl = AnyText
    cache_ok = True

    def __init__(self, item: TypeEngine[Any]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Returns the parameter's type in the database."""
        return dialect.type_descriptor(ARRAY(self.item) if dialect.name == "postgresql" else AnyText())

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


class _JsonObjects(FunctionElement[list[dict[str, Any]]]):
    """Aggregate: a JSON array of objects, whose keys and values are its arguments in turn."""

    type = JSON()
    inherit_cache = True


@compiles(_JsonObjects, "sqlite")
def _group_objects(element: _JsonObjects, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_array(json_object({compiler.process(element.clauses, **options)}))"


@compiles(_JsonObjects, "postgresql")
def _agg_objects(element: _JsonObjects, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_agg(json_build_object({compiler.process(element.clauses, **options)}))"


def json_objects(*columns: Column[Any]) -> ColumnElement[list[dict[str, Any]]]:
    """Aggregates a group of rows into a list of dictionaries, in no order, by the names of these columns."""
    keys_and_values: list[ColumnElement[Any]] = []
    for one in columns:
        keys_and_values += [literal_column(f"'{one.name}'"), one]
    return _JsonObjects(*keys_and_values)


# --- values of columns ------------------------------------------------------------------------------------------------


class CorruptValue(StoreUnavailable):
    """A column value that this code cannot have written: a date out of range, truncated JSON, an unknown kind.

    `Database` turns it into a StoreUnavailable that names the ledger and the remedy.
    """


# What a decoder raises for a value that it cannot decode.
DECODING_ERRORS = (ValueError, OverflowError, TypeError, LookupError, AttributeError)


def is_of_a_value(error: Exception) -> bool:
    """Returns whether an error says that a value of a row cannot be decoded: other rows, and other columns, may be."""
    return isinstance(error, CorruptValue) or (isinstance(error, OperationalError) and "UTF-8" in str(error.orig))


def readable_rows(connection: Connection, statement: Select[Any], rows: Iterable[int]) -> Iterator[RowMapping]:
    """Yields the rows that a statement selects by the row ids `rows`, without those that the driver cannot decode.

    The statement selects `id`. Few rows are in memory at a time.
    """
    left = set(rows)
    try:
        with connection.execute(statement, {"rows": list(left)}, execution_options=FEW) as found:
            for row in found.mappings():
                left.discard(row["id"])
                yield row
    except (CorruptValue, OperationalError) as error:
        if not is_of_a_value(error):
            raise
        for row_id in left if len(left) > 1 else ():
            yield from readable_rows(connection, statement, [row_id])


def decoding(read: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that decodes column values: it raises CorruptValue for those that it cannot decode."""

    @wraps(read)
    def decoded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except DECODING_ERRORS as error:
            raise CorruptValue(type(error).__name__) from error

    return decoded


NO_JSON = object()


class StoredJson(TypeDecorator[Any]):
    """JSON of which text that is no JSON is read as `NO_JSON`: the decoder of the row refuses that, and names the row.

    The database's own type would fail for all rows that are fetched together.
    """

    impl = JSON
    cache_ok = True

    @property
    def python_type(self) -> type[Any]:
        """What the values are in Python: objects."""
        return dict

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Returns the function that decodes a value, None if the driver has done so."""
        decode = super().result_processor(dialect, coltype)
        if decode is None:
            return None

        def read(value: Any) -> Any:
            try:
                return decode(value)
            except CorruptValue:
                return NO_JSON

        return read


@decoding
def moment(value: int) -> datetime:
    """Returns the moment that a column holds in microseconds since 1970-01-01 UTC; raises CorruptValue."""
    return from_micros(value)


@decoding
def entity_type(value: str) -> EntityType:
    """Returns the entity type that a column holds; raises CorruptValue."""
    return EntityType(value)


@decoding
def mention_kind(value: int) -> MentionKind:
    """Returns the mention kind that a column holds; raises CorruptValue."""
    return MentionKind(value)
