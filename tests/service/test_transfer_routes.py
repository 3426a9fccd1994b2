"""Export and import over HTTP: streams, their ends and limits, and who may move what."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient
from support.ledger_snapshot import contents, exported, same
from support.log_guard import listening
from support.service import client_of, headers, ok, served
from support.tenancy import make_home
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.service import limits

Make = Callable[..., Memory]


@pytest.fixture
def filled(make: Make) -> Memory:
    memory = make()
    memory_id = memory.add(["Clara met Dora.", "Dora likes tea."], user_id="ana", agent_id="maid")["results"][0]["id"]
    memory.update(memory_id, "Clara met Dora in Bergen.")
    memory.delete(memory.add("Gone.", user_id="ana")["results"][0]["id"])
    memory.alias("Clara", "Dora", user_id="ana")
    memory.add("Ben sings.", user_id="ben")
    return memory


def lines(response: Any) -> list[dict[str, Any]]:
    """The records of an export, without those that have the time and the checksum."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()][1:-1]


def export_of(memory: Memory) -> bytes:
    file = io.BytesIO()
    memory.export(file)
    return file.getvalue()


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_export_is_that_of_the_library(filled: Memory) -> None:
    with client_of(filled) as client:
        assert lines(client.get("/export")) == exported(filled)[1:-1]
        for scope in ({"user_id": "ana"}, {"user_id": "ana", "agent_id": "maid"}, {"user_id": "nobody"}):
            assert lines(client.get("/export", params=scope)) == exported(filled, **scope)[1:-1]
        ok(client.get("/export", params={"app_id": "x"}), 422)


def test_a_user_exports_only_their_own_memories(filled: Memory) -> None:
    with client_of(filled) as client:
        own, app_key = headers(filled, "user", user_id="ben"), headers(filled, "app")
        assert lines(client.get("/export", headers=own)) == exported(filled, user_id="ben")[1:-1]
        assert lines(client.get("/export?user_id=ana", headers=app_key)) == exported(filled, user_id="ana")[1:-1]
        ok(client.get("/export?user_id=ana", headers=own), 403)
        ok(client.get("/export", headers=app_key), 400)
        ok(client.get("/export", headers=headers(filled, "metrics")), 403)


def test_an_export_that_cannot_begin_is_a_problem(memory: Memory, client: TestClient) -> None:
    sent = headers(memory)
    client.get("/healthz", headers=sent)
    memory.close()
    assert ok(client.get("/export", headers=sent), 503)["code"] == "store_unavailable"


@pytest.fixture
def large(make_memory: Make) -> Iterator[Memory]:
    """A memory whose export is larger than what the buffers of two sockets hold, so that a client can hold it up.

    It is in a folder: one without has a single connection, which an export keeps.
    """
    with make_home() as home:
        memory = make_memory(home)
        messages = [
            {"role": "user", "content": f"Tea {number}.", "metadata": {"note": "x" * 250_000}} for number in range(32)
        ]
        memory.add(messages, user_id="ana")
        yield memory
        memory.close()


