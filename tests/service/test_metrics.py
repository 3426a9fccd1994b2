"""`GET /metrics`: who may read it, what its numbers count, and how often it reads the ledger."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
import support.service
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from support.contract import Make, added
from support.databases import SQLITE_ONLY
from support.fake_llm import fact
from support.service import client_of, headers
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, __version__
from graphmem.errors import StoreUnavailable
from graphmem.queries.gauges import Gauges
from graphmem.service import metrics as service_metrics
from graphmem.service.metrics import ServiceMetrics
from graphmem.stores.ledger.embedded_index import EmbeddedIndex
from graphmem.testing import ModelEndpoint

ANA = {"user_id": "ana"}
FACTS = json.dumps({"facts": [fact("Sings")]})
NONSENSE = "I would rather talk about the weather."


def read(text: str) -> dict[str, float]:
    """The samples of an answer: values by name and labels, as `name{label=value,…}`."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type != "unknown"
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            values[f"{sample.name.removeprefix('graphmem_')}{{{labels}}}"] = sample.value
    return values


def scrape(client: TestClient) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(response.text)


# --- who may read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "status"), [("metrics", 200), ("admin", 200), ("app", 403), ("user", 403), (None, 401)]
)
def test_metrics_take_a_key_of_their_own_or_an_admins(memory: Memory, role: str | None, status: int) -> None:
    with client_of(memory, role) as client:
        assert client.get("/metrics").status_code == status


def test_a_key_for_metrics_reads_nothing_else(memory: Memory) -> None:
    with client_of(memory, "metrics") as client:
        for path, operations in client.get("/openapi.json").json()["paths"].items():
            for method in operations.keys() - {"post", "put", "patch"}:
                names = {one["name"] for one in operations[method].get("parameters", ())}
                params = ANA if names >= ANA.keys() else {}
                body = {"json": {}} if "requestBody" in operations[method] else {}
                status = client.request(method, path, params=params, **body).status_code
                is_open = path in {"/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/ui/{path}"}
                assert (status != 403) == is_open, (method, path)
        assert client.post("/search", json={"query": "tea", **ANA}).status_code == 403
        assert client.post("/mcp", json={}).status_code == 401


def test_metrics_are_open_without_keys_and_absent_when_switched_off(memory: Memory) -> None:
    with client_of(memory, None, needs_key=False) as client:
        assert scrape(client)[f"build_info{{version={__version__}}}"] == 1
    with client_of(memory, metrics=False) as client:
        assert client.get("/metrics").status_code == 404


# --- what is counted ------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_route_template(memory: Memory) -> None:
    (created,) = memory.add("Clara drinks tea.", **ANA)["results"]
    with client_of(memory) as client:
        client.get(f"/memories/{created['id']}", params=ANA)
        client.get("/memories/unknown", params=ANA)
        client.get("/nowhere/ana")
        client.request("BREW", "/memories")
        values = scrape(client)
    assert values["requests_total{method=GET,route=/memories/{memory_id},status=200}"] == 1
    assert values["requests_total{method=GET,route=/memories/{memory_id},status=404}"] == 1
    assert values["requests_total{method=GET,route=-,status=404}"] == 1
    assert values["requests_total{method=-,route=/memories,status=405}"] == 1
    assert values["request_duration_seconds_count{route=/memories/{memory_id}}"] == 2
    # No label is an id, and no series tells when a counter was made.
    text = " ".join(values)
    assert not [word for word in ("ana", created["id"], "unknown", "nowhere", "_created") if word in text]


def test_additions_searches_and_recalls_are_counted(memory: Memory) -> None:
    with client_of(memory) as client:
        message = {"messages": [{"role": "user", "content": "Clara drinks tea.", "id": "1"}], **ANA}
        for _ in range(2):
            assert client.post("/memories", json={**message, "memory_type": "semantic_memory"}).status_code == 200
        assert client.post("/search", json={"query": "tea", **ANA}).status_code == 200
        assert client.post("/recall", json={"question": "Who drinks tea?", **ANA}).status_code == 200
        values = scrape(client)
        assert values["added_total{event=ADD,kind=episode,memory_type=semantic}"] == 1
        assert values["added_total{event=NONE,kind=episode,memory_type=semantic}"] == 1
        assert values["search_duration_seconds_count{}"] == 2
        assert values["recall_total{outcome=enough,step=1}"] == 1
        assert values["model_duration_seconds_count{operation=embed}"] >= 3
        assert values["memories{kind=episode,layer=short_term}"] == 1
        assert not {"retention_ratio{}", "compression_ratio{}"} & set(values)  # the lifecycle is off
        assert values["embedding_bytes{}"] > 0
        # None where the ledger is all.
        told = {name.partition("projection=")[2].rstrip("}") for name in values if "projection=" in name}
        assert told == {projection.name for projection in memory.engine.projections}


