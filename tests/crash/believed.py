"""What a folder must hold, as far as a client can know: a model of the acknowledged, and how to look at the real thing.

Both, the model and the folder, are told as one dict, so that they can be compared and their difference be read.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from support.waiting import wait_until

from graphmem import Memory

USER, SMALL = "u", "small"
USERS = (USER, SMALL)
# Whom aliases and names are about: memories of their own, never changed, say that they exist. No rule links any two.
PEOPLE = ("Zora", "Quentin", "Ophelia", "Bartholomew")
Event = tuple[str, str | None, str | None]


@dataclass
class Fact:
    """A memory that is there."""

    user: str
    text: str
    metadata: dict[str, Any]
    message: str
    events: list[Event]

    @property
    def words(self) -> list[str]:
        """Those that no other memory has, the oldest first: one for each text that this one had."""
        return list(dict.fromkeys(re.findall(r"\bmark\w+", " ".join(text or "" for _, _, text in self.events))))


@dataclass
class Believed:
    """`gone` are erased ids with what their history must say; `words` are theirs, which must be nowhere."""

    facts: dict[str, Fact] = field(default_factory=dict)
    gone: dict[str, list[Event]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # in the order in which they were given
    said: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # message: its user, words, memory

    def copy(self) -> Believed:
        return deepcopy(self)

    def say(self, uid: str, user: str, text: str, message: str, metadata: dict[str, Any]) -> None:
        self.facts[uid] = Fact(user, text, metadata, message, [("ADD", None, text)])
        self.said[message] = user, text, uid

    def revise(self, uid: str, text: str | None, metadata: dict[str, Any] | None) -> None:
        fact = self.facts[uid]
        new = fact.text if text is None else text
        fact.events.append(("UPDATE", fact.text, new))
        fact.text, fact.metadata = new, fact.metadata if metadata is None else metadata

    def erase(self, uid: str) -> None:
        fact = self.facts.pop(uid)
        self.words += fact.words
        self.gone[uid] = [*((event, None, None) for event, *_ in fact.events), ("DELETE", None, None)]

    def reset(self) -> None:
        """Nothing was ever said."""
        self.words += [word for fact in self.facts.values() for word in fact.words]
        self.gone.update(dict.fromkeys(self.facts, []))
        self.gone = dict.fromkeys(self.gone, [])
        for held in (self.facts, self.links, self.names, self.said):
            held.clear()

    def of(self, user: str) -> list[str]:
        """The memories of a user that may be changed."""
        return [uid for uid, fact in self.facts.items() if fact.user == user and not fact.message.startswith("anchor")]

    def told(self) -> dict[str, Any]:
        """All of it, in the form of `look`."""
        facts = {uid: (fact.user, fact.text, fact.metadata, fact.events) for uid, fact in self.facts.items()}
        return {"facts": facts, "gone": self.gone, "people": {one: self._person(one) for one in self._people()}}

    def _people(self) -> list[str]:
        return [one for one in PEOPLE if any(fact.message == f"anchor {one}" for fact in self.facts.values())]

    def _person(self, one: str) -> tuple[list[str], str]:
        group = {one}
        while more := {key for link in self.links if group & set(link) for key in link} - group:
            group |= more
        chosen = [name for key, name in self.names.items() if key in group]
        return sorted(key.casefold() for key in group), chosen[-1] if chosen else ""


def look(memory: Memory, believed: Believed) -> dict[str, Any]:
    """What a folder holds, in the form of `Believed.told`; `believed` only says what was erased and what is named."""
    facts: dict[str, Any] = {}
    for user in USERS:
        listed = memory.get_all(user_id=user, limit=10_000)
        assert listed["total"] == len(listed["results"])
        for one in listed["results"]:
            assert one["id"] not in facts, f"{one['id']} is listed twice"
            assert memory.get(one["id"]) == one
            facts[one["id"]] = user, one["memory"], one["metadata"], history(memory, one["id"])
    gone = {uid: history(memory, uid) for uid in believed.gone}
    for uid in believed.gone:
        assert memory.get(uid) is None, f"{uid} was erased and is back"
    there = {text.split()[0] for _, text, _, _ in facts.values()}
    people = {one: person(memory, one, believed) for one in PEOPLE if one in there}
    return {"facts": facts, "gone": gone, "people": people}


def history(memory: Memory, uid: str) -> list[Event]:
    found = memory.history(uid)
    assert len({event["id"] for event in found}) == len(found)
    return [(event["event"], event["old_memory"], event["new_memory"]) for event in found]


def person(memory: Memory, one: str, believed: Believed) -> tuple[list[str], str]:
    """Under which keys, and what a user called it; what it is called otherwise is no matter here."""
    known = memory.entity(one, user_id=USER)
    assert known is not None, one
    given = known["name"] if "named" in known["name"] else ""
    return sorted([known["key"], *(alias["key"] for alias in known["aliases"])]), given


def _whole(memory: Memory, query: str, user: str) -> Any:
    """An answer of all arms: a server that is slow for a moment is left out of one, and is not what this is about."""
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        found.clear()
        found.update(memory.search(query, user_id=user))
        return "degraded" not in found

    wait_until(is_whole, "a server stays out of reach")
    return found


def found_by_their_own_words(memory: Memory, believed: Believed, ids: list[str]) -> None:
    for uid in ids:
        fact = believed.facts[uid]
        for query in (fact.text, fact.words[-1]):
            found = _whole(memory, query, fact.user)
            shown = {hit["id"]: hit["memory"] for hit in found["results"]}
            assert shown.get(uid) == fact.text, (query, uid, shown)
            assert not believed.gone.keys() & shown.keys()


def difference(held: dict[str, Any], expected: dict[str, Any]) -> str:
    lines = []
    for part, wanted in expected.items():
        there = held[part]
        lines += [
            f"{part} {key}: held {there.get(key, 'nothing')!r}, expected {wanted.get(key, 'nothing')!r}"
            for key in sorted(there.keys() | wanted.keys())
            if there.get(key) != wanted.get(key)
        ]
    return "\n".join(lines) or "none"
