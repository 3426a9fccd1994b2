"""Reads what is known of a user without a question: the standing facts, what was found last, and recent topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from graphmem.lifecycle.decay import keeping_rule
from graphmem.lifecycle.rules import Rules
from graphmem.model import ASSISTANT, LISTED_KINDS, Kind, ListFilter, MemoryRecord, View
from graphmem.stores.ledger import Ledger, graph_reads, memories, vitals

# Seed 002 §7.2: the ten that were found last, three topics.
RECENT, TOPICS = 10, 3
# The most standing facts; memories that are looked through for some where no cycle has kept any; and summaries.
MOST_STANDING, LOOKED_THROUGH, SUMMARIES = 100, 1_000, 3


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a user.

    `standing` are the memories of the long-term layer, the most important first; where it has none, those that a rule
    would keep (preferences, facts about the user, life events). `recent` are others, those that were found last first.
    `summaries` are the newest of sessions, `topics` the names that the recent memories mention most, other than those
    of the speakers.
    """

    standing: Sequence[MemoryRecord]
    recent: Sequence[MemoryRecord]
    summaries: Sequence[MemoryRecord]
    topics: Sequence[str]


def read_profile(ledger: Ledger, view: View, rules: Rules) -> Profile:
    """Returns the profile of a view's scope. Its memories are those that a list shows."""
    listed = replace(view, kinds=LISTED_KINDS)
    with ledger.read() as connection:
        standing = _standing(connection, listed, rules)
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


def read_standing(ledger: Ledger, view: View, rules: Rules) -> list[MemoryRecord]:
    """Returns the standing facts of a profile alone."""
    with ledger.read() as connection:
        return _standing(connection, replace(view, kinds=LISTED_KINDS), rules)


def _standing(connection: Connection, listed: View, rules: Rules) -> list[MemoryRecord]:
    """Returns the standing facts; what an assistant says is none, for a profile is about the user."""
    kept = vitals.long_term(connection, listed, MOST_STANDING)
    if told := [record for record in kept if record.role != ASSISTANT]:
        return told
    matched = [
        (rule.importance, record)
        for record in _newest(connection, listed, LOOKED_THROUGH)
        if record.role != ASSISTANT and (rule := keeping_rule(rules, record.text)) is not None
    ]
    return [record for _, record in sorted(matched, key=lambda one: -one[0])[:MOST_STANDING]]


def _newest(connection: Connection, view: View, limit: int) -> Iterator[MemoryRecord]:
    page = memories.list_page(connection, view, ListFilter(), after=None, limit=limit, with_sources=False)
    with closing(page) as records:
        yield from records
