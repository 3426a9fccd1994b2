"""Term overlap of a memory and a query: content words, weighted by rarity, in any script."""

from __future__ import annotations

import pytest

from graphmem.retrieval import term_overlap
from graphmem.text import term_counts

TEXTS = ["The dentist is on Monday", "Tea on Monday", "面试在周三", "Кот спит", "เชียงใหม่"]


def measure_overlap(question: str, text: str, *, inflected: bool = False) -> float:
    frequencies: dict[int, int] = {}
    for stored_text in TEXTS:
        for term in term_counts(stored_text):
            frequencies[term] = frequencies.get(term, 0) + 1
    words = term_overlap.query_words(question)
    return term_overlap.weigh_terms(words, len(TEXTS), frequencies, lambda _: inflected).overlap([text])


def test_a_word_of_one_memory_alone_weighs_one_and_a_more_frequent_one_less() -> None:
    assert measure_overlap("When is the dentist?", TEXTS[0]) == pytest.approx(1.0)
    assert 0 < measure_overlap("On Monday?", TEXTS[0]) < 0.7
    assert measure_overlap("The dentist on Monday?", TEXTS[0]) > 1.4
    assert measure_overlap("When is the dentist?", TEXTS[1]) == 0.0


@pytest.mark.parametrize(
    ("question", "text"), [("面试是哪一天？", TEXTS[2]), ("Где кот?", TEXTS[3]), ("เชียงใหม่ไหม", TEXTS[4])]
)
def test_in_any_script(question: str, text: str) -> None:
    assert measure_overlap(question, text) >= 0.7


def test_inflected_forms_count_in_part_in_an_unsupported_language() -> None:
    assert measure_overlap("Какая вытяжка лучше?", "Советую вытяжку Elica") == 0.0
    exactly = measure_overlap("Какая вытяжка лучше?", "Это вытяжка", inflected=True)
    assert 0 < measure_overlap("Какая вытяжка лучше?", "Советую вытяжку Elica", inflected=True) < exactly
    assert measure_overlap("Где кот?", "Когда печь хлеб", inflected=True) == 0.0
    assert measure_overlap("窗帘什么颜色", "窗户很大", inflected=True) == 0.0


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Do you remember that thing?", "I remember many things"),
        ("你还记得吗？", "我记得很清楚"),
        ("你覺得呢", "我覺得不錯"),
        ("你现在好吗？", "现在下雨"),
    ],
)
def test_function_words_do_not_count(question: str, text: str) -> None:
    assert measure_overlap(question, text) == 0.0


@pytest.mark.parametrize("question", ["And what happened then?", "What do you know?", "…", "后来他怎么说？"])
def test_a_question_without_content_words_has_no_query_words(question: str) -> None:
    assert term_overlap.query_words(question) == []


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("ёлка", "Мы поставили ёлку в гостиной."),
        ("велосипеды", "Вчера я купил велосипед."),
        ("Αθήνα", "Ο καιρός της Αθήνας."),
        ("लड़का", "लड़के खेलते हैं"),
        ("lodz", "Mieszkam w Łodzi."),
        ("okul", "Okula bisikletle gidiyorum."),
        ("أحمد", "اشتريت هدية لأحمد."),
        ("والكتاب", "قرأت الكتاب."),
        ("كتاب", "نسيت الحقيبة والكتاب."),
        ("للمدرسة", "المدرسة بعيدة."),
        ("كتابي", "قرأت الكتاب."),
    ],
)
def test_another_form_of_a_word_counts_in_part(word: str, text: str) -> None:
    assert 0 < measure_overlap(word, text, inflected=True) < measure_overlap(word, word, inflected=True)
    assert measure_overlap(word, text) == 0.0


@pytest.mark.parametrize(
    ("word", "text"), [("морг", "Летом мы ездили на море."), ("ولد", "اسمي لد"), ("كتاب", "تاب"), ("والد", "الدب")]
)
def test_a_word_that_begins_with_the_same_letters_is_another(word: str, text: str) -> None:
    assert measure_overlap(word, text, inflected=True) == 0.0
