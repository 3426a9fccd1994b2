"""Reads of the graph: the entities inside a view, one with its memories and relations, and all as a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from graphmem.answer_size import count_texts, counted
from graphmem.model import Entity, EntityType, MemoryRecord, MentionKind, Relation, View
from graphmem.stores.ledger import Ledger, embedded_graph, entity_names, entity_queries, graph_reads, memories
from graphmem.text import normalise_key

if TYPE_CHECKING:
    import networkx as nx

# How many memories' neighbours one statement reads: SQLite takes at most 32,766 parameters.
BATCH = 5_000


def build_graph(ledger: Ledger, view: View, around: str | None, hops: int, limit: int) -> nx.MultiDiGraph[str]:
    """Returns the newest `limit` memories inside a view, with their entities and relations, as a networkx graph.

    Nodes are memory ids and "entity:" + entity keys; edges MENTIONS, NEXT, RELATES_TO, SAME_AS. The graph's attributes
    are the ledger's UUID and the key of the scope's partition. `around` (an entity's name or a memory's id) keeps the
    nodes at most `hops` edges away from it, in either direction; without such a node the graph is empty. Raises
    AnswerTooLarge.
    """
    import networkx as nx  # noqa: PLC0415  (takes a quarter of a second, which only this function needs)

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(ledger=ledger.uuid, partition=view.scope.partition)
    with ledger.read() as connection:
        # Their metadata, which can have a hundred times the bytes of all else, is not kept.
        with closing(memories.list_records(connection, view, with_sources=True)) as records:
            nodes = {record.id: _memory_attributes(record) for record in islice(records, limit)}
        ids = list(nodes)
        mentions = graph_reads.mentions_in(connection, view, ids)
        pairs = [
            pair
            for start in range(0, len(ids), BATCH)
            for pair in embedded_graph.next_pairs(connection, view, ids[start : start + BATCH])
        ]
        relations = graph_reads.all_relations(connection, view)
        links = entity_names.all_links(connection, memories.partition_row(connection, view.scope.partition))
        centre_entity = (
            None
            if around is None or around in ids
            else entity_queries.entity_in(connection, view, normalise_key(around))
        )
    _add_memories(graph, nodes, mentions, pairs)
    _add_relations(graph, relations)
    for link in links:
        ends = f"entity:{link.key}", f"entity:{link.other}"
        if all(end in graph for end in ends):
            graph.add_edge(*ends, key="SAME_AS", relationship="SAME_AS", origin=link.origin.value)
    if around is None:
        return graph
    key = normalise_key(around)
    if centre_entity is not None and key not in centre_entity.keys:
        key = centre_entity.key  # `around` is a name that a user chose
    centre = around if around in graph else f"entity:{key}"
    if centre not in graph:
        return graph.subgraph(()).copy()
    return graph.subgraph(nx.ego_graph(graph.to_undirected(as_view=True), centre, radius=hops)).copy()


def _add_memories(
    graph: nx.MultiDiGraph[str],
    nodes: Mapping[str, Mapping[str, Any]],
    mentions: list[tuple[str, Entity, MentionKind]],
    pairs: list[tuple[str, str]],
) -> None:
    for uid, attributes in nodes.items():
        graph.add_node(uid, **attributes)
    for uid, entity, kind in mentions:
        node = f"entity:{entity.key}"
        graph.add_node(node, node="entity", key=entity.key, name=entity.name, type=entity.type.value)
        graph.add_edge(uid, node, key="MENTIONS", relationship="MENTIONS", kind=kind.name.lower())
    for before, after in pairs:
        if before in graph and after in graph:
            graph.add_edge(before, after, key="NEXT", relationship="NEXT")


def _add_relations(graph: nx.MultiDiGraph[str], relations: list[Relation]) -> None:
    for relation in relations:
        source, target = f"entity:{relation.source}", f"entity:{relation.target}"
        if source not in graph or target not in graph:  # stated by memories beyond the limit
            continue
        count_texts(*relation.facts)
        graph.add_edge(
            source,
            target,
            key=relation.id,
            relationship="RELATES_TO",
            predicate=relation.predicate,
            facts=list(relation.facts),
            memory_ids=list(relation.memory_ids),
            confidence=relation.confidence,
            valid_at=_iso_format(relation.valid_at),
            invalid_at=_iso_format(relation.invalid_at),
        )


def _memory_attributes(record: MemoryRecord) -> dict[str, Any]:
    count_texts(record.text)
    return {
        "node": "memory",
        "memory": record.text,
        "kind": record.kind.value,
        "speaker": record.speaker,
        "actor_id": record.actor_id,
        "role": record.role,
        "at": record.at.isoformat(),
        "valid_from": record.valid_from.isoformat(),
        "valid_to": _iso_format(record.valid_to),
        "forgotten_at": _iso_format(record.forgotten_at),
        "user_id": record.scope.user_id,
        "agent_id": record.scope.agent_id,
        "run_id": record.scope.run_id,
        "version": record.version,
    }


def _iso_format(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


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
        with closing(memories.each_record(connection, {"uids": list(ids)})) as rows:
            found = list(counted(rows))
        records = {record.id: record for record in memories.as_they_were(connection, view, found)}
        relations = graph_reads.relations_about(connection, view, entity.keys)
        count_texts(*(fact for relation in relations for fact in relation.facts))
    return EntityMemories(entity, [records[uid] for uid in ids], relations)
