"""The part of a long memory that matches a question."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.recall import parts, signs
from graphmem.testing.models import HashEmbedder


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("One. Two! Three?", ["One.", " Two!", " Three?"]),
        ("# Head\n\n- a b\n- c d\n---\n", ["# Head\n", "- a b\n", "- c d\n"]),
        ("Version 3.11.2 is out. It works.", ["Version 3.11.2 is out.", " It works."]),
        ("他搬家了。你呢？我也是", ["他搬家了。", "你呢？", "我也是"]),
        ('He said "Go." Then he left.', ['He said "Go."', " Then he left."]),
        ("**Dig deep.** Water it.", ["**Dig deep.**", " Water it."]),
        ("no end", ["no end"]),
        ("...", []),
        ("", []),
    ],
)
def test_sentences_and_lines(text: str, wanted: list[str]) -> None:
    assert [text[start:end] for start, end in parts.sentences(text)] == wanted


def test_the_best_sentence_is_shown_with_those_beside_it_as_far_as_there_is_room() -> None:
    text = " ".join(f"Sentence number {n} says {'something ' * 8}here." for n in range(30))
    spans = parts.sentences(text)
    scores = np.zeros(len(spans))
    scores[12], scores[13] = 1.0, 0.5
    found = parts.around(text, spans, scores)
    assert "number 12 " in found
    assert "number 13 " in found
    assert len(found) <= parts.AROUND
    assert found in text


@pytest.mark.parametrize("word", ["word ", "字", "x"])
def test_of_a_sentence_that_is_too_long_a_piece_is_shown(word: str) -> None:
    text = f"Short one. {word * 3000}end. Short two."
    spans = parts.sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert max(end - start for start, end in spans) <= parts.AROUND
    scores = np.zeros(len(spans))
    scores[4] = 1.0
    assert 0 < len(parts.around(text, spans, scores)) <= parts.AROUND


@pytest.mark.parametrize(
    "text", ["." * 100_000, "a." * 50_000, "a " * 200_000, "?!" * 50_000, "\n" * 100_000, "。a" * 50_000]
)
def test_strange_texts_are_parted_without_delay(text: str) -> None:
    spans = parts.sentences(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)


def test_a_memory_of_more_sentences_than_are_compared_has_a_part_too() -> None:
    said = [f"S{n}." for n in range(parts.MOST_COMPARED + 5)]
    said[parts.MOST_COMPARED - 1] = "The heron came."
    at, scope = datetime(2026, 1, 1, tzinfo=UTC), Scope("ana")
    record = MemoryRecord("id", scope.space, scope, Kind.EPISODE, " ".join(said), at, at, at, at, "s")
    finder = parts.Finder(None, signs.matches("Did the heron come?", 10, {}), HashEmbedder())
    found = finder.part(record, ())
    assert found is not None
    assert "The heron came." in found
