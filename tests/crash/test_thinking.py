"""A process that dies while a language model thinks: the words are there, and the facts are drawn by the next one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from support.fake_llm import fact
from support.fakes import fake_models
from support.waiting import PATIENCE, wait_until

from graphmem import Memory, Settings
from graphmem.testing import ModelEndpoint, behaviours

TESTS = Path(__file__).parents[1]
DYING = """
import sys
sys.path.insert(0, sys.argv[3])
from support.fakes import fake_models
from graphmem import Memory, Settings
llm = {"openai_base_url": sys.argv[1], "api_key": "any", "model": "silent", "timeout": 600}
memory = Memory(sys.argv[2], settings=Settings.from_dict(fake_models(llm={"config": llm})))
memory.add("I drink matcha.", user_id="ann7")
"""


def test_a_process_that_dies_while_the_model_thinks(tmp_path: Path) -> None:
    answer = json.dumps({"facts": [{"messages": [0], **fact("Drinks matcha")}]})
    with ModelEndpoint([behaviours.silent()], default=answer) as endpoint:
        words = [sys.executable, "-c", DYING, endpoint.url, str(tmp_path / "home"), str(TESTS)]
        with subprocess.Popen(words) as dying:
            wait_until(lambda: endpoint.requests)
            dying.send_signal(signal.SIGKILL)
            dying.wait(PATIENCE)
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "silent"}
        with Memory(str(tmp_path / "home"), settings=Settings.from_dict(fake_models(llm={"config": llm}))) as memory:
            assert memory.search("matcha", user_id="ann7")["results"][0]["memory"] == "I drink matcha."
            # It may be somebody else's, who is at it: until its time is over it is left to them.
            assert memory.flush() == {"pending": ["facts"]}
            assert len(endpoint.requests) == 1
            assert memory.retry_failed() == {"done": 1, "failed": {}, "pending": []}
            assert [one["memory"] for one in memory.get_all(user_id="ann7")["results"]] == ["Drinks matcha"]
