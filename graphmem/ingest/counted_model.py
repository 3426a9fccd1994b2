"""A language model whose calls are counted in the ledger, for the scope on whose behalf they are made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from graphmem.errors import LLMError, StoreError
from graphmem.logs import log_text
from graphmem.model import Scope
from graphmem.plugins import LanguageModel, Prompt, Reply, Usage
from graphmem.stores.ledger import Ledger, ledger_state

logger = logging.getLogger("graphmem")


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
