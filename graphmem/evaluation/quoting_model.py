"""A language model that answers with words of the memories it is shown, to count the requests and tokens of cycles.

It stands in for one where there is none: requests are those that a model would get, word for word, and its answers are
about as long as they may be. How good the texts are that a model makes cannot be told from it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from graphmem.ingest.facts.compositions import MOST_WORDS, without_times
from graphmem.ingest.facts.summary_requests import MAX_SUMMARY_CHARS
from graphmem.lifecycle.decay import Operation
from graphmem.plugins import Prompt, Reply, Usage
from graphmem.text import approximate_length, estimate_tokens, is_unspaced

# What an abstraction begins with, as it may not be what one of the memories says.
AGAIN, AGAIN_UNSPACED = "Repeatedly: ", "常常："


class QuotingModel:
    """Answers a merge with the longest memory that is short enough, a summary with all that it has room for."""

    name = "a script that quotes"

    def answer(self, prompt: Prompt) -> Reply:
        """Returns the answer, with tokens as `estimate_tokens` counts them."""
        value = {"text": _text(Operation(prompt.operation), json.loads(prompt.user)["memories"])}
        sent = (
            estimate_tokens(prompt.system) + estimate_tokens(prompt.user) + estimate_tokens(json.dumps(prompt.schema))
        )
        return Reply(value, Usage(1, sent, estimate_tokens(json.dumps(value, ensure_ascii=False))))


def _text(operation: Operation, shown: list[list[str]]) -> str | None:
    texts = [text for _, _, text in shown]
    if operation is Operation.SUMMARIZE:
        summary = ""
        for text in texts:
            if len(summary) + len(text) < MAX_SUMMARY_CHARS:
                summary = f"{summary} {text}".strip()
        return summary
    fitting = [text for text in texts if approximate_length(text) < MOST_WORDS[operation]]
    if not fitting:
        return None
    longest = max(fitting, key=len)
    if operation is Operation.MERGE:
        return longest
    plain = without_times(longest, datetime.now(UTC))
    return f"{AGAIN_UNSPACED if is_unspaced(plain) else AGAIN}{plain}"
