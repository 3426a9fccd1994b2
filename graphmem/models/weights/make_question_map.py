"""Makes use-multilingual-v3.question-map.npy: what the multilingual encoder's question vectors are multiplied by.

    python graphmem/models/weights/make_question_map.py

Run by hand, in the environment for development. Another file ranks otherwise: change its hash in
`models/use_multilingual.py`, and see `docs/decisions/0045-question-map.md`. The last bits depend on the BLAS library.

MiniLM tells English sentences apart better than the multilingual encoder does. So a linear map B from centred
multilingual vectors to centred MiniLM vectors is fitted on English sentences, by ridge regression, and
K = (I + B Bᵀ / n) / 2 is kept, n the mean of uᵀ B Bᵀ u: the cosine of u K and v is then half the cosine of u and v and
half their product in MiniLM's space. The sentences are the English ones of the answers and chats in `benchmarks`: none
of `benchmarks/languages`, by which the gain was measured, and none of those held out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from graphmem.models.minilm import MiniLM
from graphmem.models.two_spaces import minilm_reads
from graphmem.models.use_multilingual import UseMultilingual

FILE = Path(__file__).parent / "use-multilingual-v3.question-map.npy"
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SOURCES = ("answers/*.json", "answers/training/*.json", "chats/*.json")
LANGUAGES = BENCHMARKS / "languages" / "en.jsonl"
# Recall changes by two points between 500 and 12,000 sentences, by less than one with a ridge of .3 to 10.
COUNT, RIDGE, SEED = 8_000, 1.0, 0
MIN_CHARS, MAX_CHARS = 12, 300
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _sentences() -> list[str]:
    """Returns English sentences of the sources in a shuffled order that is always the same."""
    asked_elsewhere = LANGUAGES.read_text("utf-8")
    files = sorted(path for pattern in SOURCES for path in BENCHMARKS.glob(pattern))
    pieces = (
        piece.strip(" *-#|>")
        for path in files
        for text in _strings(json.loads(path.read_text("utf-8")))
        for piece in _SENTENCE_END.split(text)
    )
    found = dict.fromkeys(
        piece for piece in pieces if MIN_CHARS <= len(piece) <= MAX_CHARS and " " in piece and minilm_reads(piece)
    )
    sentences = [sentence for sentence in found if sentence not in asked_elsewhere]
    return [sentences[place] for place in np.random.default_rng(SEED).permutation(len(sentences))[:COUNT]]


def main() -> None:
    """Writes the file and prints its hash."""
    sentences = _sentences()
    vectors = UseMultilingual().encode(sentences).astype(np.float64)
    targets = np.concatenate(MiniLM().embed(sentences)).astype(np.float64)
    if len(targets) != len(sentences):
        raise SystemExit("a sentence is longer than a window of MiniLM")
    centred = vectors - vectors.mean(axis=0)
    identity = np.eye(vectors.shape[1])
    to_minilm = np.linalg.solve(centred.T @ centred + RIDGE * identity, centred.T @ (targets - targets.mean(axis=0)))
    products = to_minilm @ to_minilm.T
    mean_square = np.einsum("ij,jk,ik->i", vectors, products, vectors).mean()
    np.save(FILE, ((identity + products / mean_square) / 2).astype(np.float16))
    print(sha256(FILE.read_bytes()).hexdigest(), FILE.name, len(sentences), "sentences")


if __name__ == "__main__":
    main()
