"""What a question and a memory have in common, as numbers for the model of relevance. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from io import BytesIO
from math import log
from statistics import median_high

import numpy as np
import numpy.typing as npt

from graphmem.folding import fold, typed_spellings
from graphmem.model import ASSISTANT, AnswerType
from graphmem.retrieval.relevance import attributes

Row = npt.NDArray[np.float64]

# Cosines from which on more says less, of the embedder's own space and of the multilingual one; features count the rest
# once more, so that the fit may bend there.
BEND, MULTILINGUAL_BEND = 0.35, 0.3
# Where they stop counting: overlap in words, overlap of the question replied to, memories of a partition.
MAX_OVERLAP, MAX_REPLY_OVERLAP, MAX_SIZE = 3.0, 2.0, 600
# The temperature of topics, and the similarity to prototypes from which on a text is advice or a standing fact.
TOPIC_TEMPERATURE, PROTOTYPE_SIMILARITY = 0.06, 0.3
# A question that surely asks for an attribute ("What's my favourite food?") asks for no advice: where it is less unsure
# than this that one is asked for, a standing fact counts less.
UNSURE = 0.25
# The similarity to prototypes from which on a question asks for all that is known of its asker.
EVERYTHING_SIMILARITY = 0.7
# The cosine of unrelated texts, where there are only so many memories.
UNRELATED, FEW = 0.1, 2
# Of more memories than these the background is at most this cosine (docs/decisions/0065).
MOST_UNRELATED, SOME = 0.35, 5
# Digits to which the cosines of equal vectors agree, however they were multiplied.
COSINE_DIGITS = 5
# Fewer characters all count alike.
MIN_CHARS = 8
_KINDS = AnswerType.PERSON | AnswerType.PLACE | AnswerType.NUMBER | AnswerType.WHEN | AnswerType.DURATION

# The words of the first person by language; those of scripts without spaces count inside of others.
_FIRST_PERSON = {
    "en": "i i'm i've i'd i'll me my mine myself we we're we've we'd we'll our ours us",
    "de": "ich mich mir mein meine meinen meinem meiner meines wir uns unser unsere unseren unserem",
    "es": "yo mi mis mí conmigo nosotros nosotras nos nuestro nuestra nuestros nuestras",
    "fr": "je j'ai j'aime j'habite j'étais moi mon ma mes nous notre nos",
    "it": "io mio mia miei mie noi nostro nostra nostri nostre",
    "pt": "eu meu minha meus minhas nós nosso nossa nossos nossas",
    "nl": "ik mij mijn wij ons onze",
    "pl": "ja mnie mój moja moje mam jestem nasz nasza",
    "tr": "ben benim bana beni biz bizim bize",
    "ru": "я меня мне мной мой моя моё мои моего моей мою мы нас нам наш наша наше наши",
    "ar": "أنا لي عندي نحن لنا",
    "ko": "나는 내가 나의 내 나를 저는 제가 제 저의 저를 우리 우리는 저희",
}
_FIRST_PERSON_UNSPACED = "我 咱 俺 私 僕 うちの"
_FIRST_WORDS = frozenset(" ".join(_FIRST_PERSON.values()).split())
_FIRST_UNSPACED = re.compile("|".join(_FIRST_PERSON_UNSPACED.split()))
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
# A first person that is spoken to and not asked about: "tell me a joke".
_ADDRESSED = re.compile(
    r"\b(?:tell|give|sing|show|send|write|make|read|find|draw|explain(?: to)?|help|teach|let|recommend|suggest|remind)"
    r"\s+(?:me|us)\b|[给給帮幫跟替教]我(?:们|們)?|(?:告诉|告訴)我",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What a search knows of its query.

    `vector` is the one in the multilingual space (dims,), None without one. `is_read`: whether the embedder's own space
    reads it. `names` are those of people, places and speakers in it, folded, `entity_keys` the keys of all
    entities in it. `answer_types`: what it asks for. `word_weight`: the weight of all its words. `background`: of the
    cosines of the search's candidates. `size`: the partition's number of memories. `is_keywords`: whether it is a
    few words that ask nothing ("Wałęsa", "gate code").
    """

    text: str
    vector: Row | None
    is_read: bool
    names: Collection[str]
    entity_keys: Collection[str]
    answer_types: int
    asks_assistant_said: bool
    has_periods: bool
    word_weight: float
    background: float
    size: int
    is_keywords: bool = False


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """What a search knows of a memory that it found.

    `vector` is the one in the multilingual space (None: it has none). `similarity`: cosine in the embedder's own space.
    `match`, `match_beside`: its token matches and the better of its neighbours', 0..1. `overlap`, `reply_overlap`: the
    weight of the query's words in it and in the question to which it replies. `date`: how near it is to the query's
    times. `is_speaker_asked`: whether the one person whom the query names said it. `entities`: the document frequency
    of each entity that it names, by key; `people`: the names of the people among them. `is_of_another`: whether it
    tells of another number of what the query names by one (ticket 104, not 250).
    """

    text: str
    speaker: str | None
    role: str | None
    vector: Row | None
    similarity: float
    match: float
    match_beside: float
    overlap: float
    reply_overlap: float
    date: float
    is_speaker_asked: bool
    answer_types: int
    question_share: float
    entities: Mapping[str, int] = field(default_factory=dict)
    people: Collection[str] = ()
    is_of_another: bool = False


