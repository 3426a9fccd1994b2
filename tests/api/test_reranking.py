"""Reranking: a given function or a configured endpoint orders the best memories, and its failure leaves their order."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from support.contract import added, ids, texts
from support.fakes import fake_models
from support.statement_count import counted
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, Memory, Settings
from graphmem.errors import ConfigError
from graphmem.testing import Request, behaviours
from graphmem.testing.server import EndpointServer

ANA: dict[str, Any] = {"user_id": "u1"}
QUERY = "green tea"


class LastFirst:
    """A reranker that reverses the order, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def __call__(self, query: str, asked: list[str]) -> list[float]:
        self.asked.append((query, asked))
        return [float(place) for place in range(len(asked))]


@pytest.fixture
def opened() -> Iterator[Callable[..., Memory]]:
    """`opened(reranker=None, count=12)`: a memory of so many memories about tea, each in its session.

    `reranker` is an object, or the section of the configuration.
    """
    memories: list[Memory] = []

    def open_memory(reranker: Any = None, count: int = 12) -> Memory:
        is_configured = isinstance(reranker, dict)
        settings = Settings.from_dict(fake_models(**({"reranker": reranker} if is_configured else {})))
        memory = Memory(":memory:", settings=settings, reranker=None if is_configured else reranker)
        memories.append(memory)
        for number in range(count):
            memory.add("green tea" + " and more words" * number, **ANA, run_id=f"r{number}")
        return memory

    yield open_memory
    for memory in memories:
        memory.close()


def test_a_reranker_orders_the_hits(opened: Any) -> None:
    reranker = LastFirst()
    memory = opened(reranker)
    plain = memory.search(QUERY, **ANA, top_k=12)
    assert reranker.asked == []
    found = memory.search(QUERY, **ANA, top_k=12, rerank=True)
    assert reranker.asked == [(QUERY, texts(plain))]
    assert ids(found) == ids(plain)[::-1]
    assert "degraded" not in found
    scores = [hit["score"] for hit in found["results"]]
    assert scores == [hit["score"] for hit in plain["results"]] == sorted(scores, reverse=True)
    by_id = {hit["id"]: hit for hit in plain["results"]}
    assert all(hit["relevance"] == by_id[hit["id"]]["relevance"] for hit in found["results"])
    assert ids(memory.search(QUERY, **ANA, top_k=3, rerank=True)) == ids(found)[:3]


def test_a_speaker_is_named_to_the_reranker(opened: Any) -> None:
    reranker = LastFirst()
    memory = opened(reranker, count=0)
    memory.add([{"role": "user", "name": "Ana", "content": "I drink green tea"}], **ANA)
    memory.search(QUERY, **ANA, rerank=True)
    assert reranker.asked == [(QUERY, ["Ana: I drink green tea"])]


def test_what_is_behind_the_candidates_stays_behind_them(opened: Any) -> None:
    memory = opened(reranker={"provider": "callable", "config": {"rerank": LastFirst(), "candidates": 4}})
    plain = ids(memory.search(QUERY, **ANA, top_k=12))
    assert ids(memory.search(QUERY, **ANA, top_k=12, rerank=True)) == [*plain[:4][::-1], *plain[4:]]
    assert ids(memory.search(QUERY, **ANA, top_k=2, rerank=True)) == [plain[3], plain[2]]


def test_equal_scores_leave_the_order(opened: Any) -> None:
    memory = opened(lambda _, asked: np.zeros(len(asked), np.float32))
    assert ids(memory.search(QUERY, **ANA, rerank=True)) == ids(memory.search(QUERY, **ANA))


