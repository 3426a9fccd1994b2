"""Errors of the service as RFC 9457 problems (`application/problem+json`). None repeats a value of the request."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from graphmem.errors import ConfigError, GraphmemError, ModelError, NotFoundError, StoreError, ValidationError
from graphmem.logs import log_text
from graphmem.service import limits
from graphmem.service.calls import Overloaded

logger = logging.getLogger("graphmem")

MEDIA_TYPE = "application/problem+json"
# Paths of OpenAI's API, whose clients look for the text of an error in `error.message`.
OPENAI_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"})
# Names of the classes of JSON values.
_JSON_KINDS = {
    "str": "a string", "int": "a number", "float": "a number", "bool": "a boolean", "dict": "an object",
    "list": "a list", "NoneType": "null",
}  # fmt: skip
_KIND_OF_VALUE = re.compile(rf"\(({'|'.join(_JSON_KINDS)})\): ")
# Remedies by pydantic's types of errors whose own texts name classes.
_REMEDIES = {
    "int_type": "should be a whole number", "float_type": "should be a number", "model_type": "should be an object",
    "model_attributes_type": "should be an object", "dict_type": "should be an object",
    "list_type": "should be a list", "string_type": "should be a string", "bool_type": "should be a boolean",
}  # fmt: skip


# What to do about fields of mem0's platform that would be obeyed by half here, where they are no fields of a request.
_MEM0_REMEDIES = {
    "app_id": "it is metadata here: name it where messages are added, in searches and in POST /v3/memories/",
    "org_id": "a service is one organisation and one project; leave it out",
    "project_id": "a service is one organisation and one project; leave it out",
    "immutable": "every memory can be changed; leave it out",
    "includes": "say it in prompt",
    "excludes": "say it in prompt",
    "custom_instructions": "say it in prompt",
    "agent_custom_instructions": "say it in prompt",
    "structured_data_schema": "texts are stored; leave it out",
    "custom_categories": "memories have no categories; put them into metadata",
    "categories": "memories have no categories; put them into metadata, and search by filters",
    "start_date": 'use filters: {"created_at": {"gte": …}}',
    "end_date": 'use filters: {"created_at": {"lt": …}}',
    "delete_linked": "erase each memory by its id",
}


class ProblemBody(BaseModel):
    """An error: `detail` says what is wrong and what to do, `code` names it for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


