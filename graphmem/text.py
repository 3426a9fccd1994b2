"""Text functions for search: terms and weights of BM25, keys of entities, titles, questions, scripts, content hashes.

All are pure and safe to call from several threads.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from typing import NamedTuple

import Stemmer  # type: ignore[import-not-found, unused-ignore]  # a C extension without stubs

from graphmem.folding import fold, typed_spellings, without_marks

# BM25's term saturation (k1) and length normalisation (b).
K1 = 1.5
B = 0.75
# BM25's average document length, in terms without stop words: between a chat turn (about 12) and a passage (about 50).
# A constant, not the collection's mean, so that a memory's weights never change after it is written, all stores rank
# alike, and one tenant's long texts do not influence another's ranking.
AVERAGE_LENGTH = 24.0
# What a word with Latin marks counts in the spelling without them: "schön" is found by "schon", behind "schon" itself.
WITHOUT_MARKS_COUNT = 0.5

ARTICLES = frozenset(("a", "an", "the"))
POSSESSIVES = frozenset(("my", "your", "his", "her", "its", "our", "their"))
_DETERMINERS = ARTICLES | POSSESSIVES
STOP_WORDS = (
    ARTICLES
    | POSSESSIVES
    | frozenset(
        """
        i me mine myself we us ours ourselves you yours yourself yourselves he him himself she hers herself it itself
        they them theirs themselves who whom whose which what when where why how this that these those there here
        am is are was were be been being do does did doing done have has had having will would shall should can could
        may might must ought cannot
        and or but nor so if then else than as because while although though until unless whether
        of at by for from in into on onto off out over under up down with without within about against between among
        through during before after above below to toward towards upon via per
        not no yes only just also too very much more most some any each every both either neither all such own same
        other another again once ever even still yet already almost quite rather
        """.split()
    )
)

# Characters of a text that a search reads to compare it, so that its cost does not grow with what somebody pasted.
READ_CHARS = 20_000
# Words whose terms are cached: most words of a text are among the most frequent ones.
_CACHE_SIZE = 2**14

# Han, kana, Hangul, and the other scripts written without spaces (Thai, Lao, Burmese, Khmer).
UNSPACED_RANGES = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# A text with at least this share of letters outside Latin script is in another script.
MIN_OTHER_SCRIPT_SHARE = 0.25
# Characters of the longest key that is looked for in text without spaces: most names have two to four.
MAX_UNSPACED_KEY = 4
# Letters of the shortest name whose genitive is looked for.
MIN_POSSESSOR_CHARS = 3
MAX_TITLE_CHARS = 100
MIN_PASSAGE_CHARS = 100
GREETINGS = frozenset(("hi", "hey", "hello", "dear", "thanks"))
_ABBREVIATION_END = re.compile(r"(?:\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)|\b[A-Z])\.$")
_SENTENCE = re.compile(r"[^.!?。！？؟]*[.!?。！？؟]+|[^.!?。！？؟]+$")
_QUESTION_MARKS = ("?", "？", "؟")
_SCRIPT_RUN = re.compile(f"[{UNSPACED_RANGES}]+|[^{UNSPACED_RANGES}]+")
UNSPACED_RUN = re.compile(f"[{UNSPACED_RANGES}]+")
# White space and the characters that no key may contain: control characters, zero-width spaces, lone surrogates.
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b\u2060\ufeff\ud800-\udfff]+")
_POSSESSIVE_ENDING = re.compile(r"['’][sS]$")
_POSSESSIVE_INSIDE = re.compile(r"['’][sS](?=\s)")
_TOKEN_RUN = re.compile(
    rf"(?P<latin>[A-Za-zÀ-ɏ]+)|(?P<digits>\d+)|(?P<letters>[^\W\d_A-Za-zÀ-ɏ{UNSPACED_RANGES}]+)|(?P<other>\S)"
)
# Tokens of a run of so many characters, by the groups of `_TOKEN_RUN`.
_TOKEN_COUNTS: Mapping[str, Callable[[int], int]] = {
    "latin": lambda length: -(-length // 5),
    "digits": lambda length: -(-length // 3),
    "letters": lambda length: -(-2 * length // 3),
    "other": lambda length: length,
}
_ASCII_WORD = re.compile("[a-z0-9]+(?:'[a-z0-9]+)*")
_APOSTROPHES = str.maketrans("’ʼ", "''")
# What is no part of the word beside an apostrophe: before it in French, Italian and Catalan ("l'étranger",
# "dell'Arno"), behind it the endings of names in Turkish ("Ankara'ya"). English ones are the stemmer's.
_ELIDED = frozenset(
    """
    l d j m t s c n qu jusqu lorsqu puisqu quoiqu quelqu all dall dell nell sull un quest quell
    """.split()
)
# Behind an elided word these tell nothing by themselves: "j'ai", "qu'il", "c'era".
_TELLING_NOTHING = frozenset(
    "a ai as est es il ils elle elles on un une y en ont avais avait avons étais était ayant è era erano ho ha".split()
)
_TURKISH_ENDING = re.compile(
    "[yn]?[aeiuü]|n?[iuü]n|n?[dt][ae](?:n|ki)?|y?l[ae]|l[iuü]|l[ae]r(?:[aeiuü]|[iuü]n|d[ae]n?)?|y?[dt][iuü]|[dt][iuü]r|s[iuü]"
)
_INVISIBLE = "\ufe0f\u200d"

# Chinese characters that mostly serve grammar. A bigram of two of them is in every other question and selects nothing.
FUNCTION_CHARACTERS = frozenset(
    "的了是在我你他她它们这那哪什么怎谁吗呢吧呀啊哦就也都还很不没有和跟与被把给对从到向上下里个只几多少样会能要想说去来过着得地为以后前时候之其所并而且或"
)

_NUMBER = re.compile(r"\d+")
# Words and signs of negation in the languages that the default embedder reads.
_NEGATION = re.compile(
    r"""\b(?:not|no|never|none|nobody|nothing|nicht|kein\w*|nie|niemals|pas|jamais|aucun\w*|nunca|jamás|ningun\w*|ningún
    |não|non|niet|geen|nooit|не|нет|никогда|ничего|لا|ليس|لم|لن)\b|n['’]t\b|[不没沒别別未無无]|ない|ません|않|없|못""",
    re.IGNORECASE | re.VERBOSE,
)