def test_an_explanation_has_the_rerankers_share(opened: Any) -> None:
    memory = opened(LastFirst())
    plain = {hit["id"]: hit["score"] for hit in memory.search(QUERY, **ANA, top_k=12)["results"]}
    hits = memory.search(QUERY, **ANA, top_k=12, rerank=True, explain=True)["results"]
    for place, hit in enumerate(hits, 1):
        shares = hit["explain"]["shares"]
        assert sum(share["share"] for share in shares.values()) == pytest.approx(hit["score"])
        assert shares["reranker"]["value"] == 12 - place
        assert shares["reranker"]["share"] == pytest.approx(hit["score"] - plain[hit["id"]])
        assert hit["explain"]["arms"]["reranker"] == {"rank": place, "score": 12 - place}
        assert f"placed by the reranker (rank {place})" in hit["explain"]["why"]
    assert hits[0]["explain"]["shares"]["reranker"]["share"] > 0 > hits[-1]["explain"]["shares"]["reranker"]["share"]
    plain_hit = memory.search(QUERY, **ANA, explain=True)["results"][0]
    assert "reranker" not in {**plain_hit["explain"]["shares"], **plain_hit["explain"]["arms"]}


def test_relevance_is_that_of_a_search_for_all_candidates(opened: Any) -> None:
    """So is what `min_relevance` leaves out; the reranker sees only what is left."""
    reranker = LastFirst()
    memory = opened(reranker, count=60)
    plain = {hit["id"]: hit["relevance"] for hit in memory.search(QUERY, **ANA, top_k=50)["results"]}
    found = memory.search(QUERY, **ANA, top_k=5, rerank=True)["results"]
    assert [hit["relevance"] for hit in found] == [plain[hit["id"]] for hit in found]
    least = sorted(plain.values())[25]
    found = memory.search(QUERY, **ANA, top_k=50, rerank=True, min_relevance=least)["results"]
    assert {hit["id"] for hit in found} == {uid for uid, relevance in plain.items() if relevance >= least}
    assert len(reranker.asked[-1][1]) == len(found)


def test_top_k_auto_gives_no_more_with_a_reranker(opened: Any) -> None:
    config = {"rerank": LastFirst(), "candidates": 80}
    memory = opened(count=70, reranker={"provider": "callable", "config": config})
    assert len(memory.search(QUERY, **ANA, top_k="auto", min_relevance=0, rerank=True)["results"]) == 50


def raising(*_: Any) -> Any:
    raise RuntimeError("green tea is quoted")


def exiting(*_: Any) -> Any:
    sys.exit(1)


@pytest.mark.parametrize(
    "reranker",
    [
        raising,
        exiting,
        lambda _, asked: [1.0] * (len(asked) - 1),
        lambda _, asked: [float("nan")] * len(asked),
        lambda _, asked: [float("inf"), *[1.0] * (len(asked) - 1)],
        lambda _, asked: [[1.0, 2.0]] * len(asked),
        lambda _, asked: None,
        lambda _, asked: "x" * len(asked),
        lambda _, asked: ["1"] * len(asked),
        lambda _, asked: [True] * len(asked),
        lambda _, asked: [0.5] * (len(asked) - 1) + [True],
        lambda query: [],
    ],
)
def test_a_failing_reranker_leaves_the_order(opened: Any, caplog: pytest.LogCaptureFixture, reranker: Any) -> None:
    memory = opened(reranker)
    plain = memory.search(QUERY, **ANA, explain=True)
    with caplog.at_level(logging.DEBUG):
        found = memory.search(QUERY, **ANA, explain=True, rerank=True)
    assert found.pop("degraded") == ["reranker"]
    assert [(hit["id"], hit["score"], hit["explain"]["shares"]) for hit in found["results"]] == [
        (hit["id"], hit["score"], hit["explain"]["shares"]) for hit in plain["results"]
    ]
    (line,) = [record.getMessage() for record in caplog.records if "reranker" in record.getMessage()]
    assert "green" not in line and "quoted" not in line


def test_a_reranker_that_takes_too_long_is_left_alone(opened: Any) -> None:
    """Calls that never end take no thread of searches, and no more threads than a few."""
    released, begun = Event(), []

    def hanging(_: str, asked: list[str]) -> list[float]:
        begun.append(released.wait(TIMEOUT))
        return [0.0] * len(asked)

    memory = opened(reranker={"provider": "callable", "config": {"rerank": hanging, "timeout": 0.01}})
    try:
        for _ in range(12):
            assert memory.search(QUERY, **ANA, rerank=True)["degraded"] == ["reranker"]
    finally:
        released.set()
    plain = ids(memory.search(QUERY, **ANA))
    assert len(plain) == 10
    assert len(begun) <= 8


