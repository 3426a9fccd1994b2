"""Conformance tests of `LanguageModel`: text, JSON by a schema, and usage."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.plugins import LanguageModel, Prompt, Reply

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}


class LanguageModelContract:
    """One test for each promise of the protocol. A model's tests subclass it and give a fixture `model`."""

    @pytest.fixture
    def model(self) -> Any:
        """Returns the model."""
        raise NotImplementedError

    def test_it_has_a_name(self, model: LanguageModel) -> None:
        assert isinstance(model.name, str)
        assert model.name.strip()

    def test_without_a_schema_the_answer_is_text(self, model: LanguageModel) -> None:
        reply = model.answer(Prompt("test", "Answer in one word.", "What colour is the sky?"))
        self.check_usage(reply)
        assert isinstance(reply.value, str)
        assert reply.value.strip()

    def test_with_a_schema_the_answer_is_a_json_value(self, model: LanguageModel) -> None:
        reply = model.answer(Prompt("test", "Answer in JSON.", "What colour is the sky?", SCHEMA))
        self.check_usage(reply)
        assert isinstance(reply.value, dict)

    def check_usage(self, reply: Reply) -> None:
        """Checks that a reply counts the calls, tokens and seconds that it took."""
        assert reply.usage.calls >= 1
        assert min(reply.usage.prompt_tokens, reply.usage.completion_tokens) >= 0
        assert reply.usage.seconds >= 0
