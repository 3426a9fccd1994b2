"""Words: what BM25 counts, and the canonical keys of entities. Pure functions, safe to call from several threads."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from hashlib import blake2b

import Stemmer  # type: ignore[import-not-found, unused-ignore]  # a C extension without stubs

K1 = 1.5
B = 0.75
# Words of a typical memory once stop words are gone: between a chat turn (about 12) and a passage (about 50). It is a
# constant and not the collection's mean so that a memory's weights never change after it is written, every engine
# ranks alike, and one tenant's long texts do not weigh on another's.
AVERAGE_LENGTH = 24.0

ARTICLES = frozenset(("a", "an", "the"))
POSSESSIVES = frozenset(("my", "your", "his", "her", "its", "our", "their"))
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

# Words whose terms are not found anew each time: most words of a text are among those that are said most often.
_OFTEN = 2**14

# Han, kana, Hangul, and the other scripts written without spaces (Thai, Lao, Burmese, Khmer).
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
MAX_TITLE_CHARS = 100
MIN_PASSAGE_CHARS = 100
GREETINGS = frozenset(("hi", "hey", "hello", "dear", "thanks"))
_ABBREVIATED = re.compile(r"(?:\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)|\b[A-Z])\.$")
_SENTENCE = re.compile(r"[^.!?。！？]*[.!?。！？]+|[^.!?。！？]+$")
_ASKS = "?？"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
# White space, and what must not be in a key: control characters, zero-width spaces, lone surrogates.
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b\u2060\ufeff\ud800-\udfff]+")
_POSSESSIVE_ENDING = re.compile(r"['’][sS]$")
_POSSESSIVE_INSIDE = re.compile(r"['’][sS](?=\s)")
_APOSTROPHE = str.maketrans("’ʼ", "''")
_INVISIBLE = "\ufe0f\u200d"

# Chinese signs that mostly serve grammar. Two of them side by side are in every other question and tell nothing.
FUNCTION_CHARACTERS = frozenset(
    "的了是在我你他她它们这那哪什么怎谁吗呢吧呀啊哦就也都还很不没有和跟与被把给对从到向上下里个只几多少样会能要想说去来过着得地为以后前时候之其所并而且或"
)

_local = threading.local()


def tokens(text: str) -> list[str]:
    """The terms of a text, in order and with repetitions.

    Lower case, English stop words left out, Latin words stemmed; character bigrams (of a run of one: the character)
    for scripts written without spaces.
    """
    return list(_terms(case_folded(text)))


@lru_cache(maxsize=_OFTEN)
def term_id(token: str) -> int:
    """A term's stable number, 0 to 2**31 - 1: fits a signed and an unsigned 32-bit field alike."""
    digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def term_counts(text: str) -> dict[int, int]:
    """How often each term, by its number, occurs in a text."""
    return dict(Counter(map(term_id, tokens(text))))


def query_tokens(question: str) -> list[str]:
    """The terms to look for, each once: as `tokens`, without bigrams of nothing but Chinese function signs."""
    return [token for token in dict.fromkeys(tokens(question)) if not _is_function(token)]


def query_term_counts(question: str) -> dict[int, int]:
    """The same by their numbers, with how often each occurs."""
    return dict(Counter(term_id(token) for token in tokens(question) if not _is_function(token)))


def _is_function(token: str) -> bool:
    return len(token) == 2 and set(token) <= FUNCTION_CHARACTERS  # noqa: PLR2004 - a bigram


def bm25_weights(counts: Mapping[int, int]) -> dict[int, float]:
    """The document's side of BM25, by term: the sum of weight times `idf` over the query's terms is the score."""
    length = K1 * (1 - B + B * sum(counts.values()) / AVERAGE_LENGTH)
    return {term: count * (K1 + 1) / (count + length) for term, count in counts.items()}


def idf(n: int, df: int) -> float:
    """Lucene's inverse document frequency of a term that `df` of `n` memories hold; never negative.

    The two counts may come from different moments, so `df` may be the larger.
    """
    return math.log(1 + (max(n, df) - df + 0.5) / (df + 0.5))


def split_title(text: str) -> tuple[str, str]:
    """The title a text begins with, "" if it has none, and the rest."""
    head, _, body = text.strip().partition("\n")
    head = head.strip()
    first = head.partition(" ")[0].rstrip(",!").casefold()
    cut = head.endswith((".", "?", "!", ":", ";", ",")) and not _ABBREVIATED.search(head)
    if not head or not body.strip() or len(head) > MAX_TITLE_CHARS or head[0].islower() or cut or first in GREETINGS:
        return "", text
    return head, body


def is_passage(text: str) -> bool:
    """Whether a text is more of a document than of a conversation: a title with enough below it."""
    title, body = split_title(text)
    return bool(title) and len(body) >= MIN_PASSAGE_CHARS


def question_share(text: str) -> float:
    """The share of a text's characters that stand in questions, 0 to 1."""
    sentences = _SENTENCE.findall(text)
    asked = sum(len(sentence) for sentence in sentences if sentence.rstrip()[-1:] in _ASKS and sentence.strip())
    return asked / (sum(map(len, sentences)) or 1)


def is_question(text: str) -> bool:
    """Whether a text ends with a question mark."""
    return text.rstrip().endswith(tuple(_ASKS))


