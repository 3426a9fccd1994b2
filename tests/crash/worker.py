"""One of several processes on a folder: `python worker.py HOME NAME SECONDS SEED`.

Four threads share a Memory, which is closed and opened again now and then, so that the vector index changes hands
between processes. Each thread has a user of its own and knows his memories at any time; all write for one common user.
At the end it prints the expected state: each user's memories, and those that it added for the common user and deleted.
"""

from __future__ import annotations

import io
import json
import sys
import time
import traceback
from pathlib import Path
from random import Random
from threading import Thread

from child import open_memory, settings

from graphmem import Memory
from graphmem.errors import NotFoundError

THREADS, COMMON, WORDS = 4, "common", ("Amber", "Bergen", "Fagott", "Gobelin")


class Person:
    """A thread's user, with the expected state of his memories."""

    def __init__(self, name: str, seed: str) -> None:
        self.name, self.dice, self.number, self.calls = name, Random(f"{seed}:{name}"), 0, 0
        self.current: dict[str, str] = {}
        self.ids_by_text: dict[str, str] = {}  # memory id by text; the text is the message's id as well
        self.past_texts: dict[str, list[str]] = {}  # all texts of a memory, the current one included
        self.deleted: list[str] = []
        self.linked = False
        self.shared: dict[str, str] = {}
        self.unshared: list[str] = []

    def live(self, memory: Memory, until: float) -> None:
        acts = (
            (self.add, 5), (self.add_again, 2), (self.update, 3), (self.delete, 2), (self.delete_all, 0.2),
            (self.look, 3), (self.search, 3), (self.link, 1), (self.share, 2), (self.unshare, 1), (self.export, 0.5),
        )  # fmt: skip
        while time.monotonic() < until:
            (act,) = self.dice.choices([act for act, _ in acts], [weight for _, weight in acts])
            act(memory)
            self.calls += 1

    def text(self) -> str:
        self.number += 1
        word = f"mark{self.name}x{self.number}x"
        return f"Ada likes {self.dice.choice(WORDS)} with {word}" if self.number % 5 else f"Quentin met Ada for {word}"

    def add(self, memory: Memory) -> None:
        texts = [self.text() for _ in range(self.dice.randint(1, 3))]
        messages = [{"role": "user", "content": text, "id": text} for text in texts]
        added = memory.add(messages, user_id=self.name, wait=self.dice.random() < 0.5)["results"]
        for text, one in zip(texts, added, strict=True):
            assert (one["event"], one["memory"]) == ("ADD", text), one
            self.record_text(one["id"], text)
            self.ids_by_text[text] = one["id"]

    def record_text(self, uid: str, text: str) -> None:
        self.current[uid] = text
        self.past_texts.setdefault(uid, []).append(text)

    def add_again(self, memory: Memory) -> None:
        if not self.ids_by_text:
            return
        text, uid = self.dice.choice(list(self.ids_by_text.items()))
        (one,) = memory.add({"role": "user", "content": text, "id": text}, user_id=self.name)["results"]
        assert (one["event"], one["id"]) == ("NONE", uid), one
        assert (one.get("reason") == "erased") == (uid not in self.current), one

    def update(self, memory: Memory) -> None:
        if self.current:
            uid, text = self.dice.choice(list(self.current)), self.text()
            assert memory.update(uid, text)["memory"] == text
            self.record_text(uid, text)

    def delete(self, memory: Memory) -> None:
        if self.current:
            uid = self.dice.choice(list(self.current))
            assert memory.delete(uid)["deleted"] == [uid]
            del self.current[uid]
            self.deleted.append(uid)
            assert memory.get(uid) is None

    def delete_all(self, memory: Memory) -> None:
        assert sorted(memory.delete_all(user_id=self.name)["deleted"]) == sorted(self.current)
        self.deleted += self.current
        self.current.clear()
        self.linked = False

    def look(self, memory: Memory) -> None:
        listed = memory.get_all(user_id=self.name, limit=10_000)["results"]
        assert {one["id"]: one["memory"] for one in listed} == self.current
        for uid in self.dice.sample(sorted(self.current), min(2, len(self.current))):
            events = memory.history(uid)
            assert events[0]["event"] == "ADD"
            assert events[-1]["new_memory"] == self.current[uid]
        for uid in self.dice.sample(self.deleted, min(2, len(self.deleted))):
            assert memory.get(uid) is None
            assert [event["event"] for event in memory.history(uid)].count("DELETE") == 1

    def search(self, memory: Memory) -> None:
        if not self.current:
            return
        uid = self.dice.choice(list(self.current))
        response = memory.search(self.current[uid], user_id=self.name)
        hit_texts = {hit["id"]: hit["memory"] for hit in response["results"]}
        assert "degraded" not in response
        assert hit_texts.items() <= self.current.items()
        assert not self.deleted or not hit_texts.keys() & set(self.deleted)

    def export(self, memory: Memory) -> None:
        """Exports the state of one moment while others write, and imports it into another Memory."""
        file = io.BytesIO()
        assert memory.export(file, user_id=self.name)["memories"] == len(self.current)
        file.seek(0)
        with Memory(":memory:", settings=settings(Path("unused"))) as other:
            assert other.import_(file)["added"] == len(self.current)
            listed = other.get_all(user_id=self.name, limit=10_000)["results"]
            assert {one["id"]: one["memory"] for one in listed} == self.current
            for uid in self.dice.sample(sorted(self.current), min(2, len(self.current))):
                assert other.history(uid) == memory.history(uid)

    def link(self, memory: Memory) -> None:
        """A name is unknown until a text with it is enriched; an existing link must be as this thread left it."""
        name = "unalias" if self.linked else "alias"
        try:
            entity = getattr(memory, name)("ada", "quentin", user_id=self.name)
        except NotFoundError:
            # Deleted with the last memory that had one of the names, or not enriched yet.
            self.linked = False
            return
        self.linked = not self.linked
        assert bool(entity["aliases"]) == self.linked, (name, entity)

    def share(self, memory: Memory) -> None:
        text = self.text()
        (one,) = memory.add(text, user_id=COMMON, wait=self.dice.random() < 0.5)["results"]
        self.shared[one["id"]] = text

    def unshare(self, memory: Memory) -> None:
        if self.shared:
            uid = self.dice.choice(list(self.shared))
            memory.delete(uid)
            del self.shared[uid]
            self.unshared.append(uid)


def work(home: Path, name: str, seconds: float, seed: str) -> dict:
    people = [Person(f"{name}{number}", seed) for number in range(THREADS)]
    dice, end, errors, openings = Random(f"{seed}:{name}"), time.monotonic() + seconds, list[str](), 0

    def live(one: Person, memory: Memory, until: float) -> None:
        try:
            one.live(memory, until)
        except BaseException:
            errors.append(f"{one.name}, call {one.calls}: {traceback.format_exc()}")

    while time.monotonic() < end and not errors:
        with open_memory(home) as memory:
            openings += 1
            until = min(end, time.monotonic() + dice.uniform(0.5, 4))
            threads = [Thread(target=live, args=(one, memory, until)) for one in people]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return {
        "errors": errors, "openings": openings, "calls": sum(one.calls for one in people),
        "current": {one.name: one.current for one in people},
        "deleted": {uid: one.past_texts[uid] for one in people for uid in one.deleted},
        "shared": {uid: text for one in people for uid, text in one.shared.items()},
        "unshared": [uid for one in people for uid in one.unshared],
    }  # fmt: skip


if __name__ == "__main__":
    home, name, seconds, seed = sys.argv[1:]
    print(json.dumps(work(Path(home), name, float(seconds), seed)))
