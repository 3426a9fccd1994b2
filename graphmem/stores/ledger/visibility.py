"""Translates a `View` or a `Scope` into SQL conditions on `memories`; every read of the ledger's tables uses these.

The same rule is in `View.holds` for a record, in `PartitionColumns.visible` for what is kept in memory, in the payload
filter of `stores.qdrant` and in the statements of `stores.neo4j`. What an index finds is checked by these conditions
again (`retrieval.evidence_reader`).

A view is split into its *shape* (which conditions it has: the key under which a built statement is cached) and its
*values* (the parameters of those conditions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, bindparam, or_, select

from graphmem.model import ALL_KINDS, Scope, View, micros
from graphmem.stores.ledger.schema import further_runs, memories, partitions
from graphmem.stores.ledger.sql import in_subquery


@dataclass(frozen=True, slots=True)
class ViewShape:
    """One flag for each condition that a view may have. Views of one shape share their cached statements."""

    kinds: bool
    partition: bool
    user_id: bool
    agent_id: bool
    run_id: bool
    as_of: bool
    hide_expired: bool
    hide_retired: bool
    hide_forgotten: bool


def shape(view: View) -> ViewShape:
    """Returns the shape of a view."""
    scope = view.scope
    return ViewShape(
        kinds=view.kinds != ALL_KINDS,
        partition=view.partition is not None,
        user_id=scope.user_id is not None,
        agent_id=scope.agent_id is not None,
        run_id=scope.run_id is not None,
        as_of=view.as_of is not None,
        hide_expired=not view.show_expired,
        hide_retired=not view.show_retired,
        hide_forgotten=not view.show_forgotten,
    )


def conditions(shape: ViewShape, *, by_id: bool = False) -> list[ColumnElement[bool]]:
    """Returns the conditions on `memories` of views of this shape; `values` returns their parameters.

    `by_id` is for statements that select memories by id or row id. It puts the columns of the other indexes into
    expressions, which no index serves: otherwise SQLite would choose the index on the partition or the agent and read
    all of it (at 10,000 memories a third of the time of a search).
    """
    m = memories.c
    clauses: list[ColumnElement[bool]] = []
    if shape.hide_retired:
        clauses.append(or_(m.valid_to.is_(None), m.valid_to > bindparam("moment")))
    if shape.kinds:
        clauses.append(m.kind.in_(bindparam("kinds", expanding=True)))
    if shape.partition:
        clauses.append((m.partition + 0 if by_id else m.partition) == bindparam("partition"))
    scope_columns = [name for name in ("user_id", "agent_id") if getattr(shape, name)]
    clauses.extend((m[name].concat("") if by_id else m[name]) == bindparam(name) for name in scope_columns)
    if shape.run_id:
        clauses.append(_in_run(memories, bindparam("run_id"), by_id=by_id))
    if shape.as_of:
        clauses.append(m.valid_from <= bindparam("moment"))
    if shape.hide_expired:
        clauses.append(or_(m.expires_at.is_(None), m.expires_at > bindparam("moment")))
    if shape.hide_forgotten:
        clauses.append(or_(m.forgotten_at.is_(None), m.forgotten_at > bindparam("moment")))
    return clauses


def is_past() -> ColumnElement[bool]:
    """Returns the condition that a memory is no longer true at the view's moment, as `View.is_past`."""
    return memories.c.valid_to <= bindparam("moment")


def _in_run(table: FromClause, run: Any, *, by_id: bool = False) -> ColumnElement[bool]:
    """Returns the condition that a memory was said in a run: first (`run_id`) or again (`further_runs`)."""
    own_run, row_id = table.c.run_id, table.c.id
    further_memories = select(further_runs.c.memory).where(further_runs.c.run_id == run)
    return or_(
        (own_run.concat("") if by_id else own_run) == run,
        in_subquery(row_id + 0 if by_id else row_id, further_memories),
    )


def scope_conditions(scope: Scope, table: FromClause = memories) -> list[ColumnElement[bool]]:
    """Returns the conditions that a memory has every id of a scope, as `MemoryRecord.is_in`.

    `table` is `memories` or an alias of it.
    """
    ids = dict(scope.parts)
    run = ids.pop("run_id", None)
    run_conditions = [] if run is None else [_in_run(table, run)]
    return [*(table.c[name] == value for name, value in ids.items()), *run_conditions]


def partition_conditions(scope: Scope) -> list[ColumnElement[bool]]:
    """Returns the condition, on `memories` joined with `partitions`, that a memory is in the partition of a scope; none
    for a scope whose memories are in several.
    """
    return [] if scope.read_partition is None else [partitions.c.key == scope.read_partition]


def values(view: View, partition: int | None) -> dict[str, Any]:
    """Returns the parameter values of the view's `conditions`; `partition` is the row id of `view.partition`."""
    parameters: dict[str, Any] = {"moment": micros(view.moment), **view.scope.parts}
    if view.kinds != ALL_KINDS:
        parameters["kinds"] = sorted(view.kinds)
    if view.partition is not None:
        parameters["partition"] = partition
    return parameters
