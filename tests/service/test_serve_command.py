"""`graphmem serve`, the command: keys of the first start, refusals to start, and the end by a signal."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fakes import fake_models
from support.serve_process import ServeProcess, is_refused, serve_process
from support.service import expired_key
from support.waiting import TIMEOUT, wait_until
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.cli.options import INTERRUPTED, UNUSABLE
from graphmem.errors import ConfigError
from graphmem.service import limits
from graphmem.service.keys import Keys
from graphmem.service.middleware import RateLimits
from graphmem.service.server import Start, is_loopback, prepare
from graphmem.settings.schema import ServeSettings
from graphmem.testing import Behaviour, ModelEndpoint, Request

ADMIN_KEY = "sixteen-characters-or-more"


def refusal(home: Path, *arguments: str, status: int = UNUSABLE) -> str:
    """Starts a service that has to refuse with this exit status; returns its output."""
    result = CliRunner().invoke(app, ["serve", "--home", str(home), "--port", "0", *arguments])
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result.output


# --- keys -----------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once(tmp_path: Path) -> None:
    start = Start(Settings.from_dict(fake_models(home=str(tmp_path))))
    key = prepare(start)
    assert key is not None
    assert prepare(start) is None
    with Memory(settings=start.settings) as memory:
        assert [one.role for one in Keys(memory).all()] == ["admin"]
        assert Keys(memory).find(key) is not None


@pytest.mark.thorough
def test_the_first_start_prints_its_key_and_the_second_does_not(tmp_path: Path) -> None:
    with serve_process(tmp_path) as first:
        key = first.key
        with first.client() as anybody, first.client(key) as admin:
            assert anybody.get("/healthz").status_code == 200
            assert anybody.get("/memories").status_code == 401
            assert admin.get("/api-keys").json()[0]["role"] == "admin"
        assert first.end(signal.SIGINT) == INTERRUPTED
        assert f"{first.address}/ui/#key={key}\n" in first.log
        assert first.log.count(key) == 2
    with serve_process(tmp_path, "--default-user", "ana") as second:
        with second.client(key) as admin:
            added = admin.post("/memories", json={"messages": "Clara drinks tea."}).json()["results"]
            assert [one["user_id"] for one in admin.get("/memories").json()["results"]] == ["ana"]
        second.end()
        assert not re.search("gm_|/ui/", second.log)
        assert added[0]["id"] not in second.log


@pytest.mark.thorough
def test_the_key_of_the_environment_is_enough(tmp_path: Path) -> None:
    with serve_process(tmp_path, GRAPHMEM_ADMIN_API_KEY=ADMIN_KEY) as service:
        assert service.key == ""
        with service.client(ADMIN_KEY) as admin:
            assert admin.get("/api-keys").json() == []
        assert ADMIN_KEY not in service.log


@pytest.mark.thorough
def test_without_authentication_nobody_needs_a_key(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--no-auth", "--default-user", "ana") as service:
        assert service.key == ""
        with service.client() as anybody:
            assert anybody.post("/memories", json={"messages": "Clara drinks tea."}).status_code == 200
            assert len(anybody.get("/memories").json()["results"]) == 1


def test_a_short_key_in_the_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEM_ADMIN_API_KEY", "only-15-letters")
    output = refusal(tmp_path)
    assert "should have at least 16 characters" in output
    assert "only-15" not in output
    assert list(tmp_path.iterdir()) == []


def test_another_embedder_is_reported_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = Start(Settings.from_dict(fake_models(home=str(tmp_path))))
    with Memory(settings=start.settings) as memory:
        memory.add("Clara drinks tea.", user_id="ana")
    prepare(start)
    assert "graphmem rebuild" not in caplog.text
    prepare(Start(Settings(home=tmp_path)))
    assert "before `graphmem rebuild`" in caplog.text


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",  # noqa: S104  (is refused)
        *(pytest.param(host, marks=pytest.mark.thorough) for host in ("::", "192.0.2.1", "memory.example.org")),
    ],
)
def test_other_hosts_need_a_key(tmp_path: Path, host: str) -> None:
    assert "graphmem keys create --role admin" in refusal(tmp_path, "--host", host)
    with Memory(tmp_path) as memory:
        assert Keys(memory).all() == []
    assert "--no-auth" in refusal(tmp_path, "--host", host, "--no-auth")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)


def test_revoked_and_expired_keys_do_not_let_another_host_start(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        keys = Keys(memory)
        keys.revoke(keys.create("admin").key.id)
        expired_key(memory)
    assert "graphmem keys create" in refusal(tmp_path, "--host", "0.0.0.0")  # noqa: S104  (it is refused)


def test_a_default_user_is_one_user(tmp_path: Path) -> None:
    assert "graphmem: --default-user: wildcards are not" in refusal(tmp_path, "--default-user", "*")
    assert list(tmp_path.iterdir()) == []


def test_a_rate_is_described_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEM_SERVE__RATE", "600 per minute")
    assert 'such as "600/minute"' in refusal(tmp_path)


def test_several_processes_need_a_ledger_on_a_server(tmp_path: Path) -> None:
    output = refusal(tmp_path, "--workers", "2")
    for words in ("--workers", "ledger_url", "PostgreSQL"):
        assert words in output


def test_a_taken_port_is_refused_and_the_key_that_was_made_is_shown(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        output = refusal(tmp_path, "--port", str(listener.getsockname()[1]))
    assert "--port" in output
    assert "choose others" in output
    key = output.split("this once: ")[1].split()[0]
    with Memory(tmp_path) as memory:
        assert Keys(memory).find(key) is not None


@pytest.mark.parametrize("package", ["uvicorn", "limits"])
def test_without_its_packages_it_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for module in ("server", "app", "middleware"):  # those that cannot be imported then
        monkeypatch.delitem(sys.modules, f"graphmem.service.{module}")
    monkeypatch.setitem(sys.modules, package, None)
    output = refusal(tmp_path)
    assert output.startswith(f"graphmem: {package} is not installed; install the extra serve: pip install '.[serve]'")


def test_without_the_client_of_redis_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"serve\.redis_url: .*install the extra redis: pip install '\.\[redis\]'"):
        RateLimits(ServeSettings.model_validate({"redis_url": "redis://localhost:6379/0"}))


# --- the end --------------------------------------------------------------------------------------------------------


class HeldEndpoint(ModelEndpoint):
    """A model server that answers requests for chats once `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(default=json.dumps({"facts": []}))
        self.go_on = threading.Event()

    def respond(self, request: Request) -> tuple[Behaviour, bytes]:
        answer = super().respond(request)
        self.go_on.wait()
        return answer


@pytest.fixture
def endpoint() -> Iterator[HeldEndpoint]:
    with HeldEndpoint() as endpoint:
        try:
            yield endpoint
        finally:
            endpoint.go_on.set()


def model_of(endpoint: HeldEndpoint) -> dict[str, str]:
    """The variables that make an endpoint the language model."""
    return {
        "GRAPHMEM_LLM__PROVIDER": "openai",
        "GRAPHMEM_LLM__CONFIG__OPENAI_BASE_URL": endpoint.url,
        "GRAPHMEM_LLM__CONFIG__API_KEY": "any",
    }


def background(call: Callable[[], Any], answers: list[Any]) -> threading.Thread:
    """Makes a call in a thread and appends its result."""
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)]
)
def test_a_signal_ends_it_after_running_requests_and_accepted_chats(
    tmp_path: Path, endpoint: HeldEndpoint, number: int, status: int
) -> None:
    rounds = [
        {"role": role, "content": f"Round {number} of the saved chat, by the {role}."}
        for number in range(40)
        for role in ("user", "assistant")
    ]
    answers: list[Any] = []
    with serve_process(tmp_path, "--no-auth", "--default-user", "ana", **model_of(endpoint)) as service:
        with service.client() as client:
            body = {"messages": "Clara moved to Lisbon.", "infer": True}
            running = background(lambda: client.post("/memories", json=body), answers)
            wait_until(lambda: endpoint.requests, "the language model was not asked")
            saved = client.post("/chats/saved", json={"messages": rounds, "user_id": "ben", "rounds": 40})
            assert (saved.status_code, saved.json()) == (202, {"accepted": True})
            service.process.send_signal(number)
            wait_until(lambda: is_refused(service.address), "it still takes connections")
            assert service.process.poll() is None
            assert list(tmp_path.glob("*-wal"))
            endpoint.go_on.set()
            running.join()
        assert answers[0].status_code == 200
        assert service.process.wait() == status
        assert "Traceback" not in service.log
    assert not list(tmp_path.glob("*-wal")), "the memory was not closed"
    with Memory(tmp_path) as memory:
        stored = memory.get_all(user_id="ben", kinds="episode", limit=1000)["results"]
        assert {one["memory"] for one in stored} == {one["content"] for one in rounds}
        assert memory.verify()["ok"]


def begun_job(service: ServeProcess, endpoint: HeldEndpoint) -> None:
    """Stores a message from which the language model, which does not answer, begins to draw facts."""
    with service.client() as client:
        body = {"messages": "Clara moved to Lisbon.", "infer": True}
        assert client.post("/memories", params={"wait": False}, json=body).status_code == 202
    wait_until(lambda: endpoint.requests, "the language model was not asked")
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: is_refused(service.address), "it still takes connections")
    assert service.process.poll() is None


@pytest.mark.thorough
@pytest.mark.parametrize("signals", [1, 2])
def test_work_without_end_ends_in_time_and_with_a_second_signal_at_once(
    tmp_path: Path, endpoint: HeldEndpoint, signals: int
) -> None:
    with serve_process(tmp_path, "--no-auth", "--default-user", "ana", **model_of(endpoint)) as service:
        begun_job(service, endpoint)
        if signals > 1:
            service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(limits.END_SECONDS + TIMEOUT) == 128 + signal.SIGTERM
        assert ("it stays recorded" in service.log) is (signals == 1)
        assert "Traceback" not in service.log
    with Memory(tmp_path) as memory:
        assert memory.get_all(user_id="ana", kinds="episode")["total"] == 1
        assert "facts" in memory.stats()["pending"]
