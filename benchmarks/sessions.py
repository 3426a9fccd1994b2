"""Plays a conversation session by session through a memory with a language model, and counts what came of it.

    python benchmarks/sessions.py locomo10.json conv-26 http://127.0.0.1:8080/v1 --model qwen3 --api-key KEY

Each session is one call of `add`, at its time, both speakers by name: the way a chat client saves its chats. No answer
is judged by its words. What is counted is what the memory makes of them:

- `requests` and `tokens`: of all sessions, background summaries included, in relation to the sessions and to the words
  said. Tokens are counted with o200k_base, instructions and schema included.
- `decisions`: the outcomes for the extracted facts, and the parts of the answers that could not be used.
- `lost_messages`: messages that a stored or updated fact was drawn from, and that a search for their own words does not
  return among `FOUND_WITHIN` hits, neither themselves nor as the source of a fact.
- `entities`: names whose stored type is not the one that the model gave last, and pairs of names that differ only in
  number, case, or one letter.
- `dates`: facts dated more than `FAR_DAYS` days from the last message that they were drawn from.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import httpx
from rapidfuzz.distance import Levenshtein
from rs_bpe.bpe import openai

from graphmem import Memory, Settings
from graphmem.evaluation.locomo import load
from graphmem.ingest.facts.extraction import typed_name
from graphmem.testing import ModelEndpoint

USER = "conversation"
# A hit among so many counts as found.
FOUND_WITHIN = 10
FAR_DAYS = 30
# Names shorter than this may differ by a letter and mean different things.
MIN_NAME_CHARS = 5
# Seconds for one answer: somebody may write it by hand.
ANSWER_SECONDS = 3_600


class Recorder:
    """Passes requests on to an endpoint, and keeps them with their answers."""

    def __init__(self, url: str, api_key: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}"}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=ANSWER_SECONDS)
        self.exchanges: list[tuple[Mapping[str, Any], str]] = []

    def __call__(self, body: Mapping[str, Any]) -> str:
        answer = self._client.post("chat/completions", json=body).raise_for_status().json()
        content: str = answer["choices"][0]["message"]["content"]
        self.exchanges.append((body, content))
        return content


def play(path: Path, conversation: str, url: str, model: str, api_key: str, most: int) -> dict[str, Any]:
    """Plays the first `most` sessions of a conversation; returns the figures."""
    messages = load(path).partitions[conversation]
    sessions = [list(session) for _, session in groupby(messages, key=lambda message: message["timestamp"])][:most]
    recorder = Recorder(url, api_key)
    with ModelEndpoint(default=recorder) as endpoint, tempfile.TemporaryDirectory() as home:
        config = {"openai_base_url": endpoint.url, "api_key": api_key, "model": model, "timeout": ANSWER_SECONDS}
        settings = Settings.from_dict({"llm": {"provider": "openai", "config": config}})
        with Memory(home, settings=settings) as memory:
            results = []
            for number, session in enumerate(sessions, 1):
                results.append(memory.add(session, user_id=USER))
                memory.flush()
                print(f"session {number} of {len(sessions)}: {len(recorder.exchanges)} requests", flush=True)
            exported = io.StringIO()
            memory.export(exported, user_id=USER)
            records = [json.loads(line) for line in exported.getvalue().splitlines()]
            memories = {record["id"]: record for record in records if record["type"] == "memory"}
            return {
                "sessions": len(sessions),
                "messages": sum(map(len, sessions)),
                **_cost(sessions, recorder.exchanges),
                "decisions": _decisions(results),
                "lost_messages": _lost_messages(memory, memories),
                "entities": _entities(memories, recorder.exchanges),
                "dates": _far_dates(memories),
            }


def _cost(sessions: Sequence[Sequence[Any]], exchanges: Iterable[tuple[Mapping[str, Any], str]]) -> dict[str, Any]:
    vocabulary = openai.o200k_base()

    def tokens(text: str) -> int:
        return len(vocabulary.encode(text))

    said = sum(tokens(message["content"]) for session in sessions for message in session)
    requests: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for body, answer in exchanges:
        schema = body["response_format"]["json_schema"]
        requests[schema["name"]] += 1
        sent[schema["name"]] += sum(tokens(message["content"]) for message in body["messages"])
        sent[schema["name"]] += tokens(json.dumps(schema["schema"], separators=(",", ":")))
        answered[schema["name"]] += tokens(answer)
    total = sent.total() + answered.total()
    return {
        "requests": {**requests, "a session": round(requests.total() / len(sessions), 2)},
        "tokens": {"said": said, "sent": sent, "answered": answered, "times what was said": round(total / said, 2)},
    }


def _decisions(results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    results = list(results)
    events = Counter(item["event"] for result in results for item in result["results"] if item["kind"] == "fact")
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update(result.get("usage", {}).get("dropped", {}))
    return {"events": events, "dropped": dropped, "failed": [one["failed"] for one in results if "failed" in one]}


def _lost_messages(memory: Memory, memories: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    drawn_from = {source for sources in _sources(memories).values() for source in sources}
    lost = []
    for uid in sorted(drawn_from):
        hits = memory.search(memories[uid]["text"], user_id=USER, top_k=FOUND_WITHIN)["results"]
        found = {hit["id"] for hit in hits} | {source["id"] for hit in hits for source in hit.get("sources", ())}
        if uid not in found:
            lost.append(memories[uid]["text"])
    return {"drawn from": len(drawn_from), "lost": lost}


def _sources(memories: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Returns the ids of the messages that each fact was drawn from, by the fact's id.

    An export writes a link with whichever of its two memories comes later: `memory` is the source, `by` the fact.
    """
    sources: dict[str, set[str]] = {uid: set() for uid, record in memories.items() if record["kind"] == "fact"}
    for uid, record in memories.items():
        for link in record["links"]:
            fact, source = link.get("by", uid), link.get("memory", uid)
            if link["kind"] == "drawn_from" and fact in sources:
                sources[fact].add(source)
    return sources


