"""What a question asks about whom or what, and which of it a memory tells. Pure.

"What is my cat called?" has nearly everything in common with "My cat is five years old.", and is not answered by it.
So linear heads over vectors in the multilingual space read which attribute a question asks for (a name, an age, a
price), which one a memory tells, and of which subject (the mother, a cat, the wedding). They are softmax regressions,
fitted to sentences in which every subject meets every attribute that it may have, in two languages
(benchmarks/relevance/attributes.json); the space carries them to others. The last class of attributes is for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO

import numpy as np
import numpy.typing as npt

# Of texts with so many bytes at most, the vector tells what is not in them; of longer ones the less, the longer.
LONGEST_READ = 160
# Added to probabilities whose odds are taken.
LEAST_PROBABILITY = 0.02

# How memories that share an entity tell these together: the most of each, or the least.
JOINED = {
    "attribute_told": max, "attribute_missing": min, "attribute_odds": max, "subject_clash": min,
}  # fmt: skip

Row = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Head:
    """A softmax regression: `weights` (dims x classes) and `offset` (classes,)."""

    weights: Row
    offset: Row

    def shares(self, vectors: Row) -> Row:
        """Returns the probability of each class (vectors x classes)."""
        return softmax(vectors @ self.weights + self.offset)


def softmax(odds: Row, temperature: float = 1.0) -> Row:
    """Returns the probabilities of each row's log odds (rows x classes): the higher the temperature, the more alike."""
    powers = np.exp((odds - odds.max(axis=1, keepdims=True)) / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def compared(question: Row, memories: Row, sizes: Row) -> dict[str, Row]:
    """Compares a question (dims,) with memories (memories x dims; zeros: unknown) that have `sizes` bytes of text.

    Returns by name (memories,): `attribute_sure`, the probability of the likeliest attribute asked for; times this, so
    that nothing follows where none of the list is asked for, `attribute_told`, the probability that the memory tells
    what is asked for, `attribute_missing`, that it does not, and `attribute_odds`, the log odds of both; `subject`, the
    probability that both are about the same one, `subject_clash`, what both are sure of and is not the same. What is
    not known is 0.
    """
    heads = _heads()
    asked, told = heads["asked"].shares(question[None])[0, :-1], heads["told"].shares(memories)[:, :-1]
    subject, subjects = heads["subject"].shares(question[None])[0], heads["subject"].shares(memories)
    is_known = memories.any(axis=1)
    # What a long text's vector lacks may stand in one of its sentences.
    is_read = is_known * np.minimum(LONGEST_READ / np.maximum(sizes, 1), 1.0)
    attribute, shared = told @ asked, subjects @ subject
    missing, sure = asked.sum() - attribute, float(asked.max())
    odds = np.log((attribute + LEAST_PROBABILITY) / (missing + LEAST_PROBABILITY))
    return {
        "attribute_told": attribute * is_known * sure,
        "attribute_missing": missing * is_read * sure,
        "attribute_sure": np.full(len(memories), sure),
        "subject": shared * is_known,
        "subject_clash": np.maximum(subject.max() * subjects.max(axis=1) - shared, 0.0) * is_read,
        "attribute_odds": odds * is_read * sure,
    }


@cache
def _heads() -> dict[str, Head]:
    """Reads the heads as `benchmarks/relevance` wrote them: the last row of each array is the offset."""
    with np.load(BytesIO(files(__package__).joinpath("attributes.npz").read_bytes())) as arrays:
        stored = {name: arrays[name].astype(np.float64) for name in arrays.files}
    return {name: Head(rows[:-1], rows[-1]) for name, rows in stored.items()}
