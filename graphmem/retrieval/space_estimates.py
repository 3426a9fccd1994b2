"""Evidence of the first space for memories that have a vector in the multilingual space alone. Pure.

In a store of several languages a query that the embedder reads is compared with some memories in both spaces and with
others in the multilingual one alone. Cosines of two spaces cannot be ranked together: what is near in one is .6, in the
other .35. So the value that such a memory would have is estimated from the memories that have both, in this search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

# The fewest memories with both values that an estimate is made of; with fewer, the cosines are taken as they are.
MIN_MEMORIES = 8
# The least standard deviation of multilingual cosines: smaller differences are chance and are not stretched.
MIN_DEVIATION = 0.03


class SpaceEstimates:
    """Converts multilingual cosines to values of another kind by mean and standard deviation.

    The estimate of u is mean(x) + sd(x) · (u - mean(u)) / max(sd(u), `MIN_DEVIATION`), over the memories that have both
    a value x and a cosine u. A map that is the same in every search was measured to be much worse: with it, half of the
    right memories of the other language were no longer found (docs/decisions/0030-two-encoders.md).
    """

    def __init__(self, values: Mapping[str, float], cosines: Mapping[str, float]) -> None:
        both = [uid for uid in values if uid in cosines]
        self._is_identity = len(both) < MIN_MEMORIES
        if not self._is_identity:
            x, u = np.array([values[uid] for uid in both]), np.array([cosines[uid] for uid in both])
            self._slope = float(x.std() / max(u.std(), MIN_DEVIATION))
            self._offset = float(x.mean() - self._slope * u.mean())

    def convert(self, cosines: Mapping[str, float]) -> dict[str, float]:
        """Returns the estimate of each cosine."""
        if self._is_identity:
            return dict(cosines)
        return {uid: self._offset + self._slope * cosine for uid, cosine in cosines.items()}


@dataclass(frozen=True, slots=True)
class UnreadMemories:
    """Memories that have a vector in the multilingual space alone, with how their evidence is estimated.

    `cosines` are their multilingual ones, `read` those of the memories that have both vectors, by id. `similarity` and
    `tokens` estimate cosines and token matches (None: not needed yet).
    """

    cosines: Mapping[str, float]
    read: Mapping[str, float]
    similarity: SpaceEstimates
    tokens: SpaceEstimates | None = None

    def token_matches(self, ids: Iterable[str]) -> dict[str, float]:
        """Returns the estimated token matches of these memories, 0..1, by id; none without `tokens`."""
        asked = {uid: self.cosines[uid] for uid in ids}
        estimates = {} if self.tokens is None else self.tokens.convert(asked)
        return {uid: min(max(estimate, 0.0), 1.0) for uid, estimate in estimates.items()}
