"""The systems that are compared: what each puts before the answerer for a question, all in one form; and the memories
that they ask, filled one conversation at a time, and what filling them takes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from graphmem.errors import StoreError, ValidationError
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, Message
from graphmem.evaluation.runner import (
    ARMS_ALONE,
    SEARCH_FUNCTIONS,
    ProgressCallback,
    SearchFunction,
    refuse_degraded,
    store,
)
from graphmem.ingest.facts.extraction import CHUNK_TOKENS
from graphmem.ingest.facts.structured_output import as_json
from graphmem.memory import CONTEXT_CHARS, Memory
from graphmem.plugins import Embedder, LanguageModel, Matrix, Prompt, Usage
from graphmem.prompts import load
from graphmem.retrieval.context import CLOSE, OPEN, memory_line, speaker_of
from graphmem.retrieval.context.frame import speaker_shown
from graphmem.settings import Settings
from graphmem.text import estimate_tokens

# Hits of a search that become notes.
HITS = 20
WORDS, BOTH, MEM0, EMBEDDER, NOTHING = "words", "both", "mem0", "embedder", "nothing"
# Tokens of the frame that `line_tokens` leaves out; a comma between two lines is one.
_JSON_FRAME = estimate_tokens(as_json({"": ""})) - estimate_tokens('""') - 1
# The numbers of chunks and their sizes in tokens that Chhikara et al. (2025, "Mem0", table 2) compare.
RAG_CHUNKS, RAG_SIZES = (1, 2), (128, 256, 512, 1024, 2048, 4096, 8192)
_RAG = re.compile(r"rag-([1-9]\d?)-([1-9]\d{1,4})")
# What mem0 2.2 puts into each request for facts: its instructions in estimated tokens, the last ten messages before and
# ten of its memories.
MEM0_INSTRUCTION_TOKENS, MEM0_LINES = 10_200, 20
# What chunks are cut between: words with the white space around them, and characters of scripts without spaces.
_PIECE = re.compile(r"\s*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)\s*")
_ROLES = ("system", "user")
# A forecast knows no other value of the setting.
SUMMARY_MESSAGES: int = Settings.model_fields["summary_messages"].default


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a question, as lines, and the text in which evidence is looked for: with it the sources of facts.

    `evidence` is None where notes are reworded and do not tell their sources. `seconds` are those of the search.
    """

    lines: str
    evidence: str | None
    seconds: float = 0.0


class Conversation:
    """A partition of the data, with what is made of it once for all its questions."""

    def __init__(self, name: str, messages: Sequence[Message]) -> None:
        self.name = name
        self.messages = messages
        self._lines = {str(one["id"]): line(one) for one in messages}

    def lines(self, only: Collection[str] | None = None) -> str:
        """Returns the messages, or those with these ids, as lines in their order."""
        return "".join(text for key, text in self._lines.items() if only is None or key in only)

    @cached_property
    def tokens(self) -> Mapping[str, int]:
        """The estimated tokens of each line in a request, by the id of its message."""
        return {key: line_tokens(text) for key, text in self._lines.items()}

    def chunks(self, size: int, embedder: Embedder) -> tuple[list[str], list[Matrix]]:
        """Returns the conversation in chunks of at most `size` tokens, and the vectors of each (windows x dims)."""
        if size not in self._chunks:
            texts = list(cut(self.lines(), size))
            self._chunks[size] = texts, [*embedder.embed(texts)]
        return self._chunks[size]

    @cached_property
    def _chunks(self) -> dict[int, tuple[list[str], list[Matrix]]]:
        return {}


def line_tokens(text: str) -> int:
    """Returns the estimated tokens of a line as an entry of a JSON list, comma included."""
    return estimate_tokens(as_json({"": text.rstrip("\n")})) - _JSON_FRAME


def line(message: Message) -> str:
    """Returns a message as a note."""
    return memory_line(
        message["content"], message["timestamp"], speaker_shown(message.get("name"), message.get("role"))
    )


def cut(text: str, size: int) -> Iterator[str]:
    """Yields the text in chunks of at most `size` estimated tokens, cut between words; a longer word is one alone."""
    chunk: list[str] = []
    room = size
    for piece in _PIECE.findall(text):
        tokens = estimate_tokens(piece)
        if tokens > room and chunk:
            yield "".join(chunk)
            chunk, room = [], size
        chunk.append(piece)
        room -= tokens
    if chunk:
        yield "".join(chunk)


