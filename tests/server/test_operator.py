"""What an operator sees: two workers on PostgreSQL and Redis, one killed within a job, and a night, on the page."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
from support.celery_worker import make_claimable
from support.chromium import find_chromium, open_page
from support.databases import KEY, postgres
from support.fake_llm import Scripted
from support.page import WIDE
from support.redis_server import needs_redis, running_redis
from support.serve_process import serve_process
from support.waiting import SERVER_TIMEOUT, wait_until
from support.worker_process import worker_process

from graphmem import Memory
from graphmem.testing import ModelEndpoint
from graphmem.testing.server import Request

pytest.importorskip("psycopg")
pytestmark = [pytest.mark.server, needs_redis, pytest.mark.thorough]
ADMIN_KEY = "sixteen-characters-or-more"
ALLERGY, TALK, SAID = "I'm allergic to hazelnuts.", "The weather was grey at noon.", "I sing in a choir."


@pytest.fixture
def config(tmp_path: Path) -> Iterator[tuple[Path, ModelEndpoint]]:
    """A file of settings as docs/how-to/workers.md has them, with two memories from before the processes start.

    The first request to draw facts is not answered.
    """
    scripted, silent = Scripted({SAID: ["Sings in a choir"]}), Event()

    def answer(body: Mapping[str, Any]) -> str:
        if len([one for one in endpoint.requests if draws_facts(one)]) == 1 and "about" in json.loads(
            body["messages"][-1]["content"]
        ):
            silent.wait(SERVER_TIMEOUT)
        return scripted(body)

    with postgres() as url, running_redis(tmp_path) as redis, ModelEndpoint(default=answer) as endpoint:
        settings = {
            "home": str(tmp_path / "home"),
            "ledger_url": url,
            "secret_key": KEY,
            "extractor": {"provider": "none"},
            "llm": {"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "any", "timeout": 600}},
            "workers": {"provider": "process"},
            "working": {"provider": "redis", "config": {"url": redis.url}},
            "lifecycle": {"enabled": True, "since": "2026-01-01"},
            "serve": {"rate": "100000000/minute"},  # these tests ask until something is seen
        }
        path = tmp_path / "graphmem.json"
        path.write_text(json.dumps(settings), "utf-8")
        at = (datetime.now(UTC) - timedelta(days=12)).isoformat()
        with Memory.from_config({**settings, "lifecycle": {}, "llm": None}) as memory:
            memory.import_(
                [
                    {
                        "type": "memory", "id": f"00000000-0000-4000-8000-{number:012}", "text": text, "at": at,
                        "created_at": at, "user_id": "ana", "role": "user",
                    }
                    for number, text in enumerate((ALLERGY, TALK))
                ]
            )  # fmt: skip
        yield path, endpoint
        silent.set()


def draws_facts(request: Request) -> bool:
    return "about" in json.loads(request.body["messages"][-1]["content"])


def read(page: Any, view: str, shown: str) -> str:
    """Opens a view of the page; returns its words, once these are among them."""
    page.evaluate("view => { location.hash = `#${view}`; }", view)
    page.locator("main", has_text=shown).wait_for()
    return str(page.locator("main").inner_text())


def row(words: str, name: str) -> list[str]:
    """The cells of a table's row with this name, without it."""
    return next(line for line in words.splitlines() if line.startswith(f"{name}\t")).split("\t")[1:]


def jobs(client: httpx2.Client) -> dict[str, int]:
    """The jobs that the service tells of, by kind and state."""
    counts = client.get("/stats").json()["job_counts"]
    return {f"{one['kind']} {one['state']}": one["number"] for one in counts}


def test_a_killed_worker_and_a_night_are_seen_on_the_page(config: tuple[Path, ModelEndpoint]) -> None:
    path, endpoint = config
    chromium = find_chromium()
    if not chromium:
        pytest.skip("there is no chromium")
    home = path.parent / "home"
    with (
        serve_process(home, "--config", str(path), GRAPHMEM_ADMIN_API_KEY=ADMIN_KEY) as service,
        service.client(ADMIN_KEY) as client,
        worker_process(path) as (first, _),
    ):
        wait_until(lambda: client.get("/lifecycle?user_id=ana").json()["cycles"], "no night", SERVER_TIMEOUT)
        added = client.post("/memories?wait=false", json={"messages": SAID, "user_id": "ana"})
        assert "facts" in added.json()["pending"]
        wait_until(lambda: any(map(draws_facts, endpoint.requests)), "the model is not asked", SERVER_TIMEOUT)
        with worker_process(path) as (_, second_log), open_page(chromium, *WIDE, service.address) as page:
            page.goto(f"{service.address}/ui/#key={ADMIN_KEY}")
            page.locator("h1").first.wait_for()
            assert row(read(page, "system", "Background jobs"), "Drawing facts")[:3] == ["0", "1", "0"]
            first.send_signal(signal.SIGKILL)
            first.wait()
            assert jobs(client)
            with Memory.from_file(path) as memory:
                make_claimable(memory)
            wait_until(lambda: jobs(client) == {}, "jobs are left", SERVER_TIMEOUT)
            page.reload()
            system = read(page, "system", "Background jobs")
            assert "PostgreSQL" in system and "Redis" in system
            for kind in ("Drawing facts", "Vectors and names", "Cycles of the lifecycle"):
                assert row(system, kind)[:3] == ["0", "0", "0"]
            page.goto("about:blank")
            key = client.post("/api-keys", json={"label": "page", "user_id": "ana"}).json()["key"]
            page.goto(f"{service.address}/ui/#key={key}")
            page.locator("h1").first.wait_for()
            told = read(page, "lifecycle", TALK)
            assert "1 forgotten" in told and "1 kept for good" in told
            assert "last cycle on" in told
            assert "Traceback" not in service.log + second_log.read_text("utf-8")
        found = client.get("/memories?user_id=ana").json()["results"]
        assert {one["memory"] for one in found} == {ALLERGY, "Sings in a choir"}
        assert sum(map(draws_facts, endpoint.requests)) == 2  # noqa: PLR2004  (that of the killed worker and its repetition)
