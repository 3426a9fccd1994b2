"""The graph in memory, on networkx: a `GraphIndex` without a server, for tests and notebooks.

Each entity keeps its mentions sorted by rank, so that reading the best of a hub is bounded: scanning a hub's edges took
67 ms at 100,000 memories.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from threading import RLock

import networkx as nx

from graphmem.errors import CLOSED, StoreUnavailable
from graphmem.model import Entity, GraphBounds, MemoryRecord, MentionEdge, MentionKind, Seeds, Subgraph, View, micros
from graphmem.plugins import EntityState, MemoryState, RelationState
from graphmem.text import entity_id

Node = tuple[str, ...]
MentionRank = tuple[int, int, int, str]  # kind, -time (newest first), row, memory id


class NetworkxIndex:
    """A `GraphIndex` in one directed multigraph.

    Nodes are ("memory", id) and ("entity", partition, key). Edge keys are "mentions", "next", "same_as", and the id of
    a relation.
    """

    def __init__(self) -> None:
        self._graph: nx.MultiDiGraph[Node] = nx.MultiDiGraph()
        self._mentions: dict[tuple[str, str], list[MentionRank]] = {}
        self._relations: dict[str, tuple[RelationState, Node, Node]] = {}
        self._entity_states: dict[str, EntityState] = {}
        self._lock = RLock()
        self._closed = False

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        with self._lock:
            self._check_open()
            for state in memories:
                stored_record = self._graph.nodes.get(("memory", state.record.id), {}).get("record")
                if stored_record is None or state.record.seq >= stored_record.seq:
                    formerly_mentioned = self._drop_memory(state.record.id, keep_node=True)
                    self._add_memory(state)
                    self._prune(formerly_mentioned)
            for relation in relations:
                stored = self._relations.get(relation.relation.id)
                if stored is None or relation.seq >= stored[0].seq:
                    self._drop_relation(relation.relation.id)
                    self._add_relation(relation)
            for entity in entities:
                if entity.id not in self._entity_states or entity.seq >= self._entity_states[entity.id].seq:
                    self._drop_entity_state(entity.id)
                    self._add_entity_state(entity)

    def _add_memory(self, state: MemoryState) -> None:
        record, node = state.record, ("memory", state.record.id)
        self._graph.add_node(node, record=record)
        if state.previous is not None:
            self._graph.add_edge(("memory", state.previous), node, key="next")
        for entity, kind in state.mentions:
            entity_node = ("entity", record.partition, entity.key)
            self._graph.add_node(entity_node, entity=entity)
            self._graph.add_edge(node, entity_node, key="mentions", kind=kind)
            rank = (int(kind), -micros(record.at), record.row, record.id)
            insort(self._mentions.setdefault((record.partition, entity.key), []), rank)

    def _add_relation(self, state: RelationState) -> None:
        relation = state.relation
        source, target = ("entity", state.partition, relation.source), ("entity", state.partition, relation.target)
        self._graph.add_edge(source, target, key=relation.id, relation=relation, supports=state.supports)
        self._relations[relation.id] = (state, source, target)

    def _add_entity_state(self, state: EntityState) -> None:
        node = ("entity", state.partition, state.key)
        self._entity_states[state.id] = state
        self._graph.add_node(node, name=state.name)
        for alias_node in (("entity", state.partition, key) for key in state.same_as):
            # An alias that is not in the graph yet adds the edge with its own state.
            if alias_node in self._graph and not self._graph.has_edge(alias_node, node, key="same_as"):
                self._graph.add_edge(node, alias_node, key="same_as")

    def _drop_entity_state(self, uid: str) -> None:
        state = self._entity_states.pop(uid, None)
        node = ("entity", state.partition, state.key) if state is not None else ()
        if node not in self._graph:
            return
        self._graph.nodes[node].pop("name", None)
        edges = [*self._graph.in_edges(node, keys=True), *self._graph.out_edges(node, keys=True)]
        self._graph.remove_edges_from([edge for edge in edges if edge[2] == "same_as"])

    def delete(self, memories: Sequence[str], relations: Sequence[str] = (), entities: Sequence[str] = ()) -> int:
        with self._lock:
            self._check_open()
            before = self._graph.number_of_nodes() + self._graph.number_of_edges()
            for uid in memories:
                self._prune(self._drop_memory(uid))
            for uid in relations:
                self._drop_relation(uid)
            for uid in entities:
                self._drop_entity_state(uid)
            return before - self._graph.number_of_nodes() - self._graph.number_of_edges()

    def _drop_memory(self, uid: str, *, keep_node: bool = False) -> list[Node]:
        """Removes a memory; with `keep_node`, only the edges that `_add_memory` makes, so that its successor's stays.

        Returns the entities it mentioned. Their nodes stay until `_prune`: another mention may be added first, and a
        removed node would lose its relations and aliases.
        """
        node = ("memory", uid)
        record: MemoryRecord | None = self._graph.nodes[node].get("record") if node in self._graph else None
        if record is None:
            return []
        entities = [entity for _, entity, key in self._graph.out_edges(node, keys=True) if key == "mentions"]
        for entity in entities:
            self._graph.remove_edge(node, entity, key="mentions")
            self._mentions[entity[1], entity[2]] = [
                rank for rank in self._mentions[entity[1], entity[2]] if rank[3] != uid
            ]
        for source in [source for source, _, key in self._graph.in_edges(node, keys=True) if key == "next"]:
            self._graph.remove_edge(source, node, key="next")
        if not keep_node:
            self._graph.remove_node(node)
        return entities

    def _prune(self, entities: Iterable[Node]) -> None:
        for node in entities:
            if not self._mentions[node[1], node[2]]:
                del self._mentions[node[1], node[2]]
                self._entity_states.pop(entity_id(node[1], node[2]), None)
                self._graph.remove_node(node)

    def _drop_relation(self, uid: str) -> None:
        _, source, target = self._relations.pop(uid, (None, (), ()))
        if self._graph.has_edge(source, target, key=uid):  # else it went with an entity that nothing mentions any more
            self._graph.remove_edge(source, target, key=uid)

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        with self._lock:
            self._check_open()
            seed_entities = [key for key in seeds.entities if (view.partition, key) in self._mentions]
            seed_memories = [uid for uid in seeds.memories if self._is_visible(view, uid)]
            mentioning = [uid for key in seed_entities for uid in self._best_mentions(view, key, limits.seed_mentions)]
            frontier = self._rarest_entities([*seed_memories, *mentioning], seed_entities, limits.frontier)
            reached = [uid for key in frontier for uid in self._best_mentions(view, key, limits.frontier_mentions)]
            beside = self._session_neighbours(view, seed_memories, limits.steps)
            memories = dict.fromkeys([*seed_memories, *beside, *mentioning, *reached])
            return self._subgraph(view, list(memories)[: limits.memories], seed_entities)

    def _session_neighbours(self, view: View, seed_memories: Sequence[str], steps: int) -> list[str]:
        """Returns the visible memories up to `steps` away, nearest first. An invisible one counts as a step."""
        visited, ends = dict.fromkeys(seed_memories), list(seed_memories)
        for _ in range(steps):
            beside = {uid for end in ends for pair in self._next_pairs(end) for uid in pair if uid not in visited}
            ends = sorted(beside, key=self._row)
            visited.update(dict.fromkeys(ends))
        return [uid for uid in list(visited)[len(seed_memories) :] if self._is_visible(view, uid)]

    def _row(self, uid: str) -> int:
        record: MemoryRecord | None = self._graph.nodes[("memory", uid)].get("record")
        return 0 if record is None else record.row

    def _is_visible(self, view: View, uid: str) -> bool:
        node = ("memory", uid)
        record = self._graph.nodes[node].get("record") if node in self._graph else None
        return record is not None and view.holds(record)

    def _next_pairs(self, uid: str) -> list[tuple[str, str]]:
        node = ("memory", uid)
        edges = [*self._graph.in_edges(node, keys=True), *self._graph.out_edges(node, keys=True)]
        return [(earlier[1], later[1]) for earlier, later, key in edges if key == "next"]

    def _rarest_entities(self, memories: Iterable[str], excluded: Sequence[str], limit: int) -> list[str]:
        entities = {entity.key: entity for uid in memories for entity, _ in self._mentions_of(uid)}
        linking = [entity for key, entity in entities.items() if key not in excluded and entity.mentions > 1]
        return [entity.key for entity in sorted(linking, key=lambda entity: (entity.mentions, entity.key))[:limit]]

    def _mentions_of(self, uid: str) -> list[tuple[Entity, MentionKind]]:
        mentions = [
            (self._entity(node), data["kind"])
            for _, node, key, data in self._graph.out_edges(("memory", uid), keys=True, data=True)
            if key == "mentions" and data["kind"] < MentionKind.COMMON_NOUN
        ]
        return sorted(mentions, key=lambda mention: (mention[1], mention[0].key))

    def _entity(self, node: Node) -> Entity:
        entity: Entity = self._graph.nodes[node]["entity"]
        return replace(entity, mentions=len(self._mentions[node[1], node[2]]))

    def _best_mentions(self, view: View, key: str, limit: int) -> list[str]:
        mentions = self._mentions[view.partition or "", key]
        visible = (
            uid for kind, _, _, uid in mentions if kind < MentionKind.COMMON_NOUN and self._is_visible(view, uid)
        )
        return list(islice(visible, limit))

    def _subgraph(self, view: View, memories: list[str], seed_entities: Sequence[str]) -> Subgraph:
        mentions = [(uid, entity, kind) for uid in memories for entity, kind in self._mentions_of(uid)]
        linking = [
            (uid, entity, kind) for uid, entity, kind in mentions if entity.mentions > 1 or entity.key in seed_entities
        ]
        unshared = Counter((uid, int(kind)) for uid, entity, kind in mentions if (uid, entity, kind) not in linking)
        pairs = {pair for uid in memories for pair in self._next_pairs(uid)}
        return Subgraph(
            memories=tuple(memories),
            frequencies={entity.key: entity.mentions for _, entity, _ in linking},
            mentions=tuple(MentionEdge(uid, entity.key, int(kind)) for uid, entity, kind in linking),
            unshared_mentions=dict(unshared),
            next_pairs=tuple(
                sorted(pair for pair in pairs if self._is_visible(view, pair[0]) and self._is_visible(view, pair[1]))
            ),
        )

    def count(self) -> int:
        with self._lock:
            return sum("record" in data for _, data in self._graph.nodes(data=True))

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        with self._lock:
            self._check_open()
            records = [data.get("record") for node, data in self._graph.nodes(data=True) if node[0] == "memory"]
            held_memories = [
                (record.id, record.seq)
                for record in records
                if record is not None and (partitions is None or record.partition in partitions)
            ]
            held_entities = [
                (state.id, state.seq)
                for state in self._entity_states.values()
                if partitions is None or state.partition in partitions
            ]
            held_relations = [
                (state.relation.id, state.seq)
                for state, _, _ in self._relations.values()
                if partitions is None or state.partition in partitions
            ]
        yield from held_memories
        yield from held_entities
        yield from held_relations

    def wipe(self) -> None:
        with self._lock:
            self._check_open()
            self._graph.clear()
            self._mentions.clear()
            self._relations.clear()
            self._entity_states.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self.wipe()
            self._closed = True
