"""Answers of a capable model to our prompts: replayed from recordings, or live (`-m live`, with OPENAI_API_KEY).

A recording belongs to exactly one request. After a change of a prompt its recordings are missing, and the test says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from recorded.cases import CASES, Case
from recorded.compositions import COMPOSINGS, Composing
from recorded.examples import EXAMPLES, Example
from recorded.player import RECORD_HINT, RECORDINGS, RecordedAnswers, compose_example, decide_example, play

from graphmem.errors import LLMError
from graphmem.testing import ModelEndpoint

MIN_RECORDINGS = 40


@pytest.fixture
def recordings() -> Iterator[RecordedAnswers]:
    recordings = RecordedAnswers()
    yield recordings
    assert not recordings.missing, f"{len(recordings.missing)} requests have no recording: {RECORD_HINT}"


@contextmanager
def replayed(recordings: RecordedAnswers) -> Iterator[str]:
    """An endpoint that plays recordings; without one its answer is empty, and the fixture reports it."""
    with ModelEndpoint(default=recordings) as endpoint:
        try:
            yield endpoint.url
        except LLMError:
            assert recordings.missing


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_checks_of_a_case_pass(case: Case, recordings: RecordedAnswers) -> None:
    with ModelEndpoint(default=recordings) as endpoint:
        checks = play(case, endpoint.url)
    if not recordings.missing:  # otherwise the fixture reports them
        assert not [name for name, good in checks.items() if not good]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_the_expected_memories(example: Example, recordings: RecordedAnswers) -> None:
    with replayed(recordings) as url:
        texts, added_texts = decide_example(example, url)
        assert (tuple(texts), tuple(added_texts)) == (example.expected_texts, example.added_texts)


@pytest.mark.parametrize("one", COMPOSINGS, ids=lambda one: one.name)
def test_a_memory_that_is_made_of_others_says_what_it_has_to(one: Composing, recordings: RecordedAnswers) -> None:
    with replayed(recordings) as url:
        text, _ = compose_example(one, url)
        assert one.is_met(text), text


def test_there_are_enough_recordings() -> None:
    assert len(list(RECORDINGS.glob("*.json"))) >= MIN_RECORDINGS


@pytest.mark.live
def test_a_live_model_passes_most_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """Plays the same cases with a real model and prints the failed checks. Fails if less than three quarters pass."""
    key, url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    if not key:
        pytest.skip("set OPENAI_API_KEY, and OPENAI_BASE_URL and OPENAI_MODEL if need be")
    model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    outcomes, lines = [], []
    for example in EXAMPLES:
        texts, added_texts = decide_example(example, url, model, key)
        outcomes.append((tuple(texts), tuple(added_texts)) == (example.expected_texts, example.added_texts))
        lines.append(f"{'ok  ' if outcomes[-1] else 'FAIL'} example {example.name}")
    for one in COMPOSINGS:
        text, reason = compose_example(one, url, model, key)
        outcomes.append(one.is_met(text))
        lines.append(f"{'ok  ' if outcomes[-1] else 'FAIL'} composition {one.name} {text} {reason}")
    for case in CASES:
        checks = play(case, url, model, key)
        outcomes += checks.values()
        failed_checks = [name for name, good in checks.items() if not good]
        lines.append(f"{'FAIL' if failed_checks else 'ok  '} {case.name} {', '.join(failed_checks)}")
    with capsys.disabled():
        print(f"\n{model}: {sum(outcomes)} of {len(outcomes)} checks\n" + "\n".join(lines))
    assert sum(outcomes) >= 0.75 * len(outcomes)
