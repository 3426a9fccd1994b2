"""What the memory proxy adds to a chat, compared with the search that it makes.

    python benchmarks/proxy.py benchmarks/chats > benchmarks/results/proxy.json

A scripted endpoint in this process answers at once, so that what is measured is the proxy: each question is searched
for by the library, recalled for by it as the proxy does (`ChatLink.recall`: a search, and what its hits have to do with
the question), sent to the endpoint alone, and sent through the proxy, in an order that changes. `overhead_ms` is the
difference of the last two, of whole answers and of the first byte of streamed ones; the ratios are its median over that
of the recall and of the search. Service, client and endpoint share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from service import ADMIN_KEY, WARM, Server, percentile, questions_of, serving

from graphmem import Memory
from graphmem.chat import ChatLink
from graphmem.evaluation.chats import load
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import store
from graphmem.settings import Settings
from graphmem.testing import ModelEndpoint

QUESTIONS, TOP_K = 300, 5
# Searches of the library's ladder look at more hits than they return (`graphmem.chat_worker`).
SPARE_HITS = 20


class ChatClient:
    """Sends chats over a connection that stays open."""

    def __init__(self, host: str, port: int, path: str, **headers: str) -> None:
        self._connection, self._path = HTTPConnection(host, port, timeout=60), path
        self._headers = {"Content-Type": "application/json", **headers}

    def ask(self, text: str, user_id: str, *, stream: bool) -> float:
        """Sends a question. Returns the milliseconds to the whole answer, or to the first byte of a stream."""
        body = {"model": "m", "user": user_id, "stream": stream, "messages": [{"role": "user", "content": text}]}
        begin = time.perf_counter()
        self._connection.request("POST", self._path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        answer.read(1)
        first = time.perf_counter()
        answer.read()
        return ((first if stream else time.perf_counter()) - begin) * 1000


def measure(dataset: Dataset) -> dict[str, Any]:
    """The figures, ready for JSON."""
    questions = questions_of(dataset)
    with tempfile.TemporaryDirectory(prefix="graphmem-") as home, Memory(home, settings=Settings()) as memory:
        store(memory, dataset, lambda *_: None)
        links = {user_id: ChatLink(memory, user_id=user_id) for user_id in dataset.partitions}
        with ModelEndpoint(default="I see.") as endpoint, proxying(home, endpoint) as server:
            place = urlsplit(endpoint.url)
            alone = ChatClient(str(place.hostname), int(place.port or 0), f"{place.path}/chat/completions")
            proxied = ChatClient(*server.address, "/v1/chat/completions", **{"X-API-Key": ADMIN_KEY})
            figures = {
                name: compare(
                    [
                        lambda text, user: timed(lambda: memory.search(text, user_id=user, top_k=TOP_K + SPARE_HITS)),
                        lambda text, user: timed(lambda: links[user].recall(text, top_k=TOP_K)),
                        lambda text, user, stream=stream: alone.ask(text, user, stream=stream),
                        lambda text, user, stream=stream: proxied.ask(text, user, stream=stream),
                    ],
                    list(islice(cycle(questions), WARM + QUESTIONS)),
                )
                for name, stream in (("whole", False), ("first_byte", True))
            }
    data = {"memories": dataset.messages, "questions": len(questions)}
    return {"benchmark": "proxy", **environment(), "data": data, **figures}


@contextmanager
def proxying(home: str, endpoint: ModelEndpoint) -> Iterator[Server]:
    """Serves a proxy in front of the endpoint; chats are not stored, so that the memories stay the same."""
    proxy = {"GRAPHMEM_SERVE__PROXY__UPSTREAM_URL": endpoint.url, "GRAPHMEM_SERVE__PROXY__SAVE": "false"}
    with serving(home, proxy) as server:
        yield server


def timed(call: Callable[[], Any]) -> float:
    """Returns the milliseconds of a call."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def compare(ways: list[Callable[[str, str], float]], questions: list[Any]) -> dict[str, Any]:
    """Asks each question in all ways, beginning with another one each time; the first questions do not count."""
    milliseconds: list[list[float]] = [[] for _ in ways]
    for number, (text, user_id) in enumerate(questions):
        for place in range(len(ways)):
            way = (number + place) % len(ways)
            took = ways[way](text, user_id)
            if number >= WARM:
                milliseconds[way].append(took)
    searches, recalls, alone, proxied = milliseconds
    overhead = [one - other for one, other in zip(proxied, alone, strict=True)]
    return {
        "questions": len(overhead),
        "search_ms": {"p50": percentile(searches, 50), "p95": percentile(searches, 95)},
        "recall_ms": {"p50": percentile(recalls, 50), "p95": percentile(recalls, 95)},
        "endpoint_alone_ms": {"p50": percentile(alone, 50), "p95": percentile(alone, 95)},
        "overhead_ms": {"p50": percentile(overhead, 50), "p95": percentile(overhead, 95)},
        "ratio_to_recall": round(statistics.median(overhead) / statistics.median(recalls), 2),
        "ratio_to_search": round(statistics.median(overhead) / statistics.median(searches), 2),
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chats", type=Path, help="a folder or file of chats in the form of benchmarks/chats")
    print(json.dumps(measure(load(parser.parse_args().chats)), indent=2))


if __name__ == "__main__":
    main()
