"""How often memories were found, when last, and their retention at the last cycle.

Changes here take no sequence number: no projection shows them, and finding a memory is no change of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, case, exists, func, not_, or_, select

from graphmem.lifecycle.decay import MERGED_INTO, SAYS_WHAT_OTHERS_SAY, Brake, Vitals, number_of_sources
from graphmem.lifecycle.importance import counted_type
from graphmem.model import (
    ASSISTANT,
    COMPOSING_EVENTS,
    SCOPE_NAMES,
    Kind,
    Layer,
    MemoryRecord,
    Scope,
    View,
    from_micros,
    micros,
    optional_from_micros,
    optional_micros,
)
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.memories import RECORD, SINGLE_SESSION, decode_record, view_values
from graphmem.stores.ledger.schema import events, ledger, links, memories, partitions, vitals
from graphmem.stores.ledger.sessions import OF_EVENTS
from graphmem.stores.ledger.sql import decoding, in_array, larger, upsert

_EXISTING = select(memories.c.id).where(in_array(memories.c.id, "rows"))
_FOUND = select(partitions.c.key, memories.c.id, memories.c.uid).join_from(memories, partitions)
_FOUND = _FOUND.where(in_array(memories.c.id, "rows")).order_by(partitions.c.id, memories.c.id)
_STORED = select(
    vitals.c.memory,
    vitals.c.strength,
    vitals.c.accesses,
    vitals.c.accessed_at,
    vitals.c.rated,
    vitals.c.importance_given,
    vitals.c.type_computed,
).where(in_array(vitals.c.memory, "rows"))
# A version that no memory has: its importance was computed, and is to be computed again.
RATE_AGAIN = 0
_ACCESSES = select(vitals.c.accesses).where(vitals.c.memory == bindparam("row"))


class Access(NamedTuple):
    """How often a memory was found, and when last."""

    times: int
    last: datetime


class StoredVitals(NamedTuple):
    """All that is stored of a memory here: its retention, how often it was found and when last, and `rated`, the
    version of its text whose importance is stored. None: never. `importance_given`: the caller said how important.
    `type_computed`: nobody named its type, so that a changed text may get another one.
    """

    strength: float
    accesses: int
    accessed_at: datetime | None
    rated: int | None
    importance_given: bool
    type_computed: bool


class VitalState(NamedTuple):
    """What a decision about a memory rests on: the number of its last change, and how often it was found."""

    seq: int
    accesses: int


def record_accesses(connection: Connection, accesses: Mapping[int, Access]) -> None:
    """Adds accesses, by the rows of the memories, and sets their strength to 1; rows that are gone are left out."""
    stored = _existing(connection, accesses)
    if not stored:
        return
    statement = upsert(connection, vitals)
    statement = statement.on_conflict_do_update(
        index_elements=[vitals.c.memory],
        set_={
            "accesses": vitals.c.accesses + statement.excluded.accesses,
            "accessed_at": larger(vitals.c.accessed_at, statement.excluded.accessed_at),
            "strength": 1.0,
        },
    )
    rows = [
        {"memory": row, "accesses": access.times, "accessed_at": micros(access.last), "strength": 1.0}
        for row, access in sorted(accesses.items())
        if row in stored
    ]
    connection.execute(statement, rows)


def found_memories(connection: Connection, rows: Iterable[int]) -> dict[str, dict[int, str]]:
    """Returns the ids of memories by row, by the keys of their partitions; rows that are gone are left out."""
    found: dict[str, dict[int, str]] = {}
    for key, row, uid in connection.execute(_FOUND, {"rows": list(rows)}):
        found.setdefault(key, {})[row] = uid
    return found


def _existing(connection: Connection, rows: Iterable[int]) -> set[int]:
    """Returns which of these memories are still there: others may have been erased since they were read."""
    return set(connection.scalars(_EXISTING, {"rows": wanted})) if (wanted := list(rows)) else set()


def state_of(connection: Connection, record: MemoryRecord) -> VitalState:
    """Returns the state on which a decision about a memory rests now."""
    return VitalState(record.seq, connection.scalar(_ACCESSES, {"row": record.row}) or 0)


def stored(connection: Connection, rows: Sequence[int]) -> dict[int, StoredVitals]:
    """Returns what is stored of memories, by row; those of which nothing is are left out."""
    return {
        row: StoredVitals(strength, accesses, optional_from_micros(accessed_at), rated, bool(given), bool(computed))
        for row, strength, accesses, accessed_at, rated, given, computed in connection.execute(
            _STORED, {"rows": list(rows)}
        )
    }


def insert(connection: Connection, row: int, imported: StoredVitals) -> None:
    """Stores what an import brings of a new memory."""
    values = {**imported._asdict(), "accessed_at": optional_micros(imported.accessed_at)}
    connection.execute(vitals.insert().values(memory=row, **values))


def give_importance(connection: Connection, rows: Sequence[int]) -> None:
    """Records that the importance of new memories, by row, was given by the caller, so that none is computed."""
    if rows:
        connection.execute(vitals.insert(), [{"memory": row, "importance_given": True} for row in rows])


def rate_again(connection: Connection, row: int) -> None:
    """Has the next cycle compute the importance of a memory, unless the caller gave it."""
    connection.execute(
        vitals.update().where(vitals.c.memory == row, ~vitals.c.importance_given).values(rated=RATE_AGAIN)
    )


def delete(connection: Connection, row: int) -> None:
    """Deletes what is known of an erased memory."""
    connection.execute(vitals.delete().where(vitals.c.memory == row))


def long_term(connection: Connection, view: View, limit: int) -> list[MemoryRecord]:
    """Returns up to `limit` memories of the long-term layer inside a view, the most important first."""
    statement = RECORD.where(
        *visibility.conditions(visibility.shape(view)),
        memories.c.source_only.is_(False),
        memories.c.layer == Layer.LONG_TERM.value,
    )
    statement = statement.order_by(memories.c.importance.desc(), memories.c.at.desc(), memories.c.id).limit(limit)
    return [decode_record(row) for row in connection.execute(statement, view_values(connection, view)).mappings().all()]


def last_found(connection: Connection, view: View, limit: int) -> list[MemoryRecord]:
    """Returns up to `limit` memories inside a view, those that were found last first, then the newest."""
    statement = (
        RECORD.join(vitals, vitals.c.memory == memories.c.id, isouter=True)
        .where(*visibility.conditions(visibility.shape(view)), memories.c.source_only.is_(False))
        .order_by(func.coalesce(vitals.c.accessed_at, 0).desc(), memories.c.at.desc(), memories.c.id.desc())
        .limit(limit)
    )
    return [decode_record(row) for row in connection.execute(statement, view_values(connection, view)).mappings().all()]


# --- what a cycle reads and writes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnratedMemory:
    """A memory whose importance is not computed yet (`is_new`: it never was), or of an earlier text or by other rules.

    `memory_type` is the one that somebody named or a language model told. `confidence` is a language model's (0..1),
    None for what nobody drew; `question_share` that of its text. `given` is the importance that the caller gave, which
    stays.
    """

    id: str
    row: int
    version: int
    kind: Kind
    level: int
    role: str | None
    text: str
    memory_type: str | None
    confidence: float | None
    question_share: float
    created_at: datetime
    given: float | None
    is_new: bool


def _participants(*, documents: bool) -> list[ColumnElement[bool]]:
    """Returns the conditions that a memory takes part in the lifecycle: it is not forgotten, no source message, no
    summary but those that the lifecycle makes and, unless `documents`, no passage or paragraph of a document.
    """
    m = memories.c
    is_summary_of_events = and_(m.kind == Kind.SUMMARY.value, m.memory_type == OF_EVENTS)
    kinds = or_(m.kind.in_([Kind.EPISODE.value, Kind.FACT.value]), is_summary_of_events)
    conditions = [m.forgotten_at.is_(None), ~m.source_only, kinds]
    return conditions if documents else [*conditions, m.session.not_like(f"{SINGLE_SESSION}%")]


def read_all(connection: Connection, partition: int, now: datetime, *, documents: bool) -> list[Vitals]:
    """Returns the memories of a partition that take part in the lifecycle, without their texts."""
    m, v, e = memories.c, vitals.c, events.c
    shown_again_at = select(func.max(e.at)).where(e.memory == m.uid, e.event == "REMEMBER").scalar_subquery()
    own = (m.uid, m.id, m.layer, m.kind, m.memory_type)
    columns = (*(m[name] for name in SCOPE_NAMES), *(m[name] for name in _SAME_NAMES), *own)
    statement = (
        select(
            *columns,
            m.created_at,
            or_(m.valid_to.is_(None), m.valid_to > micros(now)).label("is_valid"),
            func.coalesce(v.accesses, 0).label("accesses"),
            v.accessed_at,
            func.coalesce(v.strength, 1.0).label("strength"),
            shown_again_at.label("shown_again_at"),
            and_(v.type_computed.is_(True), v.importance_given.is_not(True)).label("is_type_computed"),
        )
        .join_from(memories, vitals, v.memory == m.id, isouter=True)
        .where(m.partition == partition, *_participants(documents=documents))
        .order_by(m.id)
    )
    return [_decode(row) for row in connection.execute(statement).mappings().all()]


def summarised(connection: Connection, partition: int) -> set[int]:
    """Returns the rows of the memories of a partition that the lifecycle has made a summary of."""
    m = memories.c
    statement = (
        select(links.c.other)
        .join_from(links, memories, links.c.memory == m.id)
        .where(m.partition == partition, m.kind == Kind.SUMMARY.value, m.memory_type == OF_EVENTS)
        .where(m.forgotten_at.is_(None))
        .where(links.c.kind == "drawn_from")
    )
    return set(connection.scalars(statement))


def abstracted(connection: Connection, partition: int, level: int) -> set[int]:
    """Returns the rows of the memories of a partition of which there is an abstraction at a level, or a higher one."""
    m = memories.c
    statement = (
        select(links.c.other)
        .join_from(links, memories, links.c.memory == m.id)
        .where(m.partition == partition, m.level >= level, m.forgotten_at.is_(None), links.c.kind == "abstracts")
    )
    return set(connection.scalars(statement))


# Columns that `Vitals` has under the same names.
_SAME_NAMES = ("seq", "version", "importance", "pinned", "speaker", "role", "level")


@decoding
def _decode(row: RowMapping) -> Vitals:
    kind = Kind(row["kind"])
    return Vitals(
        id=row["uid"],
        row=row["id"],
        scope=Scope(row["user_id"], row["agent_id"], row["run_id"]),
        layer=Layer(row["layer"]),
        created_at=from_micros(row["created_at"]),
        is_valid=bool(row["is_valid"]),
        is_type_computed=bool(row["is_type_computed"]),
        accessed_at=optional_from_micros(row["accessed_at"]),
        shown_again_at=optional_from_micros(row["shown_again_at"]),
        kind=kind,
        memory_type=counted_type(kind, row["level"], row["memory_type"]),
        **{name: row[name] for name in (*_SAME_NAMES, "accesses", "strength")},
    )


def rules_of(connection: Connection, partition: int) -> str | None:
    """Returns the digest of the rules by which the memories of a partition are rated; None: none has been."""
    return connection.scalar(select(partitions.c.rules).where(partitions.c.id == partition))


def change_rules(connection: Connection, partition: int, rules: str) -> None:
    """Records the digest of rules, and has the memories of a partition that were rated by others rated anew."""
    if rules_of(connection, partition) is not None:
        of_partition = select(memories.c.id).where(memories.c.partition == partition)
        rated = vitals.update().where(vitals.c.memory.in_(of_partition), vitals.c.importance_given.is_not(True))
        connection.execute(rated.where(vitals.c.rated.is_not(None)).values(rated=RATE_AGAIN))
    connection.execute(partitions.update().where(partitions.c.id == partition).values(rules=rules))


def unrated(connection: Connection, partition: int, limit: int, *, documents: bool) -> list[UnratedMemory]:
    """Returns up to `limit` enriched memories of a partition whose importance is to be computed, oldest first."""
    m, v = memories.c, vitals.c
    statement = (
        select(
            *(m.uid, m.id, m.version, m.kind, m.level, m.role, m.text),
            case((v.type_computed.is_not(True), m.memory_type)).label("memory_type"),
            *(m.confidence, m.question_share, m.created_at),
            case((v.importance_given, m.importance)).label("given"),
            v.rated.is_(None).label("is_new"),
        )
        .join_from(memories, vitals, v.memory == m.id, isouter=True)
        .where(m.partition == partition, *_participants(documents=documents), m.embedding.is_not(None))
        .where(v.rated.is_distinct_from(m.version))
        .order_by(m.id)
        .limit(limit)
    )
    return [
        UnratedMemory(
            id=row.uid,
            row=row.id,
            version=row.version,
            kind=(kind := Kind(row.kind)),
            level=row.level,
            role=row.role,
            text=row.text,
            memory_type=row.memory_type,
            confidence=row.confidence if kind is Kind.FACT else None,
            question_share=row.question_share,
            created_at=from_micros(row.created_at),
            given=row.given,
            is_new=bool(row.is_new),
        )
        for row in connection.execute(statement)
    ]


def words_of_sources(connection: Connection, rows: Sequence[int]) -> dict[int, str]:
    """Returns the texts of what users said from which facts (row ids) were drawn, one to a line; {} for none."""
    m = memories.c
    statement = (
        select(links.c.memory, m.text)
        .join_from(links, memories, m.id == links.c.other)
        .where(in_array(links.c.memory, "rows"), links.c.kind == "drawn_from", m.role.is_distinct_from(ASSISTANT))
        .order_by(links.c.memory, m.id)
    )
    words: dict[int, list[str]] = {}
    for row, text in connection.execute(statement, {"rows": list(rows)}):
        words.setdefault(row, []).append(text)
    return {row: "\n".join(texts) for row, texts in words.items()}


class Rating(NamedTuple):
    """The importance of a version of a memory's text; `memory_type` is the computed one, None if somebody named it."""

    row: int
    version: int
    importance: float
    memory_type: str | None


_RATE = (
    memories.update()
    .where(memories.c.id == bindparam("row"), memories.c.version == bindparam("of_version"))
    .values(
        importance=bindparam("number"), memory_type=func.coalesce(bindparam("computed_type"), memories.c.memory_type)
    )
)


def store_ratings(connection: Connection, ratings: Sequence[Rating]) -> None:
    """Stores the importance of memories, but for those whose text was changed meanwhile, which stay unrated, and those
    that were erased.
    """
    connection.execute(
        _RATE,
        [
            {"row": row, "of_version": version, "number": importance, "computed_type": memory_type}
            for row, version, importance, memory_type in ratings
        ],
    )
    statement = upsert(connection, vitals)
    statement = statement.on_conflict_do_update(
        index_elements=[vitals.c.memory],
        set_={"rated": statement.excluded.rated, "type_computed": statement.excluded.type_computed},
    )
    stored = _existing(connection, (one.row for one in ratings))
    rows = [
        {
            "memory": one.row,
            "rated": one.version,
            "type_computed": one.memory_type is not None,
            "strength": 1.0,
            "accesses": 0,
        }
        for one in ratings
        if one.row in stored
    ]
    if rows:
        connection.execute(statement, rows)


def store_strengths(connection: Connection, strengths: Mapping[int, float]) -> None:
    """Stores the retentions of memories, by row, as a cycle computed them; rows that are gone are left out."""
    stored = _existing(connection, strengths)
    if not stored:
        return
    statement = upsert(connection, vitals)
    statement = statement.on_conflict_do_update(
        index_elements=[vitals.c.memory], set_={"strength": statement.excluded.strength}
    )
    rows = [
        {"memory": row, "strength": value, "accesses": 0} for row, value in sorted(strengths.items()) if row in stored
    ]
    connection.execute(statement, rows)


def mean_retention(connection: Connection) -> float | None:
    """Returns the mean retention at the last cycle of the short-term memories that are not forgotten; None if none is.

    Those of documents count with the others.
    """
    m, v = memories.c, vitals.c
    statement = (
        select(func.avg(func.coalesce(v.strength, 1.0)))
        .select_from(memories)
        .join(vitals, v.memory == m.id, isouter=True)
        .where(m.layer == Layer.SHORT_TERM.value, *_participants(documents=True))
    )
    return connection.scalar(statement)


def compression_ratio(connection: Connection) -> float | None:
    """Returns how many memories one stands for in the mean that a cycle kept for like ones, or had made of them.

    One that was kept is one of them. Those that are forgotten do not count, nor those that only took others in when
    they were in the long-term layer already; None if there is none.
    """
    m, e = memories.c, events.c
    is_kept = and_(e.event == "PROMOTE", e.reason.startswith(SAYS_WHAT_OTHERS_SAY.partition("{")[0]))
    is_merged = and_(e.event == "COMPRESS", m.kind != Kind.SUMMARY.value)
    statement = (
        select(e.memory, e.reason)
        .join_from(events, memories, m.uid == e.memory)
        .where(m.layer == Layer.LONG_TERM.value, m.forgotten_at.is_(None), or_(is_kept, is_merged))
        .order_by(e.id)
    )
    latest = {row.memory: number_of_sources(row.reason) for row in connection.execute(statement)}
    numbers = [number for number in latest.values() if number]
    return sum(numbers) / len(numbers) if numbers else None


