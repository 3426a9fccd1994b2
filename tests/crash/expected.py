"""The memories that a folder must hold after the acknowledged calls, and a reader of those that it does hold.

Both give a snapshot of the same form, a dict, so that the two can be compared and their difference printed.
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
# The entities of aliases and chosen names. Each is mentioned in an anchor memory that never changes; no rule links two.
PEOPLE = ("Zora", "Quentin", "Ophelia", "Bartholomew")
Event = tuple[str, str | None, str | None]


@dataclass
class Fact:
    """A memory that the folder must hold."""

    user: str
    text: str
    metadata: dict[str, Any]
    message: str
    events: list[Event]

    @property
    def words(self) -> list[str]:
        """The words that no other memory has, the oldest first: one for each text that this memory had."""
        return list(dict.fromkeys(re.findall(r"\bmark\w+", " ".join(text or "" for _, _, text in self.events))))


@dataclass
class ExpectedState:
    """`tombstones`: erased ids with their expected history. `words`: words of erased texts, which no file may hold."""

    facts: dict[str, Fact] = field(default_factory=dict)
    tombstones: dict[str, list[Event]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # in the order in which they were chosen
    messages: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # message: its user, words, memory

    def copy(self) -> ExpectedState:
        return deepcopy(self)

    def add_memory(self, uid: str, user: str, text: str, message: str, metadata: dict[str, Any]) -> None:
        self.facts[uid] = Fact(user, text, metadata, message, [("ADD", None, text)])
        self.messages[message] = user, text, uid

    def update_memory(self, uid: str, text: str | None, metadata: dict[str, Any] | None) -> None:
        fact = self.facts[uid]
        new = fact.text if text is None else text
        fact.events.append(("UPDATE", fact.text, new))
        fact.text, fact.metadata = new, fact.metadata if metadata is None else metadata

    def delete_memory(self, uid: str) -> None:
        fact = self.facts.pop(uid)
        self.words += fact.words
        self.tombstones[uid] = [*((event, None, None) for event, *_ in fact.events), ("DELETE", None, None)]

    def reset(self) -> None:
        """Removes everything, the messages too, as if nothing had ever been added."""
        self.words += [word for fact in self.facts.values() for word in fact.words]
        self.tombstones.update(dict.fromkeys(self.facts, []))
        self.tombstones = dict.fromkeys(self.tombstones, [])
        for collection in (self.facts, self.links, self.names, self.messages):
            collection.clear()

    def changeable_ids(self, user: str) -> list[str]:
        """The ids of a user's memories that may be changed: all but the anchors."""
        return [uid for uid, fact in self.facts.items() if fact.user == user and not fact.message.startswith("anchor")]

    def snapshot(self) -> dict[str, Any]:
        """The state in the form of `read_snapshot`."""
        facts = {uid: (fact.user, fact.text, fact.metadata, fact.events) for uid, fact in self.facts.items()}
        return {
            "facts": facts,
            "tombstones": self.tombstones,
            "people": {one: self._person(one) for one in self._people()},
        }

    def _people(self) -> list[str]:
        return [one for one in PEOPLE if any(fact.message == f"anchor {one}" for fact in self.facts.values())]

    def _person(self, one: str) -> tuple[list[str], str]:
        group = {one}
        while more := {key for link in self.links if group & set(link) for key in link} - group:
            group |= more
        chosen = [name for key, name in self.names.items() if key in group]
        return sorted(key.casefold() for key in group), chosen[-1] if chosen else ""


def read_snapshot(memory: Memory, expected: ExpectedState) -> dict[str, Any]:
    """Reads a folder in the form of `ExpectedState.snapshot`; `expected` says only which ids to look up as erased."""
    facts: dict[str, Any] = {}
    for user in USERS:
        listed = memory.get_all(user_id=user, limit=10_000)
        assert listed["total"] == len(listed["results"])
        for one in listed["results"]:
            assert one["id"] not in facts, f"{one['id']} is listed twice"
            assert memory.get(one["id"]) == one
            facts[one["id"]] = user, one["memory"], one["metadata"], read_history(memory, one["id"])
    tombstones = {uid: read_history(memory, uid) for uid in expected.tombstones}
    for uid in expected.tombstones:
        assert memory.get(uid) is None, f"{uid} was erased and is back"
    anchor_names = {text.split()[0] for _, text, _, _ in facts.values()}
    people = {one: read_person(memory, one, expected) for one in PEOPLE if one in anchor_names}
    return {"facts": facts, "tombstones": tombstones, "people": people}


def read_history(memory: Memory, uid: str) -> list[Event]:
    events = memory.history(uid)
    assert len({event["id"] for event in events}) == len(events)
    return [(event["event"], event["old_memory"], event["new_memory"]) for event in events]


def read_person(memory: Memory, one: str, expected: ExpectedState) -> tuple[list[str], str]:
    """The keys of an entity, and the name that a user chose for it; "" without one."""
    entity = memory.entity(one, user_id=USER)
    assert entity is not None, one
    chosen_name = entity["name"] if "named" in entity["name"] else ""
    return sorted([entity["key"], *(alias["key"] for alias in entity["aliases"])]), chosen_name


def _search_all_arms(memory: Memory, query: str, user: str) -> Any:
    """Searches until no arm is left out: a server may be slow for a moment."""
    response: dict[str, Any] = {}

    def is_complete() -> bool:
        response.clear()
        response.update(memory.search(query, user_id=user))
        return "degraded" not in response

    wait_until(is_complete, "a server stays out of reach")
    return response


def check_found_by_own_words(memory: Memory, expected: ExpectedState, ids: list[str]) -> None:
    for uid in ids:
        fact = expected.facts[uid]
        for query in (fact.text, fact.words[-1]):
            response = _search_all_arms(memory, query, fact.user)
            hit_texts = {hit["id"]: hit["memory"] for hit in response["results"]}
            assert hit_texts.get(uid) == fact.text, (query, uid, hit_texts)
            assert not expected.tombstones.keys() & hit_texts.keys()


def difference(actual: dict[str, Any], expected: dict[str, Any]) -> str:
    lines = []
    for part, wanted in expected.items():
        present = actual[part]
        lines += [
            f"{part} {key}: held {present.get(key, 'nothing')!r}, expected {wanted.get(key, 'nothing')!r}"
            for key in sorted(present.keys() | wanted.keys())
            if present.get(key) != wanted.get(key)
        ]
    return "\n".join(lines) or "none"
