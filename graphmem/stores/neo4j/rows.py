"""Converts states to statement parameters, and a statement's row to a `Subgraph`. Pure functions.

A Neo4j database may hold several ledgers: a partition is stored as "<ledger UUID>/<partition>".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from typing import Any

from graphmem.model import GraphBounds, MentionEdge, MentionKind, Seeds, Subgraph, View, micros, optional_micros
from graphmem.plugins import EntityState, MemoryState, RelationState
from graphmem.text import entity_id
from graphmem.times import shown

# Added to microseconds: all moments between the years 1 and 9999 then have at most 18 digits and no sign.
_MICROS_OFFSET = 10**17
# Larger than every row number: subtracted from it, lower rows sort higher.
_MAX_ROW = 10**12
# The neighbourhood statement returns a mention as one number, place * 4 + kind; place is the memory's position.
_KINDS = 4

Row = dict[str, Any]


def memory_row(ledger: str, state: MemoryState, zone: tzinfo | None) -> Row:
    """Returns the properties of a memory's node, its dates by the clock of a zone; None removes a property."""
    record = state.record
    return {
        "id": record.id,
        "partition": f"{ledger}/{record.partition}",
        "user_id": record.scope.user_id,
        "agent_id": record.scope.agent_id,
        "run_id": record.scope.run_id,
        "further_runs": list(record.further_runs) or None,
        "kind": record.kind.value,
        "speaker": record.speaker,
        "text": record.text,
        "at": micros(record.at),
        "valid_from": micros(record.valid_from),
        "valid_to": optional_micros(record.valid_to),
        "expires_at": optional_micros(record.expires_at),
        "forgotten_at": optional_micros(record.forgotten_at),
        "date": shown(record.at, zone).isoformat(),
        "until": _optional_date(record.valid_to, zone),
        "row": record.row,
        "seq": record.seq,
    }


def _optional_date(moment: datetime | None, zone: tzinfo | None) -> str | None:
    return None if moment is None else shown(moment, zone).isoformat()


def mention_rows(state: MemoryState) -> list[Any]:
    """Returns a memory's mentions as [memory id, [[entity id, kind, rank], ...]].

    The rank is a sortable text, an entity's best mention highest: by kind, then newest, then stored first. It is None
    for common nouns.
    """
    record = state.record
    recency = f"{micros(record.at) + _MICROS_OFFSET:018d}{_MAX_ROW - record.row:012d}"
    rows = []
    for entity, kind in state.mentions:
        rank = None if kind is MentionKind.COMMON_NOUN else f"{MentionKind.COMMON_NOUN - kind}{recency}"
        rows.append([entity_id(record.partition, entity.key), int(kind), rank])
    return [record.id, rows]


def mentioned_entity_rows(ledger: str, states: Iterable[MemoryState]) -> list[Row]:
    """Returns the node properties of all entities that the memories mention, each once."""
    entities = {(state.record.partition, entity.key): entity for state in states for entity, _ in state.mentions}
    return [
        {**_entity_row(ledger, partition, key, entity.name), "type": entity.type.value}
        for (partition, key), entity in entities.items()
    ]


def endpoint_rows(ledger: str, states: Iterable[RelationState]) -> list[Row]:
    """Returns the node properties of both entities of each relation, each entity once."""
    names = {(state.partition, state.relation.source): state.relation.source_name for state in states}
    names |= {(state.partition, state.relation.target): state.relation.target_name for state in states}
    return [_entity_row(ledger, partition, key, name) for (partition, key), name in names.items()]


def _entity_row(ledger: str, partition: str, key: str, name: str) -> Row:
    return {"id": entity_id(partition, key), "partition": f"{ledger}/{partition}", "key": key, "name": name}


def relation_row(ledger: str, state: RelationState, zone: tzinfo | None) -> Row:
    """Returns a relation's endpoints, seq and properties."""
    relation = state.relation
    source, target = entity_id(state.partition, relation.source), entity_id(state.partition, relation.target)
    return {
        "id": relation.id,
        "seq": state.seq,
        "source": source,
        "target": target,
        "properties": {
            "id": relation.id,
            "partition": f"{ledger}/{state.partition}",
            "predicate": relation.predicate,
            "fact": relation.facts[0] if relation.facts else None,
            "facts": list(relation.facts),
            "memory_ids": list(relation.memory_ids),
            "source": source,
            "target": target,
            "at": max((one.valid_at for one in state.supports if one.valid_at is not None), default=None),
            "valid_at": optional_micros(relation.valid_at),
            "invalid_at": optional_micros(relation.invalid_at),
            "since": _optional_date(relation.valid_at, zone),
            "until": _optional_date(relation.invalid_at, zone),
            "confidence": relation.confidence,
            "seq": state.seq,
        },
    }


def entity_name_row(ledger: str, state: EntityState) -> Row:
    """Returns the node properties of an entity with a state, and the ids of its aliases."""
    return {
        **_entity_row(ledger, state.partition, state.key, state.name),
        "type": state.type.value,
        "seq": state.seq,
        "same_as": [entity_id(state.partition, key) for key in state.same_as],
    }


def neighbourhood_parameters(ledger: str, view: View, seeds: Seeds, limits: GraphBounds) -> Row:
    """Returns the parameters of `cypher/runtime/neighbourhood.cypher`.

    View and seeds are passed as maps: Neo4j plans a statement again, which takes a second or more, whenever a
    parameter's type or a list's size changes, but not for changes inside a map.
    """
    return {
        "ledger": ledger,
        "view": {
            "partition": f"{ledger}/{view.partition}",
            "user_id": view.scope.user_id,
            "agent_id": view.scope.agent_id,
            "run_id": view.scope.run_id,
            "kinds": sorted(view.kinds),
            "moment": micros(view.moment),
            "as_of": optional_micros(view.as_of),
            "show_expired": view.show_expired,
            "show_retired": view.show_retired,
            "show_forgotten": view.show_forgotten,
        },
        "seeds": {
            "memories": list(dict.fromkeys(seeds.memories)),
            "entities": [entity_id(view.partition or "", key) for key in dict.fromkeys(seeds.entities)],
        },
        "steps": limits.steps,
        "seed_mentions": limits.seed_mentions,
        "frontier": limits.frontier,
        "frontier_mentions": limits.frontier_mentions,
        "most": limits.memories,
    }


def parse_subgraph(row: Mapping[str, Any]) -> Subgraph:
    """Converts the row that `cypher/runtime/neighbourhood.cypher` returns."""
    uids: list[str] = row["memories"]
    return Subgraph(
        memories=tuple(uids),
        frequencies={key: df for key, df, *_ in row["mentions"]},
        mentions=tuple(
            [
                MentionEdge(uids[number // _KINDS], key, number % _KINDS)
                for key, _, *numbers in row["mentions"]
                for number in numbers
            ]
        ),
        unshared_mentions=Counter((uids[number // _KINDS], number % _KINDS) for number in row["alone"]),
        next_pairs=tuple(sorted((before, after) for before, after in row["next"])),
    )
