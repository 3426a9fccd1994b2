"""What a process does when it is killed, and what a folder may hold then.

An operation is drawn by dice from what is believed of a folder. `calls` are made by the process; `done` is what must be
there when all was acknowledged, `possible` what may be there when it was not; `again` does it once more, as a client
does that heard no answer, after which it is `done` in any case.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from believed import PEOPLE, SMALL, USER, Believed
from child import open_memory
from victims import in_memory

from graphmem import Memory
from graphmem.errors import NotFoundError

Call = tuple[str, Sequence[Any], dict[str, Any]]
Seen = dict[str, Any]
THINGS = ("Amber", "Bergen", "Fagott", "Gobelin", "Isar")


class Operation:
    """One that changes nothing."""

    calls: Sequence[Call] = ()
    patches: dict[str, Any] = {}
    from_opening = False

    def __init__(self, dice: Random | None = None, believed: Believed | None = None) -> None:
        """Drawn by `dice` from what is there."""

    def done(self, believed: Believed, seen: Seen) -> Believed:
        """What must be there afterwards. New ids are those that are `seen`."""
        return believed

    def possible(self, believed: Believed, seen: Seen) -> list[Believed]:
        """Wholly or not at all."""
        return [believed, self.done(believed, seen)]

    def again(self, memory: Memory) -> None:
        for name, positional, named in self.calls:
            getattr(memory, name)(*positional, **named)


class Open(Operation):
    """The folder is only opened, brought up to date and closed; deaths during the opening count, too."""

    calls = (("flush", (), {}),)
    from_opening = True


class Add(Operation):
    """One to three messages at once; among them perhaps one that is known, or was and is erased."""

    wait = True

    def __init__(self, dice: Random, believed: Believed) -> None:
        self._user = dice.choice((USER, USER, SMALL))
        self._metadata = {"n": dice.randrange(100)}
        self._new = [_message(dice) for _ in range(dice.randint(1, 3))]
        known = [(text, key) for key, (user, text, _) in believed.said.items() if user == self._user]
        old = [dice.choice(known)] if known and dice.random() < 0.4 else []
        messages = [{"role": "user", "content": text, "id": key} for text, key in (*self._new, *old)]
        named = {"user_id": self._user, "metadata": self._metadata, "wait": self.wait}
        self.calls = [("add", [messages], named), *([] if self.wait else [("flush", [], {})])]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        for text, key in self._new:
            for uid, (_, held, *_) in seen["facts"].items():
                if held == text and uid not in believed.facts:
                    after.say(uid, self._user, text, key, self._metadata)
        assert len(after.facts) == len(believed.facts) + len(self._new), "not each is there once"
        return after

    def possible(self, believed: Believed, seen: Seen) -> list[Believed]:
        new = {text for text, _ in self._new}
        return [self.done(believed, seen) if any(f[1] in new for f in seen["facts"].values()) else believed]


class AddLater(Add):
    wait = False


class Update(Operation):
    def __init__(self, dice: Random, believed: Believed) -> None:
        self._uid = dice.choice(believed.of(USER))
        self._text = _message(dice)[0] if dice.random() < 0.8 else None
        self._metadata = {"n": dice.getrandbits(32)} if self._text is None or dice.random() < 0.5 else None
        self.calls = [("update", [self._uid, self._text], {"metadata": self._metadata})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        after.revise(self._uid, self._text, self._metadata)
        return after


class Delete(Operation):
    def __init__(self, dice: Random, believed: Believed) -> None:
        self._uid = dice.choice(believed.of(USER))
        self.calls = [("delete", [self._uid], {})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        after.erase(self._uid)
        return after

    def again(self, memory: Memory) -> None:
        _unless_done(lambda: memory.delete(self._uid))


class DeleteAll(Operation):
    """In steps of two memories, so that some may be gone and others not."""

    patches = {"graphmem.memory:DELETE_BATCH": 2}

    def __init__(self, dice: Random, believed: Believed) -> None:
        self.calls = [("delete_all", [], {"user_id": SMALL})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        return _without(believed, believed.of(SMALL))

    def possible(self, believed: Believed, seen: Seen) -> list[Believed]:
        return [_without(believed, [uid for uid in believed.of(SMALL) if uid not in seen["facts"]])]


class Link(Operation):
    """Two names are said to mean one, or not to."""

    def __init__(self, dice: Random, believed: Believed) -> None:
        self._apart = bool(believed.links) and dice.random() < 0.5
        self._pair = dice.choice(believed.links) if self._apart else tuple(sorted(dice.sample(PEOPLE, 2)))
        self.calls = [("unalias" if self._apart else "alias", list(self._pair), {"user_id": USER})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        if self._apart:
            after.links.remove(self._pair)
        elif self._pair not in after.links:
            after.links.append(self._pair)
        return after

    def again(self, memory: Memory) -> None:
        _unless_done(lambda: super(Link, self).again(memory))


class Rename(Operation):
    def __init__(self, dice: Random, believed: Believed) -> None:
        self._key, self._name = dice.choice(PEOPLE), f"named {dice.getrandbits(32):x}"
        self.calls = [("rename_entity", [self._key, self._name], {"user_id": USER})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        after.names.pop(self._key, None)
        after.names[self._key] = self._name
        return after


class Rebuild(Operation):
    """In several batches."""

    def __init__(self, dice: Random, believed: Believed) -> None:
        self.patches = {"graphmem.stores.projection:BATCH": dice.choice((3, 10, 500))}
        self.calls = [("rebuild", [dice.choice((None, "vectors"))], {})]


class Import(Operation):
    """What another folder gives, in batches of two records: some of it may be there and the rest not."""

    patches = {"graphmem.transfer.importer:BATCH": 2}

    def __init__(self, dice: Random, believed: Believed) -> None:
        self._given = Believed()
        with in_memory() as folder, open_memory(folder / "giver") as giver:
            give(giver, dice, self._given)
            giver.export(written := io.StringIO())
        *records, _end = map(json.loads, written.getvalue().splitlines())
        self.calls = [("import_", [records], {})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        return _with(believed, self._given, list(self._given.facts))

    def possible(self, believed: Believed, seen: Seen) -> list[Believed]:
        return [_with(believed, self._given, [uid for uid in self._given.facts if uid in seen["facts"]])]


class Reset(Operation):
    def __init__(self, dice: Random, believed: Believed) -> None:
        self.calls = [("reset", [], {})]

    def done(self, believed: Believed, seen: Seen) -> Believed:
        after = believed.copy()
        after.reset()
        return after


# How often each is drawn.
OPERATIONS: dict[type[Operation], int] = {
    Add: 4, AddLater: 4, Update: 5, Delete: 4, DeleteAll: 3, Link: 2, Rename: 1, Rebuild: 3, Import: 2, Reset: 1,
    Open: 2,
}  # fmt: skip


def drawn(dice: Random, believed: Believed) -> Operation:
    (kind,) = dice.choices(list(OPERATIONS), list(OPERATIONS.values()))
    return kind(dice, believed) if believed.of(USER) or kind not in {Update, Delete} else Add(dice, believed)


def settle_in(memory: Memory, dice: Random, believed: Believed) -> None:
    """Gives an empty folder those whom names are about, and somebody's first memories."""
    anchors = [(f"{one} waters the {_message(dice)[0].split()[-1]}", f"anchor {one}") for one in PEOPLE]
    for user, said in ((USER, anchors), *((user, [_message(dice) for _ in range(3)]) for user in (USER, SMALL))):
        messages = [{"role": "user", "content": text, "id": key} for text, key in said]
        added = memory.add(messages, user_id=user)["results"]
        for one, (text, key) in zip(added, said, strict=True):
            assert one["event"] == "ADD", one
            believed.say(one["id"], user, text, key, {})


