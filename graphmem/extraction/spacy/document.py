"""Collects the extraction of one text from its parses: names, noun phrases and title as mentions, and statements.

The answer types of a text come from its named entities. The scoring weights were measured with these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from graphmem.extraction import chinese_words
from graphmem.extraction.chinese_words import stated_names
from graphmem.extraction.language_detection import is_english
from graphmem.extraction.name_patterns import pattern_names
from graphmem.extraction.prose import OPENINGS, read_prose, segments, title_forms
from graphmem.extraction.spacy.entity_typing import typed_names
from graphmem.extraction.spacy.noun_phrases import (
    EMPTY_NOUNS,
    NAME_SUFFIXES,
    QUANTITY_LABELS,
    bearer_of_suffix,
    content_words,
    is_brand_modifier,
    is_list,
    is_name,
    is_number_of_name,
    lemmas,
    name_span,
    partitive_head,
    with_number,
)
from graphmem.extraction.spacy.possessive_relations import is_favorite, referent
from graphmem.extraction.spacy.predicates import CONTENT_POS, EXPLICIT, EntityKeys
from graphmem.extraction.spacy.relations import statements
from graphmem.extraction.spacy.vocabulary import in_dictionary
from graphmem.folding import fold
from graphmem.model import NO_ANSWER_TYPES, AnswerType, EntityType, Extraction, Mention, MentionKind, Statement
from graphmem.text import display_form, is_question, mostly_latin, normalise_key, split_title

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span, Token

SPACY_TYPES = {
    "PERSON": EntityType.PERSON,
    "ORG": EntityType.ORGANIZATION,
    # Mostly an attribute: Swedish, Jewish. It is no organization, because nobody can join it.
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

MAX_KEY_CHARS, MAX_NAME_WORDS = 100, 3
# Signs of code and markup, which stand in no name.
_MARKUP = frozenset("<>{}[]|=`\\")
# spaCy's entity labels.
ANSWER_LABELS = {
    AnswerType.WHEN: frozenset(("DATE", "TIME")),
    AnswerType.NUMBER: frozenset(("CARDINAL", "ORDINAL", "QUANTITY", "MONEY")),
    AnswerType.DURATION: frozenset(("DATE", "TIME", "CARDINAL")),
    AnswerType.PLACE: frozenset(("GPE", "LOC", "FAC", "ORG")),
}
PERSON_LABELS = frozenset(("PERSON", "ORG", "NORP"))
# The parser does not label all of these as dates.
_RELATIVE_TIMES = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|now|recently|lately|ago|last|next|soon|later|earlier|since|"
    r"(?:day|week|weekend|month|year)s?|morning|evening)\b",
    re.IGNORECASE,
)


class Segment(NamedTuple):
    """A part of a text that is parsed at once. `is_quoted`: somebody else's words, in which "I" is not the speaker."""

    text: str
    is_quoted: bool = False


