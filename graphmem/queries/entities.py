"""Reads of entities: a list of those inside a view, and one with its memories and relations."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from graphmem.answer_size import count_texts, counted
from graphmem.model import Entity, EntityType, MemoryRecord, Relation, View
from graphmem.stores.ledger import Ledger, entity_queries, graph_reads, memories


@dataclass(frozen=True, slots=True)
class EntityMemories:
    """An entity with the newest memories that mention it, by any of its names, and the relations about it."""

    entity: Entity
    records: list[MemoryRecord]
    relations: list[Relation]


def list_entities(
    ledger: Ledger, view: View, *, name_part: str | None, type_: EntityType | None, limit: int
) -> list[Entity]:
    """Returns up to `limit` entities that memories inside the view mention, those with the most memories first.

    `name_part` (folded) keeps the entities of which a key or the displayed name contains it.
    """
    with ledger.read() as connection:
        return entity_queries.entities_in(connection, view, words=name_part, kind=type_, limit=limit)


def find_entity(ledger: Ledger, view: View, key: str, limit: int) -> EntityMemories | None:
    """Returns an entity by any of its keys, with up to `limit` memories; None if no memory in the view mentions it.

    Raises AnswerTooLarge.
    """
    with ledger.read() as connection:
        entity = entity_queries.entity_in(connection, view, key)
        if entity is None:
            return None
        ids = entity_queries.memories_mentioning(connection, view, entity.keys, limit)
        with closing(memories.each_record(connection, ids)) as rows:
            found = list(counted(rows))
        records = {record.id: record for record in memories.as_they_were(connection, view, found)}
        relations = graph_reads.relations_about(connection, view, entity.keys)
        count_texts(*(fact for relation in relations for fact in relation.facts))
    return EntityMemories(entity, [records[uid] for uid in ids], relations)
