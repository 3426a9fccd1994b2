"""Reads relations, statements, mentions and session neighbours from the ledger's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    LABEL_STYLE_TABLENAME_PLUS_COL,
    Connection,
    Select,
    bindparam,
    func,
    or_,
    select,
)

from graphmem.model import (
    Entity,
    EntityType,
    Mention,
    MentionKind,
    Relation,
    Statement,
    View,
    from_micros,
    optional_from_micros,
)
from graphmem.stores.ledger import entity_names, entity_queries, visibility
from graphmem.stores.ledger import memories as memory_rows
from graphmem.stores.ledger.schema import entities, memories, mentions, names, partitions, relations, supports
from graphmem.stores.ledger.sql import decoding, entity_type, in_array, mention_kind

# Since when a support holds; where that is unknown, when it was said: only for the order.
_SINCE = func.coalesce(supports.c.valid_at, memories.c.at)


def session_neighbours(connection: Connection, row_ids: Sequence[int]) -> list[tuple[int, int | None, int | None]]:
    """Returns (row id, row id before, row id after) in the session for each memory; None at either end.

    No view applies: memories that a view would hide are returned as well.
    """
    return [tuple(row) for row in connection.execute(_session_neighbours(), {"row_ids": list(row_ids)}).all()]


@lru_cache(maxsize=1)
def _session_neighbours() -> Select[Any]:
    after = memories.alias("after")
    return (
        select(memories.c.id, memories.c.previous, after.c.id)
        .outerjoin(after, after.c.previous == memories.c.id)
        .where(in_array(memories.c.id, "row_ids"))
    )


def _relations_of(
    connection: Connection, view: View, statement: Select[Any], values: Mapping[str, Any]
) -> list[Relation]:
    """Returns the relations whose visible supports a statement (`_relations`) finds, the newest first.

    Ids, dates and facts of a relation come only from these.
    """
    supports_by_relation: dict[str, list[Any]] = {}
    for row in connection.execute(statement, {**memory_rows.view_values(connection, view), **values}):
        supports_by_relation.setdefault(row[0], []).append(row)
    if not supports_by_relation:
        return []
    found = [_relation_of(rows) for rows in supports_by_relation.values()]
    if not any(rows[0].has_chosen_names for rows in supports_by_relation.values()):
        return found
    shown = entity_queries.shown_names(connection, view, {key for one in found for key in (one.source, one.target)})
    return [
        replace(
            one,
            source_name=shown.get(one.source, one.source_name),
            target_name=shown.get(one.target, one.target_name),
        )
        for one in found
    ]


@lru_cache(maxsize=128)
def _relations(shape: visibility.ViewShape) -> Select[Any]:
    subject, target = entities.alias("subject"), entities.alias("object")
    return (
        select(
            relations.c.uid,
            relations.c.predicate,
            subject.c.key,
            subject.c.name,
            target.c.key,
            target.c.name,
            supports.c.fact,
            supports.c.valid_at,
            supports.c.invalid_at,
            memories.c.uid,
            supports.c.confidence,
            select(names.c.key).where(names.c.partition == relations.c.partition).exists().label("has_chosen_names"),
        )
        .select_from(supports)
        .join(relations, relations.c.id == supports.c.relation)
        .join(memories, memories.c.id == supports.c.memory)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(*visibility.conditions(shape, by_id=True))
        .order_by(_SINCE.desc(), memories.c.id.desc())
    )


@decoding
def _relation_of(rows: list[Any]) -> Relation:
    uid, predicate, source, source_name, target, target_name = rows[0][:6]
    ends = [row[8] for row in rows]
    return Relation(
        id=uid,
        source=source,
        source_name=source_name,
        predicate=predicate,
        target=target,
        target_name=target_name,
        facts=tuple(dict.fromkeys(row[6] for row in rows)),
        memory_ids=tuple(row[9] for row in rows),
        valid_at=optional_from_micros(min((row[7] for row in rows if row[7] is not None), default=None)),
        # A relation has ended only if all its supports have.
        invalid_at=None if None in ends else from_micros(max(ends)),
        confidence=max(row[10] for row in rows),
    )


def all_relations(connection: Connection, view: View) -> list[Relation]:
    """Returns every relation that a memory inside the view states."""
    return _relations_of(connection, view, _relations(visibility.shape(view)), {})


def relations_about(connection: Connection, view: View, keys: Iterable[str]) -> list[Relation]:
    """Returns the relations inside the view whose subject or object is one of these entities (by key)."""
    ends = select(entities.c.id).where(entities.c.key.in_(list(keys)))
    about = select(relations.c.id).where(or_(relations.c.subject.in_(ends), relations.c.object.in_(ends)))
    statement = _relations(visibility.shape(view)).where(supports.c.relation.in_(about))
    return _relations_of(connection, view, statement, {})


def relations_stated_by(connection: Connection, view: View, uids: Iterable[str]) -> list[Relation]:
    """Returns the relations that those of these memories that are inside the view state."""
    # The partition is read with the memories, not by a statement of its own: every write and search runs this.
    values, partition = {"uids": list(uids), "partition_key": view.partition}, view.partition
    view = replace(view, partition=None)
    statement = _relations_stated_by(visibility.shape(view), in_partition=partition is not None)
    return _relations_of(connection, view, statement, values)


@lru_cache(maxsize=128)
def _relations_stated_by(shape: visibility.ViewShape, *, in_partition: bool) -> Select[Any]:
    statement = _relations(shape).where(in_array(memories.c.uid, "uids"))
    if not in_partition:
        return statement
    own = select(partitions.c.id).where(partitions.c.key == bindparam("partition_key")).scalar_subquery()
    return statement.where(memories.c.partition + 0 == own)


def entities_of(
    connection: Connection, view: View, partition_keys: Sequence[str], keys: Sequence[str]
) -> dict[str, Entity]:
    """Returns entities under the names to show, by key.

    A key that several of the partitions have takes the name and the type that it has in the first of them.
    """
    if not keys:
        return {}
    statement = (
        select(partitions.c.key, entities.c.key, entities.c.name, entities.c.type, entities.c.mentions)
        .join(partitions, partitions.c.id == entities.c.partition)
        .where(partitions.c.key.in_(list(partition_keys)), entities.c.key.in_(list(keys)))
    )
    found = {
        (partition, key): Entity(key, name, entity_type(type_), count)
        for partition, key, name, type_, count in connection.execute(statement)
    }
    by_key = {
        key: found[partition, key]
        for partition in reversed(partition_keys)
        for key in keys
        if (partition, key) in found
    }
    names = entity_queries.shown_names(connection, view, by_key.keys())
    return {key: replace(entity, name=names.get(key, entity.name)) for key, entity in by_key.items()}


def statements_of(connection: Connection, uids: Iterable[str]) -> list[tuple[str, Statement, Mention, Mention]]:
    """Returns the statements of these memories as (memory id, statement, mention of its subject, of its object)."""
    subject, target = entities.alias("subject"), entities.alias("object")
    statement = (
        select(memories.c.uid, relations.c.predicate, supports, subject, target)
        .set_label_style(LABEL_STYLE_TABLENAME_PLUS_COL)
        .join_from(supports, relations, relations.c.id == supports.c.relation)
        .join(memories, memories.c.id == supports.c.memory)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(memories.c.uid.in_(list(uids)))
        .order_by(supports.c.memory, supports.c.relation)
    )
    return [_statement_of(row) for row in connection.execute(statement)]


@decoding
def _statement_of(row: Any) -> tuple[str, Statement, Mention, Mention]:
    invalid_at = optional_from_micros(row.supports_invalid_at)
    statement = Statement(
        row.subject_key, row.relations_predicate, row.object_key, row.supports_fact, row.supports_confidence,
        optional_from_micros(row.supports_valid_at), invalid_at, is_past=row.supports_valid_at is None,
    )  # fmt: skip
    subject = Mention(row.subject_key, row.subject_name, EntityType(row.subject_type), MentionKind.NAME)
    target = Mention(row.object_key, row.object_name, EntityType(row.object_type), MentionKind.NAME)
    return row.memories_uid, statement, subject, target


def mentions_of(connection: Connection, uids: Iterable[str]) -> list[tuple[str, Entity, MentionKind]]:
    """Returns the mentions of these memories as (memory id, entity under its name in the texts, kind)."""
    statement = (
        select(memories.c.uid, mentions.c.kind, entities.c.key, entities.c.type, entities.c.mentions, entities.c.name)
        .join(mentions, mentions.c.memory == memories.c.id)
        .join(entities, entities.c.id == mentions.c.entity)
        .where(memories.c.uid.in_(list(uids)))
        .order_by(memories.c.uid, mentions.c.kind, entities.c.key)
    )
    return [(row.uid, entity_names.decode_entity(row), mention_kind(row.kind)) for row in connection.execute(statement)]


def mentions_in(connection: Connection, view: View, uids: Sequence[str]) -> list[tuple[str, Entity, MentionKind]]:
    """Returns the mentions of these memories of the view as (memory id, entity under the name to show, kind)."""
    batches = (uids[start : start + memory_rows.BATCH] for start in range(0, len(uids), memory_rows.BATCH))
    found = [mention for batch in batches for mention in mentions_of(connection, batch)]
    names = entity_queries.shown_names(connection, view, {entity.key for _, entity, _ in found})
    return [(uid, replace(entity, name=names.get(entity.key, entity.name)), kind) for uid, entity, kind in found]