def test_without_a_reranker_nothing_is_done_for_it(opened: Any) -> None:
    """Neither a statement more, nor with a reranker that is not asked for."""
    counts = []
    for reranker in (None, LastFirst()):
        memory = opened(reranker)
        memory.search(QUERY, **ANA)
        with counted() as statements:
            memory.search(QUERY, **ANA)
        counts.append(dict(statements))
    assert counts[0] == counts[1]


def test_rerank_without_a_reranker_is_refused(opened: Any) -> None:
    memory = opened()
    for call in (memory.search, lambda query, **more: memory.why_not(query, "x" * 36, **more)):
        with pytest.raises(ConfigError, match=r"reranker=…"):
            call(QUERY, **ANA, rerank=True)


def test_why_not_knows_what_the_reranker_moved_out(opened: Any) -> None:
    memory = opened(LastFirst())
    plain = ids(memory.search(QUERY, **ANA, top_k=12))
    told = memory.why_not(QUERY, plain[0], **ANA, top_k=3, rerank=True)
    assert (told["step"], told["details"]["rank"]) == ("reranked", 12)
    assert told["why"] == "the reranker moves it from 1 to 12, and 3 are asked for"
    assert told["details"]["reranked"]["before"] == 1
    assert sum(share["share"] for share in told["details"]["shares"].values()) == pytest.approx(
        told["details"]["score"]
    )
    assert memory.why_not(QUERY, plain[0], **ANA, top_k=3)["step"] == "hit"
    moved_in = memory.why_not(QUERY, plain[11], **ANA, top_k=3, rerank=True)
    assert (moved_in["step"], moved_in["details"]["rank"]) == ("hit", 1)
    behind = memory.why_not(QUERY, plain[5], **ANA, top_k=3, rerank=True)
    assert (behind["step"], behind["details"]["rank"]) == ("rank", 7)


async def test_an_async_memory_takes_a_reranker() -> None:
    async with AsyncMemory(":memory:", settings=Settings.from_dict(fake_models()), reranker=LastFirst()) as memory:
        await memory.add(["green tea", "green tea with milk"], **ANA)
        plain = await memory.search(QUERY, **ANA)
        assert ids(await memory.search(QUERY, **ANA, rerank=True)) == ids(plain)[::-1]


def test_a_memory_erased_meanwhile_is_no_hit(opened: Any) -> None:
    erased: list[str] = []

    def erasing(_: str, asked: list[str]) -> list[float]:
        memory.delete(erased[0], **ANA)
        return [1.0] * len(asked)

    memory = opened(erasing, count=3)
    erased.append(added(memory, "green tea", run_id="other"))
    assert len(memory.search(QUERY, **ANA, rerank=True)["results"]) == 3


def test_a_configured_endpoint_reranks(opened: Any) -> None:
    requests: list[Request] = []

    def respond(request: Request) -> Any:
        requests.append(request)
        scores = [{"index": place, "score": place / 100} for place in range(len(request.body["texts"]))]
        return behaviours.Behaviour(), json.dumps(scores[::-1]).encode()

    closing = Event()
    with EndpointServer(respond, closing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/rerank"
        memory = opened(reranker={"config": {"url": url, "api_key": "a-key"}})
        plain = memory.search(QUERY, **ANA)
        assert requests == []
        assert ids(memory.search(QUERY, **ANA, top_k=12, rerank=True))[:2] != ids(plain)[:2]
        memory.close()
        closing.set()
        server.shutdown()
        server.end_connections()
    (request,) = requests
    assert (request.path, request.headers["authorization"]) == ("/rerank", "Bearer a-key")
    assert (request.body["query"], len(request.body["texts"])) == (QUERY, 12)
