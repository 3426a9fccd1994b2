"""No user sees anything of another user's memories over HTTP: the test of `journeys/test_tenancy.py`, for the service.

Two services have the same memories, except for the victim's, which only the first has. A stranger with a key of the
role user, or of the role app, sends every request (with the victim's ids, entities, runs, filters and texts) to both,
and the answers have to be the same, byte for byte, but for ids and times of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from support.fakes import fake_models
from support.log_guard import listening
from support.service import client_of, headers
from support.tenancy import (
    AGENT,
    FILTERS,
    GUESSED,
    KEYS,
    LATER,
    QUESTIONS,
    RUN,
    SECRETS,
    SIMILAR_SCOPES,
    STRANGER,
    STRANGER_SCOPE,
    THEN,
    VICTIM,
    VICTIM_SCOPE,
    Worlds,
    assert_no_secret,
    like_ids,
    normalise_answer,
    populate,
    snapshot_victim,
    use_word_extractor,
)
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.service import limits
from graphmem.service.chat_settings import ChatSettings, SettingsChange, change_settings, view_settings
from graphmem.testing import ModelEndpoint

PLATFORM = "v1", "v2", "v3"
PROXY_SECONDS = 30.0


# --- two services -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sender:
    """A key of the stranger's in both services, and the ids that its requests name."""

    role: str
    keys: tuple[dict[str, str], dict[str, str]]
    scopes: list[dict[str, str]]


@dataclass(frozen=True)
class Services:
    worlds: Worlds
    clients: tuple[TestClient, TestClient]
    upstream: ModelEndpoint
    senders: list[Sender]
    events: list[str]
    document: dict[str, Any]
    before: str

    def snapshot(self) -> str:
        """All data of the victim."""
        memory = self.worlds.with_victim
        return (
            snapshot_victim(memory)
            + repr(view_settings(memory, VICTIM, ChatSettings()))
            + str(memory.stats(user_id=VICTIM)["usage"])
        )


def client(memory: Memory, upstream: ModelEndpoint) -> AbstractContextManager[TestClient]:
    """A client without a key of a memory's service, whose proxy takes its time."""
    proxy = {"upstream_url": upstream.url, "upstream_key": "any", "time_limit": PROXY_SECONDS, "save": False}
    return client_of(memory, role=None, proxy=proxy)


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch, use_word_extractor():
        for name in ("RECALL_SECONDS", "SAVED_SECONDS"):  # no answer depends on the machine
            patch.setattr(limits, name, TIMEOUT)
        first, second = (
            stack.enter_context(Memory(":memory:", settings=Settings.from_dict(fake_models()))) for _ in range(2)
        )
        worlds = populate(first, second)
        upstream = stack.enter_context(ModelEndpoint(default="I see."))
        clients = tuple(stack.enter_context(client(memory, upstream)) for memory in (first, second))
        change_settings(first, VICTIM, SettingsChange(rewrite_prompt=SECRETS[0], top_k=1, save=False), "a key")
        sent = {"messages": f"{SECRETS[0]} sleeps.", **VICTIM_SCOPE, "timestamp": THEN}
        stored = clients[0].post("/memories", json=sent, headers={**headers(first), "Idempotency-Key": "k1"})
        ids = [*worlds.ids, stored.json()["results"][0]["id"]]
        events = [event["id"] for uid in ids for event in first.history(uid)]

        def keys(role: str, **bound: Any) -> tuple[dict[str, str], dict[str, str]]:
            return headers(first, role, **bound), headers(second, role, **bound)

        senders = [
            Sender("user", keys("user", user_id=STRANGER), [{}, {"run_id": RUN}]),
            Sender("app", keys("app"), [STRANGER_SCOPE, {**STRANGER_SCOPE, "agent_id": AGENT}]),
        ]
        worlds = replace(worlds, ids=ids)
        document = clients[0].get("/openapi.json").json()
        services = Services(worlds, clients, upstream, senders, events, document, "")  # type: ignore[arg-type]
        yield replace(services, before=services.snapshot())


# --- a stranger's requests --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request without ids of a scope."""

    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)


