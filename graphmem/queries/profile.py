"""Reads what is known of a user without a question: the standing facts, what was found last, and recent topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from graphmem.lifecycle.decay import KEPT_IMPORTANCE, KEPT_IMPORTANCE_OF_ANY, KEPT_TYPES
from graphmem.lifecycle.rules import Rule, Rules
from graphmem.model import LISTED_KINDS, Kind, ListFilter, MemoryRecord, View
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
        standing = vitals.long_term(connection, listed, MOST_STANDING)
        if not standing:
            pages = memories.list_page(
                connection, listed, ListFilter(), after=None, limit=LOOKED_THROUGH, with_sources=False
            )
            with closing(pages) as newest:
                matched = [(rule.importance, record) for record in newest if (rule := _standing_rule(record, rules))]
            standing = [record for _, record in sorted(matched, key=lambda one: -one[0])[:MOST_STANDING]]
        known = {record.id for record in standing}
        found = vitals.last_found(connection, listed, RECENT + len(known))
        recent = [record for record in found if record.id not in known][:RECENT]
        of_sessions = replace(view, kinds=frozenset({Kind.SUMMARY}))
        pages = memories.list_page(
            connection, of_sessions, ListFilter(), after=None, limit=SUMMARIES, with_sources=False
        )
        with closing(pages) as newest:
            summaries = list(newest)
        of_topics = [record.id for record in recent or standing[:RECENT]]
        mentioned = graph_reads.mentions_in(connection, view, of_topics)
    own = {record.speaker for record in (*standing, *recent)}
    in_order = sorted(mentioned, key=lambda mention: of_topics.index(mention[0]))
    names = Counter(entity.name for _, entity, _ in in_order if entity.name not in own)
    return Profile(standing, recent, summaries, [name for name, _ in names.most_common(TOPICS)])


def _standing_rule(record: MemoryRecord, rules: Rules) -> Rule | None:
    """Returns the rule by which a cycle would keep a memory, None if none would."""
    rule = rules.match(record.text)
    if rule is None:
        return None
    least = KEPT_IMPORTANCE if rule.memory_type in KEPT_TYPES else KEPT_IMPORTANCE_OF_ANY
    return rule if rule.importance >= least else None