_thread_local = threading.local()


def tokens(text: str) -> list[str]:
    """Returns the terms of a text, in order and with repetitions.

    Terms are folded (`folding.fold`), without English stop words; Latin words are stemmed. Scripts written without
    spaces give character bigrams (a single character gives itself).
    """
    return _split_terms(fold(text))


def tokens_with_and_without_marks(text: str) -> tuple[list[str], list[str]]:
    """Returns the terms of a text, and those of `folding.typed_spellings`, which "Walesa" and "Wałęsa" share."""
    folded = fold(text)
    terms, spellings = _split_terms(folded), typed_spellings(folded)
    if spellings == (folded,):
        return terms, terms
    return terms, [term for spelling in spellings for term in _split_terms(spelling)]


def claims(text: str) -> tuple[list[str], bool]:
    """Returns what tells two sentences of nearly the same words apart: their numbers, and whether they deny."""
    return _NUMBER.findall(text), _NEGATION.search(text) is not None


@lru_cache(maxsize=_CACHE_SIZE)
def bare_terms(word: str) -> tuple[str, ...]:
    """Returns the terms of a folded word as it is typed without the marks of Latin letters."""
    return tuple(term for spelling in typed_spellings(word) for term in _split_terms(spelling))


def words_of(text: str) -> list[str]:
    """Returns the folded words of a text, in order: runs of letters, digits and "_", without punctuation."""
    return re.findall(r"\w+", fold(text))


@lru_cache(maxsize=_CACHE_SIZE)
def term_id(token: str) -> int:
    """Returns a term's stable number, 0 to 2**31 - 1, which fits a signed and an unsigned 32-bit field."""
    digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def term_counts(text: str) -> dict[int, float]:
    """Counts the terms of a text: {number of the term: occurrences}.

    A term with Latin marks counts also as it is typed without them, `WITHOUT_MARKS_COUNT` each time.
    """
    folded_text = fold(text)
    counts = Counter(_split_terms(folded_text))
    by_number: dict[int, float] = {term_id(term): count for term, count in counts.items()}
    if (spellings := typed_spellings(folded_text)) != (folded_text,):
        typed = Counter[str]()
        for spelling in spellings:
            typed |= Counter(_split_terms(spelling))
        for term, count in (typed - counts).items():
            by_number[term_id(term)] = by_number.get(term_id(term), 0) + WITHOUT_MARKS_COUNT * count
    return by_number


