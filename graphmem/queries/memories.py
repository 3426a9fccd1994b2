"""Reads of memories that are not searches: one by its id, a page of those inside a view, who has any, the messages of a
chat that are stored, and what is known of a user without a question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from graphmem.answer_size import counted, memory_bytes
from graphmem.boundary.filters import Filter, Matcher
from graphmem.concurrency import single_blas_thread
from graphmem.lifecycle.decay import deciding_rule, kept_certainty, kept_kinds, matters, unfound_worth
from graphmem.lifecycle.importance import counted_type
from graphmem.lifecycle.likeness import kinds_of
from graphmem.lifecycle.rules import Rules
from graphmem.model import (
    ASSISTANT,
    LISTED_KINDS,
    EmbeddingSpec,
    Kind,
    ListFilter,
    MemoryRecord,
    Relation,
    Scope,
    View,
)
from graphmem.stores.ledger import Ledger, embeddings, graph_reads, integrity, memories, sessions, tombstones, vitals
from graphmem.stores.ledger.integrity import ScopeCount
from graphmem.text import question_share

# Relations in one page, the newest; `queries.graph` reads all.
RELATION_LIMIT = 100
# Seed 002 §7.2: the ten that were found last, three topics.
RECENT, TOPICS = 10, 3
# The most standing facts; memories that are looked through for some where no cycle has kept any; and summaries.
MOST_STANDING, LOOKED_THROUGH, SUMMARIES = 100, 1_000, 3


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """A page of memories; `relations` are the newest that these state.

    `total` counts the memories on all pages, `retired` those that match but are no longer true: `total` counts them
    only if the view shows them.
    """

    records: list[MemoryRecord]
    relations: list[Relation]
    total: int
    retired: int


def find_memory(ledger: Ledger, memory_id: str, scope: Scope | None) -> MemoryRecord | None:
    """Returns a memory by its id, also a retired or expired one, or None if the scope has none with this id.

    Without a scope it is looked for in the whole ledger.
    """
    with ledger.read() as connection:
        record = memories.find(connection, memory_id)
    return record if record is not None and (scope is None or record.is_in(scope)) else None


def count_by_day(ledger: Ledger, view: View, utc_offset: timedelta) -> list[tuple[date, int]]:
    """Returns the numbers of memories inside a view by the day since which they are valid, the earliest first."""
    with ledger.read() as connection:
        return memories.count_by_day(connection, view, utc_offset)


def list_memories(
    ledger: Ledger,
    view: View,
    metadata_filter: Filter | None,
    *,
    start: int,
    limit: int,
    with_sources: bool,
    retired_only: bool,
) -> MemoryPage:
    """Returns `limit` memories from position `start` of those inside a view that match the filter.

    The newest observation comes first. Source messages are left out unless `with_sources`, memories that are still true
    if `retired_only`, of a view that shows the others. Raises ValidationError for a filter that costs too much,
    AnswerTooLarge.
    """
    with ledger.read() as connection:
        records: list[MemoryRecord] = []
        if metadata_filter is None and view.as_of is None:
            list_filter = ListFilter(retired_only=retired_only)
            page = memories.list_page(
                connection, view, list_filter, after=None, limit=limit, with_sources=with_sources, offset=start
            )
            with closing(page):
                records = list(counted(page))
            total, retired = memories.count_records(connection, view, list_filter, with_sources=with_sources)
        else:
            total = retired = 0
            view_of_all = replace(view, show_retired=True)
            with closing(memories.list_records(connection, view_of_all, with_sources=with_sources)) as listed:
                matching: Iterable[MemoryRecord] = filter(Matcher(metadata_filter).matches, listed)
                if view.as_of is not None:  # facts that were updated since had other times then
                    matching = sorted(matching, key=lambda record: (record.at, record.row), reverse=True)
                for record in matching:
                    is_past = view.is_past(record.valid_to)
                    retired += is_past
                    if (retired_only and not is_past) or (is_past and not view.show_retired):
                        continue
                    total += 1
                    if start < total <= start + limit:
                        records.extend(counted([record]))
        relations = graph_reads.relations_stated_by(connection, view, [record.id for record in records])
    return MemoryPage(records, relations[:RELATION_LIMIT], total, retired)


@dataclass(frozen=True, slots=True)
class MemorySlice:
    """Part of a list of memories; `is_last`: no memory comes after these.

    `total` counts the whole list, `retired` the memories that match but are no longer true: `total` counts them only if
    the view shows them.
    """

    records: list[MemoryRecord]
    total: int
    retired: int
    is_last: bool


def memories_after(
    ledger: Ledger,
    view: View,
    list_filter: ListFilter,
    after: tuple[datetime, str] | None,
    *,
    limit: int,
    max_bytes: int,
    with_sources: bool,
) -> MemorySlice:
    """Returns up to `limit` memories of a view that match a filter, newest observation first, after a place.

    They take about `max_bytes` in an answer at most (`answer_size.memory_bytes`), or are one alone. `after` is the time
    and the id of the memory at that place (None: from the beginning), so that changes between two calls move nothing
    from one part of the list to another. A view whose scope is empty holds the whole ledger.
    """
    with ledger.read() as connection:
        page = memories.list_page(
            connection, view, list_filter, after=after, limit=limit + 1, with_sources=with_sources
        )
        taken: list[MemoryRecord] = []
        is_last, room = True, max_bytes
        with closing(page):
            for record in page:
                room -= memory_bytes(record)
                if len(taken) == limit or (taken and room < 0):
                    is_last = False
                    break
                taken.append(record)
        records = memories.as_they_were(connection, view, taken)
        total, retired = memories.count_records(connection, view, list_filter, with_sources=with_sources)
    return MemorySlice(records, total, retired, is_last)


def list_scopes(ledger: Ledger, view: View, limit: int) -> list[ScopeCount]:
    """Returns the first `limit` users, agents and runs with the number of their memories that a list of the view has.

    Users come first, each by id.
    """
    with ledger.read() as connection:
        return integrity.scope_counts(connection, view, limit)


def last_turns(ledger: Ledger, scope: Scope, limit: int) -> list[dict[str, Any]]:
    """Returns the last `limit` messages that are stored under exactly this scope, oldest first, as plain messages.

    They have their words alone, as a client sends them.
    """
    with ledger.read() as connection:
        records = sessions.last_episodes(connection, scope, limit)
    return [{"role": record.role, "name": record.actor_id, "content": record.message().content} for record in records]


def known_message_ids(ledger: Ledger, scope: Scope, ids: Iterable[str]) -> frozenset[str]:
    """Returns those of these message ids under which a message of the scope was stored, also if it was erased since."""
    key_of = {id_: ledger.digests.key_by_id(id_, scope) for id_ in ids}
    with ledger.read() as connection:
        stored = tombstones.stored_keys(connection, key_of.values())
    return frozenset(id_ for id_, key in key_of.items() if key in stored)


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a user.

    `standing` are the memories of the long-term layer, the most important first; where it has none, those that a cycle
    would keep (preferences, facts about the user, life events), those worth most first. `recent` are others,
    those that were found last first. `summaries` are the newest of sessions, `topics` the names that the recent
    memories mention most, other than those of the speakers.
    """

    standing: Sequence[MemoryRecord]
    recent: Sequence[MemoryRecord]
    summaries: Sequence[MemoryRecord]
    topics: Sequence[str]


