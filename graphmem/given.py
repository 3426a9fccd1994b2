"""The parts of a memory that its caller gives as objects: their shape is checked, and what they raise is translated.

A given part belongs to whoever made it. A memory never closes it: others may use it as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import get_protocol_members

from graphmem.concurrency import BoundedCalls, CallTooLate, ends_own_thread
from graphmem.errors import ConfigError, EmbeddingError, GraphmemError, LLMUnavailable, StoreUnavailable
from graphmem.models.vectors import unit_rows
from graphmem.plugins import (
    Embedded,
    EmbeddedQuestion,
    Embedder,
    LanguageModel,
    LocatingEmbedder,
    Matrix,
    MultilingualEmbedder,
    Prompt,
    Reply,
    Reranker,
    TokenEmbedder,
    Usage,
    VectorIndex,
    VectorSearch,
)

T = TypeVar("T")
_EMBEDDER = "embedder: the given object"
# Beyond it the ledger's integers, which add up what many calls used, may overflow.
_MOST_USAGE = 2**53
# How long a search waits for a given index, in seconds, and the most searches of one that are in progress, those that
# hang among them.
READ_SECONDS, MOST_READS = 1.6, 16


@dataclass(frozen=True, slots=True)
class Given:
    """The given parts, each in place of the one that the settings name; None: as the settings say.

    The constructor raises ConfigError for an object of the wrong shape, naming the argument and what it lacks.
    """

    vector_index: VectorIndex | None = None
    embedder: Embedder | None = None
    llm: LanguageModel | None = None
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        for field, protocol in zip(fields(self), (VectorIndex, Embedder, LanguageModel, Reranker), strict=True):
            given = getattr(self, field.name)
            if given is not None:
                _check_shape(field.name, given, protocol)
        if self.embedder is not None:
            _check_name("embedder", "model", self.embedder.model)
            _check_length("dims", self.embedder.dims)
        if isinstance(self.embedder, TokenEmbedder):
            _check_name("embedder", "token_form", self.embedder.token_form)
            _check_length("token_dims", self.embedder.token_dims)
        if isinstance(self.embedder, MultilingualEmbedder):
            _check_name("embedder", "multilingual_form", self.embedder.multilingual_form)
            _check_length("multilingual_dims", self.embedder.multilingual_dims)
        if self.llm is not None:
            _check_name("llm", "name", self.llm.name)

    @property
    def guarded_index(self) -> VectorIndex | None:
        """The vector index; what it raises beside graphmem's errors is StoreUnavailable, so that nothing is lost.

        So is a search of it that takes more than `READ_SECONDS`.
        """
        index = self.vector_index
        if index is None:
            return None

        def list_held(partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
            for row in index.list_held(partitions):
                match row:
                    case str(uid), int(seq), int(windows):
                        yield uid, seq, windows
                    case _:
                        raise StoreUnavailable(
                            "vector_index: the given object returned something else than ids with their sequence "
                            "number and number of windows from list_held"
                        )

        calls = BoundedCalls(MOST_READS, "graphmem-given-index")

        def bounded(name: str) -> Callable[..., Any]:
            def read(*args: Any, **kwargs: Any) -> Any:
                try:
                    return calls.run(lambda: getattr(index, name)(*args, **kwargs), READ_SECONDS)
                except CallTooLate:
                    raise StoreUnavailable(
                        f"vector_index: the given object gave no answer from {name} in {READ_SECONDS:g} seconds"
                    ) from None

            return read

        reads = {name: bounded(name) for name in get_protocol_members(VectorSearch)}
        return _guarded("vector_index", index, VectorIndex, StoreUnavailable, list_held=list_held, **reads)

    @property
    def guarded_embedder(self) -> Embedder | None:
        """The embedder; what it raises beside graphmem's errors is EmbeddingError, and its vectors are of length 1."""
        if self.embedder is None:
            return None
        checked = _CheckedEmbedder(self.embedder)
        # The greatest protocols: those of their members that the object has decide which of the others it satisfies.
        protocols = (LocatingEmbedder, MultilingualEmbedder)
        return _guarded(
            "embedder",
            self.embedder,
            protocols,
            EmbeddingError,
            embed=checked.embed,
            embed_query=checked.embed_query,
            embed_tokens=checked.embed_tokens,
            embed_question=checked.embed_question,
            token_places=checked.token_places,
        )

    @property
    def guarded_llm(self) -> LanguageModel | None:
        """The language model; what it raises or returns beside what is agreed is LLMUnavailable."""
        llm = self.llm
        if llm is None:
            return None

        def answer(prompt: Prompt) -> Reply:
            reply = llm.answer(prompt)
            if not isinstance(reply, Reply) or not isinstance(reply.usage, Usage):
                raise LLMUnavailable(
                    f"llm: the given object returned {_described(reply)} from answer; return a graphmem.plugins.Reply "
                    "with a graphmem.plugins.Usage"
                )
            numbers = [getattr(reply.usage, field.name) for field in fields(Usage)]
            if not all(isinstance(number, int | float) and 0 <= number < _MOST_USAGE for number in numbers):
                raise LLMUnavailable(
                    "llm: the given object returned a Usage with something else than numbers from 0 on; leave out what "
                    "is not known"
                )
            return reply

        return _guarded("llm", llm, LanguageModel, LLMUnavailable, answer=answer)


