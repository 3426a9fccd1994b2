"""Any sequence of adds, cycles, merges, compositions, forgets, remembers, purges and deletes: erased words are in no
store, no export and no file, with all that the erased memory stood for or was made into; and nothing else goes.
Embedded, and on servers.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from random import Random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from support.contract import Make
from support.databases import POSTGRES
from support.facts import fact, source_message, store, summary
from support.fakes import fake_models, merging
from support.stored_content import stored_content

from graphmem import Memory
from graphmem.commands.types import OutcomeType
from graphmem.errors import NotFoundError, ValidationError
from graphmem.ingest.facts.compositions import compose_command, composed
from graphmem.lifecycle.decay import Operation
from graphmem.model import Scope
from graphmem.stores.ledger import memories, schema
from graphmem.text import content_hash

U = {"user_id": "u"}
NOW = datetime(2026, 3, 1, tzinfo=UTC)
# A preference, which a cycle keeps; the same words, which no rule knows and which it merges into that one; small talk.
KEPT, LIKE, TALK = (
    "I like green tea with milk and honey",
    "green tea with milk and honey like I",
    "The weather was grey",
)

OPERATIONS = (
    "kept", "like", "talk", "fact", "summary", "merge", "compose", "abstract", "cycle", "later", "undo cycle", "forget",
    "undo", "change",
    "search", "delete", "purge",
)  # fmt: skip
ERASING = frozenset({"cycle", "later", "delete", "purge"})
LIFECYCLE = {"enabled": True, "since": "2025-01-01", "daily_at": "never", "purge_after_days": 30}
Step = tuple[str, int, int]
T = TypeVar("T")


def story(*steps: str | Step) -> list[Step]:
    """Steps; those that are no more than a name are about the first memories."""
    return [(step, 0, 0) if isinstance(step, str) else step for step in steps]


STORIES = [
    story("kept", "like", "talk", "cycle", "delete"),
    story("kept", "like", "cycle", "change", "purge", "delete"),
    story("fact", "fact", "kept", "summary", ("merge", 0, 1), ("merge", 1, 2), "cycle", ("delete", 2, 0)),
    story("kept", "like", "cycle", ("undo", 1, 0), "delete", "forget"),
    story("kept", "talk", ("compose", 0, 1), "delete"),
    story("kept", "talk", ("compose", 0, 1), "undo", "change", "delete"),
    story("kept", "talk", ("compose", 0, 1), "like", ("abstract", 2, 3), ("delete", 1, 0)),
    story("kept", "talk", ("compose", 0, 1), ("delete", 2, 0)),
    story("fact", "fact", ("abstract", 0, 1), ("compose", 0, 2), "purge", "delete"),
    story("kept", "like", "talk", "fact", "cycle", "later", "undo cycle", "delete"),
    story("kept", "like", "talk", "cycle", "undo cycle", "cycle", "later", "later", "kept", "cycle", "delete"),
]


def examples(stories: Iterable[list[Step]]) -> Callable[[T], T]:
    """Tries these stories first."""
    return lambda test: reduce(lambda wrapped, steps: example(steps)(wrapped), stories, test)


steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9), st.integers(0, 9)), max_size=14)


class Story:
    """A memory, and by its own book-keeping which words must be in it and which must be gone.

    Each memory has words of its own, one for each text that it has had.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.words: dict[str, list[str]] = {}
        self.texts: dict[str, str] = {}
        self.gone: dict[str, list[str]] = {}
        self.stands_for: dict[str, str] = {}  # a merged memory → the one that stands for it
        self.sources: dict[str, str] = {}  # a fact → its message
        self.drawn: dict[str, str] = {}  # a summary → the memory it is drawn from
        self.made: dict[str, set[str]] = {}  # a composed memory → those that it was made of
        self.cycles: list[str] = []
        self._number = 0
        self._now = NOW

    def chosen(self, place: int) -> str | None:
        """One of the memories, messages of facts left out."""
        own = [uid for uid in self.words if uid not in self.sources.values()]
        return own[place % len(own)] if own else None

    def word(self) -> str:
        self._number += 1
        return f"zq{self._number:03}x"

    def _stored(self, uid: str, text: str, word: str) -> str:
        self.words[uid], self.texts[uid] = [word], text
        return uid

    def _said(self, text: str) -> str:
        word, at = self.word(), (NOW - timedelta(days=9)).isoformat()
        text = f"{text} {word.title()}"
        return self._stored(store(self.memory, text, at=at, created_at=at, role="user"), text, word)

    def take(self, step: Step) -> None:
        name, first, second = step
        uid, other = self.chosen(first), self.chosen(second)
        if name in {"kept", "like", "talk"}:
            self._said({"kept": KEPT, "like": LIKE, "talk": TALK}[name])
        elif name == "fact":
            word, text = self.word(), "She moved to Oslo"
            source = self._stored(source_message(self.memory, f"{text} {word}"), f"{text} {word}", word)
            word = self.word()
            new = self._stored(fact(self.memory, f"Lives in Oslo {word}", source), f"Lives in Oslo {word}", word)
            self.sources[new] = source
        elif name == "cycle":
            self._cycle(days=1)
        elif name == "later":
            self._cycle(days=40)
        elif name == "undo cycle":
            self._undo_cycle(first)
        elif name == "purge":
            self._purge()
        elif uid is not None and other is not None:
            self._change(name, uid, other)

    def _change(self, name: str, uid: str, other: str) -> None:
        memory = self.memory
        if name == "summary":
            word = self.word()
            text = f"It is about Oslo {word}"
            self.drawn[self._stored(summary(memory, text, uid), text, word)] = uid
        elif name == "merge" and uid != other:
            memory.engine.commit(merging(uid, other))
            self._note_merges()
        elif name in {"compose", "abstract"}:
            self._compose(list(dict.fromkeys([uid, other])), 1 if name == "abstract" else 0)
        elif name == "forget":
            memory.forget(uid, reason=self.words[uid][0])
        elif name == "undo":
            forgets = [one["id"] for one in memory.history(uid) if one["event"] == "FORGET"]
            if forgets and self._is_forgotten(uid):
                memory.undo(forgets[-1])
                self.stands_for.pop(uid, None)
        elif name == "change":
            word = self.word()
            self.texts[uid] = f"{self.texts[uid].rsplit(' ', 1)[0]} {word.title()}"
            memory.update(uid, self.texts[uid])
            self.words[uid].append(word)
            self.stands_for.pop(uid, None)
        elif name == "search":
            memory.search(self.words[uid][-1], **U)
        elif name == "delete":
            erased = self._with(uid)
            assert set(memory.delete(uid)["deleted"]) == erased
            self._forget_about(erased)

    def _compose(self, uids: list[str], level: int) -> None:
        """Makes a memory with the words of others: a merged one hides them, an abstraction does not."""
        with self.memory.engine.ledger.read() as connection:
            found = memories.records(connection, uids)
        sources = [found[uid] for uid in uids]
        word = self.word()
        text = f"Of {' '.join(self.words[uid][-1].title() for uid in uids)} {word.title()}"
        record = composed(Operation.ABSTRACT if level else Operation.MERGE, level, text, sources)
        (outcome,) = self.memory.engine.commit([compose_command(record, sources, hides=not level)])
        if outcome.event is OutcomeType.NONE:
            assert any(self._is_forgotten(uid) for uid in uids)
            return
        self.memory.engine.enrich_and_deliver([outcome.required_record], wait=True)
        self._stored(record.id, text, word)
        self.made[record.id] = set(uids)
        self._note_merges()

    def _cycle(self, days: int) -> None:
        """Runs a cycle so many days later, which erases what was forgotten thirty days before."""
        self._now += timedelta(days=days)
        erased = self._forgotten_by(self._now - timedelta(days=30))
        result = self.memory.tend(**U, now=self._now, force=True)
        assert result["purged"] == len(erased - set(self.sources.values()))
        self.cycles.append(str(result["cycle"]))
        self._forget_about(erased)
        self._note_merges()

    def _undo_cycle(self, place: int) -> None:
        if not self.cycles:
            return
        with suppress(NotFoundError, ValidationError):  # one that changed nothing, or whose changes are gone
            undone = self.memory.undo_cycle(self.cycles[place % len(self.cycles)], **U)["undone"]
            assert not self.gone.keys() & set(undone)
            for uid in undone:
                if not self._is_forgotten(uid):
                    self.stands_for.pop(uid, None)

    def _is_forgotten(self, uid: str) -> bool:
        return self._forgotten_at(uid) is not None

    def _forgotten_at(self, uid: str) -> datetime | None:
        found = self.memory.get(uid)
        assert found is not None
        return datetime.fromisoformat(found["forgotten_at"]) if "forgotten_at" in found else None

    def _forgotten_by(self, moment: datetime) -> set[str]:
        return {uid for uid in self.words if (at := self._forgotten_at(uid)) is not None and at <= moment}

    def _note_merges(self) -> None:
        for one in self.memory.pending_deletion(**U)["results"]:
            _, is_merged, target = one["reason"].partition("merged into ")
            if is_merged and target in self.words:
                self.stands_for[one["id"]] = target

    def _with(self, uid: str) -> set[str]:
        """What has the words of a memory: what was merged into it, the messages of facts, and what was made of any."""
        erased: set[str] = set()
        border = [(uid, True)]
        while border:
            one, has_its_words = border.pop(0)
            erased.add(one)
            found = [merged for merged, target in self.stands_for.items() if target == one] if has_its_words else []
            found += [self.sources[one]] if has_its_words and one in self.sources else []
            made = [summary for summary, source in self.drawn.items() if source == one]
            made += [text for text, sources in self.made.items() if one in sources]
            known = erased | {seen for seen, _ in border}
            new = dict.fromkeys(made, False) | dict.fromkeys(found, True)  # noqa: C420
            border += [(other, has) for other, has in new.items() if other not in known]
        return erased

    def _purge(self) -> None:
        forgotten = self._forgotten_by(datetime.now(UTC))
        assert set(self.memory.purge(**U, confirm=True)["deleted"]) == forgotten
        self._forget_about(forgotten)

    def _forget_about(self, erased: set[str]) -> None:
        for uid in erased:
            self.gone[uid] = self.words.pop(uid)
            for links in (self.stands_for, self.sources, self.drawn):
                links.pop(uid, None)
        for uid in [one for one in self.made if one in erased]:
            del self.made[uid]
        for sources in self.made.values():
            sources -= erased
        for links in (self.stands_for, self.sources, self.drawn):
            for uid in [one for one, target in links.items() if target in erased]:
                del links[uid]

    def erased_words(self) -> list[str]:
        """The words that are gone; a purge leaves those that a text made of the memory says, too."""
        staying = " ".join(self.texts[uid] for uid in self.words).lower()
        return [word for words in self.gone.values() for word in words if word not in staying]

    def check(self) -> None:
        """Nothing of what is gone is anywhere, and all the rest is where it was."""
        engine, file = self.memory.engine, io.BytesIO()
        assert self.memory.flush() == {"pending": []}
        self.memory.search("tea", **U)  # the graph in memory follows at the next read
        self.memory.export(file)
        places = {**stored_content(self.memory), "export": file.getvalue().decode().lower()}
        with engine.ledger.read() as connection:
            stored = set(connection.scalars(select(schema.memories.c.uid)))
            hashes = set(connection.scalars(select(schema.embeddings.c.hash)))
            columns = engine.ledger.columns.of(connection, Scope(**U).partition)
        held = stored if columns is None else {candidate.id for candidate in columns.candidates if candidate}
        graph = engine.backends.graph
        gone = self.erased_words()
        assert [(word, name) for word in gone for name, text in places.items() if word in text] == []
        assert not {uid for uid, _ in graph.list_held()} & self.gone.keys()
        assert hashes == {
            content_hash(Scope(**U).partition, text) for uid, text in self.texts.items() if uid in self.words
        }
        for word in [words[-1] for words in self.words.values()]:
            assert all(word in places[name] for name in ("memories", "export", "neo4j") if name in places)
        assert stored == held == self.words.keys()
        assert graph.count() == len(self.words)
        assert self.memory.verify()["ok"]

    def tell(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.take(step)
            if step[0] in ERASING:
                self.check()
        self.check()


@pytest.mark.thorough
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps)
@examples(STORIES)
def test_erased_words_are_nowhere_and_nothing_else_goes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("erasure")
    graph, extractor = {"provider": "networkx"}, {"provider": "spacy"}
    config = fake_models(lifecycle=LIFECYCLE, graph_store=graph, extractor=extractor, home=str(folder))
    with Memory.from_config(config) as memory:
        told = Story(memory)
        told.tell(steps)
    gone = told.erased_words()
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).lower()
    assert [word for word in gone if word.encode() in content] == []
    shutil.rmtree(folder)


def any_story(seed: int) -> list[Step]:
    dice = Random(seed)
    return [(dice.choice(OPERATIONS), dice.randrange(10), dice.randrange(10)) for _ in range(14)]


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
@pytest.mark.parametrize("steps", [*STORIES, *map(any_story, range(6))])
def test_erased_words_are_on_no_server_and_nothing_else_goes(make_memory: Make, steps: list[Step]) -> None:
    told = Story(make_memory(lifecycle=LIFECYCLE, extractor={"provider": "spacy"}))
    told.tell(steps)
    assert {"qdrant", "neo4j"} <= stored_content(told.memory).keys()
