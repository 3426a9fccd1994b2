"""Adds any number of messages for the commands add and migrate, with a progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from graphmem.boundary import validation
from graphmem.cli.render import ProgressBar
from graphmem.errors import ValidationError
from graphmem.memory import Memory

# Enrichment and delivery of so many messages take about a second; beyond that a progress bar is shown.
PROGRESS_FROM = 50
POLL_SECONDS = 0.3


def add_all(
    memory: Memory, source: str, messages: list[Any], options: Mapping[str, Any], *, wait: bool
) -> dict[str, Any]:
    """Adds messages in batches of `max_messages`; returns the results of all calls of `add` in the shape of one.

    `usage` is the sum; `failed` and `causes` have the different errors of all calls and their causes, and `skipped`
    counts from the first message. `options` are further arguments of `add`; `source` names the input in errors. All
    messages are checked first: after a ValidationError nothing is stored. More than PROGRESS_FROM messages are all
    stored, which is quick, before their enrichment is waited for; enrichment that an interruption leaves undone is done
    when the memory is opened next.
    """
    batch_size = memory.limits.max_messages
    batches = [messages[start : start + batch_size] for start in range(0, len(messages), batch_size)] or [[]]
    try:
        for batch in batches[1:]:  # `add` checks the first one before anything is stored
            validation.message_list(batch, timestamp=options["timestamp"], now=datetime.now(UTC), limits=memory.limits)
        wait_in_add = wait and len(messages) <= PROGRESS_FROM
        results = [memory.add(batch, **options, wait=wait_in_add) for batch in batches]
    except ValidationError as error:
        raise (ValidationError(f"{source}: {error}") if str(error).startswith("messages") else error) from None
    pending = list(dict.fromkeys(name for result in results for name in result.get("pending", ())))
    if pending and wait and not wait_in_add:
        pending = _flush_with_progress(memory)
    added: dict[str, Any] = {
        "results": [item for result in results for item in result["results"]],
        "relations": [relation for result in results for relation in result["relations"]],
    }
    if failed := _joined(result.get("failed", {}) for result in results):
        added["failed"] = failed
    if causes := _joined(result.get("causes", {}) for result in results):
        added["causes"] = causes
    usages = [result["usage"] for result in results if "usage" in result]
    skipped = [
        {**item, "message": number * batch_size + item["message"]}
        for number, result in enumerate(results)
        for item in result.get("skipped", ())
    ]
    if usages:
        added["usage"] = reduce(_sum_nested, usages)
    if skipped:
        added["skipped"] = skipped
    return added | ({"pending": pending} if pending else {})


def _joined(texts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Joins the different texts of each key."""
    pairs = [pair for by_key in texts for pair in by_key.items()]
    return {key: "; ".join(dict.fromkeys(text for other, text in pairs if other == key)) for key, _ in pairs}


def _sum_nested(one: Any, other: Any) -> Any:
    """Returns the sum of two numbers, or of two dicts of them by key, at any depth."""
    if not isinstance(one, Mapping):
        return one + other
    return {**one, **other, **{key: _sum_nested(one[key], other[key]) for key in one if key in other}}


def _count_unenriched(memory: Memory) -> int:
    return sum(count["number"] for count in memory.stats()["job_counts"] if count["kind"] == "enrichment")


def _flush_with_progress(memory: Memory) -> list[str]:
    """Waits for background work; returns the names of projections that are still pending."""
    total = _count_unenriched(memory)
    pool = ThreadPoolExecutor(1)
    with ProgressBar() as bar:
        job = pool.submit(memory.flush)
        pool.shutdown(wait=False)  # an interruption must not wait for the flush
        while not job.done():
            bar.update("vectors and graph", max(0, total - _count_unenriched(memory)), total)
            wait_for([job], timeout=POLL_SECONDS)
        return job.result()["pending"]
