"""Words that were stored are told as stored, also where a process ends, is closed or may have no thread.

In processes of their own, for what is done to them lasts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child import open_memory
from support.waiting import PATIENCE

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
    "What the interpreter does once the main thread has ended."
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
    gone = memory.delete(second)
    assert gone["deleted"] == [second] and gone["pending"] == ["vectors"], gone
    print("done")
"""


def run(home: Path, body: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + body, str(home)],
        check=False,
        timeout=2 * PATIENCE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def kept(home: Path) -> list[str]:
    with open_memory(home) as memory:
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
        return sorted(one["memory"] for one in memory.get_all(user_id="u", kinds="episode")["results"])


WORDS = ["Adam likes quartz", "Bella likes tea", "Carl likes jade"]


def test_while_the_interpreter_ends(tmp_path: Path) -> None:
    """A thread that outlives the main one: pools take no more work then."""
    told = run(
        tmp_path / "home",
        """
def late():
    until_pools_are_shut()
    everything()

threading.Thread(target=late).start()
""",
    )
    assert told == "done\n"
    assert kept(tmp_path / "home") == WORDS


def test_where_no_thread_can_be_started(tmp_path: Path) -> None:
    """As where a container limits them: here each wants more memory for itself than there is."""
    told = run(
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
    assert told == "done\n"
    assert kept(tmp_path / "home") == WORDS


@pytest.mark.parametrize("wait", [True, False])
def test_what_is_added_while_it_is_closed_is_stored_or_refused(tmp_path: Path, wait: bool) -> None:
    """Never stored and told as refused."""
    told = run(
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
    held = {{one["memory"] for one in again.get_all(user_id="v", limit=10_000)["results"]}}
assert held == set(stored), (held - set(stored), set(stored) - held)
print("done")
""",
    )
    assert told == "done\n"


def test_a_models_work_is_left_for_later(tmp_path: Path) -> None:
    """Nothing is asked, and nothing is told as refused: the words are sources of facts that are to come."""
    told = run(
        tmp_path / "home",
        """
memory.close()
model = {"config": {"model": "m", "api_key": "none", "openai_base_url": "http://127.0.0.1:1/v1"}}
memory = open_memory(home, llm=model)

def late():
    until_pools_are_shut()
    for wait in (True, False):
        found = memory.add(f"Bella likes tea {wait}", user_id="u", wait=wait)
        assert found["results"] == [] and "facts" in found["pending"] and "vectors" in found["pending"], found
        assert "failed" not in found, found
    print("done")

threading.Thread(target=late).start()
""",
    )
    assert told == "done\n"
    assert kept(tmp_path / "home") == [
        "Adam likes quartz",
        "Bella likes tea False",
        "Bella likes tea True",
        "Dora likes opals",
    ]
