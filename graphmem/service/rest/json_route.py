"""The class of routes with a JSON body, which is read once: by our reader in place of FastAPI's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from graphmem.service.json_bodies import AmbiguousJson, read_json
from graphmem.service.problems import Problem


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
