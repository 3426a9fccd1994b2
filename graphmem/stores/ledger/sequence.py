"""Sequence numbers: how they are taken, and which of them a snapshot shows.

On SQLite one writer at a time counts them up in `ledger.seq`, so they commit in order. On PostgreSQL transactions end
in another order than they begin. There a number is that of its transaction, plus `ledger.seq_base`, and then
`TRANSACTION_BITS` bits that count within the transaction. So the numbers of a transaction lie together, none is taken
after it has ended, and what is below all open transactions is complete. docs/decisions/0050 has the argument.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Dialect, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import TypeDecorator

from graphmem.stores.ledger.schema import POSTGRES_SCHEMA

TRANSACTION_BITS = 20
# The advisory lock that every writer on PostgreSQL holds before its transaction has a number ("gmem").
WRITER_LOCK = 0x676D656D


class Extent(NamedTuple):
    """The sequence numbers whose rows a snapshot shows: all up to `last`, and `ahead`.

    With several writers (on PostgreSQL) some commit before one that has taken lower numbers: only `last` has no such
    gap below it, and only there may what reads by number go on from later.
    """

    last: int
    ahead: frozenset[int] = frozenset()

    @property
    def newest(self) -> int:
        """The highest number."""
        return max(self.ahead, default=self.last)


class _ExtentType(TypeDecorator[Extent]):
    """A number on SQLite, an array of numbers on PostgreSQL, as an `Extent`."""

    impl = BigInteger
    cache_ok = True

    def process_result_value(self, value: Any, _dialect: Dialect) -> Extent:
        """Returns the extent that a database tells."""
        last, *ahead = [value] if isinstance(value, int) else value
        return Extent(last, frozenset(ahead))


class seq_extent(GenericFunction[Extent]):  # noqa: N801  (a function in statements)
    """SQL: the `Extent` of this snapshot."""

    type = _ExtentType()
    inherit_cache = True


@compiles(seq_extent, "sqlite")
def _last_taken(_element: seq_extent, _compiler: SQLCompiler, **_options: Any) -> str:
    return "(SELECT seq FROM ledger)"


class first_open_seq(GenericFunction[int]):  # noqa: N801  (a function in statements)
    """SQL: a number below which all are of transactions that have ended, rows of logs (`event_log`) likewise."""

    type = BigInteger()
    inherit_cache = True


@compiles(first_open_seq, "sqlite")
def _no_writer_is_open(_element: first_open_seq, _compiler: SQLCompiler, **_options: Any) -> str:
    return str(2**63 - 1)


# --- on PostgreSQL ----------------------------------------------------------------------------------------------------

_POSTGRES_FUNCTIONS = (
    # Takes numbers for this transaction and returns the last of them.
    """
    CREATE FUNCTION {schema}.next_seqs(number bigint) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        taken bigint := coalesce(nullif(current_setting('graphmem.taken', true), ''), '0')::bigint + number;
    BEGIN
        IF taken >= 1 << {bits} THEN
            RAISE EXCEPTION 'more than % changes in one transaction', (1 << {bits}) - 1;
        END IF;
        PERFORM set_config('graphmem.taken', taken::text, true);
        RETURN (((SELECT seq_base FROM {schema}.ledger) + pg_current_xact_id()::text::bigint)
            << {bits}) + taken;
    END $$
    """,
    # Returns the first number of the oldest writer that is open in this snapshot, else that of the next transaction:
    # all numbers below are of transactions that have ended. Transactions of other programs are told by their lack of
    # the writers' lock. One that ended since the snapshot may be told no more, and counts as a writer.
    """
    CREATE FUNCTION {schema}.first_open_seq() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
    DECLARE
        shown pg_snapshot := pg_current_snapshot();
        first_open bigint := pg_snapshot_xmax(shown)::text::bigint;
    BEGIN
        IF pg_is_in_recovery() THEN
            first_open := pg_snapshot_xmin(shown)::text::bigint;
        ELSIF pg_snapshot_xmin(shown) < pg_snapshot_xmax(shown) THEN
            WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted),
            writers AS (
                SELECT pid FROM locks WHERE locktype = 'advisory' AND objid = {lock} AND objsubid = 1
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            ),
            strangers AS (
                SELECT transactionid FROM locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'
                AND NOT EXISTS (SELECT FROM writers WHERE writers.pid = locks.pid)
            )
            SELECT least(first_open, min(running.xid::text::bigint)) INTO first_open
            FROM pg_snapshot_xip(shown) AS running (xid)
            WHERE NOT EXISTS (SELECT FROM strangers WHERE strangers.transactionid = running.xid::xid);
        END IF;
        RETURN ((SELECT seq_base FROM {schema}.ledger) + first_open) << {bits};
    END $$
    """,
    # Returns the last number of a row below that, and then those of the rows above it (`Extent`).
    """
    CREATE FUNCTION {schema}.seq_extent() RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
    DECLARE
        bound bigint := {schema}.first_open_seq();
    BEGIN
        RETURN greatest(
            0,
            (SELECT max(seq) FROM {schema}.memories WHERE seq < bound),
            (SELECT max(seq) FROM {schema}.relations WHERE seq < bound),
            (SELECT max(seq) FROM {schema}.entities WHERE seq < bound),
            (SELECT max(seq) FROM {schema}.tombstones WHERE seq < bound)
        ) || ARRAY(
            SELECT seq FROM {schema}.memories WHERE seq >= bound
            UNION ALL SELECT seq FROM {schema}.relations WHERE seq >= bound
            UNION ALL SELECT seq FROM {schema}.entities WHERE seq >= bound
            UNION ALL SELECT seq FROM {schema}.tombstones WHERE seq >= bound
        );
    END $$
    """,
    # The rows that followers read have numbers of the same kind, for the same reason.
    "ALTER TABLE events ALTER id SET DEFAULT next_seqs(1)",
    "DROP SEQUENCE events_id_seq",
    "ALTER TABLE occurrences ALTER id SET DEFAULT next_seqs(1)",
    "DROP SEQUENCE occurrences_id_seq",
)
# The highest number of a row, and the lowest that may still be taken.
_HIGHEST = """
    SELECT greatest(
        0, (SELECT max(seq) FROM memories), (SELECT max(seq) FROM relations), (SELECT max(seq) FROM entities),
        (SELECT max(seq) FROM tombstones), (SELECT max(seq) FROM cursors), (SELECT max(id) FROM events),
        (SELECT max(id) FROM occurrences)
    )
