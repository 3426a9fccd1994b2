"""Collects what a search knows of its query and its best memories, and has their relevance assessed by it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from graphmem.extraction.language_detection import is_english
from graphmem.extraction.name_patterns import NameCandidate, names_asked
from graphmem.folding import fold, typed_spellings
from graphmem.model import ASSISTANT, AnswerType, CandidateRow, EntityType, MentionKind, embedded_text
from graphmem.retrieval import relevance, term_overlap
from graphmem.retrieval.arms import Retrieved
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.dependence import depends_on_conversation
from graphmem.retrieval.query_analysis import AnalyzedQuery, analyze_query
from graphmem.retrieval.relevance import AskedQuestion, FoundMemory, Relevance
from graphmem.retrieval.reordering import RankedMemory
from graphmem.retrieval.small_talk import is_small_talk
from graphmem.retrieval.term_overlap import WeightedTerms
from graphmem.retrieval.types import SearchDeps
from graphmem.text import UNSPACED_RANGES, normalise_key, possessors

# Types of the entities that a query names, as opposed to things it is about.
NAMED_TYPES = frozenset({EntityType.PERSON, EntityType.PLACE, EntityType.ORGANIZATION})
# The least relevance of a reply that the query asks for, and of what was told, if it asks for all that was: in a time,
# or about its asker.
REPLY_RELEVANCE = TOLD_RELEVANCE = 0.5
# A reply of at most so many characters ("Yes.", "Not any more.") says only what its question says, so it answers a
# query that asks the same: one with this cosine to the question, or a less similar one with most of its words in it.
# Where "you" and "I" bend the verb, no word is shared ("Rauchst du?", "Rauche ich?"), but both are near each other in
# the multilingual space. Other questions ("Do you speak Spanish?", "Do I speak Italian?") have a cosine of at most .75
# there, except for those that differ in their times.
SHORT_REPLY_CHARS = 40
SAME_QUESTION, LIKE_QUESTION, MOST_WORDS, SAME_MULTILINGUAL = 0.8, 0.7, 0.7, 0.8
# A number with so many digits, or that begins with a letter, is the name of a thing: an order, a ticket, a part.
MANY_DIGITS = 3
_NUMBER = re.compile(r"(?<![a-z\d-])(?<!\d[.,])[a-z\d]+(?:-[a-z\d]+)*(?![a-z\d-]|[.,]\d)")
# What a number is of, by the word before it ("order number A-5591", "Ticket #250"), and the number.
_WITH_DIGIT = rf"(?=[a-z-]*\d){_NUMBER.pattern}"
_LABELLED = re.compile(
    rf"([^\W\d_]+)[\s.:#№]{{1,3}}(?:(?:number|num|no|nr|nummer)\b[\s.:#№]{{1,3}})?({_WITH_DIGIT})"
    rf"|([{UNSPACED_RANGES}]{{2}})\s?#?({_WITH_DIGIT})"
)
# An open question or a request to which digits are a condition ("Which bike cost 850?", "Tell me about ticket 104") and
# not what is asked ("Did it cost 850?").
_IS_OPEN = re.compile(
    r"\b(?:what|which|who|whom|whose|when|where|why|how|wer|wem|wen|wann|warum|wieso|wo\w*|wie|welche\w*"
    r"|tell|describe|show|summari[sz]e|erzähl\w*|beschreib\w*|zeig\w*)\b"
    r"|[谁誰哪]|[什甚][么麼]|怎[么麼样樣]|介[绍紹]|[说說][说說]"
)
# A number from which other ones are asked for: "What came in after ticket 104?"
_FROM_NUMBER = re.compile(
    r"\b(?:after|before|since|until|till|between|besides?|except|like|similar|other|else|next|following|previous"
    r"|nach|vor|seit|bis|ab|zwischen|außer|ähnlich\w*|ander\w*|nächst\w*)\b|以?[前后後]|以[来來外]|[除类類][了似]|其[他它]|之[间間]|别的|別的"
)
# From this share of questions in a memory on, the memory asks and tells nothing.
ASKS = 0.5


def relevances_of(candidates: Candidates, ranked: Sequence[RankedMemory], deps: SearchDeps) -> Mapping[str, Relevance]:
    """Returns the relevance of these memories, best first, to the query, by id.

    The reply to a stored repetition of the query is relevant whatever its words are, and so is a short one to the same
    question of the assistant in other words; an assistant's nod is not. So is, if the query asks what the assistant
    said, the best of the assistant's words, or the fact drawn from these; and, if it asks for all of a time, what was
    told then, or for all that is known of its asker, what was told at all.
    """
    if not ranked:
        return {}
    evidence, retrieved = candidates.evidence, candidates.retrieved
    analysis, rows = retrieved.analysis, candidates.evidence.rows
    ids = [memory.id for memory in ranked]
    replies = set(candidates.replies.values())
    if analysis.asks_assistant_said:
        said = (one.id for one in ranked if any(rows[uid].role == ASSISTANT for uid in (one.id, *one.sources)))
        replies.update(islice(said, 1))
    questions = {uid: question for uid in ids if (question := evidence.replies_to(uid)) is not None}
    sources = {memory.id: memory.sources for memory in ranked}
    texts = candidates.reader.texts(evidence, {*ids, *questions.values(), *chain(*sources.values())})
    vectors = candidates.reader.vectors(evidence, list({*ids, *questions.values()}))
    entities, people = _mentioned(candidates, ids, deps)
    words = term_overlap.query_words(retrieved.query.text)
    terms = _weighed(candidates, words)
    replies.update(
        uid
        for uid, question in questions.items()
        if rows[question].role == ASSISTANT
        and len(texts.get(uid, "")) <= SHORT_REPLY_CHARS
        and _asks_the_same(
            retrieved, terms, texts.get(question, ""), evidence.similarity.get(question, 0.0), vectors.get(question)
        )
    )
    speakers = analysis.speakers_named({rows[uid].speaker for uid in candidates.ids})
    beside = {uid: evidence.beside(uid) for uid in ids}
    matches = {} if evidence.matches is None else evidence.matches.totals([*ids, *chain(*beside.values())])

    def found(uid: str) -> FoundMemory:
        row, own = rows[uid], [uid, *sources[uid]]
        return FoundMemory(
            texts.get(uid, ""),
            row.speaker,
            row.role,
            vectors[uid].astype(np.float64) if uid in vectors else None,
            evidence.similarity.get(uid, 0.0),
            matches.get(uid, 0.0),
            max((matches.get(other, 0.0) for other in beside[uid]), default=0.0),
            terms.overlap([embedded_text(rows[one].speaker, texts.get(one, "")) for one in own]),
            terms.overlap([texts[questions[uid]]]) if questions.get(uid) in texts else 0.0,
            analysis.temporal_proximity(row.at),
            len(speakers) == 1 and row.speaker in speakers,
            int(row.answer_types),
            row.question_share,
            entities.get(uid, {}),
            people.get(uid, ()),
            uid in others,
        )

    asked = _asked_question(candidates, terms, speakers, list(texts.values()))
    others = _of_other_numbers(retrieved.query.text, analysis, texts)
    assessed = relevance.assess(asked, [found(uid) for uid in ids], with_shares=retrieved.query.explain)
    values = {uid: one.value for uid, one in zip(ids, assessed, strict=True)}
    if analysis.is_only_temporal and not depends_on_conversation(retrieved.query.text):
        values |= {uid: _dated(values[uid], analysis, rows[uid], texts.get(uid, "")) for uid in ids}
    elif _asks_for_everything(asked, words):
        told = (uid for uid in ids if rows[uid].question_share < ASKS and rows[uid].role != ASSISTANT)
        values |= {uid: TOLD_RELEVANCE + (1 - TOLD_RELEVANCE) * values[uid] for uid in told}
    # Short texts have vectors near to many; an assistant that nods ("Got it, thanks!") has told nothing.
    nods = (uid for uid in ids if rows[uid].role == ASSISTANT and is_small_talk(texts.get(uid, "")))
    values |= dict.fromkeys(nods, 0.0)
    values |= {uid: max(values[uid], REPLY_RELEVANCE) for uid in replies.intersection(ids)}
    return {
        uid: one if one.value == values[uid] else replace(one, value=values[uid])
        for uid, one in zip(ids, assessed, strict=True)
    }


def _mentioned(
    candidates: Candidates, ids: Sequence[str], deps: SearchDeps
) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, Sequence[str]]]:
    """Returns what each of these memories names, by its id: entities with their document frequencies, and people."""
    evidence = candidates.evidence
    entities, people = defaultdict[str, dict[str, int]](dict), defaultdict[str, list[str]](list)
    with deps.ledger.read() as connection:
        mentions = candidates.reader.candidates.mentions(connection, [evidence.rows[uid].row for uid in ids])
    for row, kind, key, name, entity_type, frequency in mentions:
        if kind < MentionKind.COMMON_NOUN:
            entities[evidence.ids[row]][key] = frequency
        if kind < MentionKind.NOUN_PHRASE and entity_type == EntityType.PERSON:
            people[evidence.ids[row]].append(name)
    return entities, people


def _weighed(candidates: Candidates, words: Sequence[str]) -> WeightedTerms:
    """Returns the query's words by rarity; other forms of them count in texts that the embedder does not read."""
    statistics, retrieved = candidates.statistics, candidates.retrieved
    is_read, is_keywords = retrieved.encoded.is_supported_script, retrieved.analysis.is_keywords

    def is_inflected(text: str) -> bool:  # a single word ("lodz") tells no language, but the texts do
        return not is_read or (is_keywords and not is_english(text))

    return term_overlap.weigh_terms(words, statistics.size, statistics.frequencies, is_inflected)