def give(memory: Memory, dice: Random, believed: Believed) -> None:
    """Some memories, one of which says something else by now."""
    for user in (USER, USER, USER, SMALL, SMALL):
        (text, key), metadata = _message(dice), {"n": dice.getrandbits(32)}
        message = {"role": "user", "content": text, "id": key}
        (one,) = memory.add(message, user_id=user, metadata=metadata)["results"]
        believed.say(one["id"], user, text, key, metadata)
    uid, text = next(iter(believed.facts)), _message(dice)[0]
    memory.update(uid, text)
    believed.revise(uid, text, None)


def _message(dice: Random) -> tuple[str, str]:
    """Words of which one is in no other text, and an id."""
    number = f"{dice.getrandbits(40):010x}"
    return f"{dice.choice(('Adam', 'Clive', 'Dora'))} likes {dice.choice(THINGS)} mark{number}", f"m{number}"


def _without(believed: Believed, ids: Sequence[str]) -> Believed:
    after = believed.copy()
    for uid in ids:
        after.erase(uid)
    return after


def _with(believed: Believed, given: Believed, ids: Sequence[str]) -> Believed:
    after = believed.copy()
    after.facts.update({uid: given.facts[uid] for uid in ids})
    after.said.update({key: said for key, said in given.said.items() if said[2] in ids})
    return after.copy()


def _unless_done(act: Callable[[], object]) -> None:
    try:
        act()
    except NotFoundError:
        pass
