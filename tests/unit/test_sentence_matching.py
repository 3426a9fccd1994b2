"""The part of a long memory that matches a question."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.retrieval import sentence_matching
from graphmem.retrieval.matching import TokenMatches
from graphmem.testing.models import HashEmbedder
from graphmem.text import READ_CHARS


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
        ("1. **Lead.** Ask Dr. Smith.\n2. Next", ["1. **Lead.**", " Ask Dr. Smith.", "2. Next"]),
        ("Er kommt am 6. Mai, z. B. mit Fa. Huber. Gut.", ["Er kommt am 6. Mai, z. B. mit Fa. Huber.", " Gut."]),
        ("The end is 4.", ["The end is 4."]),
        ("...", []),
        ("", []),
    ],
)
def test_sentences_and_lines(text: str, wanted: list[str]) -> None:
    assert [text[start:end] for start, end in sentence_matching.sentences(text)] == wanted


def make_match(text: str, **scores: float) -> sentence_matching.SentenceMatch:
    spans = sentence_matching.sentences(text)
    row = np.zeros(len(spans))
    for place, score in scores.items():
        row[int(place[1:])] = score
    return sentence_matching.SentenceMatch(text, spans, row, row)


def test_the_best_sentence_is_shown_with_those_beside_it_as_far_as_there_is_room() -> None:
    text = " ".join(f"Sentence number {n} says {'something ' * 8}here." for n in range(30))
    find_best_sentence = make_match(text, s12=1.0, s13=0.5)
    assert "number 12 " in find_best_sentence.excerpt
    assert "number 13 " in find_best_sentence.excerpt
    assert len(find_best_sentence.excerpt) <= sentence_matching.CONTEXT_CHARS
    assert find_best_sentence.excerpt in text
    start, end = find_best_sentence.excerpt_within(120)
    assert text[start:end].strip() == text[slice(*find_best_sentence.best)].strip()


def test_a_best_sentence_without_room_is_cut_between_words() -> None:
    text = "The first. The heron came to the pond at noon."
    start, end = make_match(text, s1=1.0).excerpt_within(20)
    assert text[start:end] == " The heron came to "


@pytest.mark.parametrize("word", ["word ", "字", "x"])
def test_a_sentence_that_is_too_long_is_shown_in_part(word: str) -> None:
    text = f"Short one. {word * 3000}end. Short two."
    spans = sentence_matching.sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert max(end - start for start, end in spans) <= sentence_matching.CONTEXT_CHARS
    assert 0 < len(make_match(text, s4=1.0).excerpt) <= sentence_matching.CONTEXT_CHARS


@pytest.mark.parametrize(
    "text", ["." * 100_000, "a." * 50_000, "a " * 200_000, "?!" * 50_000, "\n" * 100_000, "。a" * 50_000]
)
def test_strange_texts_are_split_in_linear_time(text: str) -> None:
    spans = sentence_matching.sentences(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)


def make_record(text: str) -> MemoryRecord:
    at, scope = datetime(2026, 1, 1, tzinfo=UTC), Scope("ana")
    return MemoryRecord("id", scope.partition, scope, Kind.EPISODE, text, at, at, at, at, "s")


def find_best_sentence(question: str, text: str) -> str:
    matcher = sentence_matching.SentenceMatcher(question, None, HashEmbedder())
    found = matcher.match([(make_record(text), sentence_matching.sentences(text))], {})
    return text[slice(*found["id"].best)].strip() if found else ""


def test_a_memory_of_more_sentences_than_are_compared_has_a_best_one_too() -> None:
    sentences = [f"S{n}." for n in range(sentence_matching.MAX_SENTENCES + 5)]
    sentences[sentence_matching.MAX_SENTENCES - 1] = "The heron came."
    assert find_best_sentence("Did the heron come?", " ".join(sentences)) == "The heron came."


def test_a_word_of_one_sentence_alone_weighs_more_than_common_ones() -> None:
    text = "Hast du das Beet? Du hast Tomaten. Hast du Zeit? Was hast du? Du hast es."
    assert find_best_sentence("Welche Tomaten hast du genannt?", text) == "Du hast Tomaten."
    assert find_best_sentence("Wer?", text) == ""


def test_of_a_long_memory_the_sentences_where_its_tokens_match_best_are_compared() -> None:
    filler = "The harbour lay still and nobody spoke of it. "
    before, after = filler * 1500, filler * 300
    text = f"{before}My red car is a Saab. {after}"
    record, directions = make_record(text), np.eye(4, dtype=np.int8)
    near, far = (np.tile(directions[axis] * 127, (8, 1)).tobytes() for axis in (0, 3))
    windows = [far] * 60
    windows[60 * len(before) // len(text)] = near
    asked = TokenMatches(np.ones(1), query_tokens=directions[:1].astype(np.float32))
    matcher = sentence_matching.SentenceMatcher("What car do I have?", asked, HashEmbedder())
    beginning = sentence_matching.sentences(text[:READ_CHARS])
    match = matcher.match([(record, beginning)], {record.row: windows})[record.id]
    assert text[slice(*match.best)].strip() == "My red car is a Saab."
    assert sum(end - start for start, end in match.spans) < READ_CHARS
    assert list(match.spans) == sorted(set(match.spans))
    # Every one is whole: none is cut where the part that was read begins or ends.
    assert {text[slice(*span)].strip() for span in match.spans} <= {filler.strip(), "My red car is a Saab."}