class DocumentReader:
    """Collects the mentions, statements and answer types of one text.

    The caller parses the segments of `title_and_segments`, or of `segments_of`, and hands each parse to `add_mentions`
    and `add_statements`. A type shown by the words around a name overrides spaCy's label.
    """

    def __init__(self, speaker: str | None, *, is_fact: bool = False) -> None:
        self.is_fact = is_fact
        self.mentions: dict[str, Mention] = {}
        self.answer_types = NO_ANSWER_TYPES
        self._statements: dict[tuple[str, ...], Statement] = {}
        self._speaker = self.add_mention(speaker or "", MentionKind.NAME, EntityType.PERSON)
        self._types_by_context: dict[str, EntityType] = {}
        self._noun_chunks: dict[int, Span] = {}
        self._entities: dict[int, Span] = {}

    def extraction(self) -> Extraction:
        # Types by context are applied here, because they hold for mentions as a title, too.
        mentions = (
            replace(mention, type=self._types_by_context.get(key, mention.type))
            for key, mention in self.mentions.items()
        )
        return Extraction(tuple(mentions), tuple(self._statements.values()), self.answer_types)

    def title_and_segments(self, text: str) -> Iterator[Segment]:
        """Adds a text's title as a mention and yields the segments to parse (see `segments_of`)."""
        prose = read_prose(normalize("NFC", text))  # a combining mark would end a word
        title, body = split_title(prose.own)
        for form in title_forms(title):
            self.add_mention(form, MentionKind.TITLE, EntityType.CONCEPT)
        yield from self.segments_of(title, body)
        yield from self.segments_of(prose.quoted, is_quoted=True)

    def segments_of(self, *parts: str, is_quoted: bool = False) -> Iterator[Segment]:
        """Yields the segments to parse if the parts are English; else yields none and adds their names as mentions."""
        names = list(stated_names("\n".join(parts)))  # what a text in German or Chinese says people are called
        for bearer, name, fact in names:
            subject = "" if is_quoted else self._speaker
            if bearer:
                subject = self.add_mention(bearer, MentionKind.NAME, EntityType.PERSON)
            key = self.add_mention(name, MentionKind.NAME, EntityType.PERSON)
            if subject and key and subject != key:
                statement = Statement(subject, "be called", key, fact, EXPLICIT)
                self._statements.setdefault((subject, statement.predicate, key, fact), statement)
        # First, as most letters of a short Chinese text may be those of a product: 我买了iPhone 14。
        if chinese_words.is_chinese(" ".join(parts)):
            chinese_words.add_mentions(" ".join(parts), self.add_mention)
            return
        if not names and is_english(" ".join(parts)):
            yield from (Segment(text, is_quoted=is_quoted) for part in parts for text in segments(part))
            return
        for candidate in (candidate for part in parts for candidate in pattern_names(part)):
            kind = MentionKind.NAME if candidate.is_certain else MentionKind.NOUN_PHRASE
            self.add_mention(candidate.words, kind, candidate.type if candidate.is_certain else EntityType.CONCEPT)

    def add_mentions(self, doc: Doc) -> None:
        """Adds the names, noun phrases and answer types of a parsed segment. Comes before `add_statements`."""
        self.answer_types |= answer_types_of(doc, self._speaker)
        self._noun_chunks = {chunk.root.i: with_number(chunk) for chunk in doc.noun_chunks}
        # Read once: spaCy builds `doc.ents` anew at every access.
        entities = doc.ents
        self._entities = {index: entity for entity in entities for index in range(entity.start, entity.end)}
        if is_question(doc.text):
            words = [token for token in doc if not token.is_punct and not token.is_space]
            # The parser takes all words of a question in another language for names: "Kannst Du mir helfen?"
            if len(words) > MAX_NAME_WORDS and all(each.ent_type_ or is_name(each) for each in words):
                return
        for entity in entities:
            if entity.label_ not in QUANTITY_LABELS and not is_list(entity):
                self._add_name(self._name_span(entity.root))
        for chunk in self._noun_chunks.values():
            content = content_words(chunk)
            end_of_name, is_one_name = 0, False  # a row of a thousand emoji is one name, which is read once
            for token in chunk:
                if token.i >= end_of_name and is_name(token):
                    name = name_span(token)
                    self._add_name(name)
                    end_of_name = name.end
                    is_one_name |= all(name.start <= each.i < name.end for each in content)
            if (
                len(content) > 1
                and not is_one_name
                and chunk.root.ent_type_ not in QUANTITY_LABELS
                and not is_favorite(chunk.root)
            ):
                self._add_noun_chunk(chunk)

    def add_statements(self, doc: Doc, segment: Segment) -> None:
        """Adds the statements of a parsed segment, the text of which is as written: statements quote it."""
        text, speaker = segment.text, "" if segment.is_quoted else self._speaker
        for token in doc:
            for name, type_ in typed_names(token) if token.pos_ in CONTENT_POS else ():
                if name.ent_type_ or is_name(name):
                    self._types_by_context.setdefault(normalise_key(self._name_span(name).text), type_)
        parsed_text = doc.text if self.is_fact else text
        for parsed in statements(doc, parsed_text, EntityKeys(self.entity_key, speaker)):
            # A fact may have been parsed with a subject that its own words omit.
            statement = replace(parsed, fact=text) if self.is_fact else parsed
            identity = (statement.subject, statement.predicate, statement.object, statement.fact)
            # Of two readings with one result, the one with more confidence counts.
            earlier = self._statements.setdefault(identity, statement)
            self._statements[identity] = max(earlier, statement, key=lambda each: each.confidence)

    def entity_key(self, token: Token) -> str:
        """Adds the entity that a subject or object denotes as a mention. Returns its key, "" if there is none."""
        if is_number_of_name(token):
            token = token.nbor(-1)
        token = bearer_of_suffix(token) or token
        if token.pos_ == "PRON" or token.ent_type_ in QUANTITY_LABELS:
            return ""
        if token.lemma_ in EMPTY_NOUNS and token.pos_ != "PROPN":
            return self.entity_key(head) if (head := partitive_head(token)) else ""
        if token.ent_type_ or is_name(token):
            return self._add_name(self._name_span(token))
        name = referent(token)
        if name is not token and is_name(name):
            return self.entity_key(name)
        chunk = self._noun_chunks.get(token.i)
        if chunk is not None and content_words(chunk):
            return self._add_noun_chunk(chunk)
        words = token.lower_ if token.tag_ == "VBG" else token.lemma_
        is_noun = token.tag_ == "VBG" or token.pos_ in ("NOUN", "ADJ")
        return self._add_noun_phrase(words, token.text, token) if is_noun else ""

    def add_mention(self, words: str, kind: MentionKind, type_: EntityType, name: str = "") -> str:
        """Adds a mention of `words`, displayed as `name`; returns its key, "" if the key is unusable.

        Of several mentions of one key, the kind and name of the strongest kind and the first specific type count.
        """
        key = normalise_key(words)
        if key in OPENINGS or key in NAME_SUFFIXES or _MARKUP & set(key):
            return ""
        if len(key) > MAX_KEY_CHARS or not any(map(str.isalpha, key)) or (len(key) == 1 and mostly_latin(key)):
            return ""
        new = Mention(key, display_form(name or words), type_, kind)
        earlier = self.mentions.get(key, new)
        stronger, weaker = sorted((earlier, new), key=lambda mention: mention.kind)
        specific = (mention.type for mention in (stronger, weaker) if mention.type not in VAGUE_TYPES)
        self.mentions[key] = Mention(key, stronger.name, next(specific, stronger.type), stronger.kind)
        return key

    def _add_name(self, span: Span) -> str:
        line_break = next((token.i for token in span if "\n" in token.text and token.i > span.start), span.end)
        span = span.doc[span.start : line_break]
        # spaCy's label counts for the whole entity only: "Copenhagen" is no organization because its university is one.
        entity = self._entities.get(span.root.i)
        label = entity.label_ if entity and span.start <= entity.start and entity.end <= span.end else ""
        # In lower case, a hyphen stands for a space: "new-york".
        words = span.text.replace("-", " ") if span.text.islower() else span.text
        return self.add_mention(words, MentionKind.NAME, SPACY_TYPES.get(label, EntityType.OTHER))

    def _name_span(self, token: Token) -> Span:
        entity = self._entities.get(token.i)
        if entity is None or is_list(entity):
            return name_span(token)
        start = entity.start
        while entity.label_ == "PRODUCT" and start > 0 and is_brand_modifier(entity.doc[start - 1]):
            start -= 1
        return with_number(entity.doc[start : entity.end])

    def _add_noun_chunk(self, chunk: Span) -> str:
        content = content_words(chunk)
        displayed = chunk.doc[content[0].i : content[-1].i + 1].text
        return self._add_noun_phrase(lemmas(content), displayed, content[-1])

    def _add_noun_phrase(self, words: str, displayed: str, token: Token) -> str:
        kind = MentionKind.NOUN_PHRASE if " " in words else MentionKind.COMMON_NOUN
        # What looks like the plural of no known word may be a name in lower case: "mercedes".
        is_word = token.lemma_ == token.lower_ or in_dictionary(token.vocab, token.lemma_)
        type_ = EntityType.CONCEPT if is_word else EntityType.OTHER
        return self.add_mention(words, kind, type_, displayed)


def answer_types_of(doc: Doc, speaker: str) -> AnswerType:
    """Returns the answer types of a text. The name of `speaker` ("" for nobody) does not count as a person."""
    entities = doc.ents
    labels = {entity.label_ for entity in entities}
    types = AnswerType(0)
    for answer_type, type_labels in ANSWER_LABELS.items():
        if labels & type_labels:
            types |= answer_type
    if _RELATIVE_TIMES.search(doc.text):
        types |= AnswerType.WHEN
    first_name = fold(speaker.partition(" ")[0])
    if any(
        entity.label_ in PERSON_LABELS and not (first_name and first_name in fold(entity.text)) for entity in entities
    ):
        types |= AnswerType.PERSON
    return types
