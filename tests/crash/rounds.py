"""Rounds: a process is killed at a random point of an operation, and its folder compared with the possible states.

A sequence of rounds uses one folder. A seed determines all of it but the points at which processes die: these are drawn
within the number of events that an operation took in a rehearsal. A failure prints the value of FAULTS_ROUND that plays
the same sequence to the same points: `seed:sequence:point,point,...`. A point is the number of an event, or a time
("0.213s", which is not exactly repeatable); after a "/" follows the point of a second death, while the folder was
opened again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from child import open_memory
from expected import USERS, ExpectedState, check_found_by_own_words, difference, read_snapshot
from operations import Open, Operation, add_first_memories, draw_operation
from victims import Server, assert_verified, words_in_files

from graphmem import Memory

SAMPLE, LOOK_INTO_FILES = 3, 10
# The share of deaths by time instead of by event number, and of deaths followed by a second one at the next opening.
BY_TIME_SHARE, SECOND_DEATH_SHARE = 0.2, 0.25
DIED = {-9, -14}  # by SIGKILL, and by SIGALRM


@dataclass
class Place:
    """A folder for rounds, with the configuration and the patched constants of the processes that open it."""

    home: Path
    server: Server
    config: Mapping[str, Any] = field(default_factory=dict)
    patches: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Memory:
        return open_memory(self.home, **self.config)

    def play(self, operation: Operation, point: str = "") -> tuple[int, list[dict[str, Any]]]:
        """Runs an operation in a process that dies at this point. Returns its exit status and its journal."""
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
    """The number of events and seconds of each operation without a kill, measured in a folder of their own."""

    def __init__(self, place: Place) -> None:
        self._place, self._dice, self._expected = place, Random(0), ExpectedState()
        self._lengths: dict[type[Operation], tuple[int, float]] = {}

    def point(self, kind: type[Operation], by_time: bool, share: float) -> str:
        events, seconds = self._lengths.get(kind) or self._rehearse(kind)
        return f"{share * seconds:.6f}s" if by_time else str(1 + int(share * events))

    def _rehearse(self, kind: type[Operation]) -> tuple[int, float]:
        with self._place.open() as memory:
            memory.reset()
            self._expected = ExpectedState()
            add_first_memories(memory, self._dice, self._expected)
        code, lines = self._place.play(kind(self._dice, self._expected))
        assert code == 0
        self._lengths[kind] = lines[-1]["events"], lines[-1]["seconds"]
        return self._lengths[kind]


class RoundSequence:
    """A sequence of rounds on one folder.

    `points` are those of an earlier play; without them they are drawn from the numbers of the rehearsals.
    """

    def __init__(self, place: Place, name: str, rehearsals: Rehearsals | None, points: Sequence[str] = ()) -> None:
        self._place, self._name, self._rehearsals = place, name, rehearsals
        self._points, self._played = list(points), list[str]()
        self._expected = ExpectedState()
        self.deaths = 0

    def play(self, rounds: int) -> None:
        with self._place.open() as memory:
            add_first_memories(memory, Random(f"{self._name}:begin"), self._expected)
        for number in range(rounds):
            dice = Random(f"{self._name}:{number}")
            operation = draw_operation(dice, self._expected)
            drawn_point = self._point(operation, dice)
            self._played.append(self._points[number] if self._points else drawn_point)
            try:
                self._round(operation, dice)
                if number == rounds - 1 or number % LOOK_INTO_FILES == LOOK_INTO_FILES - 1:
                    leftovers = words_in_files(self._place.home, self._expected.words)
                    assert not leftovers, leftovers
            except BaseException as error:
                replay_value = f"round {number} of FAULTS_ROUND='{self._name}:{','.join(self._played)}'"
                error.add_note(f"{replay_value}: {type(operation).__name__}, {operation.calls}")
                raise

    @classmethod
    def replay(cls, place: Place, value: str) -> None:
        """Plays the sequence that a value of FAULTS_ROUND names."""
        name, _, points = value.rpartition(":")
        cls(place, name, None, points.split(",")).play(points.count(",") + 1)

    def _point(self, operation: Operation, dice: Random) -> str:
        kinds = [type(operation), *([Open] if dice.random() < SECOND_DEATH_SHARE else [])]
        shares = [(kind, dice.random() < BY_TIME_SHARE, dice.random()) for kind in kinds]
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
            assert_verified(memory)
            self._compare(memory, operation, acknowledged)
            operation.repeat(memory)
            self._expected = self._compare(memory, operation, acknowledged or [{}])
            self._search(memory, dice)
            if not self._expected.facts:
                add_first_memories(memory, dice, self._expected)

    def _note_death(self, code: int) -> None:
        assert code in {0, *DIED}, code
        self.deaths += code != 0

    def _compare(self, memory: Memory, operation: Operation, acknowledged: list[dict[str, Any]]) -> ExpectedState:
        """Compares the folder with the possible states. Returns the one that it has."""
        snapshot = read_snapshot(memory, self._expected)
        if acknowledged:
            states = [operation.completed_state(self._expected, snapshot)]
        else:
            states = operation.possible_states(self._expected, snapshot)
        results = [one for line in acknowledged if line.get("done") == "add" for one in line["result"]["results"]]
        assert {one["id"] for one in results if one["event"] == "ADD"} <= snapshot["facts"].keys()
        differences = []
        for state in states:
            if state.tombstones != self._expected.tombstones:  # the state has more erased ids to look up
                snapshot = read_snapshot(memory, state)
            if snapshot == state.snapshot():
                return state
            differences.append(difference(snapshot, state.snapshot()))
        raise AssertionError("\n or \n".join(differences))

    def _search(self, memory: Memory, dice: Random) -> None:
        facts = self._expected.facts
        check_found_by_own_words(memory, self._expected, dice.sample(list(facts), min(SAMPLE, len(facts))))
        # Words of erased and of replaced texts.
        words = [*self._expected.words, *(word for fact in facts.values() for word in fact.words[:-1])]
        for word in dice.sample(words, min(SAMPLE, len(words))):
            for user in USERS:
                assert not any(word in hit["memory"] for hit in memory.search(word, user_id=user)["results"])
