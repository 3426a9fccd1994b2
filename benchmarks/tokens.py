"""Counts the tokens of each request without its messages, memories and facts: instructions, schema and frame.

    python benchmarks/tokens.py          # writes benchmarks/results/tokens.json

Counted with o200k_base, the vocabulary of OpenAI's models since GPT-4o, from the package rs-bpe; the schema as compact
JSON, as it is sent. An ordinary exchange takes one request that extracts facts and, if a stored fact is near, one that
decides about them. Chunks of long input, summaries, decisions repeated after a conflict and rewritten questions are
further requests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rs_bpe.bpe import openai

from graphmem.ingest.facts import decision, extraction, summaries
from graphmem.ingest.facts.extraction import AlsoSummarise
from graphmem.plugins import Prompt
from graphmem.prompts import load

RESULTS = Path(__file__).parent / "results" / "tokens.json"
MOST = 1_370


def count_tokens() -> dict[str, Any]:
    """The tokens of instructions, schema and frame (the user message without its content), by request."""
    vocabulary = openai.o200k_base()

    def tokens(text: str) -> int:
        return len(vocabulary.encode(text))

    def parts(prompt: Prompt) -> dict[str, int]:
        schema = "" if prompt.schema is None else json.dumps(prompt.schema, separators=(",", ":"))
        counts = {
            "instructions": tokens(prompt.system),
            "schema": tokens(schema),
            "frame": tokens(prompt.user),
        }
        return {**counts, "total": sum(counts.values())}

    requests = {
        "facts": parts(extraction.build_request([], "user")),
        "facts and summary": parts(extraction.build_request([], "user", also=AlsoSummarise.NEW)),
        "decide": parts(decision.build_request([], [])),
        "summary": parts(summaries.summary_request("", [])),
        "rewrite": {"instructions": tokens(load("rewrite")), "schema": 0, "frame": 0, "total": tokens(load("rewrite"))},
    }
    return {
        "tokenizer": "o200k_base (rs-bpe)",
        "requests": requests,
        "an add": {
            "small talk": {"calls": 1, "tokens": requests["facts"]["total"]},
            "facts, nothing near": {"calls": 1, "tokens": requests["facts"]["total"]},
            "facts, something near": {
                "calls": 2,
                "tokens": requests["facts"]["total"] + requests["decide"]["total"],
            },
        },
        "apart from that, each": {
            "a further chunk of 3,000 tokens of messages": requests["facts"]["total"],
            "a decision made anew": requests["decide"]["total"],
            "a summary beside the facts of ten messages or more": requests["facts and summary"]["total"]
            - requests["facts"]["total"],
            "another summary, of each sitting and every 20 messages": requests["summary"]["total"],
            "a weak question rewritten": requests["rewrite"]["total"],
        },
    }


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(count_tokens(), indent=1) + "\n", "utf-8")
    print(RESULTS.read_text("utf-8"))