class Problem(Exception):
    """An answer of this status in place of a result."""

    def __init__(self, status: int, detail: str, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})
        self.code = code or HTTPStatus(status).phrase.lower().replace(" ", "_").replace("'", "")

    def response(self, request_id: str, path: str) -> JSONResponse:
        """Returns the problem as a response to a request of this path."""
        body = {  # `ProblemBody`, without pydantic, which may be what has no memory
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        error = {"message": self.detail, "type": self.code, "param": None, "code": self.code}
        extension = {"error": error} if path in OPENAI_PATHS else {}
        return JSONResponse({**body, **extension}, self.status, self.headers, MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the problems of a route for its OpenAPI document: those of every route, and these statuses."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for status in sorted({400, 401, 403, 408, 409, 413, 415, 421, 422, 429, 500, 503, *statuses})
    }


def problem_of(error: Exception) -> Problem:
    """Returns the problem that an error comes to. Logs one that the caller cannot solve."""
    problem = _converted(error)
    if problem is not error and problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning("a request failed (%s)", log_text(error))
    return problem


def code_of(error: Exception) -> str:
    """Returns the code of the problem that an error comes to, such as "store_unavailable"."""
    return _converted(error).code


def _converted(error: Exception) -> Problem:
    match error:
        case Problem():
            problem = error
        case ValidationError():
            detail = _KIND_OF_VALUE.sub(lambda match: f"({_JSON_KINDS[match[1]]}): ", error.without_value, count=1)
            problem = Problem(400, detail, "invalid_argument")
        case NotFoundError():
            problem = Problem(404, "There is nothing with this id or name among these memories.")
        case ConfigError():
            problem = Problem(409, str(error), "not_configured")
        case Overloaded():
            problem = Problem(503, str(error), "overloaded", {"Retry-After": "1"})
        case ModelError():
            problem = Problem(502, f"A model failed: {error}", "provider_error")
        case StoreError() | MemoryError():
            detail = "The memory cannot be used now; try again later."
            problem = Problem(503, detail, "store_unavailable", {"Retry-After": "5"})
        case _:
            problem = Problem(500, "The service failed; its log names the kind of the error.")
    return problem


def install(app: FastAPI) -> None:
    """Makes an application answer every error as a problem."""
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    for kind in (Problem, GraphmemError):
        app.add_exception_handler(kind, _on_error)
    answer_unexpected(app)


def answer_unexpected(app: Starlette) -> None:
    """Makes an application answer an error that nothing else has caught as a problem; it raises it for `RequestLog`."""
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_unexpected(request: Request, error: Exception) -> JSONResponse:
    return _converted(error).response(request.state.request_id, request.url.path)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return problem_of(error).response(request.state.request_id, request.url.path)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101  (the handler's registration)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(_methods(request)))
        problem = Problem(405, f"This path takes {allowed}.", headers={"Allow": allowed})
    elif error.status_code == HTTPStatus.NOT_FOUND:
        detail = "There is no such path; GET /openapi.json lists those that there are."
        if request.url.path.startswith("//"):
            detail = "The path begins with two slashes: the host of a client ends without one."
        problem = Problem(404, detail, "no_such_path")
    elif error.status_code == HTTPStatus.BAD_REQUEST:
        problem = _unreadable(request, "The body cannot be read: it must be JSON in UTF-8.")
    else:
        problem = Problem(error.status_code, HTTPStatus(error.status_code).phrase, headers=error.headers)
    return problem.response(request.state.request_id, request.url.path)


def _unreadable(request: Request, detail: str) -> Problem:
    if request.headers.get("content-encoding", "identity") != "identity":
        return Problem(415, "Content-Encoding: bodies are not decoded; send the body as it is.")
    return Problem(400, detail, "unreadable_body")


def _methods(request: Request) -> set[str]:
    """Returns the methods of all documented routes with the path of a request."""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]

    def matching(last_parameter: str) -> set[str]:
        return {
            method.upper()
            for template, operations in paths.items()
            if compile_path(re.sub(r"\}(?=/?$)", last_parameter, template))[0].match(request.url.path)
            for method in operations
        }

    # The document does not tell which parameters at the end of a path take slashes.
    return matching("}") or matching(":path}")


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101  (the handler's registration)
    errors = error.errors()
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if any(one["type"] == "json_invalid" for one in errors):
        problem = _unreadable(request, "The body is not valid JSON.")
    elif any(one["loc"] == ("body",) for one in errors) and not content_type.endswith(("/json", "+json")):
        problem = Problem(415, "The body must be JSON; send the header Content-Type: application/json.")
    else:
        found: dict[tuple[str, ...], list[Any]] = {}
        for one in errors:  # of a field that takes several forms, the errors of each
            found.setdefault(_field(one, error.body), []).append(one)
        # Those about the whole of a field are of forms that it does not have if others are about a part of it.
        wholes = {field[:length] for field in found for length in range(1, len(field))}
        fields = {field: of_field for field, of_field in found.items() if field not in wholes}
        lines = [_sentence(field, found, request) for field, found in list(fields.items())[: limits.MAX_REPORTED]]
        more = len(fields) - len(lines)
        problem = Problem(422, "; ".join(lines) + (f"; and {more} more" if more else ""), "invalid_request")
    return problem.response(request.state.request_id, request.url.path)


def _field(error: Any, body: Any) -> tuple[str, ...]:
    """Returns the place of a field without pydantic's names of the forms that it may have, which no body has."""
    place, *names = error["loc"]
    if place != "body" or body is None:
        return (place, *map(str, names))
    field, value = [place], body
    for name in names:
        if (isinstance(value, dict) and name in value) or (isinstance(value, list) and isinstance(name, int)):
            field.append(str(name))
            value = value[name]
    if error["type"] == "missing":
        field.append(names[-1])
    return tuple(field)


def _sentence(field: tuple[str, ...], errors: list[Any], request: Request) -> str:
    """Returns one line about an unusable field: its name, the remedies and, in a body, the kind of the value."""
    place, *names = field
    shown, kinds = ".".join(name[:40] for name in names) or f"the {place}", {error["type"] for error in errors}
    if "missing" in kinds:
        return f"{shown}: is missing"
    if "extra_forbidden" in kinds:
        return f"{shown}: is no field of this request{advice(place, names[-1], request)}"
    remedies = [_REMEDIES.get(one["type"]) or re.sub(r"^\w+ should", "should", one["msg"]) for one in errors]
    first, *others = dict.fromkeys(remedies)
    text = " or ".join([first, *(remedy.removeprefix("should be ") for remedy in others)])
    if place == "query":  # all its values are texts
        return f"{shown}: {text}"
    return f"{shown}: {text}; it is {_JSON_KINDS.get(type(errors[0].get('input')).__name__, 'another value')}"


def advice(place: str, name: str, request: Request) -> str:
    """Returns what to do about an unknown field: where it belongs, or the name that was meant."""
    operation = operation_of(request) or {}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    model = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schemas = _document_of(request.scope["route"]).get("components", {}).get("schemas", {})
    known = {"query": query_names(operation), "body": list(schemas.get(model, {}).get("properties", {}))}
    for other in known.keys() - {place}:
        if name in known[other]:
            return f"; it belongs in the {other}"
    if name in _MEM0_REMEDIES:
        return f"; {_MEM0_REMEDIES[name]}"
    nearest = get_close_matches(name, known[place], 1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


# OpenAPI documents of single routes, by their functions and paths: that of the whole service takes 300 ms.
_documents: dict[tuple[Any, str], dict[str, Any]] = {}


def _document_of(route: APIRoute) -> dict[str, Any]:
    key = (route.endpoint, route.path_format)
    if key not in _documents:
        _documents[key] = get_openapi(title="", version="", routes=[route])
    return _documents[key]


def operation_of(request: Request) -> dict[str, Any] | None:
    """Returns the entry of a request's route in the OpenAPI document; None for a route without one."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)  # noqa: S101  (only these check their requests)
    operation: dict[str, Any] | None = (
        _document_of(route)["paths"].get(route.path_format, {}).get(request.method.lower())
    )
    return operation


def query_names(operation: Mapping[str, Any]) -> list[str]:
    """Returns the names of an operation's query parameters."""
    return [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
