"""What a cycle of the lifecycle costs over 500, 5,000 and 50,000 memories of one user.

    python benchmarks/cycles.py > benchmarks/results/cycles.json

The memories are of the last forty days: 60 % small talk, 22 % feelings, 8 % plans, 10 % facts and preferences, as in
seed 002. Their vectors are random, of 384 numbers, so that nothing is merged by likeness but a tenth that repeats
another memory. The rules find the type of two thirds, the importance of the others is computed. Seconds of one run
each: the first dry run rates all memories, the second decides alone, the cycle decides and forgets.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from graphmem import Memory, Settings
from graphmem.evaluation.environment import environment

SIZES = (500, 5_000, 50_000)
DAYS, DIMS, SEED = 40, 384, 2
REPEATED = 0.1
USER = {"user_id": "ana"}
# Shares of what people say (seed 002 §4), with a sentence of each kind.
SAID = (
    (0.3, "The weather was grey on hill {}."),
    (0.3, "We passed the bridge number {} again."),
    (0.22, "I was happy about letter {}."),
    (0.08, "I plan to visit place {}."),
    (0.05, "I like song {}."),
    (0.05, "I work at office {}."),
)


def records(count: int, now: datetime) -> Iterator[dict[str, Any]]:
    """Yields memories as lines of an export, a tenth of them with the words of another one."""
    dice = random.Random(SEED)  # noqa: S311  (made texts)
    kinds = dice.choices([text for _, text in SAID], [share for share, _ in SAID], k=count)
    said: list[str] = []
    for number, text in enumerate(kinds):
        at = (now - timedelta(days=DAYS * dice.random())).isoformat()
        words = dice.choice(said) if said and dice.random() < REPEATED else text.format(number)
        said.append(words)
        uid = f"00000000-0000-4000-8000-{number:012}"
        yield {"type": "memory", "id": uid, "text": words, "at": at, "created_at": at, **USER}


def embed(texts: list[str]) -> Any:
    """Returns a random unit vector for each text, the same for equal ones."""
    rows = np.array([np.random.default_rng(list(text.encode())).standard_normal(DIMS) for text in texts], np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure(count: int) -> dict[str, Any]:
    """Returns the seconds of a cycle over `count` memories, and what it did."""
    now = datetime.now(UTC)
    settings = Settings.from_dict(
        {
            "embedder": {"provider": "callable", "config": {"embed": embed, "embedding_dims": DIMS, "model": "random"}},
            "extractor": {"provider": "none"},
            "lifecycle": {"enabled": True, "since": "2020-01-01", "daily_at": "never"},
        }
    )
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(folder, settings=settings) as memory:
        memory.import_(records(count, now))
        memory.flush()
        seconds = {}
        answers = {}
        for name, options in (("rate", {"dry_run": True}), ("decide", {"dry_run": True}), ("cycle", {"force": True})):
            begin = time.perf_counter()
            answers[name] = memory.tend(**USER, now=now, **options)
            seconds[name] = round(time.perf_counter() - begin, 3)
        begin = time.perf_counter()
        memory.undo_cycle(str(answers["cycle"]["cycle"]), **USER)
        seconds["undo"] = round(time.perf_counter() - begin, 3)
    done = {name: answers["cycle"][name] for name in ("processed", "forgotten", "merged", "promoted", "skipped")}
    return {"memories": count, "seconds": seconds, **done}


def main() -> None:
    """Prints the times as JSON."""
    rows = []
    for count in SIZES:
        rows.append(measure(count))
        print(json.dumps(rows[-1]), file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"environment": environment(), "peak_megabytes": peak, "sizes": rows}, indent=2))


if __name__ == "__main__":
    main()