def table(question: AskedQuestion, memories: Sequence[FoundMemory], vectors: Row | None) -> tuple[list[str], Row]:
    """Returns the names of the features and a table of them (memories x features).

    `vectors` are those of the memories (`vectors_of`), None where the question has none.
    """
    columns = {**_own_space(question, memories), **_words(question, memories), **_people(question, memories)}
    if question.vector is not None and vectors is not None:
        sizes = np.array([len(memory.text.encode()) for memory in memories])
        compared = attributes.compared(question.vector, vectors, sizes)
        columns |= _multilingual(question, vectors) | _topics(question.vector, vectors) | compared
        columns["standing_for_advice"] *= np.minimum((1.0 - compared["attribute_sure"]) / UNSURE, 1.0)
    return list(columns), np.column_stack(list(columns.values()))


def plain_evidence(question: AskedQuestion, memories: Sequence[FoundMemory]) -> Row:
    """Returns what needs no embedder, 0 to 1: shared words (half for any, half by rarity), and the time asked for."""

    def evidence(memory: FoundMemory) -> float:
        overlap = max(memory.overlap, memory.reply_overlap)
        words = 0.5 * (overlap > 0) + 0.5 * min(overlap, 1.0)
        return max(words, memory.date if question.has_periods else 0.0)

    return np.array([evidence(memory) for memory in memories])


def vectors_of(memories: Sequence[FoundMemory], dims: int) -> Row:
    """Returns the multilingual vectors (memories x dims); zeros for a memory without one."""
    nothing = np.zeros(dims)
    return np.stack([nothing if memory.vector is None else memory.vector for memory in memories])


def _own_space(question: AskedQuestion, memories: Sequence[FoundMemory]) -> dict[str, Row]:
    """Returns features of the embedder's own space: all 0 where it does not read the question."""
    reads = float(question.is_read)
    similarity = np.array([memory.similarity for memory in memories]) * reads
    match = np.array([memory.match for memory in memories])
    return {
        "similarity": similarity,
        "similarity_high": np.maximum(similarity - BEND, 0.0),
        "similarity_above": similarity - question.background * reads,
        "match": match * reads,
        "match_unread": match * (1.0 - reads),
        "match_beside": np.array([memory.match_beside for memory in memories]) * reads,
        "unread": np.full(len(memories), 1.0 - reads),
    }


def background(cosines: Iterable[float]) -> float:
    """Returns the cosine above which a memory tells something: the upper median of those found; 0 for none.

    What was said again counts once. One memory or two are no background, as half of them answers: there it is the
    lowest cosine, or that of unrelated texts. Nor are many a background that are nearer than unrelated texts are: where
    all are about what is asked ("What do you know about the project?"), each would be as far from it as nothing is.
    """
    distinct = {round(cosine, COSINE_DIGITS) for cosine in cosines}
    if len(distinct) <= FEW:
        return min([*distinct, UNRELATED]) if distinct else 0.0
    median = median_high(distinct)
    return median if len(distinct) <= SOME else min(median, MOST_UNRELATED)


