"""A language model that misbehaves in every known way: the stored facts, the reported errors, the retries.

The message itself is always stored, and `add` raises no other errors than GraphmemError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from support.fake_llm import NEAR_DIMS, all_near, fact
from support.fakes import fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.cli.bulk_add import add_all
from graphmem.testing import Behaviour, ModelEndpoint, behaviours

ANN = {"user_id": "ann7"}
MESSAGE = "I drink matcha, and I never drink coffee."
GOOD = json.dumps(
    {"facts": [{"messages": [0], **fact("Drinks matcha")}, {"messages": [0], **fact("Never drinks coffee")}]}
)
BOTH = {"Drinks matcha", "Never drinks coffee"}
model_names = (f"misbehaving-{number}" for number in count())


@dataclass(frozen=True)
class Case:
    """The endpoint's replies and the expected outcome.

    `facts`: the stored texts; `error`: the reported error's name, if any; `requests`: their number; `refuses`: the
    parameters that the endpoint refuses; `unusable`: the unusable parts of the reply, as the result reports them.
    """

    script: tuple[Behaviour | str, ...]
    facts: frozenset[str] = frozenset(BOTH)
    error: str | None = None
    requests: int = 1
    refuses: tuple[Any, ...] = ()
    unusable: str | None = None


NOTHING: frozenset[str] = frozenset()
MANY = json.dumps({"facts": [{"messages": [0], **fact(f"Fact number {n}")} for n in range(100)]})
UNKNOWN = json.dumps(
    {"facts": [{**fact("Drinks matcha"), "messages": [0, 7, -3]}, {**fact("Hates tea"), "messages": [99]}]}
)
ODD = json.dumps(
    {
        "facts": [
            7,
            None,
            {"text": 5},
            {"text": ""},
            {"text": "x" * 5000},
            {"text": "Has a \u0000 in it"},
            {
                "text": "Drinks matcha",
                "type": 3,
                "confidence": "sure",
                "messages": "0",
                "relations": [1, {}, "user | likes", "a | b | c | d | e | f", ["user", "likes", None]],
            },
            {
                "text": "Never drinks coffee",
                "confidence": 9,
                "messages": [True],
                "relations": None,
            },
        ],
        "entities": [{"name": 3}, 4, None, "", " (Person)", "(Person)"],
    }
)
LONE = '{"facts": ["Drinks matcha \\ud800", "Never drinks coffee"]}'
MEM0 = json.dumps({"facts": ["Drinks matcha", "Never drinks coffee"]})

CASES = {
    "well": Case((behaviours.well(GOOD),)),
    "slow": Case((behaviours.slow(0.5, GOOD),)),
    "fenced": Case((behaviours.fenced(GOOD),)),
    "prose around": Case((behaviours.surrounded(GOOD),)),
    "trailing commas": Case((behaviours.trailing_commas(GOOD),)),
    "single quotes": Case((behaviours.single_quotes(GOOD),)),
    "as mem0 wants it": Case((MEM0,)),
    "another language": Case((json.dumps({"facts": [fact("喝抹茶")]}),), frozenset({"喝抹茶"})),
    "messages that are not there": Case((UNKNOWN,), frozenset({"Drinks matcha"}), unusable="from no message shown: 1"),
    "facts under another name": Case((json.dumps({"facts": [{"fact": text} for text in sorted(BOTH)]}),)),
    "a bare list of memories": Case((json.dumps([{"memory": text} for text in sorted(BOTH)]),) * 2, requests=2),
    "contents": Case((json.dumps({"facts": [{"content": text} for text in sorted(BOTH)]}),)),
    "facts under no name we know": Case((json.dumps({"facts": [{"claim": "Drinks matcha"}]}),), NOTHING, "LLMUnusable"),
    "facts without text": Case((json.dumps({"facts": [{"text": ""}, {}, None]}),), NOTHING, unusable="no fact: 3"),
    "a hundred facts": Case((MANY,), frozenset(f"Fact number {n}" for n in range(100))),
    "odd parts": Case((ODD,), unusable="no fact: 6"),
    "half a sign": Case((LONE,), frozenset({"Never drinks coffee"}), unusable="no fact: 1"),
    "nothing worth knowing": Case(('{"facts": []}',), NOTHING),
    "truncated": Case((behaviours.truncated(GOOD),), NOTHING, "LLMTruncated"),
    "length": Case((behaviours.length(GOOD),), NOTHING, "LLMTruncated"),
    "wrong types": Case(('{"facts": 7}',), NOTHING, "LLMUnusable"),
    "one fact as a text": Case(('{"facts": "Drinks matcha"}',), frozenset({"Drinks matcha"})),
    "one fact as an object": Case(('{"facts": {"fact": "Drinks matcha"}}',), frozenset({"Drinks matcha"})),
    "facts in capitals": Case((json.dumps({"Facts": sorted(BOTH)}),)),
    "facts in a tool call": Case((json.dumps({"name": "facts", "arguments": {"facts": sorted(BOTH)}}),)),
    "null": Case(('{"facts": null}',), NOTHING),
    "an empty object": Case(("{}",) * 2, NOTHING, requests=2),
    "words for no facts": Case(('{"facts": ["None", "N/A.", "No new facts found"]}',), NOTHING),
    "empty content": Case((behaviours.empty_content(),) * 3, NOTHING, "LLMUnusable"),
    "empty body": Case((behaviours.empty_body(),) * 3, NOTHING, "LLMUnusable"),
    "refused": Case((behaviours.refused(),), NOTHING, "LLMRefused"),
    "filtered": Case((behaviours.filtered(),), NOTHING, "LLMRefused"),
    "too many requests, then well": Case((behaviours.rate_limited(0.05), GOOD), requests=2),
    "too many requests": Case((behaviours.rate_limited(0.05),) * 3, NOTHING, "LLMUnavailable", 3),
    "a broken server, then well": Case((behaviours.failed(500), GOOD), requests=2),
    "a broken server": Case((behaviours.failed(500),) * 3, NOTHING, "LLMUnavailable", 3),
    "no right key": Case((behaviours.failed(401),), NOTHING, "LLMRejected"),
    "dropped, then well": Case((behaviours.dropped(GOOD), GOOD), requests=2),
    "dropped": Case((behaviours.dropped(GOOD),) * 3, NOTHING, "LLMUnavailable", 3),
    "times out": Case((behaviours.silent(),) * 3, NOTHING, "LLMUnavailable", 3),
    "no json_schema": Case((GOOD,), requests=2, refuses=("json_schema",)),
    "no json_schema, no json_object": Case((GOOD,), requests=3, refuses=("json_schema", "json_object")),
    "no temperature": Case((GOOD,), NOTHING, "LLMRejected", 1, ("temperature",)),
}


def test_a_rejected_request_is_reported_with_its_status(caplog: pytest.LogCaptureFixture) -> None:
    with ModelEndpoint([behaviours.failed(401)]) as endpoint, Memory(":memory:", settings=settings(endpoint)) as memory:
        result = memory.add("I drink matcha", user_id="ann")
    assert result["failed"] == {"facts": "LLMRejected"}
    assert result["causes"]["facts"].endswith("(HTTP 401)")
    assert f"(LLMRejected: {result['causes']['facts']})" in caplog.text


@pytest.fixture(autouse=True)
def _short_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    import openai._base_client

    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.01)


def settings(endpoint: ModelEndpoint, **llm: Any) -> Settings:
    config = {"openai_base_url": endpoint.url, "api_key": "any", "model": next(model_names), "timeout": TIMEOUT, **llm}
    return Settings.from_dict(fake_models(llm={"provider": "openai", "config": config}))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def endpoint(case: Case) -> Iterator[ModelEndpoint]:
    with ModelEndpoint(case.script, refuses=case.refuses, default="neither here nor there") as endpoint:
        yield endpoint


def list_texts(memory: Memory, kind: str) -> list[str]:
    return [one["memory"] for one in memory.get_all(**ANN, kinds=kind)["results"]]


def test_facts_are_extracted_or_the_job_stays_pending(case: Case, endpoint: ModelEndpoint) -> None:
    llm: dict[str, Any] = {"temperature": 0.5} if "temperature" in case.refuses else {}
    if case.script[0] == behaviours.silent():
        llm["timeout"] = 0.5
    with Memory(":memory:", settings=settings(endpoint, **llm)) as memory:
        result = memory.add(MESSAGE, **ANN)
        assert list_texts(memory, "episode") == [MESSAGE]
        assert set(list_texts(memory, "fact")) == case.facts
        assert {one["memory"] for one in result["results"]} == case.facts
        assert result.get("failed", {}).get("facts") == case.error
        assert result.get("failed", {}).get("answer") == case.unusable
        assert ("facts" in result.get("pending", [])) == (case.error is not None)
        assert memory.search("matcha", **ANN)["results"]
        usage = memory.stats()["usage"]
        if case.error is not None:
            # After a timeout the last request may still be on its way.
            wait_until(lambda: len(endpoint.requests) >= case.requests)
        assert sum(one["calls"] for one in usage) == len(endpoint.requests)
        if case.requests != 1 or case.error is None:
            assert len(endpoint.requests) == case.requests
        # A later retry with a good reply stores the facts.
        if case.error is not None and not case.refuses:
            endpoint._script.clear()
            endpoint._default = GOOD
            memory.engine.backends.llm._connection.client().timeout = TIMEOUT
            assert memory.retry_failed() == {"done": 1, "failed": {}, "pending": []}
            assert set(list_texts(memory, "fact")) == BOTH
        assert memory.verify()["ok"]


DECISIONS = {
    "ids that are not there": (
        {
            "memory": [
                {"fact": 0, "event": "DELETE", "id": 7, "text": ""},
                {"fact": 0, "event": "UPDATE", "id": -1, "text": "x"},
            ]
        },
        {"unknown id": 2},
    ),
    "the same id twice": (
        {"memory": [{"fact": 0, "event": "UPDATE", "id": 0, "text": "Sings a lot"}] * 2},
        {"repeated id": 1},
    ),
    "facts that are not there": ({"memory": [{"fact": 9, "event": "NONE", "id": 0, "text": ""}]}, {"unknown fact": 1}),
    "an event that is none": ({"memory": [{"fact": 0, "event": "PURGE", "id": 0, "text": ""}, 5]}, {"no decision": 2}),
    "nothing at all": ({"memory": []}, {}),
    "null": ({"memory": None}, {}),
    "one entry": ({"memory": {"fact": 0, "event": "PURGE", "id": 0, "text": ""}}, {"no decision": 1}),
    **{
        f"an UPDATE to {name}": (
            {"memory": [{"fact": 0, "event": "UPDATE", "id": 0, "text": text}]},
            {"no text": 1},
        )
        for name, text in {
            "half a sign": "Sings \ud800",
            "a NUL": "Sings \x00",
            "nothing": None,
            "a novel": "x" * 5000,
        }.items()
    },
    "a DELETE for no reason": (
        {"memory": [{"fact": 0, "event": "DELETE", "id": 0, "text": ""}]},
        {"no contradiction": 1},
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_invalid_decisions_are_dropped_and_reported(name: str) -> None:
    answer, dropped = DECISIONS[name]
    extraction = {"facts": [{"messages": [0], **fact("Sings in a choir")}]}
    with ModelEndpoint(
        [json.dumps({"facts": [fact("Sings")]}), json.dumps(extraction), json.dumps(answer)]
    ) as endpoint:
        with Memory(":memory:", settings=settings(endpoint)) as memory:
            memory.add("I sing.", **ANN)
            result = memory.add("I sing in a choir.", **ANN)
            assert result["usage"]["dropped"] == dropped
            reported = {why: count for why, count in dropped.items() if why != "no contradiction"}
            assert result.get("failed", {}).get("answer", "") == ", ".join(f"{why}: {n}" for why, n in reported.items())
            facts = list_texts(memory, "fact")
            if name == "the same id twice":
                assert facts == ["Sings a lot"]
            else:
                assert sorted(facts) == ["Sings", "Sings in a choir"]
            assert memory.verify()["ok"]


@pytest.mark.parametrize("content", ["[]", "7", '"words"', '{"memory": 7}', "null"])
def test_an_unusable_answer_about_decisions_leaves_the_job_pending(content: str) -> None:
    script = [
        json.dumps({"facts": [fact("Sings")]}),
        json.dumps({"facts": [fact("Sings in a choir")]}),
        content,
        content,
    ]
    with ModelEndpoint(script, default=content) as endpoint, Memory(":memory:", settings=settings(endpoint)) as memory:
        memory.add("I sing.", **ANN)
        result = memory.add("I sing in a choir.", **ANN)
        if content == "[]":  # a list of no decisions
            assert "failed" not in result
        else:
            assert result["failed"] == {"facts": "LLMUnusable"}
            assert list_texts(memory, "fact") == ["Sings"]


def test_facts_over_the_limit_are_dropped_and_counted() -> None:
    """Twelve facts are decided upon in one request: without the limit a reply could cause any number of requests."""
    relations = [("user", "likes", f"thing {n}") for n in range(300)]
    first = {"messages": [0], **fact("Fact number 0", *relations)}
    extraction = {
        "facts": [first, *({"text": f"Fact number {n}"} for n in range(1, 1_000))],
        "entities": [f"Thing {n} (Object)" for n in range(500)],
    }
    embedder = {"provider": "callable", "config": {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "near"}}
    with ModelEndpoint(
        [json.dumps({"facts": ["Sings"]}), json.dumps(extraction)], default='{"memory": []}'
    ) as endpoint:
        config = {"openai_base_url": endpoint.url, "model": next(model_names)}
        memory_settings = Settings.from_dict(fake_models(llm={"config": config}, embedder=embedder))
        with Memory(":memory:", settings=memory_settings) as memory:
            memory.add("I sing.", **ANN)
            requests_before = len(endpoint.requests)
            result = memory.add(MESSAGE, **ANN)
            # One request extracts, nine decide upon a hundred facts.
            assert len(endpoint.requests) - requests_before == 1 + 9
            assert len(result["results"]) == 100
            assert len(result["relations"]) == 20
            assert result["usage"]["dropped"] == {
                "over the limit of facts": 900,
                "over the limit of relations": 280,
                "over the limit of entities": 300,
                "entity of no fact": 180,
            }


def test_a_bulk_add_reports_the_usage_and_failures_of_all_its_calls() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x.png"}}]}
    messages = ["I sing.", MESSAGE, "I do not drink tea.", image]
    replies = {"I do not drink tea.": '{"facts": [{"text": ""}]}', MESSAGE: GOOD, "I sing.": "7"}

    def reply(body: Any) -> str:
        """Answers about the newest message: requests show the earlier ones as well."""
        return next(content for text, content in replies.items() if text in body["messages"][-1]["content"])

    with ModelEndpoint(default=reply) as endpoint:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "bulk", "timeout": TIMEOUT}
        config = fake_models(llm={"provider": "openai", "config": llm}, limits={"max_messages": 1})
        with Memory(":memory:", settings=Settings.from_dict(config)) as memory:
            added = add_all(memory, "chat.json", messages, {**ANN, "timestamp": None}, wait=True)
            spent = memory.stats(**ANN)["usage"]
    assert {one["memory"] for one in added["results"]} == BOTH
    assert added["failed"] == {"facts": "LLMUnusable", "answer": "no fact: 1"}
    assert added["usage"]["by_operation"]["facts"]["calls"] == added["usage"]["calls"] == 2
    assert added["usage"]["dropped"] == {"no fact": 1}
    assert added["usage"]["prompt_tokens"] < sum(line["prompt_tokens"] for line in spent)
    assert [item["message"] for item in added["skipped"]] == [3]