def _asks_the_same(
    retrieved: Retrieved,
    terms: WeightedTerms,
    question: str,
    similarity: float,
    vector: npt.NDArray[np.float32] | None,
) -> bool:
    """Whether a stored question asks what the query does, by its words or its meaning.

    `similarity` is the cosine of both, `vector` the question's in the multilingual space: there it counts only if it
    names no other time.
    """
    if similarity >= SAME_QUESTION:
        return True
    if similarity >= LIKE_QUESTION and terms.overlap([question]) >= MOST_WORDS * sum(terms.weights.values()):
        return True
    asked = retrieved.encoded.multilingual
    if asked is None or vector is None or float(vector @ asked) < SAME_MULTILINGUAL:
        return False
    now = retrieved.query.now or retrieved.query.view.moment
    return analyze_query(question, now).periods == retrieved.analysis.periods


def _asks_for_everything(asked: AskedQuestion, words: Sequence[str]) -> bool:
    """Whether a query, with these words that name something, asks for all that is known of its asker."""
    if asked.vector is None:  # whoever asks for something names it, but for words such as "work" and "help"
        return not words and relevance.is_first_person(asked.text)
    return relevance.asks_for_everything(asked.vector)


def _dated(value: float, analysis: AnalyzedQuery, row: CandidateRow, text: str) -> float:
    """Returns the relevance to a query that asks for all of a time: half of its own, or less, outside that time."""
    proximity = analysis.temporal_proximity(row.at)
    if proximity < 1 and not analysis.is_inside_periods(text, row.at):
        return value * proximity / 2
    return value if row.question_share >= ASKS else max(value, TOLD_RELEVANCE)