def cut_line(line: str, most: int) -> str:
    """Returns a line of at most `most` characters, with "…" at its end if it was cut."""
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def estimate_tokens(text: str) -> int:
    """Estimates the tokens of a text for a language model, rather too high.

    One for every five letters of a Latin word and every three digits, two for every three letters of other alphabets,
    each rounded up, and one for any other character but white space: "Hello, 世界" has 1 + 1 + 2. Of chats in English,
    Chinese and German that is 1.0 to 1.2 times what o200k_base makes of them, of Russian and Arabic 1.5 (counted over
    the texts in benchmarks/; a single Italian text had 1.12 times the estimate).
    """
    return sum(_TOKEN_COUNTS[match.lastgroup](len(match[0])) for match in _TOKEN_RUN.finditer(text) if match.lastgroup)


def query_tokens(question: str) -> list[str]:
    """Returns the distinct terms of a question, without bigrams of two Chinese function characters."""
    return [token for token in dict.fromkeys(tokens(question)) if not _is_function_bigram(token)]


def query_term_counts(question: str) -> dict[int, float]:
    """Counts the terms of a question as `term_counts` does. Omits the same bigrams as `query_tokens`."""
    counts = term_counts(question)
    for token in filter(_is_function_bigram, tokens(question)):
        counts.pop(term_id(token), None)
    return counts


def _is_function_bigram(token: str) -> bool:
    return len(token) == 2 and set(token) <= FUNCTION_CHARACTERS  # noqa: PLR2004 - a bigram


def bm25_weights(counts: Mapping[int, float]) -> dict[int, float]:
    """Returns the weight of each term of a document in BM25: its count, saturated and normalised by document length.

    `counts` maps numbers of terms to occurrences. A document's score is the sum of weight times `idf` over the terms
    of the query.
    """
    length = K1 * (1 - B + B * sum(counts.values()) / AVERAGE_LENGTH)
    return {term: count * (K1 + 1) / (count + length) for term, count in counts.items()}


def idf(n: int, df: int) -> float:
    """Returns Lucene's inverse document frequency of a term that `df` of `n` memories contain; never negative.

    The two counts may come from different moments, so `df` may be larger than `n`.
    """
    return math.log(1 + (max(n, df) - df + 0.5) / (df + 0.5))


def split_title(text: str) -> tuple[str, str]:
    """Splits a text into its title ("" without one) and the rest.

    A title is a short first line above further text that does not end like a sentence, begin in lower case or greet.
    """
    head, _, body = text.strip().partition("\n")
    head = head.strip()
    first = head.partition(" ")[0].rstrip(",!").casefold()
    is_sentence = head.endswith(tuple(".?!:;,。？！：；，")) and not _ABBREVIATION_END.search(head)
    if (
        not head
        or not body.strip()
        or len(head) > MAX_TITLE_CHARS
        or head[0].islower()
        or is_sentence
        or first in GREETINGS
    ):
        return "", text
    return head, body


def body_start(text: str) -> int:
    """Returns the place in a text at which what stands below its title (`split_title`) begins, 0 without one."""
    title, _ = split_title(text)
    return text.find(title) + len(title) if title else 0


def is_passage(text: str) -> bool:
    """Returns True for a part of a document, not of a conversation: a text with a title and enough text below it."""
    title, body = split_title(text)
    return bool(title) and len(body) >= MIN_PASSAGE_CHARS


def question_share(text: str) -> float:
    """Returns the share of a text's characters that belong to questions, 0 to 1."""
    sentences = _SENTENCE.findall(text)
    question_chars = sum(len(sentence) for sentence in sentences if is_question(sentence))
    return question_chars / (sum(map(len, sentences)) or 1)


def is_question(text: str) -> bool:
    """Tells whether a text ends with a question mark."""
    return text.rstrip().endswith(_QUESTION_MARKS)


def is_unspaced(text: str) -> bool:
    """Tells whether a text contains characters of a script that is written without spaces."""
    return UNSPACED_RUN.search(text) is not None


def normalise_key(name: str) -> str:
    """Returns the canonical key of an entity's name, "" if nothing is left. The key of a key is the key itself.

    Folded, with the marks of Latin letters: Dũng and Dung are two people.
    """
    return display_form(fold(name).translate(_APOSTROPHES))


def folded_key(key: str) -> str:
    """Returns the key that this release makes of a key that an older one has made."""
    return fold(key) or key


def bare_key(key: str) -> str | None:
    """Returns a key without the marks of Latin letters; None for a key that has none."""
    bare = without_marks(key)
    return None if bare == key else bare


