"""What a memory shares with a question: words that name something, by their rarity, in any script."""

from __future__ import annotations

import pytest

from graphmem.retrieval import term_overlap
from graphmem.text import term_counts

SAID = ["The dentist is on Monday", "Tea on Monday", "面试在周三", "Кот спит", "เชียงใหม่"]


def shared(question: str, text: str, *, inflected: bool = False) -> float:
    frequencies: dict[int, int] = {}
    for said in SAID:
        for term in term_counts(said):
            frequencies[term] = frequencies.get(term, 0) + 1
    asked = term_overlap.query_words(question)
    return term_overlap.weigh_terms(asked, len(SAID), frequencies, inflected=inflected).overlap([text])


def test_a_word_of_one_memory_alone_weighs_one_and_a_more_frequent_one_less() -> None:
    assert shared("When is the dentist?", SAID[0]) == pytest.approx(1.0)
    assert 0 < shared("On Monday?", SAID[0]) < term_overlap.MIN_OVERLAP
    assert shared("The dentist on Monday?", SAID[0]) > term_overlap.MIN_OVERLAP_SUPPORTED
    assert shared("When is the dentist?", SAID[1]) == 0.0


@pytest.mark.parametrize(
    ("question", "text"), [("面试是哪一天？", SAID[2]), ("Где кот?", SAID[3]), ("เชียงใหม่ไหม", SAID[4])]
)
def test_in_any_script(question: str, text: str) -> None:
    assert shared(question, text) >= term_overlap.MIN_OVERLAP


def test_of_a_language_that_is_not_read_other_forms_of_a_word_count_in_part() -> None:
    assert shared("Какая вытяжка лучше?", "Советую вытяжку Elica") == 0.0
    exactly = shared("Какая вытяжка лучше?", "Это вытяжка", inflected=True)
    assert 0 < shared("Какая вытяжка лучше?", "Советую вытяжку Elica", inflected=True) < exactly
    assert shared("Где кот?", "Когда печь хлеб", inflected=True) == 0.0
    assert shared("窗帘什么颜色", "窗户很大", inflected=True) == 0.0


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Do you remember that thing?", "I remember many things"),
        ("你还记得吗？", "我记得很清楚"),
        ("你覺得呢", "我覺得不錯"),
        ("你现在好吗？", "现在下雨"),
    ],
)
def test_words_that_name_nothing_do_not_count(question: str, text: str) -> None:
    assert shared(question, text) == 0.0


@pytest.mark.parametrize("question", ["And what happened then?", "What do you know?", "…", "后来他怎么说？"])
def test_a_question_of_such_words_alone_has_none(question: str) -> None:
    assert term_overlap.query_words(question) == []


@pytest.mark.parametrize(
    ("shared", "similarity", "is_supported_script", "enough"),
    [
        (0.7, 0.0, False, True),
        (0.6, 0.9, False, False),
        (0.7, 0.4, True, False),
        (0.0, 0.5, True, True),
        (1.4, 0.0, True, True),
    ],
)
def test_cosines_count_only_where_the_embedder_reads_the_language(
    shared: float, similarity: float, is_supported_script: bool, enough: bool
) -> None:
    assert term_overlap.is_relevant(shared, similarity, is_supported_script=is_supported_script) is enough
