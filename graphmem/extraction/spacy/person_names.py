"""Tells whether a user's id is somebody's name: "clara" is, "production" is not.

Nobody lists the ids of programs. A word outside the dictionary is taken for a name, as names of all countries are; a
word of the dictionary only where the parser, too, takes it for a name in sentences about somebody. Neither is sure: of
65 given names it missed 10, all of them words as well ("grace", "will"), and it took 17 of 81 words that programs use
as ids for names ("backend", "docker").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphmem.extraction.language_detection import is_function_word
from graphmem.extraction.spacy.vocabulary import in_dictionary

if TYPE_CHECKING:
    from spacy.language import Language

_IN_LOWER_CASE = ("yesterday i met {} and we talked.", "this is {}'s phone.", "i gave {} the book.")
_CAPITALISED = ("This is {}'s phone.", "{} is very kind and likes tea.")
# Letters of a noun without its plural "s": "lars" and "hans" are no plurals.
_MIN_SINGULAR = 4
_WORDS = re.compile(r"[^\W\d_]+")


def is_persons_name(nlp: Language, id_: str) -> bool:
    """Whether an id in Latin letters reads like a name; of several words ("anna.berg") the first decides."""
    words = _WORDS.findall(id_.casefold())
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
