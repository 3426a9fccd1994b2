"""Forks, and two Memory objects in one process: POSIX file locks belong to the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import TIMEOUT

HEAD = f'''
import gc, os, signal, sys
from threading import Event, Thread
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

def ends(act):
    "Acts in a forked process, which then ends as a program does."
    process = os.fork()
    if process == 0:
        signal.alarm({int(TIMEOUT)})
        act()
        sys.exit(0)
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


def test_a_forked_child_ends_that_inherited_models(home: Path) -> None:
    """A model's threads are in the parent alone: whoever frees it in the child waits for them for ever."""
    run(
        home,
        """
from graphmem import Memory

def there():
    with Memory(home.with_name("other")) as mine:
        mine.add("Омар продаёт лодки", user_id="u")
        assert mine.verify()["ok"]

memory = Memory(home)
memory.add("Nina paints boats.", user_id="u")
ends(lambda: None)
ends(gc.collect)
ends(lambda: ends(lambda: None))
memory.close()
del memory
ends(there)
with Memory(home) as again:
    assert again.search("Who paints?", user_id="u")["results"] and again.verify()["ok"]
""",
    )


def test_a_forked_child_does_not_wait_for_what_another_thread_of_its_parent_does(home: Path) -> None:
    """A thread that loads a model, or parses, holds a lock that nobody releases in the child."""
    run(
        home,
        """
from graphmem.extraction.spacy.extractor import SpacyExtractor
from graphmem.model import Utterance
from graphmem.models.loading import PerProcess

parent = os.getpid()
is_loading, is_parsing = Event(), Event()
extractor = SpacyExtractor()

def make():
    if os.getpid() == parent:
        is_loading.set()
        Event().wait()
    return "made in the child"

def parse():
    with extractor._parser(urgent=False):
        is_parsing.set()
        Event().wait()

def there():
    assert values.get() == "made in the child"
    (extraction,) = extractor.extract([Utterance("Nina paints boats in Bergen.")])
    assert {each.name for each in extraction.mentions} >= {"Nina", "Bergen"}, extraction

values = PerProcess(make)
Thread(target=values.get, daemon=True).start()
Thread(target=parse, daemon=True).start()
is_loading.wait()
is_parsing.wait()
ends(there)
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
