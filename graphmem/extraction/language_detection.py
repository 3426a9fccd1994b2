"""Detects English text by function words, because an English parser takes "Meine Schwester Anna" for one name."""

from __future__ import annotations

import re

from graphmem.text import mostly_latin

ENGLISH = frozenset(
    """
    the a an and or but not is are was were be been am i i'm i've i'll you he she it we they my your his her its our
    their this that these those of to in on at by for with from as if so just have has had do does did don't didn't
    will would can could what who when where why how which there here all some very about after before because then
    it's that's let's isn't can't won't doesn't wasn't never always also no yes me him them us up out get got go
    """.split()
)
# Frequent words of other languages that English lacks; they count in lower case or at the start of a text.
_FOREIGN_BY_LANGUAGE = {
    "de": """
        ich du wir ihr sie ist sind und oder nicht kein keine keinen keiner mein meine meinen meiner
        meinem dein deine sein seine unser unsere unserem mit nach bei für auf aus zu zum zur im vom
        heute gestern wurde wurden wird werde habe hatte haben das dem ein eine einen einem einer
        auch aber heiße heißt wohne wohnt arbeite arbeitet sehr noch schon weil dass wenn liegt
        liegen wo wie wer über unter gern gerne bruder schwester mutter vater freund freundin
        nächste woche jahr hallo danke mir mich ihm ihnen beim jeden jede gegen entlang zwischen seit werden
    """,
    "fr": """
        je tu nous vous ils elles est sont suis et ne pas mon ma ses notre votre une des au aux avec
        chez dans qui que mais été était avons fait très aujourd'hui hier demain aime mange habite
        travaille frère sœur père mère ami amie parce quand où c'est j'ai n'ai s'appelle m'appelle
        jamais bonjour salut merci j'aurai j'avais ans cette chaque depuis leurs toutes dimanche
    """,
    "es": """
        yo su sus está están estoy soy unos unas una un y pero por fue muy nunca siempre ayer hoy
        mañana gusta gustan se nos qué cuando donde dónde porque también sobre tengo tiene vive vivo
        trabaja trabajo llamo llama voy hermana hermano madre padre amigo amiga primo tía tío perro
        hola gracias hasta desde cada nuestro nuestra nuestros nuestras cumplo
    """,
    "it": """
        io mio miei fu sei è non nel nella alla allo della dello degli gli abbiamo ieri oggi domani
        piace chiamo chiama abito abita lavoro lavora sorella fratello zio zia molto anche perché
        dove bevo mangio ciao grazie
    """,
    "pt": """
        eu não meu minha meus minhas uma uns em é foi com ontem hoje amanhã gosto você ele ela tenho
        tem moro mora trabalho trabalha irmã irmão pai mãe muito também mais obrigado obrigada olá
    """,
    "nl": """
        ik jij wij zijn het een niet mijn jouw naar bij ook heb heeft voor maar woon woont werk
        werkt gisteren zus broer
    """,
    "scandinavian": """
        jag är och inte att det på mitt bor jobbar heter jeg ikke er hedder
    """,
    "pl": """
        jestem jest nie się moja mój mieszka mam lubię
    """,
}
# German words that no other language here has, nor English in chats ("im home").
_GERMAN = (frozenset(_FOREIGN_BY_LANGUAGE["de"].split()) - {"im", "du", "das"}) | frozenset(
    """
    der dem wann warum welche welcher welches welchen wem wen wessen woher wohin macht machst gibt haben seid
    soll kann muss möchte magst dieser dieses jeder mich ihm ihn ihnen durch gegen ohne seit zwischen ihren
    kennt kenne weiß hieß wohnen arbeiten geht gehört kommt spielt
    """.split()
)
FOREIGN = frozenset(word for words in _FOREIGN_BY_LANGUAGE.values() for word in words.split())
# Words that also occur in names ("Ludwig van Beethoven", "La La Land"); they count before a lower-case word only.
PARTICLES = frozenset("de der die den del della di da do dos das du la le les los las van von el il lo te ten".split())
# Words written alike in English and another language: they do not count for English.
SHARED_WORDS = frozenset("me no a an in on or as am so do go to us was her hat has all at".split())
# Foreign function words too similar to English words to count as foreign; they are no names either.
FOREIGN_STARTERS = frozenset(
    "mi mia mis tu ha hai ho hast hat mag es era mi para con sin son hay sono che fu os".split()
)
LOANWORDS = frozenset(
    "café cafés naïve fiancé fiancée résumé cliché décor façade jalapeño déjà crème entrée über".split()
)

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def is_english(text: str) -> bool:
    """Returns True for a text in Latin script with at most as many foreign as English function words.

    An English parser should read such texts only.
    """
    if not mostly_latin(text):
        return False
    english_count = foreign_count = 0
    words = _WORD.findall(text)
    for word, next_word in zip(words, [*words[1:], ""], strict=True):
        lower = word.lower().replace("’", "'")
        english_count += (lower in ENGLISH and lower not in SHARED_WORDS) or word == "I"
        is_first = word is words[0]
        if lower in PARTICLES:
            foreign_count += word == lower and next_word.islower() and next_word not in PARTICLES
        elif is_first or word == lower:
            foreign_count += lower in FOREIGN or not (lower.isascii() or is_first or lower in LOANWORDS)
    return foreign_count <= english_count


def is_german(text: str) -> bool:
    """Returns True for a text in Latin script that has a function word of German."""
    return not _GERMAN.isdisjoint(map(str.lower, _WORD.findall(text)))


def is_function_word(word: str) -> bool:
    """Returns True for a function word of English or of a language in this module's lists: "Meine", "Gestern", "La".

    Such a word is no name, although it may be capitalised.
    """
    lower = word.lower()
    return lower in FOREIGN or lower in PARTICLES or lower in ENGLISH or lower in FOREIGN_STARTERS
