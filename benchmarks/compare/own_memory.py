"""graphmem as it is installed: embedded, with its defaults."""

from __future__ import annotations

from collections.abc import Sequence

from systems import Place

from graphmem import Memory
from graphmem.errors import StoreError
from graphmem.evaluation.datasets import BenchmarkQuestion, Message
from graphmem.evaluation.runner import SEARCH_FUNCTIONS
from graphmem.settings import Settings


class OwnMemory:
    """A folder of graphmem, through its public door. A partition is a user."""

    def __init__(self, place: Place) -> None:
        self._memory = Memory(place.folder, settings=Settings())
        self._keys: dict[str, str] = {}

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        results = self._memory.add(messages, user_id=partition, infer=False)["results"]
        self._keys |= {item["id"]: message["id"] for item, message in zip(results, messages, strict=True)}

    def settle(self) -> None:
        if pending := self._memory.flush()["pending"]:
            raise StoreError(f"the messages are stored, but not yet in {' and '.join(pending)}; see 'graphmem verify'")

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        return [self._keys[uid] for uid in SEARCH_FUNCTIONS["full"](self._memory, case, k)]

    def close(self) -> None:
        self._memory.close()
