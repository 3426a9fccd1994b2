"""Operations during which a process is killed, and the states that its folder may have then.

An operation is drawn at random for an expected state. The process makes its `calls`. `completed_state` is the state
after all of them were acknowledged; `possible_states` are those after a kill. `repeat` makes the calls again, as a
client does that got no answer; the folder then has the completed state.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from child import open_memory
from expected import PEOPLE, SMALL, USER, ExpectedState
from victims import in_memory

from graphmem import Memory
from graphmem.errors import NotFoundError

Call = tuple[str, Sequence[Any], dict[str, Any]]
Snapshot = dict[str, Any]
THINGS = ("Amber", "Bergen", "Fagott", "Gobelin", "Isar")


class Operation:
    """An operation that changes nothing."""

    calls: Sequence[Call] = ()
    patches: dict[str, Any] = {}
    from_opening = False

    def __init__(self, dice: Random | None = None, expected: ExpectedState | None = None) -> None:
        """Draws the arguments with `dice`."""

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        """The state afterwards. Ids of new memories are taken from `snapshot`."""
        return expected

    def possible_states(self, expected: ExpectedState, snapshot: Snapshot) -> list[ExpectedState]:
        """Completed, or not begun."""
        return [expected, self.completed_state(expected, snapshot)]

    def repeat(self, memory: Memory) -> None:
        for name, positional, named in self.calls:
            getattr(memory, name)(*positional, **named)


class Open(Operation):
    """The folder is only opened, brought up to date and closed; deaths during the opening count, too."""

    calls = (("flush", (), {}),)
    from_opening = True


class Add(Operation):
    """Adds one to three messages at once, and perhaps one that was added before and may be erased."""

    wait = True

    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._user = dice.choice((USER, USER, SMALL))
        self._metadata = {"n": dice.randrange(100)}
        self._new = [_message(dice) for _ in range(dice.randint(1, 3))]
        earlier = [(text, key) for key, (user, text, _) in expected.messages.items() if user == self._user]
        repeated = [dice.choice(earlier)] if earlier and dice.random() < 0.4 else []
        messages = [{"role": "user", "content": text, "id": key} for text, key in (*self._new, *repeated)]
        named = {"user_id": self._user, "metadata": self._metadata, "wait": self.wait}
        self.calls = [("add", [messages], named), *([] if self.wait else [("flush", [], {})])]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        for text, key in self._new:
            for uid, (_, stored_text, *_) in snapshot["facts"].items():
                if stored_text == text and uid not in expected.facts:
                    after.add_memory(uid, self._user, text, key, self._metadata)
        assert len(after.facts) == len(expected.facts) + len(self._new), "not each is there once"
        return after

    def possible_states(self, expected: ExpectedState, snapshot: Snapshot) -> list[ExpectedState]:
        new = {text for text, _ in self._new}
        return [
            self.completed_state(expected, snapshot)
            if any(f[1] in new for f in snapshot["facts"].values())
            else expected
        ]


class AddLater(Add):
    wait = False


class Update(Operation):
    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._uid = dice.choice(expected.changeable_ids(USER))
        self._text = _message(dice)[0] if dice.random() < 0.8 else None
        self._metadata = {"n": dice.getrandbits(32)} if self._text is None or dice.random() < 0.5 else None
        self.calls = [("update", [self._uid, self._text], {"metadata": self._metadata})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        after.update_memory(self._uid, self._text, self._metadata)
        return after


class Delete(Operation):
    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._uid = dice.choice(expected.changeable_ids(USER))
        self.calls = [("delete", [self._uid], {})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        after.delete_memory(self._uid)
        return after

    def repeat(self, memory: Memory) -> None:
        _unless_done(lambda: memory.delete(self._uid))


class DeleteAll(Operation):
    """In batches of two memories, so that some may be deleted and others not."""

    patches = {"graphmem.memory:DELETE_BATCH": 2}

    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self.calls = [("delete_all", [], {"user_id": SMALL})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        return _after_delete(expected, expected.changeable_ids(SMALL))

    def possible_states(self, expected: ExpectedState, snapshot: Snapshot) -> list[ExpectedState]:
        return [
            _after_delete(expected, [uid for uid in expected.changeable_ids(SMALL) if uid not in snapshot["facts"]])
        ]


class Link(Operation):
    """Links two names as aliases, or removes such a link."""

    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._apart = bool(expected.links) and dice.random() < 0.5
        self._pair = dice.choice(expected.links) if self._apart else tuple(sorted(dice.sample(PEOPLE, 2)))
        self.calls = [("unalias" if self._apart else "alias", list(self._pair), {"user_id": USER})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        if self._apart:
            after.links.remove(self._pair)
        elif self._pair not in after.links:
            after.links.append(self._pair)
        return after

    def repeat(self, memory: Memory) -> None:
        _unless_done(lambda: super(Link, self).repeat(memory))


class Rename(Operation):
    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._key, self._name = dice.choice(PEOPLE), f"named {dice.getrandbits(32):x}"
        self.calls = [("rename_entity", [self._key, self._name], {"user_id": USER})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        after.names.pop(self._key, None)
        after.names[self._key] = self._name
        return after


class Rebuild(Operation):
    """Rebuilds in several batches."""

    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self.patches = {"graphmem.stores.projection:BATCH": dice.choice((3, 10, 500))}
        self.calls = [("rebuild", [dice.choice((None, "vectors"))], {})]


class Import(Operation):
    """Imports another folder's export in batches of two records: after a kill some of them may be there."""

    patches = {"graphmem.transfer.importer:BATCH": 2}

    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self._imported = ExpectedState()
        with in_memory() as folder, open_memory(folder / "source") as source:
            fill_source(source, dice, self._imported)
            source.export(export := io.StringIO())
        *records, _end = map(json.loads, export.getvalue().splitlines())
        self.calls = [("import_", [records], {})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        return _after_import(expected, self._imported, list(self._imported.facts))

    def possible_states(self, expected: ExpectedState, snapshot: Snapshot) -> list[ExpectedState]:
        return [
            _after_import(expected, self._imported, [uid for uid in self._imported.facts if uid in snapshot["facts"]])
        ]


class Reset(Operation):
    def __init__(self, dice: Random, expected: ExpectedState) -> None:
        self.calls = [("reset", [], {})]

    def completed_state(self, expected: ExpectedState, snapshot: Snapshot) -> ExpectedState:
        after = expected.copy()
        after.reset()
        return after


# How often each is drawn.
OPERATIONS: dict[type[Operation], int] = {
    Add: 4, AddLater: 4, Update: 5, Delete: 4, DeleteAll: 3, Link: 2, Rename: 1, Rebuild: 3, Import: 2, Reset: 1,
    Open: 2,
}  # fmt: skip


def draw_operation(dice: Random, expected: ExpectedState) -> Operation:
    (kind,) = dice.choices(list(OPERATIONS), list(OPERATIONS.values()))
    return (
        kind(dice, expected) if expected.changeable_ids(USER) or kind not in {Update, Delete} else Add(dice, expected)
    )


def add_first_memories(memory: Memory, dice: Random, expected: ExpectedState) -> None:
    """Adds the anchor memories and some of each user's to an empty folder."""
    anchors = [(f"{one} waters the {_message(dice)[0].split()[-1]}", f"anchor {one}") for one in PEOPLE]
    for user, texts in ((USER, anchors), *((user, [_message(dice) for _ in range(3)]) for user in (USER, SMALL))):
        messages = [{"role": "user", "content": text, "id": key} for text, key in texts]
        added = memory.add(messages, user_id=user)["results"]
        for one, (text, key) in zip(added, texts, strict=True):
            assert one["event"] == "ADD", one
            expected.add_memory(one["id"], user, text, key, {})


def fill_source(memory: Memory, dice: Random, expected: ExpectedState) -> None:
    """Adds some memories, and updates one."""
    for user in (USER, USER, USER, SMALL, SMALL):
        (text, key), metadata = _message(dice), {"n": dice.getrandbits(32)}
        message = {"role": "user", "content": text, "id": key}
        (one,) = memory.add(message, user_id=user, metadata=metadata)["results"]
        expected.add_memory(one["id"], user, text, key, metadata)
    uid, text = next(iter(expected.facts)), _message(dice)[0]
    memory.update(uid, text)
    expected.update_memory(uid, text, None)


def _message(dice: Random) -> tuple[str, str]:
    """A text with one word that is in no other text, and a message id."""
    number = f"{dice.getrandbits(40):010x}"
    return f"{dice.choice(('Adam', 'Clive', 'Dora'))} likes {dice.choice(THINGS)} mark{number}", f"m{number}"


def _after_delete(expected: ExpectedState, ids: Sequence[str]) -> ExpectedState:
    after = expected.copy()
    for uid in ids:
        after.delete_memory(uid)
    return after


def _after_import(expected: ExpectedState, imported: ExpectedState, ids: Sequence[str]) -> ExpectedState:
    after = expected.copy()
    after.facts.update({uid: imported.facts[uid] for uid in ids})
    after.messages.update({key: message for key, message in imported.messages.items() if message[2] in ids})
    return after.copy()


def _unless_done(act: Callable[[], object]) -> None:
    try:
        act()
    except NotFoundError:
        pass
