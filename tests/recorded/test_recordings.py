"""What a capable model makes of our prompts: replayed from recordings, or live (`-m live`, with OPENAI_API_KEY).

A recording belongs to one request, to the letter. When a prompt changes there is none any more, and that is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from recorded.cases import CASES, Case
from recorded.examples import EXAMPLES, Example
from recorded.playing import HOW, RECORDINGS, Recorded, decided, play

from graphmem.errors import LLMError
from graphmem.testing import ModelEndpoint

LEAST = 40


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    assert not recorded.missing, f"{len(recorded.missing)} requests have no recording: {HOW}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case(case: Case, recorded: Recorded) -> None:
    with ModelEndpoint(default=recorded) as endpoint:
        came = play(case, endpoint.url)
    if not recorded.missing:  # else it is said at the end
        assert not [name for name, good in came.items() if not good]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_worked_example(example: Example, recorded: Recorded) -> None:
    with ModelEndpoint(default=recorded) as endpoint:
        try:
            texts, added = decided(example, endpoint.url)
        except LLMError:  # no recording is no answer, which is said at the end
            assert recorded.missing
            return
    assert (tuple(texts), tuple(added)) == (example.becomes, example.added)


def test_there_are_enough() -> None:
    assert len(list(RECORDINGS.glob("*.json"))) >= LEAST


@pytest.mark.live
def test_live(capsys: pytest.CaptureFixture[str]) -> None:
    """The same cases by a real model; prints what it got right. Fails below three quarters."""
    key, url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    if not key:
        pytest.skip("set OPENAI_API_KEY, and OPENAI_BASE_URL and OPENAI_MODEL if need be")
    model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    right, lines = [], []
    for example in EXAMPLES:
        texts, added = decided(example, url, model, key)
        right.append((tuple(texts), tuple(added)) == (example.becomes, example.added))
        lines.append(f"{'ok  ' if right[-1] else 'FAIL'} example {example.name}")
    for case in CASES:
        checks = play(case, url, model, key)
        right += checks.values()
        wrong = [name for name, good in checks.items() if not good]
        lines.append(f"{'FAIL' if wrong else 'ok  '} {case.name} {', '.join(wrong)}")
    with capsys.disabled():
        print(f"\n{model}: {sum(right)} of {len(right)} checks\n" + "\n".join(lines))
    assert sum(right) >= 0.75 * len(right)
