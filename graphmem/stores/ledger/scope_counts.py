"""Counts the memories of each user, agent and run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, and_, case, func, literal, select, union_all

from graphmem.model import SCOPE_NAMES, View, from_micros
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.memories import source_conditions, view_values
from graphmem.stores.ledger.schema import further_runs, memories


class ScopeCount(NamedTuple):
    """One user, agent or run (`name`: "user_id", "agent_id" or "run_id"), and how many of its memories are listed.

    An owner of only such memories that are in no list, such as source messages, has 0. `created_at` and `updated_at`
    are the first creation and the last change of any of its memories.
    """

    name: str
    id: str
    memories: int
    created_at: datetime
    updated_at: datetime


def scope_counts(connection: Connection, view: View, limit: int) -> list[ScopeCount]:
    """Returns the first `limit` users, agents and runs of which there are memories, users first, each by id.

    Their memories are counted as `memories.count_records` counts those of the view, without source messages.
    """
    m, shape = memories.c, visibility.shape(view)
    is_listed = and_(*visibility.conditions(shape), *source_conditions(shape, with_sources=False))

    def counted(place: int, of: ColumnElement[Any], source: FromClause) -> Any:
        return (
            select(
                literal(place).label("place"),
                of.label("id"),
                func.count(case((is_listed, 1))).label("listed"),
                func.min(m.created_at).label("created_at"),
                func.max(m.updated_at).label("updated_at"),
            )
            .select_from(source)
            .where(of.is_not(None))
            .group_by(of)
        )

    said_in = union_all(
        select(m.id.label("memory"), m.run_id.label("run_id")),
        select(further_runs.c.memory, further_runs.c.run_id),
    ).subquery()
    found = union_all(
        counted(0, m.user_id, memories),
        counted(1, m.agent_id, memories),
        counted(2, said_in.c.run_id, memories.join(said_in, said_in.c.memory == m.id)),
    ).subquery()
    statement = select(found).order_by(found.c.place, found.c.id).limit(limit)
    rows = connection.execute(statement, view_values(connection, view))
    return [
        ScopeCount(SCOPE_NAMES[row.place], row.id, row.listed, from_micros(row.created_at), from_micros(row.updated_at))
        for row in rows
    ]
