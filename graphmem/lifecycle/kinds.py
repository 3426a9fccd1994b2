"""Tells what kind of sentence a text is from its vector in the multilingual space, whatever its words. Pure.

A softmax over linear heads, fitted to generic sentences in several languages, the same topics told as each kind
(`kinds.json`; `benchmarks/kinds.py` fits). The kinds are named like the rules of importance (`rules.toml`), so that a
text which matches none of their words still has a rule; an event is what has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

# The space of the heads.
SPACE = "use-multilingual-v3"
WEIGHTS, SENTENCES = "kinds.npz", "kinds.json"


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