@dataclass(frozen=True, slots=True)
class System:
    """How a system makes notes of a question.

    `memory` is what it asks: a memory (WORDS, BOTH, MEM0), the EMBEDDER, or NOTHING. `notes` takes (memory, case,
    conversation); `most` (case, conversation) returns about the most tokens of the notes, of NOTHING the very number.
    """

    memory: str
    notes: Callable[[Any, BenchmarkQuestion, Conversation], Notes]
    most: Callable[[BenchmarkQuestion, Conversation], int]


def _by_search(search: SearchFunction) -> Callable[[Memory, BenchmarkQuestion, Conversation], Notes]:
    """Returns the notes of the memories that a search finds; what facts were drawn from counts as evidence."""

    def notes(memory: Memory, case: BenchmarkQuestion, _: Conversation) -> Notes:
        started = time.perf_counter()
        ids = search(memory, case, HITS)
        seconds = time.perf_counter() - started
        records = [memory.get(uid, user_id=case.partition) for uid in ids]
        lines = "".join(memory_line(one["memory"], one["at"], speaker_of(one)) for one in records if one)
        facts = [one["id"] for one in records if one and one["kind"] == "fact"]
        sources = [source["content"] for uid in facts for source in memory.explain(uid)["messages"]]
        return Notes(lines, "\n".join([lines, *sources]), seconds)

    return notes


