"""States as the parameters of statements, and a statement's row as a subgraph. Pure.

Neo4j is shared: a partition is stored behind the ledger's UUID, "<ledger>/<partition>".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from graphmem.model import GraphBounds, MentionEdge, MentionKind, Seeds, Subgraph, View, micros
from graphmem.stores.protocols import EntityState, MemoryState, RelationState
from graphmem.text import entity_id

# All moments lie between the years 1 and 9999: with this added they have at most 18 digits and no sign.
_SHIFT, _ROWS = 10**17, 10**12
_KINDS = 4  # a place and a kind are told in one number: place * 4 + kind

Row = dict[str, Any]


def memory_row(ledger: str, state: MemoryState) -> Row:
    """The properties of a memory's node; None takes one away."""
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
        "valid_to": None if record.valid_to is None else micros(record.valid_to),
        "expires_at": None if record.expires_at is None else micros(record.expires_at),
        "row": record.row,
        "version": record.seq,
    }


def mention_rows(state: MemoryState) -> list[Any]:
    """What a memory mentions: [its id, [[entity, kind, rank], ...]]."""
    record = state.record
    when = f"{micros(record.at) + _SHIFT:018d}{_ROWS - record.row:012d}"
    return [
        record.id,
        [[entity_id(record.partition, entity.key), int(kind), _rank(kind, when)] for entity, kind in state.mentions],
    ]


def _rank(kind: MentionKind, when: str) -> str | None:
    """What a mention is worth, as text that sorts: by kind, then the newest, then that stored first."""
    return None if kind is MentionKind.THING else f"{MentionKind.THING - kind}{when}"


def mentioned_entity_rows(ledger: str, states: Iterable[MemoryState]) -> list[Row]:
    """The entities that memories mention, each once."""
    found = {(state.record.partition, entity.key): entity for state in states for entity, _ in state.mentions}
    return [
        {**_end(ledger, partition, key, entity.name), "type": entity.type.value}
        for (partition, key), entity in found.items()
    ]


def endpoint_rows(ledger: str, states: Iterable[RelationState]) -> list[Row]:
    """The entities at the ends of relations, each once."""
    names = {(state.partition, state.relation.source): state.relation.source_name for state in states}
    names |= {(state.partition, state.relation.target): state.relation.target_name for state in states}
    return [_end(ledger, partition, key, name) for (partition, key), name in names.items()]


def _end(ledger: str, partition: str, key: str, name: str) -> Row:
    return {"id": entity_id(partition, key), "partition": f"{ledger}/{partition}", "key": key, "name": name}


def relation_row(ledger: str, state: RelationState) -> Row:
    """A relation's ends and properties."""
    said = state.relation
    source, target = entity_id(state.partition, said.source), entity_id(state.partition, said.target)
    return {
        "id": said.id,
        "version": state.seq,
        "source": source,
        "target": target,
        "properties": {
            "id": said.id,
            "partition": f"{ledger}/{state.partition}",
            "predicate": said.predicate,
            "fact": said.facts[0] if said.facts else None,
            "facts": list(said.facts),
            "memory_ids": list(said.memory_ids),
            "source": source,
            "target": target,
            "at": max((support.valid_at for support in state.supports), default=None),
            "valid_at": None if said.valid_at is None else micros(said.valid_at),
            "invalid_at": None if said.invalid_at is None else micros(said.invalid_at),
            "confidence": said.confidence,
            "version": state.seq,
        },
    }


def entity_name_row(ledger: str, state: EntityState) -> Row:
    """An entity of which something is said."""
    return {
        **_end(ledger, state.partition, state.key, state.name),
        "type": state.type.value,
        "version": state.seq,
        "same_as": [entity_id(state.partition, key) for key in state.same_as],
    }


def neighbourhood_parameters(ledger: str, view: View, seeds: Seeds, limits: GraphBounds) -> Row:
    """The parameters of a neighbourhood.

    Neo4j plans a statement anew, which takes a second or more, for other types of its parameters and other sizes of
    lists. What is inside a map does not count.
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
            "as_of": None if view.as_of is None else micros(view.as_of),
            "show_expired": view.show_expired,
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
    """What the statement for a neighbourhood returned."""
    uids: list[str] = row["memories"]
    return Subgraph(
        memories=tuple(uids),
        frequencies={key: df for key, df, *_ in row["mentions"]},
        mentions=tuple(
            [
                MentionEdge(uids[held // _KINDS], key, held % _KINDS)
                for key, _, *holders in row["mentions"]
                for held in holders
            ]
        ),
        shared_mentions=Counter((uids[held // _KINDS], held % _KINDS) for held in row["alone"]),
        next_pairs=tuple(sorted((before, after) for before, after in row["next"])),
    )