@SQLITE_ONLY
def test_a_search_without_an_arm_is_counted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add("Clara drinks tea.", **ANA)

    def fail(*_: Any) -> None:
        raise StoreUnavailable("away")

    with client_of(memory) as client:
        monkeypatch.setattr(EmbeddedIndex, "dense", fail)
        assert client.post("/search", json={"query": "tea", **ANA}).json()["degraded"] == ["vectors"]
        assert scrape(client)["degraded_total{arm=vectors}"] == 1


@SQLITE_ONLY
def test_calls_of_the_language_model_are_counted_with_its_failures(make_memory: Make) -> None:
    with ModelEndpoint([FACTS], default=NONSENSE) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "metrics-model"}
        memory = make_memory(llm={"provider": "openai", "config": config})
        with client_of(memory) as client:
            assert client.post("/memories", json={"messages": "I sing.", **ANA}).status_code == 200
            assert "facts" in client.post("/memories", json={"messages": "I dance.", **ANA}).json()["pending"]
            values = scrape(client)
            (recorded,) = (one for one in memory.stats()["usage"] if one["operation"] == "facts")
        assert values["added_total{event=ADD,kind=fact,memory_type=semantic}"] == 1
        assert values["model_duration_seconds_count{operation=facts}"] == 2
        assert values["model_errors_total{error=LLMUnusable,operation=facts}"] == 1
        assert values["model_tokens_total{direction=input,operation=facts}"] == recorded["prompt_tokens"]
        assert values["model_tokens_total{direction=output,operation=facts}"] == recorded["completion_tokens"]
        assert values["jobs{kind=facts,state=failed}"] == 1
        assert values["jobs_oldest_seconds{kind=facts}"] >= 0


def test_chats_through_the_proxy_are_counted_by_what_the_memory_did(memory: Memory) -> None:
    memory.add("I am allergic to seafood.", **ANA)
    with ModelEndpoint(default="I see.") as endpoint, client_of(memory, proxy={"upstream_url": endpoint.url}) as client:

        def ask(question: str, **more: Any) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": question}], **more}
            assert client.post("/v1/chat/completions", json=body).status_code == 200

        ask("Am I allergic to seafood?", user="ana")
        ask("Am I allergic to seafood?", user="ben")
        ask("Am I allergic to seafood?")
        ask("### Task: a title", user="ana")
        values = scrape(client)
    outcomes = {name: value for name, value in values.items() if name.startswith("proxy_requests_total")}
    expected = ("memories", "nothing", "no-user", "skipped")
    assert outcomes == {f"proxy_requests_total{{outcome={outcome}}}": 1 for outcome in expected}
    assert values["proxy_overhead_seconds_count{}"] == 4
    assert values["recall_total{outcome=enough,step=1}"] == 1


