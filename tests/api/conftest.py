"""Fixtures of the tests of the public contract."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.contract import JANUARY
from support.fakes import fake_models

from graphmem import Memory, Settings


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: every commit is synced, and no test here needs a disk."""
    shm = Path("/dev/shm")
    with TemporaryDirectory(dir=shm if shm.is_dir() and os.access(shm, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def anna() -> Iterator[Memory]:
    """A memory with the real extractor, for reading only: Anna at Siemens, and another user's Bob."""
    config = {**fake_models(), "extractor": {"provider": "spacy"}}
    with Memory(":memory:", settings=Settings.from_dict(config)) as memory:
        texts = [
            "Anna works at Siemens.",
            "Siemens has an office in Lisbon.",
            "The weather was fine.",
            "I bought bread.",
        ]
        messages = [
            {"role": "user", "content": text, "timestamp": JANUARY + timedelta(minutes=minute)}
            for minute, text in zip([0, 1440, 2880, 2890], texts, strict=True)
        ]
        memory.add(messages, user_id="u1", agent_id="a")
        memory.add("Siemens builds trains in Krefeld.", user_id="u1", agent_id="b")
        memory.add("Siemens hired Bob.", user_id="u2")
        yield memory
