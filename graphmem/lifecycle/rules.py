"""Tells what kind of sentence a text is, and so what type of memory it makes and how important it is (seed 002 §3.1):
by rules of its words, or by its vector in the multilingual space, whatever its words. Pure.

The kinds are a softmax over linear heads, fitted to generic sentences in several languages, the same topics told as
each kind (`kinds.json`; `benchmarks/kinds.py` fits). They are named like the rules of importance (`rules.toml`), so
that a text which matches none of their words still has a rule; an event is what has none.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphmem.errors import ConfigError
from graphmem.folding import fold

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

# Characters that "..." in a pattern stands for, at most.
GAP = 12
MEMORY_TYPES = ("episodic", "semantic", "preference", "fact")
_FIELDS = frozenset({"importance", "type", "words", "signs"})
# The space of the heads.
SPACE = "use-multilingual-v3"
WEIGHTS, SENTENCES = "kinds.npz", "kinds.json"


class Pattern(NamedTuple):
    """Words or signs of a rule: a regular expression, and its longest part without gaps (`literal`).

    A rule has a hundred of them in eight languages, and one expression of all would be tried at each character: to look
    for each literal first takes a tenth of that time, and no other thread waits long for one of them.
    """

    literal: str
    expression: str


_compiled = cache(re.compile)


class Rule(NamedTuple):
    """A rule: its name, the type and importance (0..1) of the memories that match, and the patterns."""

    name: str
    memory_type: str
    importance: float
    patterns: tuple[Pattern, ...]

    @property
    def expression(self) -> str:
        """The regular expression of all patterns."""
        return "|".join(pattern.expression for pattern in self.patterns)

    def matches(self, folded: str) -> bool:
        """Tells whether a folded text has one of the patterns."""
        return any(
            literal in folded and _compiled(expression).search(folded) is not None
            for literal, expression in self.patterns
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules, the most important first."""

    rules: tuple[Rule, ...]

    @property
    def digest(self) -> str:
        """What tells these rules, and the kinds of sentences, from others."""
        written = repr([digest(), *((*rule[:3], rule.expression) for rule in self.rules)])
        return blake2b(written.encode(), digest_size=16).hexdigest()

    def match(self, text: str) -> Rule | None:
        """Returns the most important rule that a text matches, None if it matches none."""
        folded = _folded(text)
        return next((rule for rule in self.rules if rule.matches(folded)), None)

    def named(self, name: str) -> Rule | None:
        """Returns the rule with a name, None if there is none."""
        return next((rule for rule in self.rules if rule.name == name), None)


def parse_rules(table: Mapping[str, Any], source: str) -> Rules:
    """Converts the content of a TOML file like `rules.toml` to rules. Raises ConfigError naming what is unusable."""
    rules = [_parse_rule(name, rule, f"{source}: [{name}]") for name, rule in table.items()]
    if not rules:
        raise ConfigError(f"{source}: has no rules; give at least one table with importance, type and words or signs")
    return Rules(tuple(sorted(rules, key=lambda rule: -rule.importance)))  # of equal ones, the first in the file


@cache
def default_rules() -> Rules:
    """Returns the rules that come with the package."""
    text = files("graphmem.lifecycle").joinpath("rules.toml").read_text("utf-8")
    return parse_rules(tomllib.loads(text), "rules.toml")


def _parse_rule(name: str, rule: Any, where: str) -> Rule:
    if not isinstance(rule, Mapping) or not rule.keys() <= _FIELDS:
        raise ConfigError(f"{where}: is no table of importance, type, words and signs")
    importance, memory_type = rule.get("importance"), rule.get("type")
    if not isinstance(importance, int | float) or isinstance(importance, bool) or not 0 <= importance <= 1:
        raise ConfigError(f"{where}: importance is no number from 0 to 1")
    if memory_type not in MEMORY_TYPES:
        raise ConfigError(f"{where}: type is none of {', '.join(MEMORY_TYPES)}")
    patterns = (*_patterns(rule, "words", where), *_patterns(rule, "signs", where))
    if not patterns:
        raise ConfigError(f"{where}: has neither words nor signs")
    return Rule(name, str(memory_type), float(importance), patterns)


def _patterns(rule: Mapping[str, Any], field: str, where: str) -> tuple[Pattern, ...]:
    patterns: Sequence[Any] = rule.get(field, ())
    if isinstance(patterns, str) or not all(isinstance(one, str) for one in patterns):
        raise ConfigError(f"{where}: {field} is no list of texts")
    read = tuple(_pattern(one.strip(), is_whole=field == "words") for one in patterns)
    for place, (written, pattern) in enumerate(zip(patterns, read, strict=True)):
        if not pattern.literal.strip():  # it would match every text
            raise ConfigError(f"{where}: {field}[{place}] is {written!a}, of which nothing is left to be compared")
    return read


def _pattern(pattern: str, *, is_whole: bool) -> Pattern:
    parts = [_folded(part) for part in pattern.split("...")]  # before "…" is folded to "..."
    expression = rf"[^.!?。！？\n]{{0,{GAP}}}?".join(map(re.escape, parts))
    return Pattern(max(parts, key=len), rf"(?<!\w){expression}(?!\w)" if is_whole else expression)


def _folded(text: str) -> str:
    return fold(text).replace("’", "'")


class _Heads(NamedTuple):
    """One head for each kind: `weights` (dims x kinds) and `constants` (kinds)."""

    kinds: tuple[str, ...]
    weights: Matrix
    constants: Matrix


def likely_kinds(vectors: Matrix) -> list[Mapping[str, float]]:
    """Returns the probabilities of the kinds for each unit row, which is a vector in `SPACE`."""
    heads = _heads()
    logits = vectors @ heads.weights + heads.constants
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return [dict(zip(heads.kinds, row, strict=True)) for row in shares.tolist()]


@cache
def digest() -> str:
    """Returns what tells these heads from others."""
    return blake2b(files("graphmem.lifecycle").joinpath(WEIGHTS).read_bytes(), digest_size=16).hexdigest()


@cache
def _heads() -> _Heads:
    package = files("graphmem.lifecycle")
    languages = json.loads(package.joinpath(SENTENCES).read_text("utf-8"))
    with np.load(BytesIO(package.joinpath(WEIGHTS).read_bytes())) as arrays:
        weights, constants = (arrays[name].astype(np.float32) for name in ("weights", "constants"))
    return _Heads(tuple(languages["en"]), weights, constants)
