"""Reading the graph out of the ledger's own tables: the embedded `Graph`. No copy, so no cursor and no delivery.

The hot statement reads the best mentions of many entities at once as one UNION of limited, covering index reads:
`row_number() OVER (PARTITION BY entity)` would read every hub whole (15 to 82 ms against 0.1), and one statement per
entity costs a round trip each on a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    LABEL_STYLE_TABLENAME_PLUS_COL,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    true,
    union_all,
)

from graphmem.model import (
    Entity,
    EntityType,
    GraphBounds,
    Mention,
    MentionEdge,
    MentionKind,
    Relation,
    Seeds,
    Statement,
    Subgraph,
    View,
    from_micros,
)
from graphmem.stores.ledger import entity_names, visibility
from graphmem.stores.ledger import memories as rows
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding, mention_kind
from graphmem.stores.ledger.schema import entities, memories, mentions, partitions, relations, supports

# Entities read by one UNION; short lists are padded with an entity that does not exist.
UNION_SIZE = 16
NO_ROW = -1


def neighbourhood(connection: Connection, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
    """The bounded neighbourhood of some seeds in the view's partition; see `graphmem.stores.protocols.Graph`."""
    partition = rows.partition_row(connection, view.partition or "")
    if partition is None:
        return Subgraph()
    reader = _NeighbourhoodQuery(connection, view, partition)
    named = reader.entity_rows(seeds.entities)
    start = reader.visible_seeds(seeds.memories)
    naming = reader.best_mentions(named, limits.seed_mentions)
    frontier = reader.rarest_entities([*start, *naming], limits.frontier, named)
    leads = reader.best_mentions(frontier, limits.frontier_mentions)
    found = dict.fromkeys([*start, *reader.session_rows(start, limits.steps), *naming, *leads])
    return reader.subgraph(list(found)[: limits.memories], named)


def session_neighbours(connection: Connection, rows_: Sequence[int]) -> list[tuple[int, int | None, int | None]]:
    """Each of these rows with those before and after it in its session (None: none), whatever a view would hide."""
    return [tuple(found) for found in connection.execute(_beside(), {"wanted": list(rows_)}).all()]


def next_pairs(connection: Connection, view: View, uids: Sequence[str]) -> list[tuple[str, str]]:
    """Consecutive memories of a session, one of them among these, both inside the view; partitions
    do not matter here.
    """
    wanted = list(connection.scalars(select(memories.c.id).where(memories.c.uid.in_(uids))))
    return list(_NeighbourhoodQuery(connection, replace(view, partition=None), 0).named_pairs(wanted))


class _SessionRow(NamedTuple):
    """A memory in its session: whether the view holds it, and the rows before and after it (None: none)."""

    uid: str
    before: int | None
    after: int | None
    is_visible: bool


_GONE = _SessionRow("", None, None, is_visible=False)


