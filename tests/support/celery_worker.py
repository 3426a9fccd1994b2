"""Workers of Celery with a pool of processes, as programs that tests end and kill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphmem import Memory, Settings
from graphmem.jobs.handover import SWEEP_TASK, celery_app
from graphmem.settings.schema import CeleryWorkers
from graphmem.stores.ledger import schema
from support.fake_llm import fact
from support.waiting import SERVER_TIMEOUT, wait_until
from support.worker_process import background_process

PROGRAM = (sys.executable, "-m", "celery", "-A", "graphmem.integrations.celery")
ANN = {"user_id": "ann7"}
ANSWER = json.dumps({"facts": [{"messages": [0], **fact("Drinks matcha")}]})


def write_settings(path: Path, url: str, broker: dict[str, Any], **more: Any) -> Path:
    """Writes settings with a language model at `url` and this configuration of Celery."""
    llm = {"openai_base_url": url, "api_key": "any", "model": "any", "timeout": 600}
    settings = {
        "home": str(path.parent / "home"),
        "extractor": {"provider": "none"},
        "llm": {"config": llm},
        "workers": {"provider": "celery", "config": broker},
        **more,
    }
    path.write_text(json.dumps(settings), "utf-8")
    return path


@contextmanager
def celery_worker(config: Path, name: str = "one", processes: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a worker with a pool of processes; ends it as SIGTERM does."""
    command = [*PROGRAM, "worker", "--concurrency", str(processes), "--hostname", f"{name}@%h", "--loglevel", "INFO"]
    with background_process(command, " ready.", GRAPHMEM_CONFIG=str(config)) as (process, _):
        yield process
        process.terminate()
        process.wait(SERVER_TIMEOUT)


def sweep(config: Path) -> None:
    """Sends what beat sends every 30 seconds."""
    workers = Settings.from_file(config).workers
    assert isinstance(workers, CeleryWorkers)
    app = celery_app(workers.config)
    app.send_task(SWEEP_TASK)
    app.close()


def make_claimable(memory: Memory) -> None:
    """Lets all claims end, and the pauses until rows are sent again."""
    with memory.engine.ledger.write() as connection:
        connection.execute(schema.jobs.update().values(claimable_at=0))


def kinds(memory: Memory) -> set[str]:
    """The kinds of jobs that are recorded."""
    return {count["kind"] for count in memory.stats()["job_counts"]}


def facts(memory: Memory, **scope: str) -> list[str]:
    return [one["memory"] for one in memory.get_all(**(scope or ANN), kinds="fact")["results"]]


def wait_until_done(memory: Memory) -> None:
    wait_until(lambda: kinds(memory) == set(), "jobs are left", SERVER_TIMEOUT)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text("ascii").split()]
