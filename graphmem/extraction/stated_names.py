"""Finds where a text that is not English says what somebody is called: "Nennt mich Bo", 王磊的外号叫小王.

English is parsed (`spacy.possessive_relations`). What a negation, a wish or another verb could stand in is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from graphmem.extraction import chinese_words

_NAME = r"[^\W\d_a-zß-ÿ][^\W\d_]+(?:-[^\W\d_]+)?"
_BEARER = rf"(?P<bearer>{_NAME}(?: {_NAME})?)"
_CHINESE_BEARER = r"(?P<bearer>[一-鿿]{2,4})"
# Each has the name, and whose it is, if not the speaker's.
_PATTERNS = tuple(
    map(
        re.compile,
        (
            rf"\b[Nn]enn(?:t|en(?: Sie)?)? mich (?:(?:bitte|einfach|doch|ruhig|auch|nur) )*(?P<name>{_NAME})",
            rf"\b{_BEARER} wird (?:von \w+(?: \w+)? )?(?P<name>{_NAME}) genannt\b",
            rf"\b{_BEARER}s Spitzname ist (?P<name>{_NAME})",
            rf"\b[Dd]er Spitzname von {_BEARER} ist (?P<name>{_NAME})",
            r"(?<![别不没])[叫喊](?:我|俺)(?P<name>[一-鿿]{2,3})就(?:行|好|可以)",
            rf"{_CHINESE_BEARER}的(?:外号|绰号|小名|昵称)(?:就?[叫是])(?P<name>[一-鿿]{{2,3}})(?=\W|$)",
        ),
    )
)


class StatedName(NamedTuple):
    """What somebody is called. `bearer` is another name of theirs, "" for the speaker; `fact` are the words."""

    bearer: str
    name: str
    fact: str


def stated_names(text: str) -> Iterator[StatedName]:
    """Yields what a text says people are called, in German and Chinese."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            found = StatedName(match.groupdict().get("bearer") or "", match["name"], match.group())
            names = [name for name in found[:2] if chinese_words.is_chinese(name)]
            if all(map(chinese_words.may_be_name, names)):
                yield found