def _asked_question(
    candidates: Candidates, terms: WeightedTerms, speakers: set[str], texts: Sequence[str]
) -> AskedQuestion:
    query, analysis, encoded = (
        candidates.retrieved.query, candidates.retrieved.analysis, candidates.retrieved.encoded
    )  # fmt: skip
    keys = {key for partition in candidates.partitions for key in partition.keys}
    if query.view.scope.user_id is not None:
        keys.add(normalise_key(query.view.scope.user_id))  # whoever speaks links all that they say
    named = [entity for partition in candidates.partitions for entity in partition.named_entities.values()]
    names = {
        *(entity.key for entity in named if entity.type in NAMED_TYPES),
        *_names(list(names_asked(query.text)), texts),
        *(fold(name) for name in speakers),
    }
    if not analysis.periods and (numbers := _numbers(query.text)):
        numbers &= set(chain.from_iterable(map(_numbers, texts)))
        names = {name for name in names if not any(name in number for number in numbers)} | numbers
    return AskedQuestion(
        query.text,
        None if encoded.multilingual is None else encoded.multilingual.astype(np.float64),
        encoded.is_read,
        names,
        keys,
        int(analysis.answer_types),
        analysis.asks_assistant_said,
        bool(analysis.periods),
        sum(terms.weights.values()),
        relevance.background(candidates.evidence.similarity.get(uid, 0.0) for uid in candidates.ids),
        candidates.statistics.kept,
        analysis.is_keywords,
    )