class _CheckedEmbedder:
    """The calls of a given embedder. What they return is checked; vectors are scaled to length 1.

    All raise EmbeddingError, which says what came in place of what.
    """

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self._has_second_space = isinstance(embedder, MultilingualEmbedder)

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        return [self._rows(rows) for rows in _one_for_each(texts, self._embedder.embed(texts))]

    def embed_query(self, text: str) -> Matrix:
        return self._vector(self._embedder.embed_query(text), "dims")

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        return [self._embedded(each) for each in _one_for_each(texts, self._embedder.embed_tokens(texts))]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        question = self._embedder.embed_question(text)
        if not isinstance(question, EmbeddedQuestion):
            raise EmbeddingError(
                f"{_EMBEDDER} returned {_described(question)} from embed_question; return an EmbeddedQuestion"
            )
        multilingual = ranking = None
        if self._has_second_space:
            multilingual = self._vector(question.multilingual, "multilingual_dims")
            if question.multilingual_ranking is not None:
                ranking = self._vector(question.multilingual_ranking, "multilingual_dims")
        is_read = multilingual is None or question.vector is not None
        vector = self._vector(question.vector, "dims") if is_read else None
        tokens = self._tokens(np.asarray(question.tokens, np.float32), np.float32)
        if len(question.words) != len(tokens):
            raise EmbeddingError(f"{_EMBEDDER} returned {len(question.words)} words for {len(tokens)} tokens")
        return EmbeddedQuestion(vector, tokens, question.words, multilingual, ranking)

    def token_places(self, text: str) -> list[list[int]]:
        places = self._embedder.token_places(text)
        with suppress(TypeError, ValueError):
            offsets = [[int(place) for place in window] for window in places]
            if all(0 <= offset <= len(text) for window in offsets for offset in window):
                return offsets
        raise EmbeddingError(
            f"{_EMBEDDER} returned something else than offsets in the text, for each window, from token_places"
        )

    def _embedded(self, text: Any) -> Embedded:
        if not isinstance(text, Embedded):
            raise EmbeddingError(
                f"{_EMBEDDER} returned {_described(text)} from embed_tokens; return an Embedded for each text"
            )
        multilingual = None
        if self._has_second_space:
            multilingual = self._vector(text.multilingual, "multilingual_dims")
        is_read = multilingual is None or len(text.vectors) > 0
        vectors = self._rows(text.vectors) if is_read else np.empty((0, self._embedder.dims), np.float32)
        if len(text.tokens) != len(vectors):
            raise EmbeddingError(f"{_EMBEDDER} returned {len(text.tokens)} token matrices for {len(vectors)} vectors")
        return Embedded(vectors, tuple(self._tokens(matrix, np.int8) for matrix in text.tokens), multilingual)

    def _rows(self, rows: Any) -> Matrix:
        try:
            count = len(rows)
        except TypeError:
            raise EmbeddingError(
                f"{_EMBEDDER} returned {_described(rows)} where a text's vectors are expected"
            ) from None
        if not count:
            raise EmbeddingError(f"{_EMBEDDER} returned no vector for a text")
        return self._unit_rows(rows, count, "dims")

    def _vector(self, vector: Any, attribute: str) -> Matrix:
        return np.asarray(self._unit_rows([vector], 1, attribute)[0])

    def _unit_rows(self, rows: Any, count: int, attribute: str) -> Matrix:
        length: int = getattr(self._embedder, attribute)
        return unit_rows(rows, count, length, source=_EMBEDDER, remedy=f"its {attribute}: set it to {{length}}")

    def _tokens(self, matrix: Any, dtype: type) -> npt.NDArray[Any]:
        """Returns a token matrix (tokens x token dims) of this type: int8 of a text, float32 of a question."""
        tokens, length = np.asarray(matrix), self._embedder.token_dims
        if tokens.dtype != dtype or tokens.shape[1:] != (length,) or not np.isfinite(tokens).all():
            raise EmbeddingError(
                f"{_EMBEDDER} returned a token matrix of {tokens.dtype} in the shape {tokens.shape}, or with numbers "
                f"that are not finite, where {np.dtype(dtype)} in the shape (tokens, {length}) is expected"
            )
        return tokens


