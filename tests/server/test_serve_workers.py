"""`graphmem serve --workers 2` on PostgreSQL and Qdrant: what one process changes is in force in the other at once.

Limits are counted in a Redis server that the tests start and end, where `redis-server` is on the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from support.compose import FILLED_IN, SECRETS, rendered
from support.databases import KEY, postgres
from support.serve_process import ServeProcess, is_refused, serve_process
from support.servers import GRPC_PORT, QDRANT
from support.service import free_port
from support.waiting import SERVER_TIMEOUT, wait_until

from graphmem.testing import ModelEndpoint

pytest.importorskip("psycopg")
pytestmark = [pytest.mark.server, pytest.mark.skipif(not QDRANT, reason="set QDRANT_URL")]
ADMIN_KEY = "sixteen-characters-or-more"
REDIS_PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(REDIS_PROGRAM is None, reason="no redis-server on this machine")
# Connections that may all be taken by one of the processes.
MOST_CONNECTIONS = 500
MANY, A_FEW, MANY_A_DAY = "100000000/minute", 30, 100_000


@contextmanager
def workers(home: Path, **settings: str) -> Iterator[ServeProcess]:
    """Starts a service of two processes on an empty database and a collection of its own, which is deleted.

    It may be killed, and has to end otherwise. GRAPHMEM_SERVE__WORKERS takes the place of the option.
    """
    arguments = () if "GRAPHMEM_SERVE__WORKERS" in settings else ("--workers", "2")
    collection = f"workers-{uuid4().hex[:8]}"
    with postgres() as url:
        environment = {
            "GRAPHMEM_ADMIN_API_KEY": ADMIN_KEY,
            "GRAPHMEM_LEDGER_URL": url,
            "GRAPHMEM_SECRET_KEY": KEY,
            "GRAPHMEM_VECTOR_STORE__CONFIG__URL": QDRANT,
            "GRAPHMEM_VECTOR_STORE__CONFIG__GRPC_PORT": str(GRPC_PORT),
            "GRAPHMEM_VECTOR_STORE__CONFIG__COLLECTION_NAME": collection,
            "GRAPHMEM_SERVE__RATE": MANY,
            "GRAPHMEM_SERVE__ADD_RATE": MANY,
            **settings,
        }
        try:
            with serve_process(home, *arguments, **environment) as service:
                try:
                    yield service
                finally:  # its own processes end with it
                    assert service.end() in {0, -signal.SIGTERM, -signal.SIGKILL}
                    wait_until(lambda: is_refused(service.address), "a process has not ended")
        finally:
            httpx2.delete(f"{QDRANT}/collections/{collection}").raise_for_status()


@contextmanager
def both(service: ServeProcess, key: str = ADMIN_KEY) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """Yields two admins, each on a kept connection to another process.

    Only the process that has answered the first one's call lists it among its latest requests.
    """
    with ExitStack() as stack:
        first = stack.enter_context(service.client(key))
        wait_until(lambda: is_answered(first), "it does not answer", SERVER_TIMEOUT)
        assert first.get("/configure/providers").status_code == 200
        for _ in range(MOST_CONNECTIONS):
            second = stack.enter_context(service.client(key))
            if "/configure/providers" not in [one["route"] for one in second.get("/requests?limit=200").json()]:
                yield first, second
                return
    pytest.fail("one process takes all connections")


def is_answered(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def test_what_one_process_changes_is_in_force_in_the_other(tmp_path: Path) -> None:
    with workers(tmp_path) as service, both(service) as (one, other):
        made = one.post("/api-keys", json={"label": "phone", "user_id": "ana"}).json()
        as_ana = {"X-API-Key": made["key"]}
        assert other.get("/memories", headers=as_ana).status_code == 200
        for here, there, text in ((one, other, "Clara drinks tea."), (other, one, "Ben lives in Porto.")):
            added = here.post("/memories", json={"messages": text}, headers=as_ana).json()["results"][0]
            assert there.get(f"/memories/{added['id']}", headers=as_ana).json()["memory"] == text
            found = there.post("/search", json={"query": text}, headers=as_ana).json()["results"]
            assert found[0]["memory"] == text
        assert one.put("/settings?user_id=ana", json={"recall": False}).status_code == 200
        assert other.get("/settings?user_id=ana").json()["settings"]["recall"] is False
        assert other.post("/context", json={"query": "tea", "user_id": "ana"}).json() == {"context": ""}
        assert other.put("/settings?user_id=ana", json={"recall": True}).status_code == 200
        assert "tea" in one.post("/context", json={"query": "Who drinks tea?", "user_id": "ana"}).json()["context"]
        assert other.delete(f"/api-keys/{made['id']}").status_code == 200
        assert one.get("/memories", headers=as_ana).status_code == 401
        assert "gm_" not in service.log


def test_a_request_that_is_repeated_at_the_other_process_stores_nothing(tmp_path: Path) -> None:
    with workers(tmp_path) as service, both(service) as (one, other):
        events = [
            client.post(
                "/memories",
                json={"messages": "Clara drinks tea.", "user_id": "ana"},
                headers={"Idempotency-Key": "key-1"},
            ).json()["results"][0]["event"]
            for client in (one, other, one)
        ]
        assert events == ["ADD", "NONE", "NONE"]


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    with workers(tmp_path) as service, both(service) as (one, other):
        first = one.post("/memories", json={"messages": "Clara drinks tea.", "user_id": "ana"}).json()["results"][0]
        before = worker_ids(service)
        assert len(before) == 2  # noqa: PLR2004
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        with service.client(ADMIN_KEY) as client:
            wait_until(lambda: is_answered(client), "no process has replaced them", SERVER_TIMEOUT)
            assert client.get(f"/memories/{first['id']}").json()["memory"] == "Clara drinks tea."
        wait_until(lambda: len(worker_ids(service) - before) == 2, "they are not replaced", SERVER_TIMEOUT)  # noqa: PLR2004


def test_the_processes_end_after_the_one_that_started_them_was_killed(tmp_path: Path) -> None:
    with workers(tmp_path) as service, both(service):
        ids = worker_ids(service)
        service.end(signal.SIGKILL)
        wait_until(lambda: is_refused(service.address), "they keep the port")
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ids), "they go on")
        assert "Traceback" not in service.log


def worker_ids(service: ServeProcess) -> set[int]:
    """The ids of the processes that answer requests."""
    pid = service.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A Redis server without files: its process and its URL."""
    assert REDIS_PROGRAM is not None
    port = free_port()
    command = [REDIS_PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path_factory.mktemp("redis"))
    try:
        wait_until(lambda: not is_refused(f"http://127.0.0.1:{port}"), "Redis does not start", SERVER_TIMEOUT)
        yield process, f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