def read_profile(ledger: Ledger, view: View, rules: Rules, spec: EmbeddingSpec) -> Profile:
    """Returns the profile of a view's scope. Its memories are those that a list shows; nothing is embedded for it."""
    listed = replace(view, kinds=LISTED_KINDS)
    with ledger.read() as connection:
        standing = _standing(connection, listed, rules, spec)
        known = {record.id for record in standing}
        found = vitals.last_found(connection, listed, RECENT + len(known))
        recent = [record for record in found if record.id not in known][:RECENT]
        summaries = list(_newest(connection, replace(view, kinds=frozenset({Kind.SUMMARY})), SUMMARIES))
        of_topics = [record.id for record in recent or standing[:RECENT]]
        mentioned = graph_reads.mentions_in(connection, view, of_topics)
    own = {record.speaker for record in (*standing, *recent)}
    in_order = sorted(mentioned, key=lambda mention: of_topics.index(mention[0]))
    names = Counter(entity.name for _, entity, _ in in_order if entity.name not in own)
    return Profile(standing, recent, summaries, [name for name, _ in names.most_common(TOPICS)])


def read_standing(ledger: Ledger, view: View, rules: Rules, spec: EmbeddingSpec) -> list[MemoryRecord]:
    """Returns the standing facts of a profile alone."""
    with ledger.read() as connection:
        return _standing(connection, replace(view, kinds=LISTED_KINDS), rules, spec)


