"""A language model whose calls are reported to the engine's observers."""

from __future__ import annotations

from graphmem.observers import Observers
from graphmem.plugins import LanguageModel, Prompt, Reply


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
