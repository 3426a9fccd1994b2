"""The parts of a memory that its caller gives as objects: their shape is checked, and what they raise is translated.

A given part belongs to whoever made it. A memory never closes it: others may use it as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np
from typing_extensions import get_protocol_members

from graphmem.errors import ConfigError, EmbeddingError, GraphmemError, LLMUnavailable, StoreUnavailable
from graphmem.models.vectors import unit_rows
from graphmem.plugins import (
    Embedder,
    LanguageModel,
    LocatingEmbedder,
    Matrix,
    MultilingualEmbedder,
    Reranker,
    VectorIndex,
)

T = TypeVar("T")


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
            dims = self.embedder.dims
            if type(dims) is not int or dims < 1:
                raise ConfigError(f"embedder: its dims must be the length of its vectors, not {dims!r}")
        if self.llm is not None:
            _check_name("llm", "name", self.llm.name)

    @property
    def guarded_index(self) -> VectorIndex | None:
        """The vector index; what it raises beside graphmem's errors is StoreUnavailable, so that nothing is lost."""
        return _guarded("vector_index", self.vector_index, VectorIndex, StoreUnavailable)

    @property
    def guarded_embedder(self) -> Embedder | None:
        """The embedder; what it raises beside graphmem's errors is EmbeddingError, and its vectors are of length 1."""
        embedder = self.embedder
        if embedder is None:
            return None

        def unit(rows: Any) -> Matrix:
            remedy = "its dims: set it to {length}"
            return unit_rows(rows, len(rows), embedder.dims, source="embedder: the given object", remedy=remedy)

        def embed(texts: Sequence[str]) -> list[Matrix]:
            found = [unit(rows) for rows in embedder.embed(texts)]
            if len(found) != len(texts):
                raise EmbeddingError(f"embedder: the given object returned {len(found)} matrices, not {len(texts)}")
            return found

        def embed_query(text: str) -> Matrix:
            return np.asarray(unit([embedder.embed_query(text)])[0])

        # The greatest protocols: those of their members that the object has decide which of the others it satisfies.
        protocols = (LocatingEmbedder, MultilingualEmbedder)
        return _guarded("embedder", embedder, protocols, EmbeddingError, embed=embed, embed_query=embed_query)

    @property
    def guarded_llm(self) -> LanguageModel | None:
        """The language model; what it raises beside graphmem's errors is LLMUnavailable."""
        return _guarded("llm", self.llm, LanguageModel, LLMUnavailable)


def _check_shape(argument: str, given: object, protocol: type) -> None:
    if isinstance(given, type):
        raise ConfigError(f"{argument}: is the class {given.__name__}; give an object of it")
    for name in sorted(get_protocol_members(protocol)):
        is_method = inspect.isfunction(inspect.getattr_static(protocol, name))
        try:
            is_there = callable(getattr(given, name)) if is_method else hasattr(given, name)
        except AttributeError:
            is_there = False
        if not is_there:
            kind = "method" if is_method else "attribute"
            raise ConfigError(
                f"{argument}: {type(given).__name__} has no {kind} {name}; it needs all of "
                f"graphmem.plugins.{protocol.__name__}"
            )


def _check_name(argument: str, attribute: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{argument}: its {attribute} must be a name, not {name!r}")


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
        except Exception as error:
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
