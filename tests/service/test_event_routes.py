"""Routes of events: the end of a session, and the events that webhooks did not take."""

from __future__ import annotations

from collections.abc import Callable

from support.service import client_of, headers, ok
from support.waiting import wait_until
from support.webhook_receiver import SECRET, Received, Receiver

from graphmem import Memory, MemoryEvent

Make = Callable[..., Memory]


def test_a_session_is_ended_by_its_user(make_memory: Make) -> None:
    memory, told = make_memory(), list[MemoryEvent]()
    memory.on("session.end", told.append)
    with client_of(memory) as client:
        memory.add("I drink tea.", user_id="ana")
        ben = headers(memory, "user", user_id="ben")
        assert ok(client.post("/sessions/end", headers=ben)) == {"ended": False}
        ana = headers(memory, "user", user_id="ana")
        assert ok(client.post("/sessions/end", headers=ana)) == {"ended": True}
        memory.flush()
        assert [one.user_id for one in told] == ["ana"]


def test_an_admin_lists_retries_and_drops_dead_letters(make_memory: Make) -> None:
    refused = {"HTTP 400"}

    def answer(_: Received) -> int:
        return 400 if refused else 204

    with Receiver(answer) as receiver:
        hook = {"name": "orders", "url": receiver.url, "events": ["memory.added"], "secret": SECRET}
        memory = make_memory(webhooks=[hook])
        with client_of(memory) as client:
            memory.add(["I drink tea.", "I like cake."], user_id="ana")
            wait_until(lambda: ok(client.get("/stats"))["dead_letters"] == {"orders": 2})
            listed = ok(client.get("/webhooks/dead-letters", params={"limit": 1}))
            assert listed == memory.dead_letters(limit=1)
            first, second = memory.dead_letters()["results"]
            assert ok(client.get("/webhooks/dead-letters", params={"offset": 1}))["results"] == [second]
            retry = f"/webhooks/dead-letters/{first['id']}/retry?webhook=orders"
            assert ok(client.post(retry)) == {"delivered": False, "error": "HTTP 400"}
            refused.clear()
            assert ok(client.post(retry)) == {"delivered": True}
            assert ok(client.post(retry), 404)["code"]
            assert ok(client.delete(f"/webhooks/dead-letters/{second['id']}?webhook=orders")) == {"dropped": True}
            assert ok(client.get("/webhooks/dead-letters")) == {"results": [], "total": 0}
            refused.add("HTTP 400")
            gone = memory.add("I like figs.", user_id="ana")["results"][0]["id"]
            wait_until(lambda: memory.dead_letters()["total"] == 1)
            (letter,) = memory.dead_letters()["results"]
            memory.delete(gone)
            retry = f"/webhooks/dead-letters/{letter['id']}/retry?webhook=orders"
            assert "was erased since" in ok(client.post(retry), 400)["detail"]
            memory.drop_dead_letter(letter["id"], webhook="orders")
            assert client.get("/webhooks/dead-letters", params={"limit": 0}).status_code == 422
            user = headers(memory, "user", user_id="ana")
            assert client.get("/webhooks/dead-letters", headers=user).status_code == 403