class _NeighbourhoodQuery:
    """The parts of one neighbourhood: a connection, a view's conditions and their values."""

    def __init__(self, connection: Connection, view: View, partition: int) -> None:
        self._connection = connection
        self._view = view
        self._partition = partition
        self._shape = visibility.shape(view)
        self._values = visibility.values(view, partition)
        self._seen: dict[int, _SessionRow] = {}

    def _all(self, statement: Any, **named: Any) -> Sequence[Any]:
        return self._connection.execute(statement, {**self._values, **named}).all()

    def entity_rows(self, keys: Sequence[str]) -> list[int]:
        values = {"partition": self._partition, "keys": list(keys)}
        known: dict[str, int] = dict(self._connection.execute(_rows_of_keys(), values).all())
        return [known[key] for key in keys if key in known]

    def visible_seeds(self, uids: Sequence[str]) -> list[int]:
        """The rows of seed memories inside the view."""
        if not uids:
            return []
        known = dict(self._all(_rows_of_ids(self._shape), uids=list(uids)))
        return [known[uid] for uid in uids if uid in known]

    def load(self, wanted: Iterable[int]) -> None:
        """Reads what is not yet known of these memories."""
        new = [row for row in wanted if row not in self._seen]
        if new:
            self._seen.update(dict.fromkeys(new, _GONE))
            self._seen.update(
                (row, _SessionRow(*told)) for row, *told in self._all(_looked_at(self._shape), wanted=new)
            )

    def session_rows(self, start: Sequence[int], steps: int) -> list[int]:
        """What is up to `steps` before or after these in the session, the nearest first; the hidden count a step."""
        found, ends = dict.fromkeys(start), list(start)
        for _ in range(steps if start else 0):
            beside = sorted({row for pair in self.next_pairs(ends) for row in pair})
            ends = [row for row in beside if row not in found]
            found.update(dict.fromkeys(ends))
        return self.visible(list(found)[len(start) :])

    def visible(self, wanted: Sequence[int]) -> list[int]:
        """The rows among these that the view holds."""
        self.load(wanted)
        return [row for row in wanted if self._seen[row].is_visible]

    def next_pairs(self, wanted: Sequence[int]) -> set[tuple[int, int]]:
        """Consecutive episodes with one of these memories in the pair."""
        self.load(wanted)
        before = {(one.before, row) for row in wanted if (one := self._seen[row]).before is not None}
        after = {(row, one.after) for row in wanted if (one := self._seen[row]).after is not None}
        return before | after

    def rarest_entities(self, start: Sequence[int], limit: int, without: Iterable[int]) -> list[int]:
        """The entities that these memories share with others, those fewest memories hold first."""
        if not start:
            return []
        values = {"start": list(start), "without": list(without), "limit": limit}
        return list(self._connection.scalars(_rarest(), values).all())

    def best_mentions(self, wanted: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` memories for each entity, the best mentions first (kind, then newest)."""
        found: list[int] = []
        for start in range(0, len(wanted), UNION_SIZE):
            block = [*wanted[start : start + UNION_SIZE], *[NO_ROW] * UNION_SIZE][:UNION_SIZE]
            named = {f"entity_{slot}": entity for slot, entity in enumerate(block)}
            found.extend(row for (row,) in self._all(_best_mentions(self._shape), limit=limit, **named))
        return found

    def subgraph(self, found: list[int], named: Sequence[int]) -> Subgraph:
        self.load(found)
        uids = {row: self._seen[row].uid for row in found}
        held = self._connection.execute(_held(), {"wanted": found}).all()
        for kind in {kind for _, kind, *_ in held}:
            mention_kind(kind)  # the edges keep numbers
        told = set(named)
        links = sorted((row, kind, key, df) for row, kind, entity, key, df in held if df > 1 or entity in told)
        alone = Counter((uids[row], kind) for row, kind, entity, _, df in held if df <= 1 and entity not in told)
        return Subgraph(
            memories=tuple(uids.values()),
            frequencies={key: df for _, _, key, df in links},
            mentions=tuple([MentionEdge(uids[row], key, kind) for row, kind, key, _ in links]),
            shared_mentions=alone,
            next_pairs=self.named_pairs(found),
        )

    def named_pairs(self, found: Sequence[int]) -> tuple[tuple[str, str], ...]:
        """Consecutive memories, by id, with at least one of these and both inside the view."""
        pairs = self.next_pairs(found)
        self.load({row for pair in pairs for row in pair})
        ends = ((self._seen[a], self._seen[b]) for a, b in pairs)
        return tuple(sorted((a.uid, b.uid) for a, b in ends if a.is_visible and b.is_visible))


@lru_cache(maxsize=1)
def _rows_of_keys() -> Select[Any]:
    return select(entities.c.key, entities.c.id).where(
        entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys")
    )


@lru_cache(maxsize=128)
def _rows_of_ids(shape: visibility.ViewShape) -> Select[Any]:
    return select(memories.c.uid, memories.c.id).where(
        in_array(memories.c.uid, "uids"), *visibility.conditions(shape, of_ids=True)
    )


@lru_cache(maxsize=1)
def _rarest() -> Select[Any]:
    linked = select(mentions.c.entity).where(in_array(mentions.c.memory, "start"), mentions.c.kind < MentionKind.THING)
    return (
        select(entities.c.id)
        .where(entities.c.id.in_(linked), ~in_array(entities.c.id, "without"), entities.c.mentions > 1)
        .order_by(entities.c.mentions, entities.c.key)
        .limit(bindparam("limit"))
    )


@lru_cache(maxsize=1)
def _beside() -> Select[Any]:
    after = memories.alias("after")
    return (
        select(memories.c.id, memories.c.previous, after.c.id)
        .outerjoin(after, after.c.previous == memories.c.id)
        .where(in_array(memories.c.id, "wanted"))
    )


@lru_cache(maxsize=1)
def _held() -> Select[Any]:
    """What memories mention."""
    return (
        select(mentions.c.memory, mentions.c.kind, entities.c.id, entities.c.key, entities.c.mentions)
        .join(entities)
        .where(in_array(mentions.c.memory, "wanted"), mentions.c.kind < MentionKind.THING)
    )


@lru_cache(maxsize=128)
def _looked_at(shape: visibility.ViewShape) -> Select[Any]:
    after = memories.alias("after")
    return (
        select(memories.c.id, memories.c.uid, memories.c.previous, after.c.id, and_(*visibility.conditions(shape)))
        .outerjoin(after, after.c.previous == memories.c.id)
        .where(in_array(memories.c.id, "wanted"))
    )


@lru_cache(maxsize=128)
def _best_mentions(shape: visibility.ViewShape) -> CompoundSelect[Any]:
    def one(slot: int) -> Select[Any]:
        return (
            select(mentions.c.memory)
            .join(memories, memories.c.id == mentions.c.memory)
            .where(
                mentions.c.entity == bindparam(f"entity_{slot}"),
                mentions.c.kind < MentionKind.THING,
                *visibility.conditions(shape),
            )
            .order_by(mentions.c.kind, mentions.c.at.desc(), mentions.c.memory)
            .limit(bindparam("limit"))
        )

    return union_all(*(select(one(slot).subquery()) for slot in range(UNION_SIZE)))


def relations_of(connection: Connection, view: View, which: ColumnElement[bool], **named: Any) -> list[Relation]:
    """The relations whose supports meet the condition, with what the view sees of them, newest first.

    A condition on `supports.c.memory` or `supports.c.relation`, with its parameters; ids, dates and facts are those
    inside the view only.
    """
    statement = _relations(visibility.shape(view)).where(which)
    values = {**rows.view_values(connection, view), "own": view.scope.partition, **named}
    found: dict[str, list[Any]] = {}
    for row in connection.execute(statement, values):
        found.setdefault(row[0], []).append(row)
    return [_relation_of(lines) for lines in found.values()]


@lru_cache(maxsize=128)
def _relations(shape: visibility.ViewShape) -> Select[Any]:
    subject, target = entities.alias("subject"), entities.alias("object")
    own: ColumnElement[str] = bindparam("own")
    return (
        select(
            relations.c.uid,
            relations.c.predicate,
            subject.c.key,
            entity_names.display_name(subject, own),
            target.c.key,
            entity_names.display_name(target, own),
            supports.c.fact,
            supports.c.valid_at,
            supports.c.invalid_at,
            memories.c.uid,
            supports.c.confidence,
        )
        .select_from(supports)
        .join(relations, relations.c.id == supports.c.relation)
        .join(memories, memories.c.id == supports.c.memory)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(*visibility.conditions(shape, of_ids=True))
        .order_by(supports.c.valid_at.desc(), memories.c.id.desc())
    )


@decoding
def _relation_of(lines: list[Any]) -> Relation:
    uid, predicate, source, source_name, target, target_name = lines[0][:6]
    ended = [line[8] for line in lines]
    return Relation(
        id=uid,
        source=source,
        source_name=source_name,
        predicate=predicate,
        target=target,
        target_name=target_name,
        facts=tuple(dict.fromkeys(line[6] for line in lines)),
        memory_ids=tuple(line[9] for line in lines),
        valid_at=from_micros(min(line[7] for line in lines)),
        # It ended only if everything that says so ended.
        invalid_at=None if None in ended else from_micros(max(ended)),
        confidence=max(line[10] for line in lines),
    )


def relations_in(connection: Connection, view: View, limit: int) -> list[Relation]:
    """The relations of a view, those stated last first."""
    newest = (
        select(supports.c.relation)
        .join(memories, memories.c.id == supports.c.memory)
        .where(*visibility.conditions(visibility.shape(view)))
        .group_by(supports.c.relation)
        .order_by(func.max(supports.c.valid_at).desc())
        .limit(limit)
    )
    wanted = list(connection.scalars(newest, rows.view_values(connection, view)))
    return relations_of(connection, view, supports.c.relation.in_(wanted))


def all_relations(connection: Connection, view: View) -> list[Relation]:
    """Every relation that a view's memories state."""
    return relations_of(connection, view, true())


def relations_about(connection: Connection, view: View, keys: Iterable[str]) -> list[Relation]:
    """The relations with one of these entities at either end."""
    ends = select(entities.c.id).where(entities.c.key.in_(list(keys)))
    about = select(relations.c.id).where(or_(relations.c.subject.in_(ends), relations.c.object.in_(ends)))
    return relations_of(connection, view, supports.c.relation.in_(about))


def relations_stated_by(connection: Connection, view: View, uids: Iterable[str]) -> list[Relation]:
    """The relations that these memories state."""
    return relations_of(connection, view, in_array(memories.c.uid, "uids"), uids=list(uids))


def names_of(connection: Connection, view: View, keys_of: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """What the view calls entities of these partitions, by key; in the first of them that knows the key."""
    if not keys:
        return {}
    statement = (
        select(partitions.c.key, entities.c.key, entity_names.display_name(entities, view.scope.partition))
        .join(partitions, partitions.c.id == entities.c.partition)
        .where(partitions.c.key.in_(list(keys_of)), entities.c.key.in_(list(keys)))
    )
    found = {(partition, key): name for partition, key, name in connection.execute(statement)}
    return {key: found[partition, key] for partition in reversed(keys_of) for key in keys if (partition, key) in found}


def statements_of(connection: Connection, uids: Iterable[str]) -> list[tuple[str, Statement, Mention, Mention]]:
    """What these memories state: (memory id, statement, its subject, its object)."""
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
    ended = None if row.supports_invalid_at is None else from_micros(row.supports_invalid_at)
    said = Statement(
        row.subject_key, row.relations_predicate, row.object_key, row.supports_fact, row.supports_confidence,
        from_micros(row.supports_valid_at), ended,
    )  # fmt: skip
    subject = Mention(row.subject_key, row.subject_name, EntityType(row.subject_type), MentionKind.NAME)
    target = Mention(row.object_key, row.object_name, EntityType(row.object_type), MentionKind.NAME)
    return row.memories_uid, said, subject, target


def mentions_of(connection: Connection, uids: Iterable[str], own: str = "") -> list[tuple[str, Entity, MentionKind]]:
    """What these memories mention: (memory id, entity, kind); `own` is the partition whose chosen names count."""
    name = entity_names.display_name(entities, own).label("name")
    statement = (
        select(memories.c.uid, mentions.c.kind, entities.c.key, entities.c.type, entities.c.mentions, name)
        .join(mentions, mentions.c.memory == memories.c.id)
        .join(entities, entities.c.id == mentions.c.entity)
        .where(memories.c.uid.in_(list(uids)))
        .order_by(memories.c.uid, mentions.c.kind, entities.c.key)
    )
    return [(row.uid, entity_names.decode_entity(row), mention_kind(row.kind)) for row in connection.execute(statement)]