# --- what is told of the lifecycle ----------------------------------------------------------------------------------


class LayerCount(NamedTuple):
    """How many memories of a layer there are, pinned or not."""

    layer: Layer
    pinned: bool
    memories: int


@dataclass(frozen=True, slots=True)
class PastCycle:
    """A cycle that changed memories, and how many it forgot, merged (of the forgotten ones), promoted and composed.

    Memories that were erased since are not counted. `is_undone`: of what it did nothing holds any more.
    """

    id: str
    at: datetime
    forgotten: int
    merged: int
    promoted: int
    composed: int
    is_undone: bool


def count_layers(connection: Connection, scope: Scope, now: datetime, *, documents: bool) -> list[LayerCount]:
    """Returns the numbers of memories of a scope that take part in the lifecycle and that a list of `now` shows."""
    m = memories.c
    statement = (
        select(m.layer, m.pinned, func.count())
        .join_from(memories, partitions)
        .where(*visibility.partition_conditions(scope), *visibility.scope_conditions(scope))
        .where(*_participants(documents=documents))
        .where(*(or_(end.is_(None), end > micros(now)) for end in (m.valid_to, m.expires_at)))
        .group_by(m.layer, m.pinned)
    )
    return [LayerCount(Layer(layer), bool(pinned), number) for layer, pinned, number in connection.execute(statement)]