def _entities(
    memories: Mapping[str, Mapping[str, Any]], exchanges: Iterable[tuple[Mapping[str, Any], str]]
) -> dict[str, Any]:
    given: dict[str, str] = {}
    for body, answer in exchanges:
        if body["response_format"]["json_schema"]["name"] == "facts":
            given.update({name.casefold(): type_ for name, type_ in map(typed_name, json.loads(answer)["entities"])})
    mentions = [mention for record in memories.values() for mention in record["mentions"]]
    stored = {mention["name"].casefold(): mention["type"] for mention in mentions}
    of_facts = {
        mention["key"]: mention["name"]
        for record in memories.values()
        if record["kind"] == "fact"
        for mention in record["mentions"]
    }
    known = given.keys() & stored.keys()
    return {
        "names": len(given),
        "other types": {name: (given[name], stored[name]) for name in sorted(known) if given[name] != stored[name]},
        "alike": [pair for pair in combinations(sorted(of_facts.values()), 2) if _are_alike(*pair)],
    }


def _are_alike(first: str, second: str) -> bool:
    first, second = first.casefold(), second.casefold()
    distance = Levenshtein.distance(first, second, score_cutoff=2)
    is_plural = {first, second} == {min(first, second), min(first, second) + "es"}
    return min(len(first), len(second)) >= MIN_NAME_CHARS and (distance <= 1 or is_plural)


def _far_dates(memories: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    sources = _sources(memories)
    far = 0
    for fact, messages in sources.items():
        last = max((datetime.fromisoformat(memories[uid]["at"]) for uid in messages), default=None)
        if last is not None and abs((datetime.fromisoformat(memories[fact]["at"]) - last).days) > FAR_DAYS:
            far += 1
    return {"facts": len(sources), "far from their last message": far}


def main() -> None:
    """Plays the conversation that the command line names; prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path, help="a file in LOCOMO's form")
    parser.add_argument("conversation", help="its 'sample_id'")
    parser.add_argument("url", help="an OpenAI-compatible endpoint, with /v1")
    parser.add_argument("--model", default="gpt-5-mini")
    parser.add_argument("--api-key", default="any")
    parser.add_argument("--sessions", type=int, default=30, help="the number of sessions (30)")
    options = parser.parse_args()
    figures = play(options.path, options.conversation, options.url, options.model, options.api_key, options.sessions)
    print(json.dumps(figures, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
