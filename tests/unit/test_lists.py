"""Lists of messages: they leave the ledger that the same messages leave one by one, by few statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import select
from support.databases import SQLITE, SQLITE_ONLY, postgres
from support.fakes import NOON, Clerk
from support.ledger_snapshot import contents_without_ids
from support.statement_count import counted

from graphmem import Memory
from graphmem.commands.types import AddAlias, DeleteMemory, ForgetMemory, MessageIdReused, UpdateMemory
from graphmem.concurrency import Pool
from graphmem.errors import NotFoundError
from graphmem.extraction import Extractor
from graphmem.ingest.messages import message_commands
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Message, Scope, Statement, Utterance
from graphmem.stores.ledger import Ledger, jobs, memories
from graphmem.stores.ledger import schema as s
from graphmem.stores.ledger.postgres import parse_url
from graphmem.stores.ledger.sequence import seq_extent

ALICE, BOB = Scope("alice"), Scope("bob")
RUN, AGENT = Scope("alice", run_id="run"), Scope("alice", "agent")
# Names for each of the rules for aliases, and one that two kinds of things have.
PERSONS = ("Anna", "Anna Berg", "Anna Roth", "Alison Berg", "Allison Berg", "Bo", "Robert", "Tom", "Tom Kuhn")
PLACES, PHRASES = ("Paris", "St. Gallen", "St Gallen", "Tom"), ("data structures", "mercedes")
THINGS = ("Data Structures", "Mercedes", "Acme")


@dataclass(frozen=True)
class Said:
    """A message `at` minutes after noon; `own_time`: a repetition is recognised by it."""

    text: str
    at: float = 0
    scope: Scope = ALICE
    id: str | None = None
    name: str | None = None
    own_time: bool = False


class NamesInText:
    """An Extractor that knows a few names; the first two of a text are in a relation."""

    name = "names"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        return [self._extract(utterance.text) for utterance in utterances]

    def _extract(self, text: str) -> Extraction:
        found: dict[str, Mention] = {}
        kinds = ((PERSONS, EntityType.PERSON), (PLACES, EntityType.PLACE), (THINGS, EntityType.ORGANIZATION))
        for names, type_ in kinds[:: -1 if "place" in text else 1]:
            for name in (name for name in names if name in text):
                found.setdefault(name.lower(), Mention(name.lower(), name, type_, MentionKind.NAME))
        for phrase in (phrase for phrase in PHRASES if phrase in text):
            key = phrase.removesuffix("s")
            found.setdefault(key, Mention(key, phrase, EntityType.OTHER, MentionKind.NOUN_PHRASE))
        predicate = "be called" if "call" in text else "meet"
        facts = [text[:12], text[3:15]] if "twice" in text else [text[:12]]
        pair = list(found)[:2]
        stated = tuple(Statement(pair[0], predicate, pair[1], fact) for fact in facts) if len(pair) > 1 else ()
        return Extraction(tuple(found.values()), stated)


class Writer:
    """Writes lists of messages to a ledger: each at once, or (`singly`) message by message and text by text."""

    def __init__(self, clerk: Clerk, *, singly: bool) -> None:
        self.clerk = clerk
        self._singly = singly

    def add(self, *said: Said, enrich: bool = True) -> list[tuple[str, str | None, str | None]]:
        """Returns of each message what came of it: the event, the reason, the text of its memory."""
        commands = [
            replace(command, speaker=one.name)
            for one in said
            for command in message_commands([self._message(one)], one.scope, self.clerk.ledger.digests)
        ]
        runs = [[command] for command in commands] if self._singly else [commands]
        outcomes = [outcome for run in runs for outcome in self.clerk.commit(*run)]
        if enrich:
            self.enrich()
        return [(one.event.value, one.reason, one.record and one.record.text) for one in outcomes]

    def _message(self, said: Said) -> Message:
        at = NOON + timedelta(minutes=said.at)
        return Message("user", said.text, at, name=said.name, id=said.id, has_own_time=said.own_time)

    def enrich(self) -> None:
        with self.clerk.ledger.read() as connection:
            rows = [text.row for text in jobs.claimable_enrichments(connection, "", by_force=True)]
            records = memories.records_by_row(connection, rows)
        enrichments = self.clerk.enricher.compute([records[row] for row in sorted(records)]) if records else ()
        for run in [[one] for one in enrichments] if self._singly else [enrichments]:
            self.clerk.commit(*run)

    def id_of(self, share: float) -> str:
        ids = [row.uid for row in self.clerk.rows(select(s.memories.c.uid).order_by(s.memories.c.id))]
        return ids[int(share * len(ids))]


@pytest.fixture
def writers(database: str) -> Iterator[tuple[Writer, Writer]]:
    """A writer of lists and one of single messages, each with a ledger of its own."""
    with ExitStack() as stack, Pool(2, thread_name_prefix="writers") as pool:

        def clerk() -> Clerk:
            ledger = Ledger(None if database == SQLITE else parse_url(stack.enter_context(postgres())))
            stack.callback(ledger.close)
            return Clerk(ledger, pool, extractor)

        extractor: Extractor = NamesInText()
        yield Writer(clerk(), singly=False), Writer(clerk(), singly=True)


def check_same(writers: tuple[Writer, Writer]) -> None:
    lists, singles = (contents_without_ids(writer.clerk.ledger) for writer in writers)
    for table, rows in lists.items():
        assert rows == singles[table], table
    for writer in writers:
        assert writer.clerk.find_damage() == []
        clerk = writer.clerk
        taken = [
            row.seq
            for table in (s.memories, s.relations, s.entities, s.tombstones)
            for row in clerk.rows(select(table.c.seq).where(table.c.seq.is_not(None)))
        ]
        assert len(set(taken)) == len(taken)
        assert max(taken) <= clerk.rows(select(seq_extent().label("extent")))[0].extent.newest


LISTS = {
    "in order": [
        Said("Anna met Tom", 0),
        Said("Bo likes Acme", 1),
        Said("hello", 1),
        Said("late", 90),
        Said("later", 91),
    ],
    "out of order": [Said("one", 30), Said("two", 10), Said("three", 20), Said("four", -40), Said("five", 20)],
    "equal texts": [Said("Anna met Tom"), Said("Anna met Tom"), Said("Tom"), Said("Anna met Tom", 5), Said("")],
    "two scopes in turns": [Said("a", 0), Said("Anna", 1, BOB), Said("b", 2), Said("Anna", 3, BOB), Said("c", 99, BOB)],
    "runs and agents": [Said("a", 5, RUN), Said("b", 1, RUN), Said("c", 3, RUN), Said("d", 2, AGENT), Said("e", 4)],
    "known ids": [Said("a", id="1"), Said("b", id="2"), Said("a", id="1"), Said("c", 3, id="old"), Said("d", 4)],
    "known times": [Said("a", 1, own_time=True), Said("a", 1, own_time=True), Said("a", 2, own_time=True)],
    "two full names": [Said("Anna Berg"), Said("Anna sang"), Said("Anna Roth"), Said("Anna")],
    "two spellings": [
        Said("Alison Berg"),
        Said("Allison Berg"),
        Said("St. Gallen"),
        Said("St Gallen"),
        Said("Tom Kuhn"),
    ],
    "a phrase and its name": [Said("data structures"), Said("Data Structures"), Said("Mercedes"), Said("my mercedes")],
    "a nickname": [Said("they call Robert just Bo"), Said("Bo met Robert twice"), Said("Robert met Bo")],
    "one name of two things": [Said("Tom is a place"), Said("Tom met Anna"), Said("Tom Kuhn")],
    "passages": [Said("Title\n" + "word " * 30, 1), Said("Other\n" + "word " * 30, 2), Said("short", 3)],
}


@pytest.mark.parametrize("said", LISTS.values(), ids=LISTS)
def test_a_list_leaves_what_its_messages_leave_one_by_one(writers: Any, said: list[Said]) -> None:
    """After earlier messages, before the jobs are done, and once more with the same messages."""
    earlier = [Said("Anna Berg met Bo", 12, id="old"), Said("c", 3, id="same"), Said("St. Gallen", 15, RUN)]
    said = [replace(one, id=None) if one.id == "old" else one for one in said]
    for steps in ([earlier[0]], said, [earlier[1], earlier[2]], said):
        lists, singles = (writer.add(*steps, enrich=False) for writer in writers)
        assert lists == singles
    for writer in writers:
        writer.enrich()
    check_same(writers)


@pytest.mark.parametrize("said", LISTS.values(), ids=LISTS)
def test_a_list_is_enriched_as_its_messages_are_one_by_one(writers: Any, said: list[Said]) -> None:
    for writer in writers:
        writer.add(*said)
    check_same(writers)


def test_a_list_brings_back_what_was_forgotten(writers: Any) -> None:
    """Once each: a second message with the same words is new."""
    said = [Said("a"), Said("Anna", id="1"), Said("b"), Said("a", 1), Said("Anna", id="1"), Said("a", 2, BOB)]
    for writer in writers:
        writer.add(*said[:3], Said("a", 0, BOB))
        for share in (0, 0.25, 0.75):
            writer.clerk.commit(ForgetMemory(writer.id_of(share), "a test"))
    lists, singles = (writer.add(*said) for writer in writers)
    assert lists == singles
    assert [event for event, *_ in lists] == ["REMEMBER", "REMEMBER", "ADD", "ADD", "NONE", "REMEMBER"]
    check_same(writers)


def test_a_known_id_with_other_words_stores_nothing_of_the_list(writers: Any) -> None:
    lists, _ = writers
    with pytest.raises(MessageIdReused):
        lists.add(Said("a"), Said("b", id="1"), Said("other", id="1"))
    assert lists.clerk.counts()["memories"] == lists.clerk.counts()["events"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(60))
def test_any_lists_leave_what_their_messages_leave_one_by_one(writers: Any, seed: int) -> None:
    """Also between erasures, updates and aliases of users."""
    dice = Random(seed)
    names, texts = (*PERSONS, *PLACES, *PHRASES, *THINGS), ["hello"]
    for _ in range(dice.randint(2, 6)):
        act, share = dice.random(), dice.random()
        pair = dice.sample(names, 2)
        if act < 0.7:
            said, at = [], dice.choice([0, 100, -50])
            for number in range(dice.randint(1, 7)):
                at += dice.choice([0, 0, 1, 5, 20, 40, -15, -60])
                words = " and ".join(dice.sample(names, dice.randint(0, 3)))
                texts.append(f"{dice.choice(['ok', 'they call', 'twice', 'place'])} {words}")
                text = texts[-1] if dice.random() < 0.8 else dice.choice(texts)
                scope = dice.choice([ALICE, ALICE, BOB, RUN, AGENT])
                uid = dice.choice([None, None, f"{seed} {len(texts)} {number}"])
                said.append(Said(text, at, scope, uid, dice.choice([None, "Eve"]), own_time=dice.random() < 0.3))
            said += dice.choices(said, k=dice.randint(0, 2))
            enrich = dice.random() < 0.7
            lists, singles = (writer.add(*said, enrich=enrich) for writer in writers)
            assert lists == singles
            continue
        for writer in writers:
            if writer.clerk.counts()["memories"] == 0:
                continue
            if act < 0.8:
                writer.clerk.commit(DeleteMemory(writer.id_of(share)))
            elif act < 0.9:
                writer.clerk.commit(UpdateMemory(writer.id_of(share), text=" met ".join(pair)))
            elif act < 0.95:
                writer.clerk.commit(ForgetMemory(writer.id_of(share), "a test"))
            else:
                with suppress(NotFoundError):  # no memory mentions one of them
                    writer.clerk.commit(AddAlias(ALICE, *(name.lower() for name in pair)))
    for writer in writers:
        writer.enrich()
    if writers[0].clerk.counts()["memories"]:
        check_same(writers)


# --- how many statements ----------------------------------------------------------------------------------------------


@SQLITE_ONLY  # deliveries to servers have statements of their own, some of them in the background
def test_an_add_takes_few_statements(make: Any, tmp_path: Path) -> None:
    """One message, with two names that no other has and a relation."""
    memory: Memory = make(tmp_path / "home")
    memory.add("I moved to Lisbon with Ana", user_id="u")
    memory.flush()
    with counted() as counts:
        memory.add("We had dinner with Marta in Alfama", user_id="u")
    assert counts["statements"] <= 34
    assert counts["transactions"] <= 8


@SQLITE_ONLY
def test_a_list_takes_hardly_more_statements_than_one_message(make: Any, tmp_path: Path) -> None:
    memory: Memory = make(tmp_path / "home")
    memory.add("I moved to Lisbon with Ana", user_id="u")
    memory.flush()
    with counted() as counts:
        memory.add([{"role": "user", "content": f"On day {n} Carla{n} met Pedro."} for n in range(50)], user_id="u")
    assert counts["statements"] <= 50
