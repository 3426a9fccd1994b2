"""A `View` in SQL: one definition for every statement. Shapes are built once; values come as parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, bindparam, or_, select

from graphmem.model import ALL_KINDS, Scope, View, micros
from graphmem.stores.ledger.array_parameters import in_subquery
from graphmem.stores.ledger.schema import further_runs, memories


@dataclass(frozen=True, slots=True)
class ViewShape:
    """Which conditions a view has: the key under which its statements are kept."""

    kinds: bool
    partition: bool
    user_id: bool
    agent_id: bool
    run_id: bool
    as_of: bool
    hide_expired: bool


def shape(view: View) -> ViewShape:
    """The shape of a view."""
    scope = view.scope
    return ViewShape(
        kinds=view.kinds != ALL_KINDS,
        partition=view.partition is not None,
        user_id=scope.user_id is not None,
        agent_id=scope.agent_id is not None,
        run_id=scope.run_id is not None,
        as_of=view.as_of is not None,
        hide_expired=not view.show_expired,
    )


def conditions(shape: ViewShape, *, of_ids: bool = False) -> list[ColumnElement[bool]]:
    """The conditions on `memories`; their parameters are named by `values`.

    `of_ids`: for a statement that names its memories. SQLite would rather take an index on the partition or the agent,
    and read all there is (at 10,000 memories a third of a search); an expression has none.
    """
    m = memories.c
    found: list[ColumnElement[bool]] = [
        or_(m.valid_to.is_(None), m.valid_to > bindparam("moment")),
    ]
    if shape.kinds:
        found.append(m.kind.in_(bindparam("kinds", expanding=True)))
    if shape.partition:
        found.append((m.partition + 0 if of_ids else m.partition) == bindparam("partition"))
    parts = [name for name in ("user_id", "agent_id") if getattr(shape, name)]
    found.extend((m[name].concat("") if of_ids else m[name]) == bindparam(name) for name in parts)
    if shape.run_id:
        found.append(_in_run(memories, bindparam("run_id"), of_ids=of_ids))
    if shape.as_of:
        found.append(m.valid_from <= bindparam("moment"))
    if shape.hide_expired:
        found.append(or_(m.expires_at.is_(None), m.expires_at > bindparam("moment")))
    return found


def _in_run(table: FromClause, run: Any, *, of_ids: bool = False) -> ColumnElement[bool]:
    """That a memory was said in a run: its own, or a further one."""
    own, row = table.c.run_id, table.c.id
    again = select(further_runs.c.memory).where(further_runs.c.run_id == run)
    return or_((own.concat("") if of_ids else own) == run, in_subquery(row + 0 if of_ids else row, again))


def in_scope(scope: Scope, table: FromClause = memories) -> list[ColumnElement[bool]]:
    """That a memory carries every value a scope asks for (`MemoryRecord.is_in`)."""
    parts = dict(scope.parts)
    run = parts.pop("run_id", None)
    said = [] if run is None else [_in_run(table, run)]
    return [*(table.c[name] == value for name, value in parts.items()), *said]


def values(view: View, partition: int | None) -> dict[str, Any]:
    """The parameters of `conditions`; `partition` is the row of `view.partition`."""
    named: dict[str, Any] = {
        "moment": micros(view.moment),
        **view.scope.parts,
    }
    if view.kinds != ALL_KINDS:
        named["kinds"] = sorted(view.kinds)
    if view.partition is not None:
        named["partition"] = partition
    return named