"""
_LACKS_ROOM = (
    "SELECT ({highest}) >= (seq_base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint) << {bits} FROM ledger"
)
_MAKE_ROOM = "UPDATE ledger SET seq_base = (({highest}) >> {bits}) + 1 - pg_current_xact_id()::text::bigint"


def create_functions(connection: Connection) -> None:
    """Creates the functions that take and compare numbers, in a new ledger; does nothing on SQLite."""
    if connection.dialect.name == "postgresql":
        for statement in _POSTGRES_FUNCTIONS:
            filled = statement.format(schema=POSTGRES_SCHEMA, bits=TRANSACTION_BITS, lock=WRITER_LOCK)
            connection.exec_driver_sql(filled.replace("%", "%%"))
        make_room(connection)


def lacks_room(connection: Connection) -> bool:
    """Returns whether a row has a number that is not below all that are still to be taken.

    So it is on a PostgreSQL server that counts transactions from lower than the one before: the rows come from a dump.
    """
    statement = text(_LACKS_ROOM.format(highest=_HIGHEST, bits=TRANSACTION_BITS))
    return connection.dialect.name == "postgresql" and bool(connection.scalar(statement))


def make_room(connection: Connection) -> None:
    """Lets all further numbers be above those that rows have; in a transaction that writes alone."""
    connection.execute(text(_MAKE_ROOM.format(highest=_HIGHEST, bits=TRANSACTION_BITS)))
