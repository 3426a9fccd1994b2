"""Entities as people see them: one for all the keys that are linked, called as a user chose.

Links and chosen names are those of the scope's own partition. A view by agent or run alone may span the partitions of
several users, and what one of them says of their Anna says nothing of another's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, func, select

from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Entity, EntityType, Link, View
from graphmem.stores.ledger import entity_names, visibility
from graphmem.stores.ledger.decoding import entity_type
from graphmem.stores.ledger.memories import BATCH, partition_row, view_values
from graphmem.stores.ledger.schema import entities, memories, mentions


def entities_in(
    connection: Connection, view: View, *, words: str | None, kind: EntityType | None, limit: int
) -> list[Entity]:
    """What the view's memories mention, by number of memories inside the view.

    `words` keeps what one of the names contains, chosen ones included.
    """
    partition = partition_row(connection, view.scope.partition)
    found = _mentioned(connection, view)
    shown = _grouped(
        connection,
        view,
        found,
        entity_names.all_links(connection, partition),
        entity_names.chosen_names(connection, partition),
    )
    wanted = [
        entity
        for entity in shown
        if (kind is None or entity.type is kind) and (not words or any(words in name for name in _names(entity)))
    ]
    return sorted(wanted, key=lambda entity: (-entity.mentions, entity.key))[:limit]


def _names(entity: Entity) -> list[str]:
    return [*entity.keys, entity.name.casefold()]


def entity_in(connection: Connection, view: View, key: str) -> Entity | None:
    """One entity, by any of its keys or its chosen name, as far as the view's memories mention it."""
    partition = partition_row(connection, view.scope.partition)
    known = _mentioned(connection, view, [key])
    if not known and (meant := entity_names.key_by_chosen_name(connection, partition, key)):
        known = _mentioned(connection, view, [meant])
    if not known:
        return None
    links = entity_names.linked_group(connection, partition, known)
    found = _mentioned(connection, view, {*known, *(link.other for link in links)})
    return next(_grouped(connection, view, found, links, entity_names.chosen_names(connection, partition)))


def keys_in(connection: Connection, view: View) -> list[str]:
    """All keys that the view's memories mention, those most mention first."""
    return list(_mentioned(connection, view))


def _mentioned(connection: Connection, view: View, keys: Collection[str] | None = None) -> dict[str, Entity]:
    """What the view's memories mention, by key; of these keys, or all.

    One entity for each key: a view that spans partitions may see it named in several ways.
    """
    statement = _counting(view)
    if keys is not None:
        statement = statement.where(entities.c.key.in_(list(keys)))
    found: dict[str, Entity] = {}
    for key, name, type_, count in connection.execute(statement, view_values(connection, view)):
        first = found.get(key) or Entity(key, name, entity_type(type_), 0)
        found[key] = replace(first, mentions=first.mentions + count)
    return found


def _counting(view: View) -> Select[Any]:
    counted = func.count().label("counted")
    return (
        select(entities.c.key, entities.c.name, entities.c.type, counted)
        .select_from(mentions)
        .join(entities, entities.c.id == mentions.c.entity)
        .join(memories, memories.c.id == mentions.c.memory)
        .where(*visibility.conditions(visibility.shape(view)))
        .group_by(entities.c.id)
        .order_by(counted.desc(), entities.c.key)
    )


def _grouped(
    connection: Connection,
    view: View,
    found: dict[str, Entity],
    links: Iterable[Link],
    chosen: dict[str, ChosenName],
) -> Iterator[Entity]:
    """One entity for each group of linked keys that the view mentions; what it does not mention is left out."""
    links = list(links)
    seen = [[found[key] for key in group if key in found] for group in entity_resolution.linked_groups(links)]
    several = [group for group in seen if len(group) > 1]
    grouped = {entity.key for group in several for entity in group}
    holders = _holders(connection, view, sorted(grouped))
    for group in several:
        counted = len(set[int]().union(*(holders[entity.key] for entity in group)))
        yield entity_resolution.merge_entities(group, links, chosen, counted)
    for key, entity in found.items():
        if key not in grouped:
            yield replace(entity, name=chosen[key].name) if key in chosen else entity


def _holders(connection: Connection, view: View, keys: list[str]) -> dict[str, set[int]]:
    """The rows of the view's memories that hold each of these keys."""
    found: dict[str, set[int]] = {key: set() for key in keys}
    for start in range(0, len(keys), BATCH):
        statement = _holding(view, keys[start : start + BATCH]).with_only_columns(entities.c.key, memories.c.id)
        for key, row in connection.execute(statement, view_values(connection, view)):
            found[key].add(row)
    return found


def _holding(view: View, keys: Collection[str]) -> Select[Any]:
    return (
        select(memories.c.uid)
        .select_from(memories)
        .join(mentions, mentions.c.memory == memories.c.id)
        .join(entities, entities.c.id == mentions.c.entity)
        .where(entities.c.key.in_(list(keys)), *visibility.conditions(visibility.shape(view)))
    )


def memories_mentioning(connection: Connection, view: View, keys: Collection[str], limit: int) -> list[str]:
    """The ids of the view's memories that hold one of these keys, newest first."""
    newest = _holding(view, keys).group_by(memories.c.id).order_by(memories.c.at.desc(), memories.c.id.desc())
    return list(connection.scalars(newest.limit(limit), view_values(connection, view)))
