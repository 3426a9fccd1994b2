"""The interface of extractors of entities and relations. Implementations are thread-safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphmem.model import Extraction, Mention, Utterance


class Extractor(Protocol):
    """Finds entities and the relations between them without a language model."""

    @property
    def name(self) -> str: ...

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """Returns one extraction for each utterance, in order.

        "I" and "my" stand for the speaker, and so does the omitted subject of a fact ("Lives in Paris"). Raises
        ModelError.
        """
        ...

    def keys(self, question: str) -> list[Mention]:
        """Returns the entities that a question names, by the rules of `extract`, one mention for each key.

        Raises ModelError.
        """
        ...
