"""Processes killed while they tell named handlers of events, or during a session: nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_llm import Scripted, fact
from support.fakes import fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, MemoryEvent, Settings
from graphmem.stores.ledger import schema as tables
from graphmem.testing import ModelEndpoint

TESTS = Path(__file__).parents[1]
SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from support.fakes import fake_models
from graphmem import Memory, Settings
home, told, _, fatal = sys.argv[1:]

def handler(event):
    with open(told, "a") as file:
        file.write(event.payload["memory_id"] + "\\n")
        file.flush()
        os.fsync(file.fileno())
    if fatal == "in the third call" and len(open(told).readlines()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

memory = Memory(home, settings=Settings.from_dict(fake_models()))
subscription = memory.on("memory.added", handler, name="billing")
if fatal == "before any call":
    subscription.close()
for n in range(5):
    memory.add(f"tea {n}", user_id="ana")
if fatal == "before any call":
    os.kill(os.getpid(), signal.SIGKILL)
memory.flush()
"""


SESSION = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from support.fakes import fake_models
from graphmem import Memory, Settings
llm = {"openai_base_url": sys.argv[1], "api_key": "any", "model": "scripted"}
memory = Memory(sys.argv[2], settings=Settings.from_dict(fake_models(llm={"config": llm}, extract="session")))
for n in range(3):
    memory.add(f"I like cake number {n}.", user_id="ana")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_facts_of_its_session_to_the_next(tmp_path: Path) -> None:
    home = tmp_path / "home"
    model = Scripted({f"I like cake number {n}.": [fact(f"Likes cake number {n}")] for n in range(3)})
    with ModelEndpoint(default=model) as endpoint:
        command = [sys.executable, "-c", SESSION, endpoint.url, str(home), str(TESTS)]
        assert subprocess.run(command, timeout=TIMEOUT).returncode == -signal.SIGKILL
        assert endpoint.requests == []
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "scripted"}
        settings = Settings.from_dict(fake_models(llm={"config": llm}, extract="session"))
        with Memory(str(home), settings=settings) as memory:
            assert memory.end_session(user_id="ana") == {"ended": True}
            assert memory.flush() == {"pending": []}
            facts = {one["memory"] for one in memory.get_all(user_id="ana", kinds=["fact"])["results"]}
        assert facts == {f"Likes cake number {n}" for n in range(3)}
        assert len([request for request in model.requests if "about" in request]) == 1


@pytest.mark.parametrize("fatal", ["in the third call", "before any call"])
def test_what_a_killed_process_did_not_tell_the_next_one_tells(tmp_path: Path, fatal: str) -> None:
    home, told = tmp_path / "home", tmp_path / "told"
    command = [sys.executable, "-c", SCRIPT, str(home), str(told), str(TESTS), fatal]
    assert subprocess.run(command, timeout=TIMEOUT).returncode == -signal.SIGKILL
    before = told.read_text().split() if told.exists() else []
    assert len(before) == (3 if fatal == "in the third call" else 0)
    with Memory(str(home), settings=Settings.from_dict(fake_models())) as memory:
        with memory.engine.ledger.write() as connection:  # in the place of waiting until the dead one's has run out
            connection.execute(tables.leases.update().values(expires_at=0))
        stored = [one["id"] for one in memory.get_all(user_id="ana")["results"]][::-1]
        after: list[MemoryEvent] = []
        memory.on("memory.added", after.append, name="billing")
        added = memory.add("cake", user_id="ana")["results"][0]["id"]
        wait_until(lambda: after and after[-1].payload["memory_id"] == added)
    again = [one.payload["memory_id"] for one in after]
    # The third call was made, but its end is not recorded, so all since the last move of the cursor are told again.
    assert again == [*stored, added][-len(again) :]
    assert list(dict.fromkeys([*before, *again])) == [*stored, added]
