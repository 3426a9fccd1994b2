from __future__ import annotations

import pytest

from graphmem.models.two_spaces import minilm_reads


@pytest.mark.parametrize(
    "text",
    [
        "Every Thursday after dinner I have my cello class.",
        "Where do I live now, and since when?",
        "Caroline: I went to the LGBTQ support group yesterday and it was so powerful.",
        "Caroline went to La Paz and the Rio de la Plata in May.",
        "Los Angeles trip",
        "van gogh",
        "la la land",
        "ok",
        "",
        "2024-05-01",
        "🎉",
    ],
)
def test_english_and_texts_without_words_are_read(text: str) -> None:
    assert minilm_reads(text)


@pytest.mark.parametrize(
    "text",
    [
        "Jeden Donnerstag nach dem Abendessen habe ich meine Cellostunde.",
        "Todos los jueves después de cenar tengo mi clase de violonchelo.",
        "Tous les jeudis après le dîner, j'ai mon cours de violoncelle.",
        # As few pieces as English has: told by their function words.
        "Notre mariage a eu lieu dans une grange.",
        "Qu'est-ce que j'ai oublié, et où ?",
        "No distingo el rojo del verde.",
        "Mes deux perruches, c'est Pim et Pam.",
        "W każdy czwartek po kolacji mam lekcję wiolonczeli.",
        "Her perşembe akşam yemeğinden sonra çello dersim var.",
        "每周四晚饭后我有大提琴课。",
        "毎週木曜日の夕食後にチェロのレッスンがあります。",
        "매주 목요일 저녁 식사 후에 첼로 수업이 있어요.",
        "Каждый четверг после ужина у меня урок виолончели.",
        "لدي درس تشيلو كل يوم خميس بعد العشاء.",
    ],
)
def test_other_languages_are_not(text: str) -> None:
    assert not minilm_reads(text)
