"""What `benchmarks/graph_gain.py` writes: gains by hops, what of them is noise, and both rankings of the examples."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, QuestionGroup

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("graph_gain")


def asked(gain: ModuleType, hops: int, found: str, without: str, name: str = "musique") -> Any:
    """A question whose answer is message "a", with what the searches with and without the graph find."""
    messages = tuple({"id": key, "content": f"text of {key}"} for key in "abc")
    case = BenchmarkQuestion(f"Who, {hops}?", frozenset("a"), "p", (QuestionGroup(name, "hops", str(hops)),))
    data = Dataset(name, {"p": messages}, (case,), {}, ())
    return gain.Asked(data, case, {gain.WITH: list(found), gain.WITHOUT: list(without)}, "")


def test_a_gain_stands_by_hops_with_its_interval_and_noise_is_named_first(gain: ModuleType) -> None:
    both = [asked(gain, 2, "a", "a"), asked(gain, 2, "b", "b")]
    noise, _, _, *rows = gain.table([*(asked(gain, 5, "a", "b") for _ in range(3)), *both])
    assert noise == "Within noise: musique, hops: 2.\n"
    assert rows[1:] == [
        "| musique, hops: 2 | 2 | 50.0 | 50.0 | +0.0 [0.0, 0.0] |",
        "| musique, hops: 4 and more | 3 | 100.0 | 0.0 | +100.0 [100.0, 100.0] |",
    ]
    lost = [asked(gain, 2, "b", "a"), *(asked(gain, 2, "a", "a") for _ in range(2499))]
    assert "| 100.0 | 100.0 | +0.0 [" in list(gain.table(lost))[3]


def test_examples_are_of_quoted_data_in_turn_with_both_rankings(gain: ModuleType) -> None:
    some = [asked(gain, hops, "ba", "bc") for hops in (2, 3)]
    chats = [asked(gain, 2, "ab", "c", "chats"), asked(gain, 4, "c", "a", "chats")]
    lines = list(gain.examples([*some, *chats, asked(gain, 2, "a", "b", "locomo")], gains=True))
    heads = [line for line in lines if line[0].isdigit()]
    assert heads == ["1. **Who, 2?** (musique)", "2. **Who, 2?** (chats)", "3. **Who, 3?** (musique)"]
    assert lines[1:7] == [
        "   - with, answers at 2:", "     - text of b", "     - **✓** text of a",
        "   - without, answers at –:", "     - text of b", "     - text of c",
    ]  # fmt: skip
    assert [line for line in gain.examples([*some, *chats], gains=False) if line[0].isdigit()] == [
        "1. **Who, 4?** (chats)"
    ]
