"""Fixtures of several tests of the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.service import client_of
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.service import limits


@pytest.fixture(autouse=True)
def _wait_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine reads keys slowly; a test of a ledger that hangs sets a shorter time itself."""
    monkeypatch.setattr(limits, "KEY_SECONDS", TIMEOUT)


@pytest.fixture
def client(memory: Memory) -> Iterator[TestClient]:
    """A client with an admin's key of the service of `memory`."""
    with client_of(memory) as client:
        yield client
