"""Tells observers what an engine does, for metrics: changes of memories, searches, calls of models.

An observer is told in the thread that did it: its methods return at once and raise nothing. It has the methods of those
protocols of which it is to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from graphmem.errors import LLMError

if TYPE_CHECKING:
    from graphmem.commands.types import Command, Outcome
    from graphmem.model import MemoryEvent
    from graphmem.plugins import LanguageModel, Prompt, Reply, Usage


@runtime_checkable
class CommitObserver(Protocol):
    """Is told of commits."""

    def on_commit(
        self, commands: Sequence[Command], outcomes: Sequence[Outcome], events: Sequence[MemoryEvent]
    ) -> None:
        """Takes the commands of a committed change set, the outcome of each, and what subscribers are told of it."""
        ...


@runtime_checkable
class SearchObserver(Protocol):
    """Is told of searches."""

    def on_search(self, seconds: float, degraded: Sequence[str]) -> None:
        """Takes the duration of a search, and the names of the arms, stores and models that it left out."""
        ...


@runtime_checkable
class ModelCallObserver(Protocol):
    """Is told of calls of models."""

    def on_model_call(self, operation: str, seconds: float, usage: Usage | None, error: str | None) -> None:
        """Takes one call of a model: its duration, its tokens if they are known, the class of its error if it failed.

        `operation` is that of the prompt, or "embed".
        """
        ...


Observer: TypeAlias = CommitObserver | SearchObserver | ModelCallObserver


class ModelCall:
    """One call of a model in progress; `usage` is set once it is known."""

    usage: Usage | None = None


class Observers:
    """The observers of one engine. Safe to use from several threads."""

    def __init__(self) -> None:
        self._of_commits: tuple[CommitObserver, ...] = ()
        self._of_searches: tuple[SearchObserver, ...] = ()
        self._of_model_calls: tuple[ModelCallObserver, ...] = ()

    def add(self, observer: Observer) -> None:
        """Adds an observer; it is told what happens from now on."""
        if isinstance(observer, CommitObserver):
            self._of_commits = (*self._of_commits, observer)
        if isinstance(observer, SearchObserver):
            self._of_searches = (*self._of_searches, observer)
        if isinstance(observer, ModelCallObserver):
            self._of_model_calls = (*self._of_model_calls, observer)

    def committed(
        self, commands: Sequence[Command], outcomes: Sequence[Outcome], events: Sequence[MemoryEvent]
    ) -> None:
        """Reports a commit."""
        for observer in self._of_commits:
            observer.on_commit(commands, outcomes, events)

    def searched(self, seconds: float, degraded: Sequence[str]) -> None:
        """Reports a search."""
        for observer in self._of_searches:
            observer.on_search(seconds, degraded)

    @contextmanager
    def model_call(self, operation: str) -> Iterator[ModelCall]:
        """Measures the block, which calls a model, and reports it, also if it raises."""
        call, begin, failure = ModelCall(), perf_counter(), None
        try:
            yield call
        except Exception as error:
            failure = type(error).__name__
            call.usage = error.usage if isinstance(error, LLMError) else None
            raise
        finally:
            for observer in self._of_model_calls:
                observer.on_model_call(operation, perf_counter() - begin, call.usage, failure)


class ObservedModel:
    """A LanguageModel that passes prompts on to `model` and reports each call."""

    def __init__(self, model: LanguageModel, observers: Observers) -> None:
        self.name = model.name
        self._model = model
        self._observers = observers

    def answer(self, prompt: Prompt) -> Reply:
        with self._observers.model_call(prompt.operation) as call:
            reply = self._model.answer(prompt)
            call.usage = reply.usage
        return reply