def _one_for_each(texts: Sequence[str], returned: Any) -> list[Any]:
    try:
        found = iter(returned)
    except TypeError:
        raise EmbeddingError(f"{_EMBEDDER} returned {_described(returned)} where a list is expected") from None
    results = list(found)
    if len(results) != len(texts):
        raise EmbeddingError(f"{_EMBEDDER} returned {len(results)} results for {len(texts)} texts")
    return results


def _described(value: object) -> str:
    return f"an object of the type {type(value).__name__}"


def _check_shape(argument: str, given: object, protocol: type) -> None:
    if isinstance(given, type):
        raise ConfigError(f"{argument}: is the class {given.__name__}; give an object of it")
    for name in sorted(get_protocol_members(protocol)):
        is_method = inspect.isfunction(inspect.getattr_static(protocol, name))
        is_there = callable(getattr(given, name, None)) if is_method else hasattr(given, name)
        if is_there and any(map(inspect.iscoroutinefunction, (getattr(given, name), given))):
            raise ConfigError(
                f"{argument}: {name} of {type(given).__name__} is asynchronous, which nobody awaits; give one that "
                "returns its result, and is called in a thread"
            )
        if not is_there:
            kind = "method" if is_method else "attribute"
            raise ConfigError(
                f"{argument}: {type(given).__name__} has no {kind} {name}; it needs all of "
                f"graphmem.plugins.{protocol.__name__}"
            )


def _check_name(argument: str, attribute: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{argument}: its {attribute} must be a name, not {name!r}")


def _check_length(attribute: str, length: object) -> None:
    if type(length) is not int or length < 1:
        raise ConfigError(f"embedder: its {attribute} must be the length of its vectors, not {length!r}")


def _guarded(
    argument: str,
    given: T | None,
    protocol: Any,
    failure: type[GraphmemError],
    **replaced: Callable[..., Any],
) -> T | None:
    """Returns an object with the given one's members of these protocols, whose calls raise graphmem's errors alone."""
    if given is None:
        return None
    protocols = protocol if isinstance(protocol, tuple) else (protocol,)
    names = {name for one in protocols for name in get_protocol_members(one)} | {"check", "place"}
    members = {}
    for name in names:
        if hasattr(given, name):
            members[name] = _member(argument, given, name, failure, replaced.get(name))
    return cast("T", type(type(given).__name__, (), members)())


def _member(
    argument: str, given: object, name: str, failure: type[GraphmemError], replaced: Callable[..., Any] | None
) -> Any:
    @contextmanager
    def translated() -> Iterator[None]:
        try:
            yield
        except GraphmemError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not ends_own_thread(error):
                raise
            raise failure(f"{argument}: the given object failed in {name} with {type(error).__name__}") from error

    def each(items: Iterator[Any]) -> Iterator[Any]:
        with translated():
            yield from items

    def call(_: object, *args: Any, **kwargs: Any) -> Any:
        with translated():
            result = (replaced or getattr(given, name))(*args, **kwargs)
        return each(result) if isinstance(result, Iterator) else result

    def read(_: object) -> Any:
        with translated():
            return getattr(given, name)

    return call if callable(getattr(given, name)) else property(read)
