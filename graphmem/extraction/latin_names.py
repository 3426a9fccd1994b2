"""Names in languages that nothing here can parse, by their capitals; of scripts without spaces see `cjk_patterns`.

A capital at the start of a sentence, or of a noun in German, proves little: such words are kept as chunks, not names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphmem.extraction.language_detection import PARTICLES, is_function_word
from graphmem.model import EntityType


@dataclass(frozen=True, slots=True)
class NameCandidate:
    """Words that name something; `is_certain` unless they may be a common noun or a verb."""

    words: str
    type: EntityType = EntityType.OTHER
    is_certain: bool = True


_GERMAN_DETERMINERS = frozenset(
    """
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner mein meine meinen meinem
    meiner dein deine sein seine seinen ihr ihre ihren unser unsere unseren unserem dieser diese dieses jeder im am zum
    zur beim vom ins
    """.split()
)
_GERMAN = frozenset("ich wir ist sind und nicht mit nach bei für auf aus zu wurde habe hat heißt heiße liegt".split())
_KIN = frozenset(
    """
    schwester bruder mutter vater freund freundin tante onkel cousin cousine sohn tochter frau mann chef chefin kollege
    kollegin nachbar nachbarin herr oma opa dr prof
    sœur frère mère père ami amie tante oncle fils fille femme mari monsieur madame cousine
    hermana hermano madre padre amigo amiga tía tío primo prima hijo hija esposa marido señor señora don doña
    sorella fratello amico amica zia zio cugino cugina figlio figlia moglie marito signor signora
    irmã irmão mãe pai filho filha esposa senhor senhora
    сестра брат мама папа друг подруга тётя дядя сын дочь жена муж
    """.split()
)
_KIN_TYPE = EntityType.PERSON
_BY_WORD_BEFORE = {
    word: type_
    for type_, words in {
        EntityType.PERSON: "mit avec con com с heißt heiße appelle llamo llama chiamo chiama chamo chama зовут",
        EntityType.PLACE: "in nach aus à en em no na в во из",
        EntityType.ORGANIZATION: "bei chez",
    }.items()
    for word in words.split()
}
_MAKERS = frozenset("von par por da".split())
JOINING_WORDS = PARTICLES - frozenset("der die den il lo el te ten".split())
_RUSSIAN = frozenset(
    """
    я ты он она мы вы они мой моя моё мои твой твоя наш наша ваш это этот эта и но а не да нет как что где когда кто
    почему в на с у из по для к о от вчера сегодня завтра привет спасибо здравствуйте если
    """.split()
)

_ABBREVIATED = re.compile(r"\b(Dr|Prof|Sra?|St)\.")
_SENTENCE = re.compile(r"[.!?…:;¿¡\n]+")
# A letter before an apostrophe is an article or a pronoun: d'Italia, s'appelle.
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|[,()«»\"“”/]")


def capitalized_names(text: str) -> Iterator[NameCandidate]:
    """The names of a text, as far as capitals tell."""
    for sentence in _SENTENCE.split(_ABBREVIATED.sub(r"\1", text)):
        words = _WORD.findall(sentence)
        german = any(word.lower() in _GERMAN for word in words)
        yield from (_named(words, start, end, german=german) for start, end in _runs(words))


def _runs(words: list[str]) -> Iterator[tuple[int, int]]:
    """Where names begin and end: words with capitals, and the particles between them; kin before a name is none."""
    place = 0
    while place < len(words):
        end = place
        if _is_capital(words[place]) and not _opens(words[place], place) and words[place].lower() not in _KIN:
            end = _end(words, place)
            yield place, end
        place = max(end, place + 1)


def _end(words: list[str], start: int) -> int:
    end = start + 1
    for place in range(end, len(words)):
        if _is_capital(words[place]):
            end = place + 1
        elif not _joins(words, place) or place - end > 1:
            break
    return end


def _joins(words: list[str], place: int) -> bool:
    """Whether a small word stands inside a name: not every "der", but that of "van der Waals"."""
    return words[place] in JOINING_WORDS or (words[place] in ("der", "den") and words[place - 1] in ("van", "von"))


def _named(words: list[str], start: int, end: int, *, german: bool) -> NameCandidate:
    name = " ".join(words[start:end])
    before = words[start - 1].lower() if start else ""
    if before in _KIN:
        return NameCandidate(name, _KIN_TYPE)
    type_ = _BY_WORD_BEFORE.get(before, EntityType.OTHER)
    if end - start > 1:
        return NameCandidate(name, EntityType.PERSON if before in _MAKERS else type_)
    common = before in _GERMAN_DETERMINERS or (german and type_ is EntityType.OTHER)
    return NameCandidate(name, type_, is_certain=start > 0 and not common)


def _is_capital(word: str) -> bool:
    return word[0].isupper()


def _opens(word: str, place: int) -> bool:
    """Whether a word has its capital from the start of the sentence only."""
    return place == 0 and (len(word) == 1 or is_function_word(word) or word.lower() in _RUSSIAN)
