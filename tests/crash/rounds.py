"""Rounds: a process is killed at a random point of an operation, and its folder compared with what may be there.

A sequence of rounds lives on one folder. All of it is drawn from a seed but the points at which processes die: these
are drawn within the number of events that an operation took in a rehearsal. Whatever fails says by which value of
FAULTS_ROUND the same sequence is played to the same points: `seed:sequence:point,point,...`. A point is the number
of an event, or a moment ("0.213s", which falls where it falls); after a "/" follows the point of another death, while
the folder was opened again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from believed import USERS, Believed, difference, found_by_their_own_words, look
from child import open_memory
from operations import Open, Operation, drawn, settle_in
from victims import Server, sound, words_in_files

from graphmem import Memory

SAMPLE, LOOK_INTO_FILES = 3, 10
# The share of deaths by time instead of by number, and of those that are followed by another one at the next opening.
BY_TIME, AGAIN = 0.2, 0.25
DIED = {-9, -14}  # by SIGKILL, and by the alarm clock


@dataclass
class Place:
    """Where rounds are played: a folder, and what is laid over its configuration."""

    home: Path
    server: Server
    config: Mapping[str, Any] = field(default_factory=dict)
    patches: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Memory:
        return open_memory(self.home, **self.config)

    def play(self, operation: Operation, point: str = "") -> tuple[int, list[dict[str, Any]]]:
        """Lets a process carry an operation out, and die at this point; its exit status and what it noted."""
        with suppress(FileNotFoundError):
            self.home.with_name(self.home.name + ".journal").unlink()
        return self.server.order(
            self.home, "calls", calls=operation.calls, from_opening=operation.from_opening, kill=_kill(point),
            config=self.config, patches={**self.patches, **operation.patches},
        )  # fmt: skip


def _kill(point: str) -> dict[str, Any]:
    if not point:
        return {}
    return {"seconds": float(point[:-1])} if point.endswith("s") else {"event": int(point)}


class Rehearsals:
    """How many events and seconds an operation takes when nobody dies, learned in a folder of their own."""

    def __init__(self, place: Place) -> None:
        self._place, self._dice, self._believed = place, Random(0), Believed()
        self._known: dict[type[Operation], tuple[int, float]] = {}

    def point(self, kind: type[Operation], by_time: bool, share: float) -> str:
        events, seconds = self._known.get(kind) or self._rehearsed(kind)
        return f"{share * seconds:.6f}s" if by_time else str(1 + int(share * events))

    def _rehearsed(self, kind: type[Operation]) -> tuple[int, float]:
        with self._place.open() as memory:
            memory.reset()
            self._believed = Believed()
            settle_in(memory, self._dice, self._believed)
        code, lines = self._place.play(kind(self._dice, self._believed))
        assert code == 0
        self._known[kind] = lines[-1]["events"], lines[-1]["seconds"]
        return self._known[kind]


class Story:
    """A sequence of rounds on one folder. `points` are those of an earlier play, else rehearsals tell how many there
    are to choose from."""

    def __init__(self, place: Place, name: str, rehearsals: Rehearsals | None, points: Sequence[str] = ()) -> None:
        self._place, self._name, self._rehearsals = place, name, rehearsals
        self._points, self._played = list(points), list[str]()
        self._believed = Believed()
        self.deaths = 0

    def play(self, rounds: int) -> None:
        with self._place.open() as memory:
            settle_in(memory, Random(f"{self._name}:begin"), self._believed)
        for number in range(rounds):
            dice = Random(f"{self._name}:{number}")
            operation = drawn(dice, self._believed)
            drawn_point = self._point(operation, dice)
            self._played.append(self._points[number] if self._points else drawn_point)
            try:
                self._round(operation, dice)
                if number == rounds - 1 or number % LOOK_INTO_FILES == LOOK_INTO_FILES - 1:
                    left = words_in_files(self._place.home, self._believed.words)
                    assert not left, left
            except BaseException as error:
                told = f"round {number} of FAULTS_ROUND='{self._name}:{','.join(self._played)}'"
                error.add_note(f"{told}: {type(operation).__name__}, {operation.calls}")
                raise

    @classmethod
    def once_more(cls, place: Place, told: str) -> None:
        """Plays what FAULTS_ROUND says."""
        name, _, points = told.rpartition(":")
        cls(place, name, None, points.split(",")).play(points.count(",") + 1)

    def _point(self, operation: Operation, dice: Random) -> str:
        kinds = [type(operation), *([Open] if dice.random() < AGAIN else [])]
        shares = [(kind, dice.random() < BY_TIME, dice.random()) for kind in kinds]
        return "/".join(self._rehearsals.point(*share) for share in shares) if self._rehearsals else ""

    def _round(self, operation: Operation, dice: Random) -> None:
        point, *more = self._played[-1].split("/")
        code, lines = self._place.play(operation, point)
        self._note_death(code)
        for another in more:
            self._note_death(self._place.play(Open(), another)[0])
        acknowledged = [line for line in lines if "done" in line]
        with self._place.open() as memory:
            assert memory.flush() == {"pending": []}
            sound(memory)
            self._compare(memory, operation, acknowledged)
            operation.again(memory)
            self._believed = self._compare(memory, operation, acknowledged or [{}])
            self._search(memory, dice)
            if not self._believed.facts:
                settle_in(memory, dice, self._believed)

    def _note_death(self, code: int) -> None:
        assert code in {0, *DIED}, code
        self.deaths += code != 0

    def _compare(self, memory: Memory, operation: Operation, acknowledged: list[dict[str, Any]]) -> Believed:
        """What the folder holds is what it may hold; returns that."""
        seen = look(memory, self._believed)
        if acknowledged:
            states = [operation.done(self._believed, seen)]
        else:
            states = operation.possible(self._believed, seen)
        told = [one for line in acknowledged if line.get("done") == "add" for one in line["result"]["results"]]
        assert {one["id"] for one in told if one["event"] == "ADD"} <= seen["facts"].keys()
        wrong = []
        for state in states:
            if state.gone != self._believed.gone:  # by now it is known what must be
                seen = look(memory, state)
            if seen == state.told():
                return state
            wrong.append(difference(seen, state.told()))
        raise AssertionError("\n or \n".join(wrong))

    def _search(self, memory: Memory, dice: Random) -> None:
        facts = self._believed.facts
        found_by_their_own_words(memory, self._believed, dice.sample(list(facts), min(SAMPLE, len(facts))))
        # Of what was erased, and of what was said otherwise since.
        words = [*self._believed.words, *(word for fact in facts.values() for word in fact.words[:-1])]
        for word in dice.sample(words, min(SAMPLE, len(words))):
            for user in USERS:
                assert not any(word in hit["memory"] for hit in memory.search(word, user_id=user)["results"])