def _standing(connection: Connection, listed: View, rules: Rules, spec: EmbeddingSpec) -> list[MemoryRecord]:
    """Returns the standing facts: none are questions and, for a profile is about the user, what an assistant says."""
    if told := list(filter(_tells_of_user, vitals.long_term(connection, listed, MOST_STANDING))):
        return told
    newest = list(filter(_tells_of_user, _newest(connection, listed, LOOKED_THROUGH)))
    worth = _worth_of_kept(connection, newest, rules, spec)
    kept = [record for record in newest if record.row in worth]
    return sorted(kept, key=lambda record: -worth[record.row])[:MOST_STANDING]


def _tells_of_user(record: MemoryRecord) -> bool:
    return record.role != ASSISTANT and question_share(record.text) < 1


def _worth_of_kept(
    connection: Connection, records: Sequence[MemoryRecord], rules: Rules, spec: EmbeddingSpec
) -> dict[int, float]:
    """Returns what those of the memories that a cycle would keep for good are worth (0..1), by row.

    They are told by the importance that a cycle computed or the caller gave, or else by the rule by which a cycle would
    rate them: by their words, and by the kind of their stored vectors. No cycle rates passages, which have words alone.
    """
    rows = [record.row for record in records]
    told = [record.row for record in records if not record.session.startswith(memories.SINGLE_SESSION)]
    rated = vitals.stored(connection, rows)
    matrices = embeddings.multilingual_matrices(connection, spec, told)
    with single_blas_thread():
        likely = kinds_of(told, matrices)
    words = vitals.words_of_sources(connection, [one.row for one in records if one.kind is Kind.FACT])
    kept = kept_kinds(rules, next(iter(likely.values()), ()))
    worth: dict[int, float] = {}
    for record in records:
        known = rated.get(record.row)
        importance, memory_type = record.importance, counted_type(record.kind, record.level, record.memory_type)
        if known is None or not (known.importance_given or known.rated == record.version):
            named = None if known is not None and known.type_computed else record.memory_type
            rule = deciding_rule(
                rules,
                record.text,
                likely.get(record.row),
                memory_type=named,
                counted_as=counted_type(record.kind, record.level, named),
                said=words.get(record.row, ""),
            )
            if rule is None:
                continue
            importance, memory_type = rule.importance, rule.memory_type if named is None else memory_type
        if matters(importance, memory_type):
            shares = likely.get(record.row)
            sure = (
                None if shares is None else kept_certainty(importance, memory_type, sum(shares[name] for name in kept))
            )
            worth[record.row] = unfound_worth(importance, sure)
    return worth


def _newest(connection: Connection, view: View, limit: int) -> Iterator[MemoryRecord]:
    page = memories.list_page(connection, view, ListFilter(), after=None, limit=limit, with_sources=False)
    with closing(page) as records:
        yield from records
