"""The memories that systems ask, filled one conversation at a time, and what filling them takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from graphmem.errors import StoreError
from graphmem.evaluation.datasets import Dataset, Message
from graphmem.evaluation.qa.systems import BOTH, HITS, MEM0, Conversation
from graphmem.evaluation.runner import ProgressCallback, store
from graphmem.ingest.facts.extraction import CHUNK_TOKENS
from graphmem.memory import Memory
from graphmem.plugins import Embedder, LanguageModel, Prompt, Usage
from graphmem.prompts import load
from graphmem.settings import Settings
from graphmem.text import estimate_tokens

_ROLES = ("system", "user")
# A forecast knows no other value of the setting.
SUMMARY_MESSAGES: int = Settings.model_fields["summary_messages"].default


class FilledMemory(Protocol):
    """A memory that takes in one conversation after another."""

    def fill(self, conversation: Conversation, progress: ProgressCallback, *, was_filled: bool) -> Usage:
        """Stores a conversation, or what is missing of it; returns what the memory's model has used for it.

        `was_filled`: it was stored as a whole in this folder before. Raises StoreError if it cannot be.
        """
        ...

    @property
    def asked(self) -> Any:
        """What a system's `notes` takes."""
        ...


class WordsMemory:
    """A memory of the messages as they were said."""

    def __init__(self, memory: Memory, dataset: Dataset) -> None:
        self.asked = memory
        self._dataset = dataset

    def fill(self, conversation: Conversation, progress: ProgressCallback, *, was_filled: bool) -> Usage:  # noqa: ARG002
        store(
            self.asked, replace(self._dataset, partitions={conversation.name: tuple(conversation.messages)}), progress
        )
        return Usage()


class FactsMemory:
    """A memory of the messages and of the facts that a language model draws from them, session by session."""

    def __init__(self, memory: Memory) -> None:
        self.asked = memory

    def fill(self, conversation: Conversation, progress: ProgressCallback, *, was_filled: bool) -> Usage:  # noqa: ARG002
        sessions = sessions_of(conversation)
        for number, session in enumerate(sessions):
            progress("facts", number, len(sessions))
            added = self.asked.add(session, user_id=conversation.name, infer=True)
            if "failed" in added:
                raise StoreError("the memory's model failed, and facts are missing; run the command again")
        if pending := self.asked.flush()["pending"]:
            raise StoreError(f"stored, but not yet in {' and '.join(pending)}; see 'graphmem verify'")
        rows = self.asked.stats(user_id=conversation.name)["usage"]
        names = asdict(Usage())
        return sum((Usage(**{name: row[name] for name in names}) for row in rows), Usage())


def has_mem0() -> bool:
    """Whether mem0 is installed in version 2."""
    try:
        return metadata.version("mem0ai").partition(".")[0] == "2"
    except metadata.PackageNotFoundError:
        return False


class Mem0Memory:
    """mem0 2.x with the benchmark's embedder and the memory's model, its vectors in a folder of their own.

    Nothing is sent anywhere but to that model: no telemetry, and no download of a spaCy model.
    """

    def __init__(self, folder: Path, embedder: Embedder, model: LanguageModel) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder)}
        from mem0 import Memory as Mem0  # type: ignore[import-untyped]  # noqa: PLC0415  (reads these variables)
        from mem0.utils import spacy_models  # type: ignore[import-untyped]  # noqa: PLC0415
        from spacy.util import is_package  # noqa: PLC0415

        if not is_package("en_core_web_sm"):
            spacy_models._load_failed_full = spacy_models._load_failed_lemma = True  # noqa: SLF001  (or it is fetched)
        place = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": embedder.dims}
        self._mem0 = Mem0.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": place},
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": embedder.dims}},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self._model = _Mem0Model(model)
        self._mem0.llm, self._mem0.embedding_model = self._model, _Mem0Embedder(embedder)

    @property
    def asked(self) -> Mem0Memory:
        """Itself."""
        return self

    def fill(self, conversation: Conversation, progress: ProgressCallback, *, was_filled: bool) -> Usage:
        self._model.usage = Usage()
        user = conversation.name
        if was_filled and self._mem0.get_all(filters={"user_id": user}, top_k=1)["results"]:
            return Usage()
        self._mem0.delete_all(user_id=user)
        sessions = sessions_of(conversation)
        for number, session in enumerate(sessions):
            progress("mem0", number, len(sessions))
            messages = [{"role": one["role"], "content": _with_speaker(one)} for one in session]
            self._mem0.add(messages, user_id=user, metadata={"said_at": session[0]["timestamp"]})
        return self._model.usage

    def search(self, question: str, user: str) -> list[dict[str, Any]]:
        """Returns the hits with "memory" and "metadata"."""
        results: list[dict[str, Any]] = self._mem0.search(question, top_k=HITS, filters={"user_id": user})["results"]
        return results

    def close(self) -> None:
        """Closes its files."""
        self._mem0.vector_store.client.close()
        self._mem0.close()


def _with_speaker(message: Message) -> str:
    return f"{message['name']}: {message['content']}" if "name" in message else str(message["content"])


class _Mem0Model:
    """A language model in the form that mem0 expects, whose usage is summed up."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.usage = Usage()

    def generate_response(self, messages: Sequence[Mapping[str, str]], **_: Any) -> Any:
        by_role = {role: "\n\n".join(one["content"] for one in messages if one["role"] == role) for role in _ROLES}
        reply = self._model.answer(Prompt("mem0", by_role["system"], by_role["user"]))
        self.usage += reply.usage
        return reply.value


class _Mem0Embedder:
    """An embedder in the form that mem0 expects: one vector for each text, the mean of its windows."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.config = type("Config", (), {"embedding_dims": embedder.dims, "model": embedder.model})()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        if memory_action == "search":
            vector: list[float] = self._embedder.embed_query(text).tolist()
            return vector
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str], _: str | None = None) -> list[list[float]]:
        return [matrix.mean(axis=0).tolist() for matrix in self._embedder.embed(texts)]


def sessions_of(conversation: Conversation) -> list[list[Message]]:
    """Returns the sessions: messages in a row that were said at one time, as the data dates sessions only."""
    return [list(session) for _, session in groupby(conversation.messages, key=lambda one: one["timestamp"])]


def forecast_of_filling(memory: str, conversation: Conversation) -> tuple[int, Usage]:
    """Returns the fewest calls of the memory's model for a conversation, and about what the most calls use.

    The fewest draw facts of each part of a session; the most also decide about those of each part, for facts that are
    near stored ones, and summarise each session and every SUMMARY_MESSAGES of its messages. mem0 asks once for each
    session.
    """
    sessions = [sum(conversation.tokens[str(one["id"])] for one in session) for session in sessions_of(conversation)]
    said = sum(sessions)
    if memory == MEM0:
        return len(sessions), Usage(len(sessions), said, said)
    if memory != BOTH:
        return 0, Usage()
    parts = sum(-(-tokens // CHUNK_TOKENS) for tokens in sessions)
    instructions = estimate_tokens(load("facts") + load("facts_contract"))
    summaries = sum(1 + len(session) // SUMMARY_MESSAGES for session in sessions_of(conversation))
    most = 2 * parts + summaries
    return parts, Usage(most, most * instructions + 3 * said, said)
