"""Closing while other threads search: they get StoreUnavailable, and the process does not crash."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.waiting import TIMEOUT

SCRIPT = """
import sys, tempfile, threading, time
from graphmem import Memory, Settings
from graphmem.errors import StoreUnavailable
from graphmem.testing import HashEmbedder

embed = lambda texts: [HashEmbedder(64).embed_query(text) for text in texts]
config = {"embed": embed, "embedding_dims": 64, "model": "hash"}
settings = Settings.from_dict({
    "embedder": {"provider": "callable", "config": config}, "extractor": {"provider": "none"}
})
with tempfile.TemporaryDirectory() as folder:
    for n in range(5):
        memory = Memory(":memory:" if sys.argv[1] == "memory" else f"{folder}/{n}", settings=settings)
        memory.add([f"tea {k}" for k in range(50)], user_id="u")
        errors = []

        def look():
            try:
                while True:
                    memory.search("tea", user_id="u")
            except Exception as error:
                errors.append(type(error))

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        memory.close()
        for thread in threads:
            thread.join()
        assert errors == [StoreUnavailable] * 3, errors
"""


@pytest.mark.parametrize("where", ["memory", "file"])
def test_searching_while_closing_raises_store_unavailable(where: str) -> None:
    """In memory all threads share one connection; closing it under a reading thread once crashed the process."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, where], check=False, capture_output=True, text=True, timeout=2 * TIMEOUT
    )
    assert process.returncode == 0, process.stderr
