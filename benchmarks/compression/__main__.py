"""The same questions before and after like memories are compressed: what is lost, and what is gained.

    python benchmarks/compression > benchmarks/results/compression.json
    python benchmarks/compression --model URL > benchmarks/results/compression-model.json

One user says forty-eight things again, each four or five times in nearly the same words, among other sentences
(`said_again.json`, written for this, and the noise of `benchmarks/answers`). One of each five names a detail that the
others leave out. A cycle in which nothing fades then compresses them: without a model by keeping one that says what the
others say; with `--model` (an OpenAI-compatible endpoint) or `--recorded` (the answers of the folder `recordings`) by
one new sentence.

Of the search the share of questions is told whose answer is among ten hits, of the block that of those whose answer is
in it, and its length in characters.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent / "tests"))

from recorded.player import RecordedAnswers  # noqa: E402

from graphmem import Memory  # noqa: E402
from graphmem.evaluation.environment import environment  # noqa: E402
from graphmem.testing import ModelEndpoint  # noqa: E402

USER = {"user_id": "ana"}
NOW = datetime(2026, 6, 1, 3, tzinfo=UTC)
DAYS = 40
TOP_K = 10
RECORDINGS = FOLDER / "recordings"


def records(said_again: list[dict[str, Any]], noise: list[str]) -> Iterator[dict[str, Any]]:
    """Yields memories as lines of an export, spread over the days before NOW; a repetition never follows the last."""
    rounds = max(len(one["said"]) for one in said_again)
    said = [one["said"][turn] for turn in range(rounds) for one in said_again if turn < len(one["said"])]
    step = max(1, len(said) // len(noise))
    texts = [text for n, one in enumerate(said) for text in (one, *noise[n // step : n // step + (n % step == 0)])]
    for number, text in enumerate(texts):
        at = (NOW - timedelta(days=DAYS * (1 - number / len(texts)), hours=1)).isoformat()
        uid = f"00000000-0000-4000-8000-{number:012}"
        yield {"type": "memory", "id": uid, "text": text, "at": at, "created_at": at, **USER}


def ask(memory: Memory, said_again: list[dict[str, Any]]) -> dict[str, Any]:
    """Asks all questions; returns the shares answered by the search and by the block, and the block's mean length."""
    found: dict[str, list[bool]] = {}
    chars = []
    for one in said_again:
        for name, question, answer in (
            ("main", one["question"], one["answer"]),
            ("detail", one["detail_question"], one["detail_answer"]),
        ):
            pattern = re.compile(answer, re.IGNORECASE)
            hits = memory.search(question, **USER, top_k=TOP_K)["results"]
            block = memory.context(question, **USER)
            chars.append(len(block))
            for where, texts in (("search", [hit["memory"] for hit in hits]), ("block", [block])):
                found.setdefault(f"{where}, {name}", []).append(any(map(pattern.search, texts)))
    return {name: round(100 * mean(answers), 1) for name, answers in found.items()} | {"chars": round(mean(chars))}


def measure(home: str, llm: dict[str, Any] | None) -> dict[str, Any]:
    """Asks before and after a cycle, in a memory in a new folder."""
    said_again = json.loads((FOLDER / "said_again.json").read_text("utf-8"))
    noise = json.loads((FOLDER.parent / "answers" / "noise.json").read_text("utf-8"))
    lifecycle = {"enabled": True, "since": NOW.isoformat(), "daily_at": "never", "promote_after_days": 3650}
    lifecycle["summarized_memories"] = 100_000  # what is measured is merging alone
    config = {"home": home, "lifecycle": lifecycle, **({} if llm is None else {"llm": llm})}
    with Memory.from_config(config) as memory:
        memory.import_(list(records(said_again, [one if isinstance(one, str) else one["text"] for one in noise])))
        memory.flush()
        before = ask(memory, said_again)
        result = memory.tend(**USER, now=NOW, force=True)
        after = ask(memory, said_again)
        kept = memory.lifecycle_status(**USER)["layers"]["long_term"]
    return {
        "memories": result["processed"],
        "taken_in": result["merged"] + (kept if llm is None else 0),
        "made": kept,
        "ratio": round((result["merged"] + (kept if llm is None else 0)) / max(1, kept), 2),
        "skipped": result["skipped"],
        "before": before,
        "after": after,
    }


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", metavar="URL", help="an OpenAI-compatible endpoint that merges")
    parser.add_argument("--recorded", action="store_true", help="play the recorded answers")
    options = parser.parse_args()
    with ExitStack() as stack:
        url, recorded = options.model, RecordedAnswers(RECORDINGS)
        if options.recorded:
            url = stack.enter_context(ModelEndpoint(default=recorded)).url
        endpoint = {"openai_base_url": url, "api_key": "any", "model": "desk", "timeout": 1200}
        llm = None if url is None else {"provider": "openai", "config": endpoint}
        figures = measure(stack.enter_context(TemporaryDirectory()), llm)
        if recorded.missing:
            sys.exit(f"{len(recorded.missing)} requests have no recorded answer; record them with --model")
    json.dump({"environment": environment(), **figures}, sys.stdout, indent=2, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
