"""The commands of docs/how-to/operate.md for a ledger on PostgreSQL: dumped while it is written to, and restored."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from threading import Event, Thread

import pytest
from support.databases import KEY, postgres
from support.fakes import fake_models
from support.ledger_snapshot import contents
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.service.keys import Keys

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"
MESSAGE = {"role": "user", "content": "Leo Quartz has a kite", "id": "m1"}

pytestmark = pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not installed")


def command(program: str) -> str:
    """The line of the page that begins with this program."""
    (line,) = re.findall(rf"(?m)^{program} .*", PAGE.read_text("utf-8"))
    return str(line)


def run(line: str, url: str, folder: Path) -> None:
    environment = {**os.environ, "GRAPHMEM_LEDGER_URL": url}
    subprocess.run(["sh", "-euc", line], cwd=folder, env=environment, check=True, timeout=4 * TIMEOUT)


def open_memory(home: Path, url: str) -> Memory:
    return Memory(home, settings=Settings.from_dict(fake_models(ledger_url=url, secret_key=KEY)))


@pytest.mark.quick
def test_a_dump_has_all_that_was_acknowledged_and_is_restored_with_its_keys(tmp_path: Path) -> None:
    acknowledged, stop = list[str](), Event()
    with postgres() as url, postgres() as new_url, open_memory(tmp_path / "one", url) as memory:
        memory.delete(memory.add(MESSAGE, user_id="ana")["results"][0]["id"])
        key = Keys(memory).create("app").text

        def write() -> None:
            while not stop.is_set():
                memory.add(f"Tea number {len(acknowledged)}", user_id="ana")
                acknowledged.append(f"Tea number {len(acknowledged)}")

        writer = Thread(target=write)
        writer.start()
        try:
            wait_until(lambda: len(acknowledged) >= 5)
            before = set(acknowledged)
            run(command("pg_dump"), url, tmp_path)
        finally:
            stop.set()
            writer.join(TIMEOUT)
        run(command("pg_restore"), new_url, tmp_path)
        with open_memory(tmp_path / "other", new_url) as found:
            assert found.rebuild()["ok"] and found.verify()["ok"]
            texts = {one["memory"] for one in found.get_all(user_id="ana", limit=10_000)["results"]}
            assert before <= texts <= set(acknowledged)
            assert Keys(found).find(key) is not None
            assert found.add(MESSAGE, user_id="ana")["results"][0]["reason"] == "erased"


def test_a_restore_over_a_ledger_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with postgres() as url, postgres() as other_url:
        with open_memory(tmp_path / "one", url) as memory, open_memory(tmp_path / "other", other_url) as other:
            memory.add("tea", user_id="ana")
            other.add("coffee", user_id="ana")
            before = contents(other)
            run(command("pg_dump"), url, tmp_path)
            with pytest.raises(subprocess.CalledProcessError):
                run(command("pg_restore"), other_url, tmp_path)
            assert contents(other) == before
