"""Whom a German question asks for: not every noun with a capital, and whoever is meant, however the name is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from graphmem import Memory

SAID = (
    "Anna arbeitet in der Buchhaltung.",
    "Ich geh am Samstag mit der Ayşe klettern.",
    "Ayşe ist meine Kollegin aus der Technik.",
    "Frieda hat im Herbst vor, nach Wien zu ziehen.",
    "Tobi ist Schreiner.",
    "Doktor Özdemir ist mein Zahnarzt.",
    "José mag Jazz.",
    "Der Hausschlüssel liegt unter der Matte.",
    "Ich habe Möhren gekauft.",
    "Die Waschmaschine ist kaputt.",
)


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with closing(Memory(":memory:")) as memory:
        memory.add([{"role": "user", "content": text} for text in SAID], user_id="u")
        yield memory


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Was ist die Abteilung von Anna?", "Buchhaltung"),
        ("Was macht Ayse am Samstag?", "klettern"),
        ("Wer ist Ayse?", "Kollegin"),
        ("Was ist die Abteilung von Ayşe?", "Technik"),
        ("Was sind Friedas Pläne?", "Wien"),
        ("Was ist Tobis Beruf?", "Schreiner"),
        ("Was macht Özdemirs Praxis?", "Zahnarzt"),
        ("Wer ist Doktor Oezdemir?", "Zahnarzt"),
        ("Was mag Jose?", "Jazz"),
    ],
)
def test_a_person_is_named_in_any_form_and_spelling(memory: Memory, question: str, answer: str) -> None:
    hits = memory.search(question, user_id="u", explain=True)["results"]
    shares = next(hit["explain"]["relevance"] for hit in hits if answer in hit["memory"])
    assert shares["named"] > 0.0
    assert not {"not_named", "nowhere_named", "about_asker"} & {name for name, share in shares.items() if share}
    assert answer in memory.context(question, user_id="u")


@pytest.mark.parametrize("question", ["Wo liegt der Hausschlüssel?", "Welche Maschine ist kaputt?"])
def test_a_german_noun_names_nobody(memory: Memory, question: str) -> None:
    for hit in memory.search(question, user_id="u", explain=True)["results"]:
        assert not {"named", "not_named"} & {name for name, share in hit["explain"]["relevance"].items() if share}


def test_a_person_of_whom_nothing_is_known_is_nowhere_named(memory: Memory) -> None:
    for question in ("Wo wohnt Lukas?", "Wer ist Lukas?"):
        hits = memory.search(question, user_id="u", explain=True)["results"]
        assert all(hit["explain"]["relevance"]["nowhere_named"] < 0.0 for hit in hits)


@pytest.mark.parametrize("question", ["schluessel", "moehren", "Wo ist der Hausschluessel?"])
def test_a_word_is_in_the_context_by_the_two_letters_for_an_umlaut(memory: Memory, question: str) -> None:
    answer = "Möhren" if question == "moehren" else "schlüssel"
    assert answer in memory.context(question, user_id="u")
