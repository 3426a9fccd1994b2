"""What the routes of the service share: the open service, and the caller of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer

from graphmem.async_memory import AsyncMemory, run_in
from graphmem.chat_worker import ChatWorker
from graphmem.concurrency import Pool, WorkStopped, stoppable
from graphmem.engine import Engine
from graphmem.service import limits
from graphmem.service.auth import Caller
from graphmem.service.calls import CallPool, ShareTaken
from graphmem.service.chat_settings import ChatSettings
from graphmem.service.json_bodies import AmbiguousJson, read_json
from graphmem.service.keys import Keys
from graphmem.service.metrics import ServiceMetrics
from graphmem.service.middleware import LatestRequests
from graphmem.service.problems import Problem, advice, operation_of, query_names
from graphmem.service.proxy.proxy import ChatProxy
from graphmem.service.proxy.upstream import Upstream
from graphmem.settings.schema import ServeSettings

P = ParamSpec("P")
R = TypeVar("R")
_BEARER = Security(HTTPBearer(scheme_name="Bearer", auto_error=False))


@dataclass(frozen=True, slots=True)
class Service:
    """An open service: its memory, whose calls run in `pool`, the keys of its ledger, its settings, its metrics and
    its latest requests.

    `chats` recalls for chats and stores them, in threads of its own; `chat_defaults` are the settings of the
    configuration for that. `proxy` adds memories to chats, which go to `upstream` (None: not configured).

    `exports` and, for those of admins and for imports, `admin_transfers` have the threads of what lasts as long as its
    client takes.

    `probes` has a thread of its own, so that questions about the service's health do not wait behind calls.
    """

    memory: AsyncMemory
    pool: CallPool
    exports: CallPool
    admin_transfers: CallPool
    probes: Pool
    keys: Keys
    chats: ChatWorker
    chat_defaults: ChatSettings
    proxy: ChatProxy
    upstream: Upstream | None
    settings: ServeSettings
    metrics: ServiceMetrics
    requests: LatestRequests = field(default_factory=LatestRequests)

    @property
    def engine(self) -> Engine:
        """The engine of the memory."""
        return self.memory.sync.engine

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function in a thread for calls, as the methods of `memory` run. Raises Overloaded."""
        return await run_in(self.pool, function, *args, **kwargs)

    async def transfer(self, caller: Caller, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs an export or an import in a thread for these.

        Raises Overloaded if as many run as may, Problem 429 if one of this user runs.
        """
        pool = self.admin_transfers if caller.role == "admin" else self.exports
        try:
            return await run_in(pool, function, *args, **kwargs)
        except ShareTaken:
            headers = {"Retry-After": str(limits.NEXT_EXPORT_SECONDS)}
            raise Problem(429, "An export of this user runs already; wait for its end.", headers=headers) from None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


# For the OpenAPI document alone: `Authentication` has read the key before.
_API_KEY = Security(APIKeyHeader(name="X-API-Key", scheme_name="ApiKey", auto_error=False))


def _caller(request: Request, _: Annotated[Any, _API_KEY], __: Annotated[Any, _BEARER]) -> Caller:
    caller: Caller = request.state.caller
    if caller.role == "metrics":
        caller.require("user", "app", "admin")
    return caller


def _watcher(request: Request, _: Annotated[Any, _API_KEY], __: Annotated[Any, _BEARER]) -> Caller:
    caller: Caller = request.state.caller
    caller.require("metrics", "admin")
    return caller


def _admin(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    caller.require("admin")
    return caller


@asynccontextmanager
async def until_client_leaves(request: Request) -> AsyncIterator[None]:
    """Lets `concurrency.raise_if_stopped` end calls in this context, which only read, once their client has left."""
    has_left = Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_left.set()

    watching = asyncio.create_task(watch())
    try:
        with stoppable(has_left.is_set):
            yield
    except WorkStopped:  # nobody reads the answer; the log needs no warning of it
        raise Problem(503, "The client has left.") from None
    finally:
        watching.cancel()


async def refuse_unread(request: Request) -> None:
    """Refuses query parameters and a body that a route does not read: a scope among them would be ignored.

    Raises Problem 422. Fields of a body are refused by its model.
    """
    operation = operation_of(request)
    if operation is None:  # a route without an entry in the document refuses every request
        return
    known = query_names(operation)
    if unknown := [name for name in request.query_params if name not in known]:
        detail = f"{unknown[0][:40]}: is no field of this request{advice('query', unknown[0], request)}"
        raise Problem(422, detail, "invalid_request")
    if "requestBody" not in operation and (await request.body()).strip() not in _NO_BODY:
        detail = "the body: this request takes none; what it reads stands in the query"
        raise Problem(422, detail, "invalid_request")


# Bodies that some clients send where there is none.
_NO_BODY = frozenset({b"", b"{}", b"null"})

ServiceParam = Annotated[Service, Depends(_service)]
CallerParam = Annotated[Caller, Depends(_caller)]
AdminParam = Annotated[Caller, Depends(_admin)]
"""The caller of a route that only an admin may use."""
WatcherParam = Annotated[Caller, Depends(_watcher)]
"""The caller of a route for whoever watches the service."""


class JsonRoute(APIRoute):
    """A route whose body is read by `read_json`.

    One with a member twice in an object, of which one would be ignored, gets 400.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns FastAPI's handler around such a reader."""
        handle = super().get_route_handler()

        async def read_and_handle(request: Request) -> Response:
            reading = _JsonRequest(request.scope, request.receive)
            try:
                return await handle(reading)
            except Exception:
                if reading.ambiguity:  # FastAPI makes an error of its own of it
                    raise Problem(400, reading.ambiguity, "invalid_argument") from None
                raise

        return read_and_handle


class _JsonRequest(Request):
    """A request whose JSON is read by `read_json`; `ambiguity` is the text of AmbiguousJson."""

    ambiguity = ""

    async def json(self) -> Any:
        """Returns the value of the body."""
        try:
            return read_json(await self.body())
        except AmbiguousJson as error:
            self.ambiguity = str(error)
            raise