def _words(question: AskedQuestion, memories: Sequence[FoundMemory]) -> dict[str, Row]:
    overlap = np.array([memory.overlap for memory in memories])
    date = np.array([memory.date for memory in memories]) * float(question.has_periods)
    asked = question.answer_types & int(_KINDS)
    count = len(memories)
    return {
        "overlap": np.minimum(overlap, MAX_OVERLAP),
        "overlap_share": overlap / (question.word_weight or 1.0),
        "reply_overlap": np.array([min(memory.reply_overlap, MAX_REPLY_OVERLAP) for memory in memories]),
        "answer_type": np.array([float(bool(memory.answer_types & asked)) for memory in memories]),
        "asks_type": np.full(count, float(bool(asked))),
        "date": date,
        "date_and_words": date * (overlap > 0.0),
        "question_share": np.array([memory.question_share for memory in memories]),
        "only_asks": np.array([float(memory.question_share == 1.0) for memory in memories]),
        "length": np.array([log(max(len(memory.text), MIN_CHARS)) for memory in memories]),
        "size": np.full(count, log(max(min(question.size, MAX_SIZE), 1))),
    }


def _people(question: AskedQuestion, memories: Sequence[FoundMemory]) -> dict[str, Row]:
    """Returns who asks and is asked about, and who says it and is told about."""
    asks_first = is_first_person(_ADDRESSED.sub(" ", question.text))
    is_assistant = np.array([float(memory.role == ASSISTANT) for memory in memories])
    tells_first = np.array([memory.role == ASSISTANT or is_first_person(memory.text) for memory in memories])
    names_asked = np.array([_names_any(memory, question.names) for memory in memories])
    begins = [any(one.text.casefold().startswith(name.casefold()) for name in one.people) for one in memories]
    leads_other = ~tells_first & np.array(begins)
    names = float(bool(question.names))
    return {
        "asks_first_person": np.full(len(memories), float(asks_first)),
        "asks_named": np.full(len(memories), names),
        "first_person_both": (asks_first & tells_first).astype(float),
        "about_another": (asks_first & leads_other & ~names_asked).astype(float),
        "about_asker": (bool(question.names) and not asks_first) * (tells_first & ~names_asked & (is_assistant == 0.0)),
        "named": names_asked * names,
        "not_named": ~names_asked * names,
        "nowhere_named": np.full(len(memories), float(names and not names_asked.any())),
        "speaker_asked": np.array([float(memory.is_speaker_asked) for memory in memories]),
        "assistant": is_assistant,
        "assistant_asked": is_assistant * float(question.asks_assistant_said),
    }


def is_first_person(text: str) -> bool:
    """Whether a text has a word of the first person, in one of the languages of the multilingual space."""
    if _FIRST_UNSPACED.search(text):
        return True
    return not _FIRST_WORDS.isdisjoint(map(str.lower, _WORD.findall(text.replace("’", "'"))))


def _names_any(memory: FoundMemory, names: Collection[str]) -> bool:
    """Whether a memory or its speaker has one of the names (folded), whatever marks its Latin letters have."""
    if not names:
        return False
    texts = [one for text in (memory.text, memory.speaker or "") for one in typed_spellings(fold(text))]
    return any(spelling in text for name in names for spelling in typed_spellings(name) for text in texts)


def _multilingual(question: AskedQuestion, vectors: Row) -> dict[str, Row]:
    asked = np.zeros(vectors.shape[1]) if question.vector is None else question.vector
    similarity = vectors @ asked
    above = similarity - background(similarity.tolist())
    unread = 1.0 - float(question.is_read)
    return {
        "multilingual": similarity,
        "multilingual_high": np.maximum(similarity - MULTILINGUAL_BEND, 0.0),
        "multilingual_above": above,
        "multilingual_unread": similarity * unread,
        "multilingual_above_unread": above * unread,
    }