def _search_facts(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
    answer = memory.search(
        case.question, user_id=case.partition, top_k=top_k, kinds="fact", reference_date=case.query_time
    )
    refuse_degraded(answer.get("degraded", ()))
    return [hit["id"] for hit in answer["results"]]


def _by_context(*, rewords: bool) -> Callable[[Memory, BenchmarkQuestion, Conversation], Notes]:
    """Returns the lines of the block that `Memory.context` prints, without its frame."""

    def notes(memory: Memory, case: BenchmarkQuestion, _: Conversation) -> Notes:
        started = time.perf_counter()
        block = memory.context(case.question, user_id=case.partition, reference_date=case.query_time)
        seconds = time.perf_counter() - started
        lines = block.removeprefix(OPEN).removesuffix(CLOSE)
        return Notes(lines, None if rewords else lines, seconds)

    return notes


def _by_mem0(memory: Any, case: BenchmarkQuestion, _: Conversation) -> Notes:
    started = time.perf_counter()
    hits = memory.search(case.question, case.partition)
    seconds = time.perf_counter() - started
    return Notes(
        "".join(memory_line(hit["memory"], (hit.get("metadata") or {}).get("said_at"), None) for hit in hits),
        None,
        seconds,
    )


def _rag(number: int, size: int) -> System:
    """Returns the system of the `number` chunks nearest to the question by cosine: by the nearest of their windows."""

    def notes(embedder: Embedder, case: BenchmarkQuestion, conversation: Conversation) -> Notes:
        texts, vectors = conversation.chunks(size, embedder)
        started = time.perf_counter()
        question = embedder.embed_query(case.question)
        cosines = [float((matrix @ question).max()) for matrix in vectors]
        best = sorted(range(len(texts)), key=lambda place: -cosines[place])[:number]
        lines = "\n".join(texts[place].strip() for place in best) + "\n"
        return Notes(lines, lines, time.perf_counter() - started)

    return System(EMBEDDER, notes, lambda _, conversation: min(number * size, sum(conversation.tokens.values())))


def _most_of_hits(_: BenchmarkQuestion, conversation: Conversation) -> int:
    """Returns the tokens of the longest messages, as many as a search has hits. Facts are taken to be no longer."""
    return sum(sorted(conversation.tokens.values(), reverse=True)[:HITS])


def _most_of_context(_: BenchmarkQuestion, conversation: Conversation) -> int:
    """Returns the tokens of a full block, as many for each character as the conversation has."""
    tokens, characters = sum(conversation.tokens.values()), len(conversation.lines())
    return round(min(CONTEXT_CHARS, characters) * tokens / max(1, characters))


def _from_data(choose: Callable[[BenchmarkQuestion], Collection[str] | None]) -> System:
    """Returns a system whose notes are the messages with the ids that `choose` returns (None: all)."""

    def notes(_: object, case: BenchmarkQuestion, conversation: Conversation) -> Notes:
        lines = conversation.lines(choose(case))
        return Notes(lines, lines)

    def tokens(case: BenchmarkQuestion, conversation: Conversation) -> int:
        chosen = choose(case)
        counts = [count for key, count in conversation.tokens.items() if chosen is None or key in chosen]
        return sum(counts) - bool(counts)

    return System(NOTHING, notes, tokens)


SYSTEMS: Mapping[str, System] = {
    "words-search": System(WORDS, _by_search(SEARCH_FUNCTIONS["full"]), _most_of_hits),
    "words-context": System(WORDS, _by_context(rewords=False), _most_of_context),
    "words-graph-off": System(WORDS, _by_search(SEARCH_FUNCTIONS["order"]), _most_of_hits),
    "facts-search": System(BOTH, _by_search(_search_facts), _most_of_hits),
    "both-search": System(BOTH, _by_search(SEARCH_FUNCTIONS["full"]), _most_of_hits),
    "both-context": System(BOTH, _by_context(rewords=True), _most_of_context),
    "both-graph-off": System(BOTH, _by_search(SEARCH_FUNCTIONS["order"]), _most_of_hits),
    "none": _from_data(lambda _: ()),
    "full": _from_data(lambda _: None),
    "evidence": _from_data(lambda case: case.gold),
    "bm25": System(WORDS, _by_search(ARMS_ALONE["bm25"]), _most_of_hits),
    **{f"rag-{number}-{size}": _rag(number, size) for number in RAG_CHUNKS for size in RAG_SIZES},
    "mem0": System(MEM0, _by_mem0, _most_of_hits),
}
DEFAULT = ("words-search", "words-context", "none", "full", "rag-2-512", "bm25", "evidence")


def chosen_systems(names: Sequence[str] | None) -> dict[str, System]:
    """Returns the systems with these names, by default DEFAULT; "rag" stands for all of the paper's chunks.

    Raises ValidationError for a name that is none.
    """
    systems: dict[str, System] = {}
    for name in names or DEFAULT:
        if name == "rag":
            systems |= {one: system for one, system in SYSTEMS.items() if one.startswith("rag-")}
        elif name in SYSTEMS:
            systems[name] = SYSTEMS[name]
        elif match := _RAG.fullmatch(name):
            systems[name] = _rag(int(match[1]), int(match[2]))
        else:
            known = ", ".join(one for one in SYSTEMS if not one.startswith("rag-"))
            raise ValidationError(f"systems={name!r}: must be one of {known}, rag, or rag-K-SIZE", argument="systems")
    return systems


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
        progress("facts", 0, len(sessions))
        for number, session in enumerate(sessions, 1):
            added = self.asked.add(session, user_id=conversation.name, infer=True)
            if "failed" in added:
                raise StoreError("the memory's model failed, and facts are missing; run the command again")
            progress("facts", number, len(sessions))
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

    Nothing is sent anywhere but to that model: no telemetry, and no download of a spaCy model or of fastembed's BM25.
    """

    def __init__(self, folder: Path, embedder: Embedder, model: LanguageModel) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
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
        progress("mem0", 0, len(sessions))
        for number, session in enumerate(sessions, 1):
            contents = [f"{one['name']}: {one['content']}" if "name" in one else str(one["content"]) for one in session]
            messages = [{"role": one["role"], "content": text} for one, text in zip(session, contents, strict=True)]
            self._mem0.add(messages, user_id=user, metadata={"said_at": session[0]["timestamp"]})
            progress("mem0", number, len(sessions))
        return self._model.usage

    def search(self, question: str, user: str) -> list[dict[str, Any]]:
        """Returns the hits with "memory" and "metadata"."""
        results: list[dict[str, Any]] = self._mem0.search(question, top_k=HITS, filters={"user_id": user})["results"]
        return results

    def close(self) -> None:
        """Closes its files."""
        self._mem0.vector_store.client.close()
        self._mem0.close()


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
    session, with its instructions and, from the second on, MEM0_LINES of earlier messages and memories.
    """
    sessions = [sum(conversation.tokens[str(one["id"])] for one in session) for session in sessions_of(conversation)]
    said, calls = sum(sessions), len(sessions)
    if memory == MEM0:
        earlier = sum(sorted(conversation.tokens.values(), reverse=True)[:MEM0_LINES])
        return calls, Usage(calls, calls * MEM0_INSTRUCTION_TOKENS + (calls - 1) * earlier + said, said)
    if memory != BOTH:
        return 0, Usage()
    parts = sum(-(-tokens // CHUNK_TOKENS) for tokens in sessions)
    instructions = estimate_tokens(load("facts") + load("facts_contract"))
    summaries = sum(1 + len(session) // SUMMARY_MESSAGES for session in sessions_of(conversation))
    most = 2 * parts + summaries
    return parts, Usage(most, most * instructions + 3 * said, said)