def _names(candidates: Sequence[NameCandidate], texts: Sequence[str]) -> Iterator[str]:
    """Yields the names (folded) that a question means: those in the memories' texts, and those that are certain.

    A genitive is also of the name that the texts have ("Friedas", Frieda).
    """
    told: list[str] | None = None
    for candidate in candidates:
        name = fold(candidate.words)
        owners = possessors(name) if candidate.words[-2:].islower() else []  # "ORMs" are several
        if owners or not candidate.is_certain:
            if told is None:
                told = [spelling for text in texts for spelling in typed_spellings(fold(text))]
            known = [owner for owner in owners if _stands_in(told, owner)]
            yield from known
            if known or not (candidate.is_certain or _stands_in(told, name, "(?:['’]?s)?")):
                continue
        yield name


def _numbers(text: str) -> set[str]:
    """Returns the numbers of things in a text (folded): "a-5591" and "101", not "2 sisters" or "20,000 euros"."""
    tokens = _NUMBER.findall(fold(text))
    return {token for token in tokens if sum(map(str.isdigit, token)) >= (MANY_DIGITS if token[0].isdigit() else 1)}


def _of_other_numbers(query: str, analysis: AnalyzedQuery, texts: Mapping[str, str]) -> set[str]:
    """Returns the memories of another number of what the query names by one: "Ticket 104 …" for "… ticket 250?".

    Not those that name a number of the query as well, or one that is told together with such a number. Mere digits
    count in open questions that ask for no number.
    """
    folded = fold(query)
    if analysis.periods or _FROM_NUMBER.search(folded):
        return set()
    asked, known = _labelled_numbers(query), _numbers(query)
    if not _IS_OPEN.search(folded) or analysis.answer_types & AnswerType.NUMBER:
        asked = {(label, number) for label, number in asked if not number.isdigit()}
    if not asked:
        return set()
    told = {uid: _numbers(text) for uid, text in texts.items()}
    known.update(*(numbers for numbers in told.values() if not known.isdisjoint(numbers)))
    labels = {label for label, _ in asked}
    return {
        uid
        for uid, numbers in told.items()
        if numbers and known.isdisjoint(numbers) and any(label in labels for label, _ in _labelled_numbers(texts[uid]))
    }


def _labelled_numbers(text: str) -> set[tuple[str, str]]:
    """Returns the numbers of things (`_numbers`) with the word before them, in the singular: ("ticket", "250")."""
    numbers, found = _numbers(text), set[tuple[str, str]]()
    for spaced, number, unspaced, behind in _LABELLED.findall(fold(text)):
        if (number or behind) in numbers and (unspaced or term_overlap.query_words(spaced)):
            found.add((unspaced or spaced.removesuffix("s"), number or behind))
    return found


def _stands_in(texts: Sequence[str], name: str, ending: str = "") -> bool:
    """Whether one of the texts (of `folding.typed_spellings`) has a name as a word, with this ending (a pattern)."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, typed_spellings(name)))}){ending}\b")
    return any(map(pattern.search, texts))
