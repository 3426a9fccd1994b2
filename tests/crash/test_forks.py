"""Forks, and two Memory objects in one process: POSIX file locks belong to the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import TIMEOUT

HEAD = f'''
import gc, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from child import open_memory
from graphmem.errors import StoreUnavailable

home = Path(sys.argv[1])

def forked(act):
    process = os.fork()
    if process == 0:
        code = 1
        try:
            code = act() or 0
        except BaseException as error:
            print("child:", type(error).__name__, error, file=sys.stderr)
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    assert status == 0, status

def elsewhere():
    "Opens, uses and closes the folder in another process, while this one has it open."
    import subprocess
    code = """if True:
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from child import open_memory
        with open_memory(Path(sys.argv[2])) as memory:
            memory.add("other", user_id="other")
    """
    subprocess.run([sys.executable, "-c", code, sys.path[0], str(home)], check=True, timeout=600)

def refused(act):
    try:
        act()
    except StoreUnavailable as error:
        return 0 if "fork" in str(error) else 2
    return 3
'''


def run(home: Path, body: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", HEAD + body, str(home)], timeout=2 * TIMEOUT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_forked_child_gets_an_error_at_once(home: Path) -> None:
    run(
        home,
        """
memory = open_memory(home)
uid = memory.add("first words", user_id="u")["results"][0]["id"]
for act in (
    lambda: memory.search("words", user_id="u"),
    lambda: memory.add("more", user_id="u"),
    lambda: memory.get(uid),
    memory.flush,
    memory.verify,
):
    forked(lambda: refused(act))
forked(lambda: memory.close())
forked(lambda: memory.__exit__(None, None, None))
memory.add("second words", user_id="u")
assert memory.get_all(user_id="u")["total"] == 2 and memory.verify()["ok"]
memory.close()
""",
    )


def test_a_forked_child_releases_no_lock_of_its_parent(home: Path) -> None:
    """Neither by a clean exit nor by dropping its Memory: both processes share the locks of SQLite's files."""
    run(
        home,
        """
def drop():
    global memory
    del memory
    gc.collect()

memory = open_memory(home)
memory.add("first words", user_id="u")
forked(drop)
process = os.fork()
if process == 0:
    sys.exit(0)
os.waitpid(process, 0)
elsewhere()
memory.add("second words", user_id="u")
memory.close()
with open_memory(home) as again:
    assert again.get_all(user_id="u")["total"] == 2
    assert again.verify()["ok"]
""",
    )


def test_a_forked_child_opens_folders_that_its_parent_does_not_have_open(home: Path) -> None:
    run(
        home,
        """
def there():
    with open_memory(home.with_name("other")) as mine:
        mine.add("in the child", user_id="u")
        assert mine.verify()["ok"]

memory = open_memory(home)
memory.add("first words", user_id="u")
forked(lambda: refused(lambda: open_memory(home)))
forked(there)
memory.close()
forked(lambda: open_memory(home).close())
with open_memory(home) as again:
    assert again.verify()["ok"] and again.get_all(user_id="u")["total"] == 1
""",
    )


def test_closing_a_second_memory_of_one_process_keeps_the_locks_of_the_first(home: Path) -> None:
    """Closing any descriptor of a file drops all locks of the process on it, and with them the write-ahead log."""
    run(
        home,
        """
first = open_memory(home)
first.add("first words", user_id="u")
second = open_memory(home)
elsewhere()
first.add("second words", user_id="u")
second.close()
elsewhere()
first.add("third words", user_id="u")
third = open_memory(home)
assert third.get_all(user_id="u")["total"] == 3
elsewhere()
first.close()
third.add("fourth words", user_id="u")
os._exit(0)
""",
    )
    run(
        home,
        """
with open_memory(home) as memory:
    assert memory.get_all(user_id="u")["total"] == 4
    memory.flush()
    assert memory.verify()["ok"], memory.verify()
""",
    )


def test_an_adapter_in_a_forked_process_says_at_once_that_the_memory_is_of_its_parent(home: Path) -> None:
    run(
        home,
        """
import logging
from graphmem.integrations.base import Recollection

with open_memory(home) as memory, Recollection(memory, user_id="ana", time_limit=600.0) as recollection:
    memory.add("The tea is green", user_id="ana")
    assert "green" in recollection.recall(None, "Which tea?")

    def act():
        records = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())
        logging.getLogger("graphmem").addHandler(handler)
        assert recollection.recall(None, "Is the tea green?") == ""
        recollection.capture(None, [{"role": "user", "content": "I like tea"}], "s")
        assert len(records) == 2 and all("before this process was forked" in record for record in records), records

    forked(act)
""",
    )