@needs_redis
def test_redis_counts_for_both_processes_and_requests_go_on_without_it(
    tmp_path: Path, redis: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, url = redis
    with workers(tmp_path, GRAPHMEM_SERVE__REDIS_URL=url) as service, both(service) as (one, other):
        # A window of a day: a test hardly ever runs over its end.
        made = one.post("/api-keys", json={"label": "phone", "user_id": "ana"}).json()
        as_ana = {"X-API-Key": made["key"]}
        left = [
            int(client.get("/memories", headers=as_ana).headers["ratelimit-remaining"])
            for client in (one, other, one, other)
        ]
        assert left == [left[0] - used for used in range(4)]
        process.send_signal(signal.SIGSTOP)  # hangs
        assert "ratelimit-remaining" not in answered(one, as_ana)
        process.send_signal(signal.SIGCONT)
        assert "ratelimit-remaining" in answered(other, as_ana)
        assert service.log.count("requests cannot be counted") >= 1
        process.kill()
        process.wait()
        for client in (one, other):
            assert "ratelimit-remaining" not in answered(client, as_ana)
        assert "Traceback" not in service.log


@needs_redis
def test_requests_over_the_limit_are_refused_by_both_processes(
    tmp_path: Path, redis: tuple[subprocess.Popen[bytes], str]
) -> None:
    limits = {"GRAPHMEM_SERVE__REDIS_URL": redis[1], "GRAPHMEM_SERVE__ADD_RATE": f"{A_FEW}/day"}
    with workers(tmp_path, **limits) as service, both(service) as (one, other):
        body = {"messages": "Clara drinks tea.", "user_id": "ana"}
        statuses = [client.post("/memories", json=body).status_code for client in [one, other] * A_FEW]
        assert statuses.count(200) == A_FEW
        assert set(statuses[A_FEW:]) == {429}


@needs_redis
def test_the_compose_file_starts_two_processes_with_a_model_and_a_proxy_by_its_env_alone(
    tmp_path: Path, redis: tuple[subprocess.Popen[bytes], str]
) -> None:
    with ModelEndpoint(default='{"facts": ["Drinks tea"]}') as model, ModelEndpoint(default="Tea.") as upstream:
        env = {
            "COMPOSE_PROFILES": "workers",
            "GRAPHMEM_SERVE__WORKERS": "2",
            "GRAPHMEM_LEDGER_URL": "postgresql://graphmem:${POSTGRES_PASSWORD}@postgres:5432/graphmem",
            "GRAPHMEM_SERVE__REDIS_URL": "redis://redis:6379/0",
            "GRAPHMEM_LLM__CONFIG__MODEL": "llama3.1",
            "GRAPHMEM_LLM__CONFIG__OPENAI_BASE_URL": model.url,
            "GRAPHMEM_SERVE__PROXY__UPSTREAM_URL": upstream.url,
            "GRAPHMEM_SERVE__ALLOWED_HOSTS": "memory.example.org",
            "GRAPHMEM_SERVE__CORS_ORIGINS": "https://chat.example.org",
            "GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS": "127.0.0.0/8",
            "GRAPHMEM_SERVE__RATE": f"{MANY_A_DAY}/day",  # a test hardly ever runs over the end of this window
        }
        services = rendered(FILLED_IN + "".join(f"{name}={value}\n" for name, value in env.items()))
        environment = services["serve"]["environment"]
        for name, there, here in (
            ("GRAPHMEM_SERVE__REDIS_URL", "redis://redis:6379/0", redis[1]),
            ("GRAPHMEM_VECTOR_STORE__CONFIG__URL", "http://qdrant:6333", QDRANT),
        ):
            assert environment[name] == there
            environment[name] = here
        # Of the test: the folder, the database and, as in the other tests of this file, no Neo4j.
        replaced = ("GRAPHMEM_HOME", "GRAPHMEM_LEDGER_URL", "GRAPHMEM_SECRET_KEY", "GRAPHMEM_GRAPH_STORE__")
        settings = {name: value for name, value in environment.items() if not name.startswith(replaced)}
        with workers(tmp_path, **settings) as service:
            with both(service, SECRETS["GRAPHMEM_ADMIN_API_KEY"]) as (one, other):
                assert len(worker_ids(service)) == 2
                made = one.post("/api-keys", json={"label": "phone", "user_id": "ana"}).json()
                as_ana = {"X-API-Key": made["key"]}
                added = one.post("/memories", json={"messages": "I drink tea."}, headers=as_ana).json()["results"]
                assert [result["memory"] for result in added] == ["Drinks tea"]
                assert {request.body["model"] for request in model.requests} == {"llama3.1"}

                chat = {"model": "gpt", "messages": [{"role": "user", "content": "What do I drink?"}]}
                answer = other.post("/v1/chat/completions", json=chat, headers=as_ana)
                assert answer.json()["choices"][0]["message"]["content"] == "Tea."
                assert "Drinks tea" in str(upstream.requests[-1].body["messages"])

                left = [int(answered(client, as_ana)["ratelimit-remaining"]) for client in (one, other, one)]
                assert left == [left[0] - used for used in range(3)]  # counted in Redis
                assert left[0] < MANY_A_DAY

                for host, status in (("memory.example.org", 200), ("serve:8700", 200), ("elsewhere.org", 421)):
                    assert one.get("/healthz", headers={"Host": host}).status_code == status
                page = one.get("/healthz", headers={"Origin": "https://chat.example.org"})
                assert page.headers["access-control-allow-origin"] == "https://chat.example.org"

                # Both believe the address that a proxy names: another one is not refused yet.
                for address, client in (("10.0.0.1", one), ("10.0.0.2", other)):
                    stranger = {"X-API-Key": "wrong", "X-Forwarded-For": address}
                    assert client.get("/memories", headers=stranger).status_code == 401
                    wait_until(lambda: client.get("/memories", headers=stranger).status_code == 429)  # noqa: B023


def answered(client: httpx2.Client, headers: dict[str, str]) -> httpx2.Headers:
    """The headers of an answered request."""
    answer = client.get("/memories", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers
