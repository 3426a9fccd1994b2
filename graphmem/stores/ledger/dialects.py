"""SQL that differs between SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, Connection, Table
from sqlalchemy import Text as AnyText
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from graphmem.folding import DROPPED, SEVERAL_LETTERS, fold, translation_to, without_marks

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

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
    text = f"translate(regexp_replace({text}, '{DROPPED}', '', 'g'), {others}, {letters})"
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