def past_cycles(connection: Connection, scope: Scope, limit: int) -> list[PastCycle]:
    """Returns the last `limit` cycles that changed memories of a scope, the newest first."""
    m, e, later = memories.c, events.c, events.alias("later").c
    is_forgotten, is_promoted = e.event == "FORGET", e.event == "PROMOTE"
    is_demoted_since = exists().where(later.memory == e.memory, later.event == "DEMOTE", later.id > e.id)
    is_composed = e.event.in_(COMPOSING_EVENTS)
    holds = or_(
        and_(is_forgotten, m.forgotten_at == e.at),
        and_(is_promoted, not_(is_demoted_since)),
        and_(is_composed, m.forgotten_at.is_(None)),
    )
    last = func.max(e.id)

    def number(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count(case((condition, 1)))

    statement = (
        select(
            e.batch,
            func.max(e.at),
            number(is_forgotten),
            number(and_(is_forgotten, e.reason.startswith(MERGED_INTO))),
            number(is_promoted),
            number(is_composed),
            number(holds),
        )
        .join_from(memories, partitions)
        .join(events, e.memory == m.uid)
        .where(*visibility.partition_conditions(scope), *visibility.scope_conditions(scope), e.batch.is_not(None))
        .group_by(e.batch)
        .order_by(last.desc())
        .limit(limit)
    )
    return [
        PastCycle(cycle, from_micros(at), forgotten, merged, promoted, composed, is_undone=holding == 0)
        for cycle, at, forgotten, merged, promoted, composed, holding in connection.execute(statement)
    ]


class LastCycle(NamedTuple):
    """When the last cycle of a partition ended, what held it (None: it ran), and how many memories it changed.

    The latter is None if that is not known, as of an export that does not say it.
    """

    ended_at: datetime
    held: Brake | None
    changed: int | None


class LastCycles(NamedTuple):
    """The last cycles of all partitions together: when the latest ended (None: there was none), of how many partitions
    they are, how many memories they changed, and how many of them the brake held.
    """

    ended_at: datetime | None
    partitions: int
    changed: int
    held: int


def last_cycle(connection: Connection, partition: str) -> LastCycle | None:
    """Returns the last cycle of a partition, None if there was none."""
    return dict(last_cycles(connection, [partition])).get(partition)


def last_cycles(connection: Connection, keys: Sequence[str]) -> list[tuple[str, LastCycle]]:
    """Returns the last cycle of each of some partitions that had one, by their keys."""
    p = partitions.c
    statement = select(p.key, p.cycled_at, p.held_forgotten, p.held_memories, p.cycle_changed)
    statement = statement.where(in_array(p.key, "keys"), p.cycled_at.is_not(None)).order_by(p.id)
    return [
        (key, LastCycle(from_micros(ended_at), None if forgotten is None else Brake(forgotten, of_memories), changed))
        for key, ended_at, forgotten, of_memories, changed in connection.execute(statement, {"keys": list(keys)})
    ]


def all_last_cycles(connection: Connection) -> LastCycles:
    """Returns what the last cycles of all partitions did."""
    p = partitions.c
    numbers = (func.count(p.cycled_at), func.coalesce(func.sum(p.cycle_changed), 0), func.count(p.held_forgotten))
    ended_at, *counts = connection.execute(select(func.max(p.cycled_at), *numbers)).one()
    return LastCycles(None if ended_at is None else from_micros(ended_at), *map(int, counts))


def end_cycle(connection: Connection, partition: int, cycle: LastCycle) -> None:
    """Records the last cycle of a partition."""
    connection.execute(partitions.update().where(partitions.c.id == partition).values(_encode_cycle(cycle)))


def import_cycle(connection: Connection, partition: int, cycle: LastCycle) -> bool:
    """Records the last cycle of a partition elsewhere; returns False, and changes nothing, if it had one here."""
    had_none = partitions.update().where(partitions.c.id == partition, partitions.c.cycled_at.is_(None))
    return connection.execute(had_none.values(_encode_cycle(cycle))).rowcount > 0


def _encode_cycle(cycle: LastCycle) -> dict[str, int | None]:
    held_forgotten, held_memories = (None, None) if cycle.held is None else (cycle.held.forgotten, cycle.held.memories)
    held = {"held_forgotten": held_forgotten, "held_memories": held_memories}
    return {"cycled_at": micros(cycle.ended_at), "cycle_changed": cycle.changed, **held}


def import_since(connection: Connection, since: datetime) -> bool:
    """Records since when the lifecycle of another ledger is enabled, in one that has no memories.

    In any other it returns False and changes nothing: its own memories would fade from a time on at which its lifecycle
    was off.
    """
    has_no_memories = ~select(memories.c.id).exists()
    return connection.execute(ledger.update().where(has_no_memories).values(lifecycle_since=micros(since))).rowcount > 0


def lifecycle_since(connection: Connection) -> datetime | None:
    """Returns when the lifecycle of this ledger was first enabled, None if it never was."""
    since = connection.scalar(select(ledger.c.lifecycle_since))
    return None if since is None else from_micros(since)


def begin_lifecycle(connection: Connection, now: datetime) -> None:
    """Records that the lifecycle of this ledger was first enabled at `now`, unless it was before."""
    connection.execute(ledger.update().where(ledger.c.lifecycle_since.is_(None)).values(lifecycle_since=micros(now)))
