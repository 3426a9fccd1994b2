"""Answers what was said just before under a scope: from working memory, or from the ledger in its place.

Each answer of working memory is checked against the rows and versions that the ledger has, by one small statement. So
neither a process that writes beside this one, nor an outage, nor an erasure makes it give other messages than the
ledger would. This departs from seed 002 §2.1, whose working memory is asked alone (docs/decisions/0039).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from graphmem.commands.types import AddMessage, Command, Outcome, OutcomeType
from graphmem.ingest.chat_deduplication import last_rounds
from graphmem.model import Kind, MemoryRecord, Message, SaidMessage, Scope
from graphmem.stores.ledger import Ledger, sessions
from graphmem.stores.ledger.memories import SINGLE_SESSION
from graphmem.stores.working import WorkingMemory
from graphmem.text import estimate_tokens

# A text is cut to so many characters for each token that all messages may have: what a reader can use at most.
CHARS_PER_TOKEN = 4
# The version of the mark that stands for all messages up to a row, of a sitting that was ended. Memories begin at 1.
ENDED = 0
# What gives a memory other words.
_CHANGES = frozenset({OutcomeType.UPDATE, OutcomeType.PUT_ITEM})


class Working:
    """What was said just before: the messages of the sitting that goes on, at most `rounds` rounds and `tokens` tokens.

    The last message is always among them. `gap` is the longest pause inside a sitting. Safe to use from several
    threads.
    """

    def __init__(self, ledger: Ledger, store: WorkingMemory, gap: timedelta, rounds: int, tokens: int) -> None:
        self.store = store
        self._ledger = ledger
        self._gap = gap
        self._rounds = rounds
        self._tokens = tokens

    def said_before(self, scope: Scope) -> list[SaidMessage]:
        """Returns what was said just before under exactly this scope, oldest first; nothing after a pause."""
        now, most = datetime.now(UTC), self.store.most
        kept = self.store.recent(scope)
        ended = kept[:1] if kept and kept[0].version == ENDED else []
        last_of_ended = ended[0].row if ended else 0
        if kept is not None:
            with self._ledger.read() as connection:
                versions = sessions.versions_last_said(connection, scope, now, most)
            of_sitting = kept[len(ended) :]
            if [one for one in versions if one[0] > last_of_ended] == [(one.row, one.version) for one in of_sitting]:
                return self._sitting(of_sitting, now)
        with self._ledger.read() as connection:
            records = sessions.last_said(connection, scope, now, most)
        messages = [self._copy(record) for record in records if record.row > last_of_ended]
        said = self._sitting(messages, now)
        if said:
            self.store.replace(scope, [*ended, *messages])
        elif kept is not None and not ended:
            self.store.clear(scope)
        return said

    def end_sitting(self, scope: Scope) -> None:
        """Clears what was said under exactly this scope: whoever speaks next begins a new sitting (seed 002 §2.1).

        A mark in the place of the messages tells which is the last one that has ended. If working memory loses it, they
        are those of the sitting again, until the pause that ends one by itself.
        """
        now = datetime.now(UTC)
        with self._ledger.read() as connection:
            last = sessions.last_said(connection, scope, now, 1)
        if last:
            mark = replace(self._copy(last[-1]), id="", version=ENDED, text="", tokens=0, role=None, speaker=None)
            self.store.replace(scope, [mark])

    def committed(self, commands: Sequence[Command], outcomes: Sequence[Outcome]) -> None:
        """Adds the new messages of a committed change set, and drops what has other words now or none.

        Imported messages are not added: they are no talk that goes on.
        """
        begin = datetime.now(UTC) - self._gap
        added: dict[Scope, list[SaidMessage]] = defaultdict(list)
        changed: set[str] = set()
        for command, outcome in zip(commands, outcomes, strict=True):
            changed |= outcome.erased.partitions
            record = outcome.record
            if record is None or record.kind is not Kind.EPISODE:
                continue
            if outcome.event in _CHANGES:
                changed.add(record.partition)
            elif isinstance(command, AddMessage) and outcome.event is OutcomeType.ADD:
                is_talk = record.at >= begin and not record.session.startswith(SINGLE_SESSION)
                if is_talk:
                    added[record.scope].append(self._copy(record))
        for partition in changed:
            self.store.drop(partition)
        for scope, messages in added.items():
            self.store.push(scope, messages)

    def _copy(self, record: MemoryRecord) -> SaidMessage:
        """Returns a message as working memory keeps it, of a long text the end: what is said next is about that."""
        text = record.text[-CHARS_PER_TOKEN * self._tokens :]
        return SaidMessage(
            record.id,
            record.row,
            record.version,
            record.session,
            record.at,
            text,
            estimate_tokens(text),
            record.role,
            record.speaker,
        )

    def _sitting(self, messages: Sequence[SaidMessage], now: datetime) -> list[SaidMessage]:
        """Returns the last messages that belong to a sitting which goes on, as many as there is room for."""
        if not messages or now - messages[-1].at > self._gap:
            return []
        said, tokens = [messages[-1]], messages[-1].tokens
        for message in reversed(messages[:-1]):
            tokens += message.tokens
            if tokens > self._tokens or sessions.begins_sitting(said[0], message, self._gap):
                break
            said.insert(0, message)
        return said[last_rounds([{"role": one.role} for one in said], self._rounds) :]


def turns_before(said: Sequence[SaidMessage], question: str) -> list[Message]:
    """Returns what was said just before as turns, without the question, which may be stored already."""
    if said and said[-1].text.strip() == question.strip():
        said = said[:-1]
    return [Message(one.role or "user", one.text, one.at, one.speaker) for one in said]