def display_form(name: str) -> str:
    """Returns a name as it is displayed: in its own case, with single spaces.

    Removes a leading article or possessive pronoun, a trailing 's, and punctuation around the name.
    """
    previous, name = "", _BLANK.sub(" ", unicodedata.normalize("NFKC", name))
    while name != previous:
        previous, name = name, _without_edge_punctuation(name)
        first, _, rest = name.partition(" ")
        name = _POSSESSIVE_ENDING.sub("", rest if first.casefold() in _DETERMINERS else name)
    return name


class KeyCandidate(NamedTuple):
    """A key that a question may name an entity by.

    `start` and `end` count the question's words, then the characters of its parts in scripts without spaces. `is_name`:
    whether its first and its last word are written with capitals; None where the writing does not tell. `is_possessor`:
    whether it is the name of which the question may have the genitive ("Friedas Pläne").
    """

    key: str
    start: int
    end: int
    is_name: bool | None
    is_possessor: bool = False

    def is_inside(self, other: KeyCandidate) -> bool:
        """Whether this is a part of another candidate."""
        return other.start <= self.start and self.end <= other.end and other.end - other.start > self.end - self.start


def key_candidates(text: str, longest: int = 7) -> dict[str, KeyCandidate]:
    """Returns the entity keys that a question may name, normalised: of its runs of 1 to `longest` words.

    Runs of stop words alone are left out; those with an inner possessive come with and without it ("anna's dog", "anna
    dog"), those beside an apostrophe also without the article or the ending there ("l'italie", "ayşe'nin"), those that
    end in small letters also in the singular ("art galleries", "art gallery"), those in capitals also without the
    ending of a genitive. Text of scripts without spaces adds its runs of 2 to 4 characters.
    """
    words, tells = text.split(), not text[1:].islower()
    capital = [any(map(str.isupper, word)) for word in words]
    found: dict[str, KeyCandidate] = {}
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            is_name = (capital[start] and capital[end - 1]) if tells else None
            for key in _phrase_keys(words[start:end], with_singular=not capital[end - 1]):
                if key not in found or (is_name and not found[key].is_name):
                    found[key] = KeyCandidate(key, start, end, is_name)
                # A genitive stands before what is theirs, and "ORMs" are several.
                if capital[start] and capital[end - 1] and end < len(words) and words[end - 1][-2:].islower():
                    for name in possessors(key):
                        found.setdefault(name, KeyCandidate(name, start, end, None, is_possessor=True))
    place = len(words)
    for run in UNSPACED_RUN.findall(fold(text)):
        for start in range(len(run)):
            for end in range(start + 2, min(start + MAX_UNSPACED_KEY, len(run)) + 1):
                found.setdefault(run[start:end], KeyCandidate(run[start:end], place + start, place + end, None))
        place += len(run)
    return found


def mostly_latin(text: str) -> bool:
    """Tells whether at least half of a text's letters are Latin; False without letters."""
    letters = [char for char in text if char.isalpha()]
    return 2 * sum(map(is_latin, letters)) >= len(letters) > 0


def is_latin(char: str) -> bool:
    """Tells whether a letter is Latin."""
    return char < "\u0250" or "\u1e00" <= char <= "\u1eff" or "\uff21" <= char <= "\uff5a"


def script_of(text: str) -> str | None:
    """Returns the Unicode name of a text's script; None if it is Latin, or the text has no letters.

    Texts in other scripts often contain Latin names and terms, so from a quarter of non-Latin letters on the commonest
    of their scripts counts. Kanji or katakana with kana is "HIRAGANA" (Japanese).
    """
    letters = [char for char in unicodedata.normalize("NFKC", text) if char.isalpha()]
    counts = Counter(unicodedata.name(char, "").partition(" ")[0] for char in letters if not is_latin(char))
    if not counts or counts.total() < MIN_OTHER_SCRIPT_SHARE * len(letters):
        return None
    script = counts.most_common(1)[0][0]
    is_japanese = script in ("CJK", "KATAKANA") and counts.keys() & {"HIRAGANA", "KATAKANA"}
    return "HIRAGANA" if is_japanese else script


def approximate_length(text: str) -> int:
    """Estimates the number of a text's tokens: its words, and each character of scripts written without spaces."""
    return len(text.split()) + sum(map(len, UNSPACED_RUN.findall(text)))


