"""Reads the entities inside a view as callers see them: linked keys as one entity, under the name that users chose.

Links and chosen names are those of the scope's own partition. A view by agent or run alone may span the partitions of
several users, and one user's aliases of "Anna" do not apply to another user's Anna.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, func, select

from graphmem.extraction import entity_resolution
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.folding import fold, typed_spellings
from graphmem.model import Entity, EntityType, Link, View
from graphmem.stores.ledger import entity_names, visibility
from graphmem.stores.ledger.memories import BATCH, partition_row, view_values
from graphmem.stores.ledger.schema import entities, memories, mentions
from graphmem.stores.ledger.sql import entity_type


def entities_in(
    connection: Connection, view: View, *, words: str | None, kind: EntityType | None, limit: int
) -> list[Entity]:
    """Returns up to `limit` entities that memories inside the view mention, those with the most memories first.

    `words` (folded) keeps the entities of which a key or the shown name contains it, whatever marks Latin letters have;
    `kind` those of one type.
    """
    partition = partition_row(connection, view.scope.partition)
    parts = typed_spellings(words or "")
    merged = _merge_linked(
        connection,
        view,
        _mentioned_entities(connection, view),
        entity_names.all_links(connection, partition),
        entity_names.chosen_names(connection, partition),
    )
    matching = []
    for entity in merged:
        if kind is not None and entity.type is not kind:
            continue
        names = [*entity.keys, fold(entity.name)] if words else []
        spellings = [spelling for name in names for spelling in typed_spellings(name)]
        if not words or any(part in spelling for spelling in spellings for part in parts):
            matching.append(entity)
    return sorted(matching, key=lambda entity: (-entity.mentions, entity.key))[:limit]


def entity_in(connection: Connection, view: View, key: str) -> Entity | None:
    """Returns the entity with this key, linked key or (normalised) chosen name, or None.

    A key that nothing has stands for the entity with the most memories whose key differs in marks of Latin letters
    only: "lodz" for "łódź".
    Its keys and its number of mentions are those inside the view; None if no memory inside the view mentions it.
    """
    partition = partition_row(connection, view.scope.partition)
    by_key = _mentioned_entities(connection, view, [key])
    if not by_key and (named_key := entity_names.key_by_chosen_name(connection, partition, key)):
        by_key = _mentioned_entities(connection, view, [named_key])
    if not by_key:
        similar = _mentioned_entities(connection, view, entity_names.similar_keys(connection, partition, [key]))
        by_key = dict(islice(similar.items(), 1))
    if not by_key:
        return None
    links = entity_names.linked_group(connection, partition, by_key)
    members = _mentioned_entities(connection, view, {*by_key, *(link.other for link in links)})
    return next(_merge_linked(connection, view, members, links, entity_names.chosen_names(connection, partition)))


def shown_names(connection: Connection, view: View, keys: Collection[str]) -> dict[str, str]:
    """Returns the names that users chose for those of these entities that they renamed, by key.

    A name counts for all keys of an entity, but only if a memory inside the view mentions the key that it was chosen
    for. The view's memories must mention `keys`.
    """
    partition, all_chosen = entity_names.chosen_names_in(connection, view.scope.partition)
    groups = [
        (group, chosen)
        for group, chosen in entity_names.renamed_groups(connection, partition, all_chosen)
        if not set(group).isdisjoint(keys)
    ]
    unread_keys = {key for _, chosen in groups for key in chosen}.difference(keys)
    visible_keys = {*keys, *(_mentioned_entities(connection, view, unread_keys) if unread_keys else ())}
    names: dict[str, str] = {}
    for group, chosen in groups:
        visible_names = [name for key, name in chosen.items() if key in visible_keys]
        names |= dict.fromkeys(group, max(visible_names).name) if visible_names else {}
    return names


def keys_in(connection: Connection, view: View) -> list[str]:
    """Returns all keys that memories inside the view mention, those with the most memories first."""
    return list(_mentioned_entities(connection, view))


def _mentioned_entities(connection: Connection, view: View, keys: Collection[str] | None = None) -> dict[str, Entity]:
    """Returns the entities that memories inside the view mention, by key: those with these keys, or all.

    A view that spans partitions may meet a key several times, under several names: its name and type are those of the
    partition with the most memories, its `mentions` the sum.
    """
    mention_count = func.count().label("mention_count")
    statement = (
        select(entities.c.key, entities.c.name, entities.c.type, mention_count)
        .select_from(mentions)
        .join(entities, entities.c.id == mentions.c.entity)
        .join(memories, memories.c.id == mentions.c.memory)
        .where(*visibility.conditions(visibility.shape(view)))
        .group_by(entities.c.id)
        .order_by(mention_count.desc(), entities.c.key)
    )
    if keys is not None:
        statement = statement.where(entities.c.key.in_(list(keys)))
    by_key: dict[str, Entity] = {}
    for key, name, type_, count in connection.execute(statement, view_values(connection, view)):
        entity = by_key.get(key) or Entity(key, name, entity_type(type_), 0)
        by_key[key] = replace(entity, mentions=entity.mentions + count)
    return by_key


def _merge_linked(
    connection: Connection,
    view: View,
    by_key: dict[str, Entity],
    links: Iterable[Link],
    chosen: dict[str, ChosenName],
) -> Iterator[Entity]:
    """Yields one entity for each group of linked keys, then the entities without links; all with their chosen names.

    Linked keys that are not in `by_key`, because no memory inside the view mentions them, are left out.
    """
    links = list(links)
    visible = [[by_key[key] for key in group if key in by_key] for group in entity_resolution.linked_groups(links)]
    groups = [group for group in visible if len(group) > 1]
    grouped_keys = sorted({entity.key for group in groups for entity in group})
    memory_rows: dict[str, set[int]] = {key: set() for key in grouped_keys}
    for start in range(0, len(grouped_keys), BATCH):
        some = _mentioning(view, grouped_keys[start : start + BATCH]).with_only_columns(entities.c.key, memories.c.id)
        for key, row_id in connection.execute(some, view_values(connection, view)):
            memory_rows[key].add(row_id)
    for group in groups:
        memory_count = len(set[int]().union(*(memory_rows[entity.key] for entity in group)))
        yield entity_resolution.merge_entities(group, links, chosen, memory_count)
    for key, entity in by_key.items():
        if key not in memory_rows:
            yield replace(entity, name=chosen[key].name) if key in chosen else entity


def _mentioning(view: View, keys: Collection[str]) -> Select[Any]:
    return (
        select(memories.c.uid)
        .select_from(memories)
        .join(mentions, mentions.c.memory == memories.c.id)
        .join(entities, entities.c.id == mentions.c.entity)
        .where(entities.c.key.in_(list(keys)), *visibility.conditions(visibility.shape(view)))
    )


def memories_mentioning(connection: Connection, view: View, keys: Collection[str], limit: int) -> list[str]:
    """Returns the ids of up to `limit` memories inside the view that mention one of these keys, newest first."""
    newest = _mentioning(view, keys).group_by(memories.c.id).order_by(memories.c.at.desc(), memories.c.id.desc())
    return list(connection.scalars(newest.limit(limit), view_values(connection, view)))