def is_unspaced(text: str) -> bool:
    """Whether a text has signs of a script that is written without spaces."""
    return UNSPACED_RUN.search(text) is not None


def normalise_key(name: str) -> str:
    """An entity's canonical key, "" if nothing is left; a key's key is itself."""
    return display_form(unicodedata.normalize("NFKC", case_folded(name).translate(_APOSTROPHE)))


def display_form(name: str) -> str:
    """A name as it is shown: in its own case, with one space between words.

    A leading article or possessive pronoun, a trailing 's and punctuation around it are taken off.
    """
    before, name = "", _BLANK.sub(" ", unicodedata.normalize("NFKC", name))
    while name != before:
        before, name = name, _POSSESSIVE_ENDING.sub("", _without_determiner(_without_edges(name)))
    return name


def key_candidates(text: str, longest: int = 4) -> list[str]:
    """The keys a question may name, in whatever case: its n-grams of 1 to `longest` words, normalised, each once.

    N-grams of stop words alone are left out; those with a possessive inside come with and without it ("anna's dog",
    "anna dog"). What is written without spaces gives its n-grams of 2 to `longest` characters as well.
    """
    found: dict[str, None] = {}
    words = text.split()
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            found.update(dict.fromkeys(_keys_of(words[start:end])))
    for run in UNSPACED_RUN.findall(unicodedata.normalize("NFKC", text)):
        found.update(dict.fromkeys(_grams(run, longest)))
    return list(found)


def mostly_latin(text: str) -> bool:
    """Whether at least half of a text's letters are Latin; False when it has no letters."""
    letters = [char for char in text if char.isalpha()]
    return 2 * sum(map(is_latin, letters)) >= len(letters) > 0


def is_latin(char: str) -> bool:
    """Whether a letter is Latin."""
    return char < "\u0250" or "\u1e00" <= char <= "\u1eff" or "\uff21" <= char <= "\uff5a"


def case_folded(text: str) -> str:
    """A text without differences of case and of how its signs are composed."""
    # Folding can undo the composition, so the composing comes again.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def approximate_length(text: str) -> int:
    """About how many tokens a text has: its words, and each sign of scripts written without spaces."""
    return len(text.split()) + sum(map(len, UNSPACED_RUN.findall(text)))


@cache
def _word() -> re.Pattern[str]:
    # "\w" leaves out the combining marks, which would cut Hindi or Arabic words apart at their vowels.
    marks = "".join(chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
    letter = f"(?:[^\\W_]|[{marks}])"
    return re.compile(f"{letter}+(?:['’]{letter}+)*")


def _terms(text: str) -> Iterator[str]:
    for word in _word().findall(text):
        for run in (word,) if word.isascii() else _RUN.findall(word):
            if UNSPACED_RUN.match(run):
                yield from _bigrams(run)
            elif (term := _spaced_term(run)) is not None:
                yield term


@lru_cache(maxsize=_OFTEN)
def _spaced_term(run: str) -> str | None:
    word = run.translate(_APOSTROPHE).strip("'")
    if not word or _is_stop(word):
        return None
    return _stem(word) if all(map(is_latin, word)) else word


def _bigrams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for start in range(len(run) - 1):
        yield run[start : start + 2]


def _is_stop(word: str) -> bool:
    return word.partition("'")[0] in STOP_WORDS or word.endswith("n't")


def _stem(word: str) -> str:
    # A Stemmer keeps a buffer of its own and must not be shared between threads.
    stemmer = getattr(_local, "stemmer", None)
    if stemmer is None:
        stemmer = _local.stemmer = Stemmer.Stemmer("english")
    return str(stemmer.stemWord(word))


def _without_edges(name: str) -> str:
    start, end = 0, len(name)
    while start < end and _is_edge(name[start]):
        start += 1
    while end > start and _is_edge(name[end - 1]) and not _closes(name[start:end]):
        end -= 1
    return name[start:end]


def _is_edge(char: str) -> bool:
    # Signs such as + and $ stay: they tell C++ from C.
    category = unicodedata.category(char)
    return category[0] in "PZC" or category == "So" or char in _INVISIBLE


def _closes(name: str) -> bool:
    # "Mercury (planet)" keeps its bracket, and "C#" its sign.
    return (name[-1] == ")" and name.count("(") >= name.count(")")) or (name[-1] == "#" and len(name) > 1)


def _without_determiner(name: str) -> str:
    first, _, rest = name.partition(" ")
    return rest if first.casefold() in ARTICLES | POSSESSIVES else name


def _keys_of(words: list[str]) -> Iterator[str]:
    phrase = " ".join(words)
    for form in (phrase, _POSSESSIVE_INSIDE.sub("", phrase)):
        key = normalise_key(form)
        if key and not all(_is_stop(word) for word in key.split()):
            yield key


def _grams(run: str, longest: int) -> Iterator[str]:
    for start in range(len(run)):
        for end in range(start + 2, min(start + longest, len(run)) + 1):
            yield run[start:end]


def entity_id(partition: str, key: str) -> str:
    """An entity's id outside the ledger: a hash, because it outlives the words, in a tombstone."""
    return blake2b(f"{partition}\n{key}".encode(), digest_size=16).hexdigest()


def content_hash(text: str) -> str:
    """The name under which a text's vectors are kept."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
