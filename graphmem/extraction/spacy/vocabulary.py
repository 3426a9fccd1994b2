"""The dictionary of a pipeline: the English words that its lemmatizer knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.vocab import Vocab

_TABLE, _WORDS = "graphmem_dictionary", "words"


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