def test_refused_keys_and_rates_are_counted(memory: Memory) -> None:
    with client_of(memory, rate="2/hour") as client:
        assert client.get("/memories", headers={"X-API-Key": "wrong"}).status_code == 401
        statuses = [client.get("/memories", params=ANA).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        values = read(client.get("/metrics", headers=headers(memory, "metrics")).text)
    assert (values["auth_failures_total{}"], values["rate_limited_total{}"]) == (1, 1)


def test_changes_of_another_memory_are_not_counted(make_memory: Make) -> None:
    watched, other = make_memory(), make_memory()
    with client_of(watched) as client, client_of(other) as others:
        other.add("Clara drinks tea.", **ANA)
        name = "added_total{event=ADD,kind=episode,memory_type=none}"
        assert name not in scrape(client)
        assert scrape(others)[name] == 1


def test_memories_are_counted_by_layer_and_their_mean_retention_is_shown(make_memory: Make) -> None:
    memory = make_memory(lifecycle={"enabled": True})
    memory.add(["I like tea.", "We met Clara near the bridge."], **ANA)
    soon = datetime.now(UTC) + timedelta(days=2)
    memory.tend(**ANA, now=soon + timedelta(days=6))  # promotes what matters
    met = added(memory, "We met Ben at the lake.", **ANA)
    memory.tend(**ANA, now=soon)
    strength = 1 + 2 * memory.get(met, **ANA)["importance"]  # seed 002 §4.1, after one whole day
    with client_of(memory) as client:
        values = scrape(client)
    assert values["memories{kind=episode,layer=long_term}"] == 1
    assert values["memories{kind=episode,layer=short_term}"] == 2  # one of them is forgotten
    assert values["retention_ratio{}"] == round(math.exp(-1 / strength), 4)


def test_the_compression_is_that_of_what_stands_for_several(make_memory: Make) -> None:
    """LIFECYCLE §7: memories taken in by memories made, of which one that only took another one in is none."""
    memory = make_memory(lifecycle={"enabled": True, "daily_at": "never", "brake_share": 1.0})
    memory.add(["The shop sells bread", "The shop sells bread.", "The shop sells bread!"], **ANA)
    memory.add(["I like green tea."], **ANA)
    with client_of(memory) as client:
        memory.tend(**ANA)
        values = scrape(client)
    assert values["compression_ratio{}"] == 3


# --- the gauges -----------------------------------------------------------------------------------------------------


class Readings:
    """Readings of a ledger with as many facts as it was read; fails once `is_away`."""

    def __init__(self) -> None:
        self.count, self.now, self.duration, self.is_away = 0, 1000.0, 0.0, False
        self.metrics = ServiceMetrics(self.read, lambda: self.now)

    def read(self) -> Gauges:
        self.count += 1
        self.now += self.duration
        if self.is_away:
            raise StoreUnavailable("away")
        return Gauges({("fact", "short_term"): self.count}, None, None, 1, 2, {}, {}, [], {}, {})

    async def facts(self) -> float | None:
        return read((await self.metrics.text()).decode()).get("memories{kind=fact,layer=short_term}")


async def test_the_ledger_is_read_at_most_every_fifteen_seconds() -> None:
    readings = Readings()
    assert [await readings.facts(), readings.count] == [1, 1]
    readings.now += 5
    assert [await readings.facts(), readings.count] == [1, 1]
    readings.now += 10
    assert [await readings.facts(), readings.count] == [2, 2]
    readings.metrics.close()


async def test_a_large_ledger_is_read_less_often() -> None:
    readings = Readings()
    readings.duration = 4
    await readings.facts()
    readings.now += 79
    assert [await readings.facts(), readings.count] == [1, 1]
    readings.now += 1
    assert [await readings.facts(), readings.count] == [2, 2]
    readings.metrics.close()


async def test_without_the_ledger_its_gauges_are_left_out() -> None:
    readings = Readings()
    await readings.facts()
    readings.now, readings.is_away = readings.now + 20, True
    assert await readings.facts() is None
    readings.is_away = False
    assert await readings.facts() == 3
    readings.metrics.close()


async def test_a_ledger_that_hangs_costs_its_gauges_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_metrics, "READING_SECONDS", 0.05)
    go_on = Event()

    def hang() -> Gauges:
        go_on.wait(TIMEOUT)
        raise StoreUnavailable("away")

    metrics = ServiceMetrics(hang)
    for _ in range(2):
        values = read((await metrics.text()).decode())
        assert values["auth_failures_total{}"] == 0
        assert "memories{kind=fact,layer=short_term}" not in values
    go_on.set()
    metrics.close()


# --- several processes ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_each_process_answers_with_the_numbers_of_all(tmp_path: Path) -> None:
    folders = tmp_path / "folders"
    folders.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folders)}
    script = Path(support.service.__file__).with_name("two_workers.py")
    command = [sys.executable, str(script), str(tmp_path / "home")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            # The two have opened their memories, and each has made a file for its counters.
            wait_until(lambda: len({file.stem.rpartition("_")[2] for file in folders.glob("*/counter_*.db")}) == 2)
            for _ in range(20):  # each on a connection of its own, which either process may take
                assert httpx2.get(f"{address}/healthz", timeout=TIMEOUT).status_code == 200
            for _ in range(10):
                values = read(httpx2.get(f"{address}/metrics", timeout=TIMEOUT).text)
                assert values["requests_total{method=GET,route=/healthz,status=200}"] == 20
                assert values["request_duration_seconds_count{route=/healthz}"] == 20
                assert values["ledger_bytes{}"] > 0
                assert values[f"build_info{{version={__version__}}}"] == 1
        finally:
            process.terminate()
            process.wait(TIMEOUT)
    assert not list(folders.glob("graphmem-metrics-*"))