def held_up(url: str, key: dict[str, str]) -> socket.socket:
    """Asks for an export and reads its first bytes alone."""
    address = urlsplit(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(TIMEOUT)
    client.connect((address.hostname, address.port))
    request = f"GET /export HTTP/1.1\r\nHost: {address.netloc}\r\nX-API-Key: {key['X-API-Key']}\r\n\r\n"
    client.sendall(request.encode())
    assert client.recv(20).startswith(b"HTTP/1.1 200")
    return client


def test_clients_that_hang_up_end_their_exports(large: Memory) -> None:
    key = headers(large)
    with served(large) as url, httpx2.Client(base_url=url, headers=key, timeout=TIMEOUT) as client:
        with ExitStack() as stack, listening() as listener:
            for _ in range(limits.TRANSFERS):
                stack.enter_context(held_up(url, key))
            refused = client.get("/export")
            assert ok(refused, 503)["code"] == "overloaded"
            assert ok(client.get("/memories?limit=1"))["total"] == 32
        wait_until(lambda: client.get("/export").status_code == 200)
        assert not [line for line in listener.lines if "Task exception" in line or "Traceback" in line]


def test_a_user_has_one_export_at_a_time(large: Memory) -> None:
    ana, ben = headers(large, "user", user_id="ana"), headers(large, "user", user_id="ben")
    app = headers(large, "app")
    with served(large) as url, httpx2.Client(base_url=url, timeout=TIMEOUT) as client:
        with held_up(url, ana):
            refused = client.get("/export", headers=ana)
            assert ok(refused, 429)["code"] == "too_many_requests"
            assert refused.headers["retry-after"] == str(limits.NEXT_EXPORT_SECONDS)
            ok(client.get("/export?user_id=ana", headers=app), 429)
            for key, query in ((ben, ""), (app, "?user_id=ben"), (headers(large), "?user_id=ana")):
                assert client.get(f"/export{query}", headers=key).status_code == 200
        wait_until(lambda: client.get("/export", headers=ana).status_code == 200)


def test_exports_of_users_keep_no_admin_from_one(large: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSFERS", 1)
    ana, ben = headers(large, "user", user_id="ana"), headers(large, "user", user_id="ben")
    with served(large) as url, httpx2.Client(base_url=url, timeout=TIMEOUT) as client, held_up(url, ana):
        assert ok(client.get("/export", headers=ben), 503)["code"] == "overloaded"
        data = client.get("/export", headers=headers(large))
        assert data.status_code == 200
        ok(client.post("/import", content=data.content, headers=headers(large)))


@pytest.mark.parametrize("limit", ["STALL_SECONDS", "EXPORT_SECONDS"])
def test_a_client_that_takes_nothing_ends_its_export(
    large: Memory, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(limits, limit, 0.5)
    monkeypatch.setattr(limits, "TRANSFERS", 1)
    key = headers(large)
    with served(large) as url, httpx2.Client(base_url=url, headers=key, timeout=TIMEOUT) as client:

        def has_room() -> bool:
            # The limit is that of this export as well, so it is not read to its end.
            with client.stream("GET", "/export") as export:
                return export.status_code == 200

        with held_up(url, key) as stalled:
            wait_until(has_room)
            received = b"".join(iter(lambda: stalled.recv(1_000_000), b""))
    assert not received.endswith(b"0\r\n\r\n")  # the end of a complete body


# --- import -----------------------------------------------------------------------------------------------------------


def in_parts(data: bytes, size: int = 1000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def test_an_import_of_an_export_is_a_copy(filled: Memory, make: Make) -> None:
    copy = make()
    data = export_of(filled)
    with served(copy) as url, httpx2.Client(base_url=url, headers=headers(copy), timeout=TIMEOUT) as client:
        counts = ok(client.post("/import", content=in_parts(data)))
        assert (counts["added"], counts["tombstones"], counts["named"]) == (3, 1, 1)
        again = ok(client.post("/import", content=data))
        assert (again["added"], again["known"]) == (0, counts["added"] + counts["tombstones"])
    same(filled, copy)


def test_an_admin_moves_settings_and_is_told_of_keys(filled: Memory, make: Make) -> None:
    copy = make()
    with client_of(filled) as client:
        ok(client.put("/settings", json={"top_k": 3}))
        app_key, own = headers(filled, "app"), headers(filled, "user", user_id="ben")
        data = client.get("/export").content
        for key, query in ((own, ""), (app_key, "?user_id=ben")):
            of_ben = lines(client.get(f"/export{query}", headers=key))
            assert {record["type"] for record in of_ben} == {"memory"}
    with client_of(copy) as client:
        counts = ok(client.post("/import", content=data))
        assert (counts["settings"], counts["keys"]) == (1, 3)
        assert ok(client.get("/settings"))["settings"]["top_k"] == 3
        assert len(ok(client.get("/api-keys"))) == 1
        assert ok(client.get("/memories", headers=own), 401)


def test_an_export_is_imported_while_it_is_sent(filled: Memory, make: Make) -> None:
    copy = make()
    with (
        served(filled) as url,
        served(copy) as other_url,
        httpx2.Client(base_url=url, headers=headers(filled), timeout=TIMEOUT) as source,
        source.stream("GET", "/export") as export,
    ):
        ok(httpx2.post(f"{other_url}/import", content=export.iter_bytes(), headers=headers(copy), timeout=TIMEOUT))
    same(filled, copy)


def test_erased_memories_come_back_on_request_alone(filled: Memory, make: Make) -> None:
    data = export_of(filled)
    with client_of(filled) as client:
        filled.delete_all(user_id="ben")
        assert ok(client.post("/import", content=data))["erased"] == 1
        assert ok(client.post("/import", params={"restore": True}, content=data))["added"] == 1
        ok(client.post("/import", params={"restore": "perhaps"}, content=data), 422)
        ok(client.post("/import", params={"user_id": "ana"}, content=data), 422)
    assert filled.get_all(user_id="ben")["total"] == 1


def test_an_error_names_the_line_and_does_not_repeat_it(filled: Memory, make: Make) -> None:
    memory = make()
    header, *records = export_of(filled).splitlines(keepends=True)
    record = json.loads(records[0])
    with client_of(memory) as client:
        for bad, named in (
            ({**record, "at": "xylophone"}, "line 2: at (a string)"),
            ({**record, "xylophone": 1}, "line 2: (another name)"),
            ({**record, "metadata": "xylophone"}, "line 2: metadata"),
            ({**record, "id": "xylophone"}, "line 2: id (a string): must be a UUID"),
            (["xylophone"], "line 2: is no JSON object"),
            ("xylophone", "line 2: is no JSON object"),
        ):
            refused = ok(client.post("/import", content=header + json.dumps(bad).encode() + b"\n"), 400)
            assert refused["detail"].startswith(named)
            assert "nothing was imported" in refused["detail"]
            assert "xylophone" not in refused["detail"]
        newer = {**json.loads(header), "format": 99, "graphmem": "xylophone"}
        refused = ok(client.post("/import", content=json.dumps(newer).encode() + b"\n"), 400)
        assert "upgrade graphmem" in refused["detail"]
        assert "xylophone" not in refused["detail"]
        assert "line 1" in ok(client.post("/import", content=b"xylophone"), 400)["detail"]
        ok(client.post("/import"), 400)
    assert contents(memory)["order"] == []


def test_memories_before_a_bad_line_stay(filled: Memory, make: Make) -> None:
    memory = make()
    with client_of(memory) as client:
        refused = ok(client.post("/import", content=b"".join(export_of(filled).splitlines(keepends=True)[:3])), 400)
    assert "line 4: the end is missing" in refused["detail"]
    assert "2 memories were added" in refused["detail"]
    assert len(contents(memory)["order"]) == 2


def test_a_client_that_hangs_up_ends_its_import(filled: Memory, make: Make) -> None:
    memory, data = make(), export_of(filled)

    def broken() -> Iterator[bytes]:
        yield data[: len(data) // 2]
        raise ConnectionAbortedError

    with served(memory) as url, httpx2.Client(base_url=url, headers=headers(memory), timeout=TIMEOUT) as client:
        with pytest.raises(ConnectionAbortedError):
            client.post("/import", content=broken())
        wait_until(lambda: any(one["route"] == "/import" for one in client.get("/requests").json()))
        ok(client.post("/import", content=data))
    same(filled, memory)


def test_an_import_may_be_larger_than_other_bodies_but_not_without_limit(
    filled: Memory, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, data = make(), export_of(filled)
    assert len(data) > 1024
    with client_of(memory, max_body_bytes=1024) as client:
        ok(client.post("/import", content=data))
        monkeypatch.setattr(limits, "MAX_IMPORT_BYTES", len(data) - 1)
        for body in (data, in_parts(data)):
            assert f"{len(data) - 1} bytes" in ok(client.post("/import", content=body), 413)["detail"]


@pytest.mark.parametrize("role", ["user", "app", "metrics"])
def test_an_import_takes_an_admin(memory: Memory, role: str) -> None:
    with client_of(memory, role=role) as client:
        assert ok(client.post("/import", content=b"{}"), 403)["code"] == "other_role"
