"""What jobs for a language model share: the calls, counted in the ledger for the scope on whose behalf they are made,
and the result, apart from what runs the job: a memory without a language model imports nothing else of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmem.commands.types import Outcome
from graphmem.errors import LLMError, StoreError
from graphmem.logs import log_text
from graphmem.model import Scope
from graphmem.plugins import LanguageModel, Prompt, Reply, Usage
from graphmem.stores.ledger import Ledger, ledger_state

logger = logging.getLogger("graphmem")
# Reasons by which a rule leaves out a part of a language model's answer: no decision of the model is lost by them.
_LEFT_OUT_BY_RULE = frozenset(
    {"no relation", "unknown message", "from nobody's message", "of others", "no contradiction"}
)


class CountedModel:
    """Passes prompts on to `model` and adds the usage of each call, also of a failed one, to the totals of `scope`.

    The totals are written before `answer` returns, which then raises StoreError if they cannot be. With `submit`, which
    runs a function in another thread, `answer` neither waits for this nor fails by it: the log gets a warning.
    """

    def __init__(
        self,
        model: LanguageModel,
        ledger: Ledger,
        scope: Scope,
        submit: Callable[[Callable[[], None]], Any] | None = None,
    ) -> None:
        self.name = model.name
        self._model = model
        self._ledger = ledger
        self._scope = scope
        self._submit = submit

    def answer(self, prompt: Prompt) -> Reply:
        try:
            reply = self._model.answer(prompt)
        except LLMError as error:
            self._count(prompt.operation, error.usage or Usage(calls=1))
            raise
        self._count(prompt.operation, reply.usage)
        return reply

    def _count(self, operation: str, usage: Usage) -> None:
        def write() -> None:
            with self._ledger.write(of=()) as connection:
                ledger_state.record_usage(connection, operation, self.name, self._scope, usage)

        def write_or_log() -> None:
            try:
                write()
            except StoreError as error:
                _log_uncounted(error)

        if self._submit is None:
            write()
            return
        try:
            self._submit(write_or_log)
        except StoreError as error:
            _log_uncounted(error)


def _log_uncounted(error: StoreError) -> None:
    logger.warning("a call of the language model was not counted (%s)", log_text(error))


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job.

    `usage` is by operation, `dropped` the number of unusable parts of the answers by reason, `repeated_decisions` how
    often the decision was repeated, and `chunks` the number of parts, one request each, into which the messages were
    split.
    """

    outcomes: tuple[Outcome, ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    repeated_decisions: int = 0
    chunks: int = 0

    @property
    def unusable(self) -> dict[str, int]:
        """The number of unusable parts of the answers by reason, without those that a rule leaves out."""
        return {reason: count for reason, count in sorted(self.dropped.items()) if reason not in _LEFT_OUT_BY_RULE}