def asks_for_everything(question: Row) -> bool:
    """Whether a question, by its vector, asks for all that is known of its asker ("What do you know about me?").

    It does not if it is nearer to one about a topic, the assistant or somebody else.
    """
    prototypes, asked = _prototypes(), question[None]
    similarity = _nearest(asked, prototypes.everything).max()
    if similarity < EVERYTHING_SIMILARITY:
        return False
    others = max(prototypes.asked.nearest(asked).max(), _nearest(asked, prototypes.not_everything).max())
    return bool(similarity >= others)


def _topics(question: Row, vectors: Row) -> dict[str, Row]:
    """Returns how much a memory tells of the topics that are asked about, more than the others do, and standing facts.

    A standing fact (an allergy, a taste, a fear) counts where advice is asked for and the topic is shared.
    """
    prototypes = _prototypes()
    asked = attributes.softmax(prototypes.asked.nearest(question[None]), TOPIC_TEMPERATURE)[0]
    told = attributes.softmax(prototypes.told.nearest(vectors), TOPIC_TEMPERATURE)
    shared = told @ asked / (np.linalg.norm(told, axis=1) * np.linalg.norm(asked))
    others = (shared.sum() - shared) / max(len(shared) - 1, 1)
    standing = np.maximum(_nearest(vectors, prototypes.standing) - PROTOTYPE_SIMILARITY, 0.0)
    advice = max(float(_nearest(question[None], prototypes.advice)[0]) - PROTOTYPE_SIMILARITY, 0.0)
    return {"topic": shared, "topic_above": shared - others, "standing_for_advice": standing * advice * shared}


def _nearest(vectors: Row, prototypes: Row) -> Row:
    """Returns the mean of the two highest cosines with prototype sentences, for each vector."""
    return _mean_of_two(vectors @ prototypes.T)


def _mean_of_two(cosines: Row) -> Row:
    """Returns the mean of the two highest values along the last axis."""
    return np.asarray(np.partition(cosines, -2, axis=-1)[..., -2:].mean(axis=-1))


@dataclass(frozen=True, slots=True)
class _Topics:
    """The vectors of prototype sentences (sentences x dims), ordered by topic, and the number of them of each topic."""

    vectors: Row
    sizes: Sequence[int]

    def nearest(self, vectors: Row) -> Row:
        """Returns the mean of the two highest cosines with the sentences of each topic (vectors x topics)."""
        cosines = np.full((len(vectors), len(self.sizes), max(self.sizes)), -np.inf)
        cosines[:, np.arange(max(self.sizes)) < np.array(self.sizes)[:, None]] = vectors @ self.vectors.T
        return _mean_of_two(cosines)


@dataclass(frozen=True, slots=True)
class _Prototypes:
    """Prototype sentences: of topics, in questions and in statements; the vectors of others.

    These are of standing facts, of questions for advice, of those for everything about the asker, and of like ones
    about the assistant or somebody else.
    """

    asked: _Topics
    told: _Topics
    standing: Row
    advice: Row
    everything: Row
    not_everything: Row


@cache
def _prototypes() -> _Prototypes:
    """Reads the vectors of the sentences in `prototypes.json`, as `benchmarks/relevance` wrote them."""
    package = files(__package__)
    sentences = json.loads(package.joinpath("prototypes.json").read_text("utf-8"))
    with np.load(BytesIO(package.joinpath("prototypes.npz").read_bytes())) as arrays:
        vectors = arrays["vectors"].astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked, told = ([len(one) for one in sentences[side].values()] for side in ("asked", "told"))
    others = ("standing", "advice", "everything", "not_everything")
    ends = np.cumsum([sum(asked), sum(told), *(len(sentences[one]) for one in others[:-1])])
    of_asked, of_told, *of_others = np.split(vectors, ends)
    return _Prototypes(_Topics(of_asked, asked), _Topics(of_told, told), *of_others)
