"""Which spellings are one word in keys and comparisons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.spellings import DIFFERENT, DIGRAPHS, ENGLISH_DIGRAPHS, SAME, WITHOUT_MARKS

from graphmem.folding import (
    SEVERAL_LETTERS,
    fold,
    meant_spellings,
    simplified,
    translation_to,
    typed_spellings,
    without_marks,
    without_strokes,
)
from graphmem.retrieval.matching import character_matches
from graphmem.retrieval.term_overlap import WeightedTerms, query_words
from graphmem.text import (
    bm25_weights,
    display_form,
    idf,
    normalise_key,
    query_term_counts,
    term_counts,
    term_id,
    tokens,
)


def keyword_score(text: str, query: str) -> float:
    weights = bm25_weights(term_counts(text))
    return sum(min(count, 1) * weights.get(term, 0.0) * idf(9, 1) for term, count in query_term_counts(query).items())


def overlap(text: str, query: str) -> float:
    return WeightedTerms(dict.fromkeys(query_words(query), 1.0)).overlap([text])


def character_match(text: str, query: str) -> float:
    matches = character_matches(query, 1, {})
    assert matches is not None
    return float((matches.nearest([text]) @ matches.weights)[0])


@pytest.mark.parametrize(("written", "typed"), SAME)
def test_one_word_in_two_spellings_is_the_same_everywhere(written: str, typed: str) -> None:
    assert fold(written) == fold(typed)
    assert tokens(written) == tokens(typed) != []
    assert normalise_key(written) == normalise_key(typed)
    for measure in (keyword_score, overlap, character_match):
        for text, query in ((written, typed), (typed, written)):
            assert measure(text, query) == pytest.approx(measure(query, query)) != 0.0


@pytest.mark.parametrize(("written", "typed"), WITHOUT_MARKS)
def test_a_word_is_found_without_its_marks_behind_the_exact_one(written: str, typed: str) -> None:
    assert normalise_key(written) != normalise_key(typed)
    assert without_marks(fold(written)) == fold(typed)
    for measure in (keyword_score, overlap, character_match):
        for text, query in ((written, typed), (typed, written)):
            assert 0.0 < measure(text, query) < measure(query, query)


@pytest.mark.parametrize(("written", "typed"), DIGRAPHS)
def test_a_word_is_found_by_the_two_letters_for_an_umlaut(written: str, typed: str) -> None:
    assert normalise_key(written) != normalise_key(typed)
    for measure in (keyword_score, overlap, character_match):
        for text, query in ((written, typed), (typed, written)):
            assert 0.0 < measure(text, query) < measure(query, query)


@pytest.mark.parametrize(("word", "other"), ENGLISH_DIGRAPHS)
def test_two_letters_that_are_no_umlaut_find_nothing_else(word: str, other: str) -> None:
    for measure in (keyword_score, overlap, character_match):
        for text, query in ((word, other), (other, word)):
            assert measure(text, query) == 0.0
    assert term_counts(word) == {term_id(term): 1 for term in tokens(word)}


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("l'étranger", "étranger"),
        ("d’Italia", "Italia"),
        ("dell'università", "università"),
        ("jusqu'à", "à"),
        ("Diyarbakır'a", "DİYARBAKIR"),
        ("İzmir'de", "izmir"),
        ("Ankara’ya", "Ankara"),
        ("Ali'nin", "Ali"),
        ("Mehmet'le", "Mehmet"),
        ("2024'te", "2024"),
    ],
)
def test_a_word_is_found_without_what_an_apostrophe_joins_to_it(written: str, word: str) -> None:
    assert tokens(written) == tokens(word)


@pytest.mark.parametrize("word", ["o'clock", "O'Neill", "rock'n'roll", "aujourd'hui", "Ra'anana", "j'ai", "c'era"])
def test_an_apostrophe_inside_a_word_divides_nothing(word: str) -> None:
    (term,) = tokens(word)
    assert "'" in term


def test_a_key_is_looked_up_as_it_may_have_been_meant() -> None:
    assert typed_spellings("jürgen größe") == ("jurgen große", "juergen groeße")
    assert typed_spellings("poet") == ("poet",)
    assert set(meant_spellings("joel mueller")) == {"jöl mueller", "joel müller", "jöl müller"}
    assert meant_spellings("neue frauen, quelle, bauer") == ()
    assert meant_spellings("ae oe ue ae") == ("ä ö ü ä",)


@pytest.mark.parametrize(("word", "other"), DIFFERENT)
def test_other_words_stay_apart(word: str, other: str) -> None:
    assert without_marks(fold(word)) != without_marks(fold(other))
    assert normalise_key(word) != normalise_key(other)


@pytest.mark.parametrize("name", [name for pair in SAME for name in pair])
def test_a_name_is_displayed_as_it_was_written(name: str) -> None:
    assert fold(display_form(name)) == fold(name)
    assert display_form(name)[0].isupper() == name[0].isupper()


def test_names_that_differ_in_a_mark_are_two_entities() -> None:
    names = ["Ana", "Aña", "Dũng", "Dung", "Papá", "Papa", "Hòa", "Hoa"]
    assert len(set(map(normalise_key, names))) == len(names)


@given(st.text())
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    bare = without_marks(folded)
    assert (without_marks(bare), fold(bare)) == (bare, bare)


def test_signs_keep_their_strokes() -> None:
    assert without_marks("ø ≠ ∉") == "o ≠ ∉"


@given(st.text())
def test_letters_without_strokes_keep_their_places(text: str) -> None:
    assert len(without_strokes(text)) == len(text)


@given(st.text())
def test_simplified_characters_keep_their_places(text: str) -> None:
    assert len(simplified(text)) == len(text)
    assert fold(simplified(text)) == fold(text)


def test_only_characters_are_simplified() -> None:
    assert simplified("臺北ﾊﾞｽ Ä １") == "台北ﾊﾞｽ Ä １"


def test_a_databases_translation_has_each_spelling_of_a_letter() -> None:
    others, letters = translation_to("机a")
    pairs = set(zip(others, letters, strict=True))
    assert {("機", "机"), ("á", "a"), ("ạ", "a")} <= pairs
    assert all(without_marks(fold(other)) == letter for other, letter in pairs)
    assert all(len(without_marks(fold(letter))) > 1 for letter in SEVERAL_LETTERS)


@pytest.mark.parametrize(
    ("text", "query", "is_found"),
    [
        ("Meine Krankenversicherungskarte ist abgelaufen.", "Karte", True),
        ("Der Bußgeldbescheid kam am Montag.", "bescheid", True),
        ("Der Hausschlüssel liegt unter der Matte.", "schluessel", True),
        ("Meine Karte ist abgelaufen.", "Krankenversicherungskarte", False),
        ("Ich habe den Garten gemietet.", "arten", False),
        ("She moved to Switzerland.", "land", False),
        ("He has a weak heart.", "heart", True),
        ("He has a weak heart.", "art", False),
    ],
)
def test_a_german_compound_is_found_by_its_end(text: str, query: str, *, is_found: bool) -> None:
    assert bool(overlap(text, query)) is is_found