def list_requests(ids: list[str], events: list[str]) -> dict[str, list[Request]]:
    """For each route its requests. `ids` and `events` are the victim's."""
    uids = [quote(uid, safe="") for uid in (ids[0], ids[4], ids[-1], *like_ids(ids)[-5:-2])]
    keys = [quote(key, safe="") for key in KEYS]
    message = {"role": "user", "content": GUESSED, "id": "m2"}
    adding = [
        Request("", body={"messages": GUESSED, "timestamp": THEN}),
        Request("", body={"messages": [message]}),
        Request("", body={"messages": [{**message, "content": "Something else."}], "run_id": RUN}),
        Request("", body={"messages": GUESSED, "infer": True}),
    ]
    searching = [
        *(Request("", body={"query": text, "explain": True, "top_k": 1000}) for text in QUESTIONS[:5]),
        *(Request("", body={"query": GUESSED, "filters": one, "show_expired": True}) for one in FILTERS[::2]),
        Request("", body={"query": GUESSED, "as_of": LATER, "kinds": ["episode", "fact", "summary"]}),
    ]
    changing = [Request(uid, body={"text": "Taken over.", "metadata": {"owner": STRANGER}}) for uid in uids]
    by_id = [Request(uid) for uid in uids]
    by_event = [Request(quote(event, safe="")) for event in (*events[-6:], *like_ids(events)[-3:])]
    aliases = [Request("", body={"a": key, "b": "Bob"}) for key in KEYS[::2]] + [
        Request("", body={"a": "Ann", "b": "Vostokgrad"})
    ]
    question = {"question": "Where does Ann live?", "recent": [{"role": "user", "content": GUESSED}]}
    found: dict[str, list[Request]] = {
        "GET /memories": [
            Request("", {"show_expired": True, "kinds": "episode,fact,summary"}),
            *(Request("", {"limit": limit}) for limit in (1, 4, 1000)),
            Request("", {"as_of": LATER, "top_k": 0}),
            Request("", {"cursor": "bm90aGluZw"}),
        ],
        "GET /memories/{memory_id}": by_id,
        "GET /memories/{memory_id}/history": by_id,
        "GET /memories/{memory_id}/explain": by_id,
        "POST /memories/{memory_id}/why-not": [
            Request(uid, body={"query": text}) for uid in uids for text in QUESTIONS[:2]
        ],
        "PUT /memories/{memory_id}/judgement": [
            Request(uid, body={"query": GUESSED, "verdict": verdict}) for uid in uids for verdict in ("wrong", None)
        ],
        "GET /judgements": [Request(""), Request("", {"run_id": "run-"}), Request("", {"limit": 1})],
        "POST /search": searching,
        "POST /context": [
            *(Request("", body={"query": text, "max_chars": 20_000, "profile": True}) for text in QUESTIONS[1:5]),
            Request("", body={"query": QUESTIONS[1], "filters": {"NOT": [{"project": "*"}]}}),
        ],
        "GET /profile": [Request(""), Request("", {"run_id": "run-"}), Request("", {"max_tokens": 20_000})],
        "POST /recall": [
            *(Request("", body={"question": text, "max_chars": 20_000}) for text in QUESTIONS[:3]),
            *(Request("", body={**question, **more}) for more in ({}, {"rewrite": True, "rewrite_prompt": "Rewrite."})),
        ],
        "GET /graph": [
            Request("", {"limit": 1}),
            *(Request("", {"hops": 10, "around": around}) for around in (*KEYS[::2], *ids[:2])),
            Request("", {"as_of": LATER}),
        ],
        "GET /graph/days": [Request(""), Request("", {"utc_offset": 60})],
        "GET /graph/entities": [
            Request(""), *(Request("", {"query": key}) for key in KEYS), Request("", {"type": "Other", "limit": 1})
        ],
        "GET /graph/entities/{key}": [*(Request(key) for key in keys), Request(keys[0], {"as_of": LATER})],
        "GET /settings": [Request("")],
        "GET /stats": [Request("")],
        "GET /export": [Request("")],
        "POST /v3/memories/search/": [searching[0], *searching[-2:]],
        "POST /v3/memories/": [
            Request("", {"page": page}, {"filters": one}) for page in (1, 2) for one in FILTERS[:9:3]
        ],
        "GET /v1/memories/{memory_id}/": by_id,
        "GET /v1/memories/{memory_id}/history/": by_id,
        "POST /memories": [*adding, Request("", body=adding[0].body, headers={"Idempotency-Key": "k1"}),
                           Request("", {"wait": False}, {"messages": "Ann left Vostokgrad."})],
        "POST /v3/memories/add/": adding,
        "POST /chats/saved": [Request("", body={"messages": [message, {"role": "assistant", "content": "Good."}]})],
        "PUT /settings": [Request("", body={"top_k": 3})],
        "PUT /memories/{memory_id}": changing,
        "PUT /v1/memories/{memory_id}/": changing,
        "PUT /v1/batch/": [
            Request("", body={"memories": [{"memory_id": uid, "text": "Taken over."} for uid in batch]})
            for batch in (ids[:1], ids[-3:])
        ],
        "PATCH /graph/entities/{key}": [Request(key, body={"name": "Mine"}) for key in keys],
        "POST /graph/aliases": aliases,
        "DELETE /graph/aliases": aliases,
        "POST /events/{event_id}/undo": by_event,
        "POST /memories/{memory_id}/forget": by_id,
        "GET /lifecycle": [Request(""), Request("", {"run_id": "run-"}), Request("", {"limit": 1})],
        "POST /lifecycle/cycles": [Request("", body={"dry_run": True}), Request("", {"run_id": "run-"})],
        "POST /lifecycle/abstractions": [
            Request("", body={}), *(Request("", body={"ids": [uid]}) for uid in like_ids(ids)[-3:]),
        ],
        "POST /lifecycle/undo": [Request("", body={"cycle": event}) for event in like_ids(events)[-3:]],
        "GET /lifecycle/forgotten": [Request(""), Request("", {"run_id": "run-"})],
        "POST /sessions/end": [Request(""), Request("", {"run_id": "run-"}), Request("", {"agent_id": "helpe"})],
        "DELETE /lifecycle/forgotten": [Request("", {"confirm": True})],
        "PUT /memories/{memory_id}/pin": by_id,
        "DELETE /memories/{memory_id}/pin": by_id,
        "DELETE /memories/{memory_id}": by_id,
        "DELETE /v1/memories/{memory_id}/": by_id,
        "DELETE /memories": [Request("", {"run_id": "run-"}), Request("", {"agent_id": "helpe"})],
        "DELETE /v1/memories/": [Request("")],
        "DELETE /v1/batch/": [
            Request("", body={"memories": [{"memory_id": uid} for uid in batch]}) for batch in (ids[:1], ids[-3:])
        ],
    }  # fmt: skip
    return found