@cache
def _word_pattern() -> re.Pattern[str]:
    # "\w" does not match combining marks: without them Hindi and Arabic words would be split at their vowels. Those
    # above U+FFFF stand apart, because `re` looks through a class that has any one range after the other.
    marks = [chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M"]
    basic, others = ("".join(mark for mark in marks if (mark < "\U00010000") is is_basic) for is_basic in (True, False))
    letters = f"(?:[^\\W_]++|[{basic}]++|(?=[\U00010000-\U0001ffff])[{others}]++)++"
    return re.compile(f"{letters}(?:['’]{letters})*")


def _split_terms(text: str) -> list[str]:
    if text.isascii():  # the pattern for all scripts takes five times as long
        return [term for word in _ASCII_WORD.findall(text) if (term := _spaced_term(word)) is not None]
    terms: list[str] = []
    for word in _word_pattern().findall(text):
        for run in (word,) if word.isascii() else _SCRIPT_RUN.findall(word):
            if UNSPACED_RUN.match(run):
                terms.extend([run] if len(run) == 1 else (run[start : start + 2] for start in range(len(run) - 1)))
            elif (term := _spaced_term(run)) is not None:
                terms.append(term)
    return terms


@lru_cache(maxsize=_CACHE_SIZE)
def _spaced_term(run: str) -> str | None:
    word = _without_joined(run.translate(_APOSTROPHES).strip("'"))
    if not word or _is_stop_word(word):
        return None
    if not all(map(is_latin, word)):
        return word
    # A Stemmer has a buffer and must not be shared between threads.
    stemmer = getattr(_thread_local, "stemmer", None)
    if stemmer is None:
        stemmer = _thread_local.stemmer = Stemmer.Stemmer("english")
    return str(stemmer.stemWord(word))


def _without_joined(words: str) -> str:
    """Returns folded words without the article before the first apostrophe, or without the ending behind it."""
    before, _, behind = words.partition("'")
    if not behind:
        return words
    if before in _ELIDED:
        return words if behind in _TELLING_NOTHING else behind
    return before if _TURKISH_ENDING.fullmatch(behind) else words


def _is_stop_word(word: str) -> bool:
    return word.partition("'")[0] in STOP_WORDS or word.endswith("n't")


def _without_edge_punctuation(name: str) -> str:
    if name[:1].isalnum() and name[-1:].isalnum():  # letters and numbers are no edge
        return name
    start, end = 0, len(name)
    while start < end and _is_edge(name[start]):
        start += 1
    while end > start and _is_edge(name[end - 1]):
        rest = name[start:end]
        # "Mercury (planet)" keeps its bracket, "C#" its symbol.
        if (rest[-1] == ")" and rest.count("(") >= rest.count(")")) or (rest[-1] == "#" and len(rest) > 1):
            break
        end -= 1
    return name[start:end]


def _is_edge(char: str) -> bool:
    # Symbols such as + and $ stay: they distinguish C++ from C.
    category = unicodedata.category(char)
    return category[0] in "PZC" or category == "So" or char in _INVISIBLE


def _phrase_keys(words: list[str], *, with_singular: bool) -> Iterator[str]:
    phrase = " ".join(words)
    keys = [normalise_key(form) for form in dict.fromkeys((phrase, _POSSESSIVE_INSIDE.sub("", phrase)))]
    for key in dict.fromkeys((*keys, *map(_without_joined, keys))):
        if not key or all(_is_stop_word(word) for word in key.split()):
            continue
        for spelling in dict.fromkeys((key, key.replace("-", " "))):
            yield spelling
            if with_singular:
                yield from _singulars(spelling)


def possessors(key: str) -> list[str]:
    """Returns whose something may be by a folded name in the genitive: "friedas" of frieda, "hansens" of hans too."""
    if key.endswith("ss"):
        return []
    stems = (key.removesuffix(ending) for ending in ("s", "ens") if key.endswith(ending))
    return [stem for stem in stems if len(stem) >= MIN_POSSESSOR_CHARS]


def _singulars(key: str) -> Iterator[str]:
    """Yields what may be the singular of a key in English."""
    if key.endswith("ies"):
        yield key.removesuffix("ies") + "y"
    if key.endswith("es"):
        yield key.removesuffix("es")
    if key.endswith("s") and not key.endswith("ss"):
        yield key.removesuffix("s")


def entity_id(partition: str, key: str) -> str:
    """Returns the id by which projections and tombstones name an entity: a hash of its partition and key (hex).

    A hash, so that a tombstone does not keep the words of an erased key.
    """
    return blake2b(f"{partition}\n{key}".encode(), digest_size=16).hexdigest()


def content_hash(partition: str, text: str) -> str:
    """Returns the content hash of a text (hex), under which the text's embeddings are stored for a partition.

    Of each partition its own: two that have the same text share no row, so that no writer waits for the other.
    """
    return blake2b(f"{partition}\n{text}".encode(), digest_size=16).hexdigest()
