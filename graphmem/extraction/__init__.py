"""The interface of extractors of entities and relations. Implementations are thread-safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphmem.model import Extraction, Utterance


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