# Routes of which a stranger's key reaches nothing: the answer is the same whatever there is.
OPERATOR_ROUTES: dict[str, Any] = {
    **dict.fromkeys(
        ["POST /verify", "POST /repair", "POST /flush", "POST /retry", "POST /reset", "GET /configure",
         "GET /entities", "GET /v1/entities/", "GET /requests", "GET /api-keys", "POST /import",
         "GET /api/v1/orgs/organizations/graphmem/projects/graphmem/"]
    ),
    "POST /configure": {"top_k": 3},
    "POST /api-keys": {"label": "x", "user_id": VICTIM},
    "DELETE /api-keys/{key_id}": None,
    "DELETE /entities/{entity_type}/{entity_id}": None,
    "DELETE /v2/entities/{entity_type}/{entity_id}/": None,
    "GET /metrics": None,
    "GET /webhooks/dead-letters": None,
    "POST /webhooks/dead-letters/{event_id}/retry": None,
    "DELETE /webhooks/dead-letters/{event_id}": None,
}  # fmt: skip
# Routes without anything of a user.
CHAT = "/v1/chat/completions"
PROXY_ROUTES = [f"POST {CHAT}", "POST /v1/completions", "POST /v1/embeddings", "GET /v1/models"]
OPEN_ROUTES = [
    "GET /", "GET /healthz", "GET /readyz", "GET /v1/ping/", "GET /configure/providers", "GET /ui/{path}",
    "GET /caller",
]  # fmt: skip


