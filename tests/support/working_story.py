"""Stories of adds, erasures, edits and pauses, after each step of which working memory is compared with two others: the
ledger alone, and the rows as plain Python reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from sqlalchemy import select

from graphmem import Memory
from graphmem.commands.dispatch import commit
from graphmem.commands.types import ChangeSet, Command, DeleteMemory, OutcomeType, UpdateMemory
from graphmem.errors import NotFoundError, ValidationError
from graphmem.ingest.messages import message_commands
from graphmem.model import Message, SaidMessage, Scope
from graphmem.stores.ledger import memories, schema
from graphmem.stores.working.memory import ProcessWorkingMemory
from graphmem.text import estimate_tokens
from graphmem.working import Working

SCOPES = [Scope("ana"), Scope("ana", "bot"), Scope("ana", "bot", "run"), Scope("ben"), Scope(None, "bot")]
ROUNDS, TOKENS, GAP = 2, 12, timedelta(minutes=30)
WORKING = {"rounds": ROUNDS, "tokens": TOKENS}
# Minutes before now at which something is said: together, apart, and long over.
AGES = (0, 0, 0, 0, 10, 25, 45, 100, 5000)
OPERATIONS = (
    "add", "add", "add", "add", "add", "add", "add all", "document", "add elsewhere", "delete", "delete elsewhere",
    "change", "change elsewhere", "expire", "forget", "undo", "delete all", "import", "reset",
)  # fmt: skip
TEXTS = ("Tea", "I like green tea", "安娜喜欢喝绿茶", "A long sentence of many words " * 4, "x" * 90)
Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 4), st.integers(0, 8), st.integers(0, 4)), max_size=24
)


class Story:
    """A memory with working memory, and what happens to it. "elsewhere" is what another process does."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.engine = memory.engine
        assert self.engine.working is not None
        self._number = 0

    def ledger_alone(self) -> Working:
        """The same answers without any list."""
        most = ROUNDS * 4
        return Working(self.engine.ledger, ProcessWorkingMemory(0.0, most), GAP, ROUNDS, TOKENS)

    def check(self) -> None:
        alone = self.ledger_alone()
        for scope in SCOPES:
            said = self.engine.said_before(scope)
            assert said == alone.said_before(scope) == self.said_by_the_rows(scope)
            assert said == self.engine.said_before(scope)  # from the list that the first answer has begun

    def said_by_the_rows(self, scope: Scope) -> list[SaidMessage]:
        now = datetime.now(UTC)
        with self.engine.ledger.read() as connection:
            rows = memories.RECORD.where(schema.memories.c.kind == "episode")
            records = [memories.decode_record(row) for row in connection.execute(rows).mappings()]
        shown = [
            one
            for one in records
            if one.scope == scope
            and not one.session.startswith("alone:")
            and all(end is None or end > now for end in (one.valid_to, one.expires_at, one.forgotten_at))
        ]
        shown.sort(key=lambda one: (one.at, one.row))
        said: list[SaidMessage] = []
        begin = now
        session, room = None, TOKENS
        for one in reversed(shown[-ROUNDS * 4 :]):
            text = one.text[-4 * TOKENS :]
            tokens = estimate_tokens(text)
            room -= tokens
            is_over = begin - one.at > GAP or (session is not None and one.session != session)
            if is_over or (room < 0 and said):
                break
            begin, session = one.at, one.session
            said.insert(
                0, SaidMessage(one.id, one.row, one.version, session, one.at, text, tokens, one.role, one.speaker)
            )
        rounds = [
            place
            for place, one in enumerate(said)
            if one.role == "user" and (place == 0 or said[place - 1].role != "user")
        ]
        return said[rounds[-ROUNDS] :] if len(rounds) >= ROUNDS else said

    def take(self, step: Step) -> None:
        operation, which, age, what = step
        scope, at = SCOPES[which], datetime.now(UTC) - timedelta(minutes=AGES[age])
        self._number += 1
        text = f"{TEXTS[what]} {self._number}"
        message = {"role": ("user", "assistant")[what % 2], "content": text, "timestamp": at}
        if operation == "add":
            self.memory.add([message], **scope.parts)
        elif operation == "add all":
            later = {"role": "user", "content": "And then?", "timestamp": at + timedelta(minutes=age)}
            self.memory.add([message, later, {**message, "content": text + "!"}], **scope.parts)
        elif operation == "document":
            self.memory.add(f"Title: Tea\n\n{'Tea is a drink. ' * 12}{text}", **scope.parts)
        elif operation == "add elsewhere":
            self._commit(*message_commands([Message(message["role"], text, at)], scope, self.engine.ledger.digests))
        elif operation == "import":
            self.memory.import_(
                [
                    {
                        "type": "memory",
                        "id": self._uid(),
                        "text": text,
                        "at": at.isoformat(),
                        "role": "user",
                        **scope.parts,
                    }
                ]
            )
        elif operation == "delete all":
            self.memory.delete_all(**scope.parts)
        elif operation == "reset" and which == 0:
            self.memory.reset()
        elif (uid := self._chosen(age + what)) is not None:
            self._change(operation, uid, text, at)

    def _uid(self) -> str:
        return f"00000000-0000-4000-8000-{self._number:012}"

    def _change(self, operation: str, uid: str, text: str, at: datetime) -> None:
        with suppress(NotFoundError, ValidationError):
            if operation == "delete":
                self.memory.delete(uid)
            elif operation == "delete elsewhere":
                self._commit(DeleteMemory(uid))
            elif operation == "change":
                self.memory.update(uid, text=text)
            elif operation == "change elsewhere":
                self._commit(UpdateMemory(uid, text=text, corrects=True))
            elif operation == "expire":
                self.memory.update(uid, expiration_date=at - timedelta(minutes=1))
            elif operation == "forget":
                self.memory.forget(uid)
            elif operation == "undo":
                for event in self.memory.history(uid):
                    if event["event"] in {OutcomeType.UPDATE, OutcomeType.FORGET}:
                        self.memory.undo(event["id"])

    def _commit(self, *commands: Command) -> None:
        commit(self.engine.ledger, ChangeSet(commands, datetime.now(UTC)), GAP)

    def _chosen(self, place: int) -> str | None:
        with self.engine.ledger.read() as connection:
            uids = list(connection.scalars(select(schema.memories.c.uid).order_by(schema.memories.c.id.desc())))
        return uids[place % len(uids)] if uids else None


def tell(memory: Memory, story: Sequence[Step]) -> None:
    """Takes all steps, with a comparison after each."""
    told = Story(memory)
    for step in story:
        told.take(step)
        told.check()
