"""How often memories were found, when last, and their retention at the last cycle.

Changes here take no sequence number: no projection shows them, and finding a memory is no change of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from graphmem.model import MemoryRecord, micros
from graphmem.stores.ledger.dialects import larger, upsert
from graphmem.stores.ledger.schema import vitals

# Rows of one statement.
BATCH = 500
_ACCESSES = select(vitals.c.accesses).where(vitals.c.memory == bindparam("row"))


class Access(NamedTuple):
    """How often a memory was found, and when last."""

    times: int
    last: datetime


class VitalState(NamedTuple):
    """What a decision about a memory rests on: the number of its last change, and how often it was found."""

    seq: int
    accesses: int


def record_accesses(connection: Connection, accesses: Mapping[int, Access]) -> None:
    """Adds accesses, by the rows of the memories, and sets their strength to 1; rows that are gone are left out."""
    if not accesses:
        return
    statement = upsert(connection, vitals)
    statement = statement.on_conflict_do_update(
        index_elements=[vitals.c.memory],
        set_={
            "accesses": vitals.c.accesses + statement.excluded.accesses,
            "accessed_at": larger(vitals.c.accessed_at, statement.excluded.accessed_at),
            "strength": 1.0,
        },
    )
    rows = [
        {"memory": row, "accesses": access.times, "accessed_at": micros(access.last), "strength": 1.0}
        for row, access in sorted(accesses.items())
    ]
    connection.execute(statement, rows)


def state_of(connection: Connection, record: MemoryRecord) -> VitalState:
    """Returns the state on which a decision about a memory rests now."""
    return VitalState(record.seq, connection.scalar(_ACCESSES, {"row": record.row}) or 0)


def delete(connection: Connection, row: int) -> None:
    """Deletes what is known of an erased memory."""
    connection.execute(vitals.delete().where(vitals.c.memory == row))