def routes_of(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


def test_there_is_a_row_for_every_route(services: Services) -> None:
    rows = [*list_requests(["x"] * 6, ["x"]), *OPERATOR_ROUTES, *PROXY_ROUTES, *OPEN_ROUTES]
    assert len(rows) == len(set(rows))
    assert set(rows) == routes_of(services.document)


# --- comparing both services ------------------------------------------------------------------------------------------

# Parts of an answer that differ between any two services.
OWN_PARTS = re.compile(r'"(took_ms|next_cursor|changed_by|created)": ?("[^"]*"|[\d.]+)')
OWN_HEADERS = {"content-length", "date", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}
SAVING = {"/chats/saved", CHAT}


def render(response: Any) -> str:
    sent = sorted(f"{name}: {value}" for name, value in response.headers.items() if name not in OWN_HEADERS)
    return f"{response.status_code}\n{sent}\n{response.text}"


def compare(services: Services, sender: Sender, method: str, request: Request) -> str:
    answers = []
    with listening() as logs:
        for number, send in enumerate(services.worlds.each(lambda memory: memory)):
            memory, forwarded = send(), len(services.upstream.requests)
            options: dict[str, Any] = {"params": request.params}
            if request.body is not None:
                options["json"] = request.body
            sent = {**sender.keys[number], "X-Request-ID": "r", **request.headers}
            if request.path == "/chats/saved":  # the end of a service waits for the chats
                with client_of(memory, role=None) as ending:
                    response = ending.request(method, request.path, headers=sent, **options)
            else:
                response = services.clients[number].request(
                    method, request.path, headers=sent, follow_redirects=False, **options
                )
            if method != "GET":
                memory.flush()
            bodies = [one.body for one in services.upstream.requests[forwarded:]]
            answers.append(OWN_PARTS.sub(r'"\1":0', f"{render(response)}\n{json.dumps(bodies)}"))
    first, second = answers
    assert normalise_answer(first) == normalise_answer(second)
    assert_no_secret(first, *logs.lines)
    assert not first.startswith("5")
    return first


def scoped(document: dict[str, Any], route: str, request: Request, scope: dict[str, str]) -> Request:
    """Returns a request of a route with its path and the ids of a scope, in its query or else in its body."""
    method, _, template = route.partition(" ")
    operation = document["paths"][template][method.lower()]
    path = re.sub(r"\{\w+\}", lambda _: request.path, template)
    if any(one["name"] == "user_id" for one in operation.get("parameters", [])):
        names = {one["name"] for one in operation["parameters"]}
        ids = {name: value for name, value in scope.items() if name in names}
        return Request(path, {**ids, **request.params}, request.body, request.headers)
    return Request(path, request.params, {**scope, **(request.body or {})}, request.headers)


ROWS = list(list_requests(["x"] * 6, ["x"]))
PARAMETERS = [
    # The same functions answer these as the routes beside them.
    pytest.param(row, marks=pytest.mark.thorough) if row.split("/")[1] in PLATFORM else row
    for row in ROWS
]


@pytest.mark.parametrize("route", PARAMETERS)
def test_a_strangers_requests_are_answered_as_if_the_victim_did_not_exist(services: Services, route: str) -> None:
    document, (method, *_) = services.document, route.split(" ")
    requests = list_requests(services.worlds.ids, services.events)[route]
    for sender in services.senders:
        for scope in sender.scopes:
            for request in requests:
                compare(services, sender, method, scoped(document, route, request, scope))
        foreign = {} if sender.role == "app" else {"user_id": VICTIM}
        refused = compare(services, sender, method, scoped(document, route, requests[0], foreign))
        assert refused.startswith("400" if sender.role == "app" else "403")
    assert services.snapshot() == services.before


@pytest.mark.parametrize(
    "route",
    [
        "GET /memories",
        "GET /export",
        *(
            pytest.param(one, marks=pytest.mark.thorough)
            for one in ("POST /search", "GET /graph", "GET /graph/entities")
        ),
    ],
)
def test_ids_similar_to_the_victims_match_nothing(services: Services, route: str) -> None:
    document, (method, *_) = services.document, route.split(" ")
    request = list_requests(services.worlds.ids, services.events)[route][0]
    for scope in SIMILAR_SCOPES:
        named = {"user_id": STRANGER, **scope}
        answer = compare(services, services.senders[1], method, scoped(document, route, request, named))
        assert not any(uid in answer for uid in services.worlds.ids if uid not in request.params.values())


@pytest.mark.parametrize("route", [*OPERATOR_ROUTES, *OPEN_ROUTES])
def test_what_a_stranger_may_not_do_is_refused_alike(services: Services, route: str) -> None:
    method, _, path = route.partition(" ")
    key_id = services.senders[0].keys[0]["X-API-Key"].split("_")[1]
    path = path.format(entity_type="user", entity_id=quote(VICTIM), key_id=key_id, path="", webhook="w", event_id="e")
    for sender in services.senders:
        answer = compare(services, sender, method, Request(path, body=OPERATOR_ROUTES.get(route)))
        assert answer.startswith("403") == (route in OPERATOR_ROUTES)
    assert services.snapshot() == services.before


def test_tools_of_mcp_answer_a_stranger_alike(services: Services) -> None:
    uid, event = services.worlds.ids[0], services.events[-1]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_memories", {"query": GUESSED, "top_k": 20}),
        ("get_context", {"query": GUESSED}),
        ("get_memories", {}),
        *(
            (name, {"memory_id": uid})
            for name in (
                "get_memory",
                "memory_history",
                "explain_memory",
                "forget_memory",
                "pin_memory",
                "delete_memory",
            )
        ),
        ("update_memory", {"memory_id": uid, "content": "Taken over."}),
        ("undo_change", {"event_id": event}),
        ("search_graph", {"query": "Vostokgrad", "hops": 3}),
        ("get_entity", {"name": "Brumalheim"}),
        ("delete_all_memories", {"confirm_user": VICTIM}),
        ("add_memory", {"content": GUESSED}),
    ]
    for sender in services.senders:
        named = {} if sender.role == "user" else {"X-Graphmem-User": STRANGER}
        sent = {"Accept": "application/json, text/event-stream", **named}
        for name, arguments in calls:
            call = {"name": name, "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            answer = compare(services, sender, "POST", Request("/mcp", body=body, headers=sent))
            assert answer.startswith("200")
            assert json.loads(answer.splitlines()[-2])["result"]["content"]
        foreign = {**sent, "X-Graphmem-User": quote(f"{VICTIM}2")}
        if sender.role == "user":
            assert "names another user" in compare(
                services, sender, "POST", Request("/mcp", body=body, headers=foreign)
            )
    assert services.snapshot() == services.before


def test_the_proxy_adds_no_memories_of_the_victim_to_a_strangers_chat(services: Services) -> None:
    for sender in services.senders:
        named = {} if sender.role == "user" else {"X-Graphmem-User": STRANGER}
        for text in QUESTIONS[:4]:
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            for more in ({}, {"X-Graphmem-Agent": AGENT}, {"X-Graphmem-Session": RUN}):
                answer = compare(services, sender, "POST", Request(CHAT, body=body, headers={**named, **more}))
                assert answer.startswith("200")
        if sender.role == "user":
            compare(services, sender, "POST", Request(CHAT, body={**body, "user": VICTIM}))
            compare(services, sender, "POST", Request(CHAT, body=body, headers={"X-Graphmem-User": quote(VICTIM)}))
        for route in PROXY_ROUTES[1:]:
            method, _, path = route.partition(" ")
            texts = {"model": "m", "input": [GUESSED]}
            compare(services, sender, method, Request(path, body=None if method == "GET" else texts, headers=named))
    assert services.snapshot() == services.before
