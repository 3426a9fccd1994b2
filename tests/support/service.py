"""The service in tests: in this process, or on a real server in a thread."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from sqlalchemy import update
from starlette.testclient import TestClient

from graphmem import Memory
from graphmem.service.app import service_app
from graphmem.service.keys import Keys, NewKey
from graphmem.service.server import listen, server_config
from graphmem.settings.schema import ServeSettings
from graphmem.stores.ledger.schema import api_keys
from support.waiting import wait_until

# The clients' own logs (Starlette's, mem0's) have addresses with their queries.
for client in ("httpx2", "httpx"):
    logging.getLogger(client).setLevel(logging.WARNING)
# The name under which `TestClient` calls.
TEST_HOST = "testserver"


def headers(memory: Memory, role: str = "admin", **bound: Any) -> dict[str, str]:
    """The headers with a new key of this role; a key of the role "user" is bound to `user_id` and `agent_id`."""
    return {"X-API-Key": Keys(memory).create(role, **bound).text}


def expired_key(memory: Memory, role: str = "admin") -> NewKey:
    """A new key that has expired since."""
    made = Keys(memory).create(role, expires_at="2099-12-31")
    with memory.engine.ledger.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.id == made.key.id).values(expires_at=1))
    return made


def settings_of(**settings: Any) -> ServeSettings:
    """Settings under which `TestClient` may call, and as often as it likes."""
    many = {"rate": "100000000/minute", "add_rate": "100000000/minute", "allowed_hosts": [TEST_HOST]}
    return ServeSettings.model_validate(many | settings)


def ok(response: Any, status: int = 200) -> Any:
    """Checks the status of a response and returns its JSON body."""
    assert response.status_code == status, response.text
    return response.json()


@contextmanager
def client_of(
    memory: Memory, role: str | None = "admin", needs_key: bool = True, **settings: Any
) -> Iterator[TestClient]:
    """A client of a memory's service in this process, with a new key of this role (None: without)."""
    app = service_app(memory, settings_of(**settings), needs_key=needs_key)
    bound = {"user_id": "ana"} if role == "user" else {}
    sent = {} if role is None else headers(memory, role, **bound)
    with TestClient(app, headers=sent, raise_server_exceptions=False) as client:
        yield client


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def served(memory: Memory, needs_key: bool = True, port: int = 0, **settings: Any) -> Iterator[str]:
    """Serves a memory, by default on a free port, by a real server in a thread; yields the address."""
    serve = settings_of(port=port, **settings)
    app = service_app(memory, serve, needs_key=needs_key)
    with listen(serve) as listener:
        server = uvicorn.Server(server_config(app, serve))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
