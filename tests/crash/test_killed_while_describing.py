"""A process killed between storing a message and the description of its image: the next process has it described."""

from __future__ import annotations

import signal
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from support.fakes import fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.testing import ModelEndpoint, behaviours

TESTS = Path(__file__).parents[1]
PNG = b"\x89PNG of a bicycle"
LINK = f"data:image/png;base64,{b64encode(PNG).decode()}"
SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[3])
from support.fakes import fake_models
from graphmem import Memory, Settings
vision = {"openai_base_url": sys.argv[1], "api_key": "any", "model": "silent", "timeout": 600}
config = fake_models(vision={"config": vision}, attachments={"store": "folder"})
memory = Memory(sys.argv[2], settings=Settings.from_dict(config))
image = {"type": "image_url", "image_url": {"url": sys.argv[4]}}
memory.add([{"role": "user", "content": [image]}, {"role": "user", "content": ["Mine.", image]}], user_id="ann7")
time.sleep(600)
"""


def test_images_of_a_killed_process_are_described_by_the_next(tmp_path: Path) -> None:
    home = tmp_path / "home"
    silent = [behaviours.silent()] * 2
    with ModelEndpoint(silent, default="A red bicycle.") as endpoint:
        command = [sys.executable, "-c", SCRIPT, endpoint.url, str(home), str(TESTS), LINK]
        with subprocess.Popen(command) as process:
            wait_until(lambda: len(endpoint.requests) == len(silent))
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT)
        vision = {"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "silent"}}
        config = fake_models(vision=vision, attachments={"store": "folder"})
        with Memory(str(home), settings=Settings.from_dict(config)) as memory:
            assert [one["memory"] for one in memory.get_all(user_id="ann7")["results"]] == ["Mine."]
            # The dead process's claims on the jobs have not expired, so they are left alone.
            assert memory.flush() == {"pending": ["description"]}
            assert memory.retry_failed() == {"done": 2, "failed": {}, "pending": []}
            assert sorted(one["memory"] for one in memory.get_all(user_id="ann7")["results"]) == [
                "Mine.\n[image: A red bicycle.]",
                "[image: A red bicycle.]",
            ]
            assert {one.name: one.read_bytes() for one in (home / "blobs").iterdir()} == {sha256(PNG).hexdigest(): PNG}
            assert memory.verify()["ok"]
