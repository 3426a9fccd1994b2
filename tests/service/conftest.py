"""Fixtures of several tests of the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.service import client_of

from graphmem import Memory


@pytest.fixture
def client(memory: Memory) -> Iterator[TestClient]:
    """A client with an admin's key of the service of `memory`."""
    with client_of(memory) as client:
        yield client
