"""The dictionary of a pipeline: the English words that its lemmatizer knows; and by it, whether a user's id is
somebody's name: "clara" is, "production" is not.

Nobody lists the ids of programs. A word outside the dictionary is taken for a name, as names of all countries are; a
word of the dictionary only where the parser, too, takes it for a name in sentences about somebody. Neither is sure: of
65 given names it missed 10, all of them words as well ("grace", "will"), and it took 17 of 81 words that programs use
as ids for names ("backend", "docker").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphmem.extraction.language_detection import is_function_word

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.vocab import Vocab

_TABLE, _WORDS = "graphmem_dictionary", "words"
_IN_LOWER_CASE = ("yesterday i met {} and we talked.", "this is {}'s phone.", "i gave {} the book.")
_CAPITALISED = ("This is {}'s phone.", "{} is very kind and likes tea.")
# Letters of a noun without its plural "s": "lars" and "hans" are no plurals.
_MIN_SINGULAR = 4


def add_dictionary(nlp: Language) -> None:
    """Gives a pipeline's vocabulary the words of its lemmatizer; none where that has no list of words."""
    lookups = getattr(nlp.get_pipe("lemmatizer"), "lookups", None)
    index = lookups.get_table("lemma_index", {}) if lookups is not None else {}
    if _TABLE not in nlp.vocab.lookups:
        # One set, as spaCy hashes each key of a table: for 40,000 words that takes a tenth of a second.
        nlp.vocab.lookups.add_table(_TABLE, {_WORDS: frozenset[str]().union(*index.values())})


def in_dictionary(vocab: Vocab, word: str) -> bool:
    """Whether a word in lower case is in the dictionary; some names are ("anna", "mark")."""
    return word in vocab.lookups.get_table(_TABLE)[_WORDS]


_ID_WORDS = re.compile(r"[^\W\d_]+")


def is_persons_name(nlp: Language, id_: str) -> bool:
    """Whether an id in Latin letters reads like a name; of several words ("anna.berg") the first decides."""
    words = _ID_WORDS.findall(id_.casefold())
    word = words[0] if words else ""
    if not word or nlp.vocab[word].is_stop or is_function_word(word):
        return False
    if not in_dictionary(nlp.vocab, word):
        singular = word.removesuffix("s")
        return len(singular) < _MIN_SINGULAR or not in_dictionary(nlp.vocab, singular)
    in_lower_case = nlp.pipe(sentence.format(word) for sentence in _IN_LOWER_CASE)
    if any(token.text == word and token.pos_ == "PROPN" for doc in in_lower_case for token in doc):
        return True
    capitalised = nlp.pipe(sentence.format(word.title()) for sentence in _CAPITALISED)
    return all(any(word.title() in ent.text and ent.label_ == "PERSON" for ent in doc.ents) for doc in capitalised)
