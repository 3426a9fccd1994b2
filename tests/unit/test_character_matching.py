"""Character matching for scripts that the embedder does not support, and detection of the supported scripts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphmem.errors import EmbeddingError
from graphmem.models.minilm import MiniLM
from graphmem.models.script_support import _PAIRS, ScriptSupport
from graphmem.plugins import Matrix
from graphmem.retrieval import matching
from graphmem.retrieval.matching import PARTIAL_WEIGHT
from graphmem.text import script_of


def rows(question: str, *texts: str) -> list[list[float]]:
    matches = matching.character_matches(question, 100, {})
    assert matches is not None
    return matches.nearest(texts).tolist()


def test_a_character_counts_fully_next_to_its_neighbour_in_the_question() -> None:
    assert rows("搬家", "她上周搬家", "搬到北京", "天气") == [[1.0, 1.0], [PARTIAL_WEIGHT, 0.0], [0.0, 0.0]]


def test_function_characters_alone_match_nothing() -> None:
    assert rows("我的狗在哪里", "狗") == [[PARTIAL_WEIGHT]]
    assert matching.character_matches("是吗？", 100, {}) is None


def test_words_of_other_scripts_count_in_part_by_their_prefix() -> None:
    dog = rows("собака", "собака", "собаку", "соболь", "кот")
    assert dog == [[1.0], [PARTIAL_WEIGHT], [0.0], [0.0]]


def test_a_latin_name_in_a_chinese_question_is_a_word() -> None:
    assert sorted(rows("Alice 搬家", "alice 搬到北京")[0]) == [0.0, PARTIAL_WEIGHT, 1.0]


@pytest.mark.parametrize(
    ("question", "text", "wanted"),
    [
        ("кот", "Человек, который пришёл", 0.0),
        ("art", "at the party", 0.0),
        ("city", "I live in a big city", 1.0),
        ("baby", "the baby sleeps", 1.0),
        ("cities", "I live in a big city", 1.0),
    ],
)
def test_words_are_compared_whole(question: str, text: str, wanted: float) -> None:
    assert rows(question, text) == [[wanted]]


def test_a_very_long_question_is_cut_to_the_maximum_of_parts() -> None:
    matches = matching.character_matches("".join(chr(0x4E00 + n) for n in range(1500)), 100, {})
    assert matches is not None
    assert len(matches.parts) == matching.MAX_PARTS
    assert matches.weights.sum() == pytest.approx(1.0)


def test_rare_parts_weigh_more() -> None:
    from graphmem.text import term_id

    matches = matching.character_matches("北京 美丽", 100, {term_id("北京"): 60, term_id("美丽"): 1})
    assert matches is not None
    assert matches.weights.sum() == pytest.approx(1.0)
    weights = dict(zip((part.prefix for part in matches.parts), matches.weights, strict=True))
    assert weights["京"] < weights["美"]


class UniversalEmbedder:
    """An embedder that supports every script: both sentences of a pair get the same vector."""

    model, dims = "universal", 64

    def __init__(self) -> None:
        self.calls = 0
        self._places = {
            sentence: place
            for pairs in _PAIRS.values()
            for place, pair in enumerate(pairs)
            for sentence in pair
        }  # fmt: skip

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        self.calls += 1
        return [np.eye(self.dims, dtype=np.float32)[[self._places[text]]] for text in texts]

    def embed_query(self, text: str) -> Matrix:
        raise NotImplementedError


QUESTIONS = {
    "CJK": "雨桐的姐姐在哪里上班?",
    "HIRAGANA": "私の猫の名前は何ですか",
    "HANGUL": "우리 고양이 이름이 뭐예요?",
    "CYRILLIC": "Как зовут мою кошку?",
    "GREEK": "Πώς λένε τη γάτα μου;",
    "ARABIC": "ما اسم قطتي؟",
    "HEBREW": "איך קוראים לחתול שלי?",
    "DEVANAGARI": "मेरी बिल्ली का नाम क्या है?",
    "THAI": "แมวของฉันชื่ออะไร",
}


def test_characters_of_another_width_are_of_the_same_script() -> None:
    assert script_of("ﾈｺﾉﾅﾏｴ") == "HIRAGANA"


def test_there_is_a_question_for_every_script() -> None:
    assert {script: script_of(text) for script, text in QUESTIONS.items()} == {script: script for script in _PAIRS}


@pytest.mark.parametrize(
    "text", ["What is my cat's name?", "Wie heißt meine Katze?", "", "12:30 !", "Alice 的狗 is old"]
)
def test_latin_letters_need_no_script_test(text: str) -> None:
    assert script_of(text) is None


@pytest.mark.parametrize("script", QUESTIONS)
def test_an_english_model_supports_no_other_script(script: str) -> None:
    assert not ScriptSupport(MiniLM()).supports(QUESTIONS[script])
    assert ScriptSupport(MiniLM()).supports("What is my cat's name?")


def test_an_embedder_is_tested_once_for_each_script() -> None:
    embedder = UniversalEmbedder()
    scripts = ScriptSupport(embedder)
    assert all(scripts.supports(text) for text in (*QUESTIONS.values(), *QUESTIONS.values()))
    assert embedder.calls == len(QUESTIONS)


def test_a_script_without_test_sentences_is_supported_if_most_others_are() -> None:
    georgian = "რა ჰქვია ჩემს კატას?"
    assert script_of(georgian) == "GEORGIAN"
    assert ScriptSupport(UniversalEmbedder()).supports(georgian)
    assert not ScriptSupport(MiniLM()).supports(georgian)


def test_an_embedder_that_fails_is_tested_again() -> None:
    class Failing(UniversalEmbedder):
        def embed(self, texts: Sequence[str]) -> list[Matrix]:
            if not self.calls:
                self.calls += 1
                raise EmbeddingError("out of reach")
            return super().embed(texts)

    scripts = ScriptSupport(Failing())
    with pytest.raises(EmbeddingError):
        scripts.supports(QUESTIONS["CJK"])
    assert scripts.supports(QUESTIONS["CJK"])
