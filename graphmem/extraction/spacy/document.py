"""What one text says: its names, noun chunks and title as mentions, and the statements that its clauses make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from graphmem.extraction import chinese_words
from graphmem.extraction.answer_types import answer_types_of
from graphmem.extraction.cjk_patterns import pattern_names
from graphmem.extraction.language_detection import is_english
from graphmem.extraction.segments import OPENINGS, segments, title_forms
from graphmem.extraction.spacy.entity_typing import typed_names
from graphmem.extraction.spacy.noun_phrases import (
    EMPTY_NOUNS,
    QUANTITY_LABELS,
    content_words,
    is_brand_modifier,
    is_list,
    is_name,
    lemmas,
    name_span,
    partitive_head,
)
from graphmem.extraction.spacy.possessive_relations import is_favorite, referent
from graphmem.extraction.spacy.relations import statements
from graphmem.extraction.spacy.triples import CONTENT_POS, EntityKeys
from graphmem.model import NO_ANSWER_TYPES, EntityType, Extraction, Mention, MentionKind, Statement
from graphmem.text import display_form, mostly_latin, normalise_key, split_title

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span, Token

SPACY_TYPES = {
    "PERSON": EntityType.PERSON,
    "ORG": EntityType.ORGANIZATION,
    # Mostly what somebody or something is: Swedish, Jewish. No one can join it.
    "NORP": EntityType.CONCEPT,
    "GPE": EntityType.PLACE,
    "LOC": EntityType.PLACE,
    "FAC": EntityType.PLACE,
    "EVENT": EntityType.EVENT,
    "PRODUCT": EntityType.OBJECT,
    "WORK_OF_ART": EntityType.OBJECT,
    "LANGUAGE": EntityType.CONCEPT,
    "LAW": EntityType.CONCEPT,
}
VAGUE_TYPES = frozenset((EntityType.CONCEPT, EntityType.OTHER))

MAX_KEY_CHARS = 100


class DocumentReader:
    """What one text says, as it is being read."""

    def __init__(self, speaker: str | None, *, is_fact: bool = False) -> None:
        self.is_fact = is_fact
        self.mentions: dict[str, Mention] = {}
        self.tells = NO_ANSWER_TYPES
        self._statements: dict[tuple[str, ...], Statement] = {}
        self._speaker = self.mention(speaker or "", MentionKind.NAME, EntityType.PERSON)
        self._clues: dict[str, EntityType] = {}
        self._chunks: dict[int, Span] = {}
        self._entities: dict[int, Span] = {}

    def extraction(self) -> Extraction:
        # The title of a passage is among its words, too.
        mentions = (replace(each, type=self._clues.get(key, each.type)) for key, each in self.mentions.items())
        return Extraction(tuple(mentions), tuple(self._statements.values()), self.tells)

    def title(self, text: str) -> Iterator[str]:
        """The pieces of a text to parse; notes its title on the way."""
        title, body = split_title(text)
        for form in title_forms(title):
            self.mention(form, MentionKind.TITLE, EntityType.CONCEPT)
        yield from self.body(title, body)

    def body(self, *parts: str) -> Iterator[str]:
        """The pieces to parse of the parts of a text; notes the names if it is in no language that can be parsed."""
        if is_english(" ".join(parts)):
            yield from (piece for part in parts for piece in segments(part))
            return
        if chinese_words.is_chinese(" ".join(parts)):
            chinese_words.add_mentions(" ".join(parts), self.mention)
            return
        for found in (found for part in parts for found in pattern_names(part)):
            kind = MentionKind.NAME if found.is_certain else MentionKind.CHUNK
            self.mention(found.words, kind, found.type if found.is_certain else EntityType.CONCEPT)

    def read(self, doc: Doc) -> None:
        self.tells |= answer_types_of(doc, self._speaker)
        self._chunks = {chunk.root.i: chunk for chunk in doc.noun_chunks}
        # spaCy makes `doc.ents` anew at every use.
        entities = doc.ents
        self._entities = {place: entity for entity in entities for place in range(entity.start, entity.end)}
        for entity in entities:
            if entity.label_ not in QUANTITY_LABELS and not is_list(entity):
                self._name(entity)
        for chunk in self._chunks.values():
            for token in chunk:
                if is_name(token):
                    self._name(name_span(token))
            if (
                len(content_words(chunk)) > 1
                and chunk.root.ent_type_ not in QUANTITY_LABELS
                and not is_favorite(chunk.root)
            ):
                self._chunk(chunk)

    def read_clauses(self, doc: Doc, text: str) -> None:
        for token in doc:
            for word, type_ in typed_names(token) if token.pos_ in CONTENT_POS else ():
                if word.ent_type_ or is_name(word):
                    self._clues.setdefault(normalise_key(self._span(word).text), type_)
        quoted = doc.text if self.is_fact else text
        for said in statements(doc, quoted, EntityKeys(self.entity, self._speaker)):
            # A fact may have been read with a subject that its words leave out.
            found = replace(said, fact=text) if self.is_fact else said
            same = (found.subject, found.predicate, found.object, found.fact)
            known = self._statements.setdefault(same, found)
            # Read in two ways, it is as sure as the better one.
            self._statements[same] = max(known, found, key=lambda each: each.confidence)

    def entity(self, token: Token) -> str:
        """The key that a subject or object stands for, noted as a mention; "" if it stands for none."""
        if token.pos_ == "PRON" or token.ent_type_ in QUANTITY_LABELS:
            return ""
        if token.lemma_ in EMPTY_NOUNS and token.pos_ != "PROPN":
            return self.entity(whole) if (whole := partitive_head(token)) else ""
        if token.ent_type_ or is_name(token):
            return self._name(self._span(token))
        named = referent(token)
        return self.entity(named) if named is not token and is_name(named) else self._thing(token)

    def mention(self, words: str, kind: MentionKind, type_: EntityType, name: str = "") -> str:
        """Note what `words` name, shown as `name`; the key, "" if it is not worth keeping."""
        key = normalise_key(words)
        if not _is_usable(key):
            return ""
        found = Mention(key, display_form(name or words), type_, kind)
        known = self.mentions.get(key, found)
        best, other = sorted((known, found), key=lambda mention: mention.kind)
        telling = next((each.type for each in (best, other) if each.type not in VAGUE_TYPES), best.type)
        self.mentions[key] = Mention(key, best.name, telling, best.kind)
        return key

    def _name(self, span: Span) -> str:
        # A part of an entity is another thing: Copenhagen is no organization because its university is one.
        entity = self._entities.get(span.root.i)
        label = entity.label_ if entity and span.start <= entity.start and entity.end <= span.end else ""
        return self.mention(span.text, MentionKind.NAME, SPACY_TYPES.get(label, EntityType.OTHER))

    def _span(self, token: Token) -> Span:
        entity = self._entities.get(token.i)
        if entity is None or is_list(entity):
            return name_span(token)
        start = entity.start
        while entity.label_ == "PRODUCT" and start > 0 and is_brand_modifier(entity.doc[start - 1]):
            start -= 1
        return entity.doc[start : entity.end]

    def _chunk(self, chunk: Span) -> str:
        content = content_words(chunk)
        shown = chunk.doc[content[0].i : content[-1].i + 1].text
        return self._noun(lemmas(content), shown)

    def _thing(self, token: Token) -> str:
        chunk = self._chunks.get(token.i)
        if chunk is not None and content_words(chunk):
            return self._chunk(chunk)
        if token.pos_ in ("NOUN", "ADJ") or token.tag_ == "VBG":
            words = token.lower_ if token.tag_ == "VBG" else token.lemma_
            return self._noun(words, token.text)
        return ""

    def _noun(self, words: str, shown: str) -> str:
        kind = MentionKind.CHUNK if " " in words else MentionKind.THING
        return self.mention(words, kind, EntityType.CONCEPT, shown)


def _is_usable(key: str) -> bool:
    if key in OPENINGS or len(key) > MAX_KEY_CHARS or not any(map(str.isalpha, key)):
        return False
    return len(key) > 1 or not mostly_latin(key)
