"""Questions and memories in different languages, with the embedder that is built in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from graphmem import Memory, Settings
from graphmem.stores.ledger import ledger_state

# What is said, in German, Chinese and Russian among English, and who asks for it in other words.
SAID = (
    "Ich arbeite als Zahnärztin in Graz.",
    "Mein Hund heißt Bello.",
    "我上个月搬到了杭州。",
    "我对海鲜过敏。",
    "По выходным я катаюсь на лыжах.",
    "My sister paints boats in Lisbon.",
    "I bought a red bicycle in May.",
    "The wedding of Clara was lovely.",
    "We watched a film about volcanoes.",
    "The library closes at six.",
    "Tom lost his keys again.",
    "Our train was two hours late.",
)
ASKED = (
    ("Was bin ich von Beruf?", "Zahnärztin"),
    ("What is my job?", "Zahnärztin"),
    ("What is my pet called?", "Bello"),
    ("我的宠物叫什么名字?", "Bello"),
    ("我现在的家在哪个城市?", "杭州"),
    ("In which city is my new home?", "杭州"),
    ("Welche Speisen vertrage ich nicht?", "海鲜"),
    ("Какой спорт я люблю зимой?", "лыжах"),
    ("Which winter sport do I do?", "лыжах"),
    ("Welches Fahrzeug habe ich gekauft?", "bicycle"),
    ("我姐姐的爱好是什么?", "paints"),
)
SETTINGS: dict[str, Any] = {"extractor": {"provider": "none"}}


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with closing(Memory(":memory:", settings=Settings.from_dict(SETTINGS))) as memory:
        memory.add([{"role": "user", "content": text} for text in SAID], user_id="u")
        yield memory


@pytest.mark.parametrize(("question", "answer"), ASKED)
def test_what_was_said_is_found_in_other_words_and_other_languages(memory: Memory, question: str, answer: str) -> None:
    hits = memory.search(question, user_id="u", top_k=3)["results"]
    assert any(answer in hit["memory"] for hit in hits), [hit["memory"] for hit in hits]


# Sentences of everyday life around the one that a single word asks for, in another form.
BESIDE = {
    "ru": ("Я работаю врачом.", "Моя сестра живёт в Казани.", "Летом мы ездили на море.", "Кот спит на диване."),
    "pl": ("Pracuję jako nauczyciel.", "Mój brat lubi koty.", "Nie lubię grzybów.", "Samochód stoi w garażu."),
    "tr": ("Annem pazarları arar.", "Arabam garajda.", "Mantar sevmem.", "Yeni bir iş arıyorum."),
    "ar": ("أعمل طبيبا في المستشفى.", "أختي تسكن في القاهرة.", "نشرب القهوة في الصباح.", "سيارتي قديمة."),
}


@pytest.mark.parametrize(
    ("language", "word", "said"),
    [
        ("ru", "ЁЛКА", "Мы поставили ёлку в гостиной."),
        ("pl", "lodz", "Mieszkam w Łodzi od pięciu lat."),
        ("tr", "okul", "Okula bisikletle gidiyorum."),
        ("ar", "أحمد", "اشتريت هدية لأحمد أمس."),
        ("ar", "والكتاب", "قرأت الكتاب في المكتبة."),
    ],
)
def test_a_single_word_brings_what_has_it_in_another_form(language: str, word: str, said: str) -> None:
    with closing(Memory(":memory:", settings=Settings.from_dict(SETTINGS))) as memory:
        memory.add([{"role": "user", "content": text} for text in (said, *BESIDE[language])], user_id="u")
        block = memory.context(word, user_id="u")
    assert [text for text in (said, *BESIDE[language]) if text.split()[0] in block] == [said]


@pytest.mark.parametrize(
    "text",
    [
        "🦊🌲🌧️",
        "مرحبا \u202eعكس\u202c שלום",
        "Mein 朋友 Иван likes スキー and 김치",
        "\u200bzero\u200d\ufeff",
        "1234567890",
        "ß ﬁ Ⅷ ½",
    ],
)
def test_unusual_texts_are_stored_and_found_again(memory: Memory, text: str) -> None:
    memory.add(text, user_id=f"unusual {text!r}")
    (hit,) = memory.search(text, user_id=f"unusual {text!r}")["results"]
    assert hit["memory"] == text.strip()


@pytest.mark.thorough
def test_a_hundred_thousand_characters_of_thai_are_found(memory: Memory) -> None:
    filler = "วันนี้อากาศดีและเราเดินเล่นในสวน " * 3000
    memory.add(filler[:99_000] + "ฉันแพ้อาหารทะเล", user_id="thai")
    assert memory.search("ฉันกินอะไรไม่ได้", user_id="thai")["results"]


# --- a folder of one space --------------------------------------------------------------------------------------------


def without_second_space(folder: Path) -> None:
    """Leaves a folder as it was made when there was one encoder."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("DELETE FROM embeddings WHERE form LIKE 'use-%'")
        ledger.execute("UPDATE ledger SET multilingual = NULL")


def test_a_folder_of_one_space_works_on_and_a_rebuild_completes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_state, "_warned_of", set())
    settings = Settings.from_dict({**SETTINGS, "home": str(tmp_path)})
    with Memory(settings=settings) as memory:
        memory.add([{"role": "user", "content": text} for text in SAID[5:8]], user_id="u")
    without_second_space(tmp_path)
    with Memory(settings=settings) as memory:
        assert "boats" in memory.search("Who paints?", user_id="u")["results"][0]["memory"]
        memory.add("我对海鲜过敏。", user_id="u")
        assert "海鲜" in memory.search("What food must I avoid?", user_id="u", top_k=1)["results"][0]["memory"]
        assert sum("rebuild" in record.getMessage() for record in caplog.records) == 1
        assert memory.stats()["multilingual_embedder"] is None
        memory.rebuild()
        assert memory.verify()["ok"]
        assert memory.stats()["multilingual_embedder"] == "use-multilingual-v3"
        assert "boats" in memory.search("谁画船?", user_id="u", top_k=1)["results"][0]["memory"]


def test_an_export_carries_both_spaces(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.export(tmp_path / "all.jsonl", user_id="u")
    with closing(Memory(":memory:", settings=Settings.from_dict(SETTINGS))) as copy:

        def refuse(texts: Any) -> Any:
            raise AssertionError("the export has the vectors of these texts")

        monkeypatch.setattr(copy.engine.backends.embedder, "embed_tokens", refuse)
        copy.import_(tmp_path / "all.jsonl")
        for question, answer in ASKED[:6]:
            assert any(answer in hit["memory"] for hit in copy.search(question, user_id="u", top_k=3)["results"])
