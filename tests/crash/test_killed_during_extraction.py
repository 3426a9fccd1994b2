"""A process killed while it waits for a language model: the message is stored, the next process extracts the facts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from support.fake_llm import fact
from support.fakes import fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.testing import ModelEndpoint, behaviours

TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[3])
from support.fakes import fake_models
from graphmem import Memory, Settings
llm = {"openai_base_url": sys.argv[1], "api_key": "any", "model": "silent", "timeout": 600}
memory = Memory(sys.argv[2], settings=Settings.from_dict(fake_models(llm={"config": llm})))
memory.add("I drink matcha.", user_id="ann7")
"""


def test_facts_of_a_process_killed_during_the_model_call_are_extracted_by_the_next(tmp_path: Path) -> None:
    answer = json.dumps({"facts": [{"messages": [0], **fact("Drinks matcha")}]})
    with ModelEndpoint([behaviours.silent()], default=answer) as endpoint:
        command = [sys.executable, "-c", SCRIPT, endpoint.url, str(tmp_path / "home"), str(TESTS)]
        with subprocess.Popen(command) as process:
            wait_until(lambda: endpoint.requests)
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT)
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "silent"}
        with Memory(str(tmp_path / "home"), settings=Settings.from_dict(fake_models(llm={"config": llm}))) as memory:
            assert memory.search("matcha", user_id="ann7")["results"][0]["memory"] == "I drink matcha."
            # The dead process's claim on the job has not expired, so the job is left alone.
            assert memory.flush() == {"pending": ["facts"]}
            assert len(endpoint.requests) == 1
            assert memory.retry_failed() == {"done": 1, "failed": {}, "pending": []}
            assert [one["memory"] for one in memory.get_all(user_id="ann7")["results"]] == ["Drinks matcha"]
