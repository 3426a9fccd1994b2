"""Stored memories are reported as stored while a process ends, is closed or can start no thread.

In processes of their own, because these conditions cannot be undone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child import open_memory
from support.waiting import TIMEOUT

HEAD = f"""
import sys, threading, time
from concurrent.futures import thread as pools
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from child import open_memory
from graphmem.errors import CLOSED, NotFoundError, StoreUnavailable

home = Path(sys.argv[1])
memory = open_memory(home)
first = memory.add("Adam likes quartz", user_id="u")["results"][0]["id"]
second = memory.add("Dora likes opals", user_id="u")["results"][0]["id"]

def until_pools_are_shut():
    "Waits until the interpreter, after the main thread's end, has shut all thread pools."
    threading.main_thread().join()
    while not pools._shutdown:
        time.sleep(0.01)

def everything():
    added = memory.add("Bella likes tea", user_id="u")
    assert added["results"][0]["event"] == "ADD" and "vectors" in added["pending"], added
    later = memory.add("Carl likes jade", user_id="u", wait=False)
    assert later["pending"] == ["vectors", "graph"], later
    changed = memory.update(first, "Adam likes agate")
    assert "vectors" in changed["pending"], changed
    back = memory.undo(memory.history(first)[-1]["id"])
    assert back["memory"] == "Adam likes quartz" and "vectors" in back["pending"], back
    receipt = memory.delete(second)
    assert receipt["deleted"] == [second] and "pending" not in receipt, receipt
    print("done")
"""


def run(home: Path, body: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", HEAD + body, str(home)],
        check=False,
        timeout=2 * TIMEOUT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert "Traceback" not in process.stderr, process.stderr[-3000:]
    return process.stdout


def stored_texts(home: Path) -> list[str]:
    with open_memory(home) as memory:
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
        return sorted(one["memory"] for one in memory.get_all(user_id="u", kinds="episode")["results"])


WORDS = ["Adam likes quartz", "Bella likes tea", "Carl likes jade"]


def test_writes_while_the_interpreter_ends_are_stored(tmp_path: Path) -> None:
    """A thread outlives the main one: thread pools accept no more work then."""
    output = run(
        tmp_path / "home",
        """
def late():
    until_pools_are_shut()
    everything()

threading.Thread(target=late).start()
""",
    )
    assert output == "done\n"
    assert stored_texts(tmp_path / "home") == WORDS


def test_writes_where_no_thread_can_be_started_are_stored(tmp_path: Path) -> None:
    """As under a container's limit: here each thread's stack is larger than the memory."""
    output = run(
        tmp_path / "home",
        """
memory.close()
memory = open_memory(home)
threading.stack_size(1 << 46)
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise AssertionError("a thread was started")
everything()
try:
    memory.search("tea", user_id="u")
except StoreUnavailable as error:
    assert "thread" in str(error) and "closed" not in str(error), error
memory.close()
""",
    )
    assert output == "done\n"
    assert stored_texts(tmp_path / "home") == WORDS


@pytest.mark.parametrize("wait", [True, False])
def test_an_add_during_close_is_stored_or_refused(tmp_path: Path, wait: bool) -> None:
    """No text is both stored and reported as refused."""
    output = run(
        tmp_path / "home",
        f"""
stored, refused = [], []

def add(number):
    try:
        for n in range(1000):
            text = f"thing {{number}} {{n}}"
            memory.add(text, user_id="v", wait={wait})
            stored.append(text)
    except StoreUnavailable as error:
        assert str(error) == CLOSED, error
        refused.append(text)

threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
time.sleep(0.3)
memory.close()
for thread in threads:
    thread.join()
assert len(refused) == 4
with open_memory(home) as again:
    listed = {{one["memory"] for one in again.get_all(user_id="v", limit=10_000)["results"]}}
assert listed == set(stored), (listed - set(stored), set(stored) - listed)
print("done")
""",
    )
    assert output == "done\n"


def test_extraction_stays_pending_while_the_interpreter_ends(tmp_path: Path) -> None:
    """The model is not called, and no message is refused: its facts are reported as pending."""
    output = run(
        tmp_path / "home",
        """
memory.close()
model = {"config": {"model": "m", "api_key": "none", "openai_base_url": "http://127.0.0.1:1/v1"}}
memory = open_memory(home, llm=model)

def late():
    until_pools_are_shut()
    for wait in (True, False):
        added = memory.add(f"Bella likes tea {wait}", user_id="u", wait=wait)
        assert added["results"] == [] and "facts" in added["pending"] and "vectors" in added["pending"], added
        assert "failed" not in added, added
    print("done")

threading.Thread(target=late).start()
""",
    )
    assert output == "done\n"
    assert stored_texts(tmp_path / "home") == [
        "Adam likes quartz",
        "Bella likes tea False",
        "Bella likes tea True",
        "Dora likes opals",
    ]
