"""The interface of extractors of entities and relations. Implementations are safe to call from several threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphmem.model import Extraction, Mention, Utterance


class Extractor(Protocol):
    """Finds entities and the relations between them without a language model."""

    @property
    def name(self) -> str: ...

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """One extraction for each utterance, in order. "I" and "my" are the speaker, and who a fact leaves out is.

        Raises ModelError.
        """
        ...

    def keys(self, question: str) -> list[Mention]:
        """What a question names, by the same rules, as one mention for each key. Raises ModelError."""
        ...
