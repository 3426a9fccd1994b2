"""OpenAI-compatible endpoints: where one is, how the `openai` SDK reaches it, and what it means when it refuses.

The SDK's errors quote the endpoint's answers, which may quote keys and prompts: they become a `EndpointError` here and
are let go. What is read in their text decides what is done, and is not passed on.
"""

from __future__ import annotations

import json
import logging
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from graphmem.errors import CLOSED, ConfigError, ModelError

if TYPE_CHECKING:
    from openai import OpenAI, Timeout

OPENAI_URL = "https://api.openai.com/v1"
# The SDK's own, on lost connections, 408, 409, 429 and 5xx, after what `Retry-After` says (up to 2 minutes) or else 0.5
# and 1 s. Nobody tries again around them: numbers of tries multiply.
RETRIES = 2
CONNECT_SECONDS = 5.0
# For servers that ask for none: the SDK wants one.
NO_KEY = "none"

_TOO_LARGE = 413
_BAD = frozenset((400, 404, 422))
_PASSING = frozenset((408, 409, 429))
_REDIRECTS = range(300, 400)
_FAILED = 500

_hushed: ContextVar[bool] = ContextVar("hushed", default=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is without user and password; those of a URL are in `headers`, in place of the key.

    `section` is where the configuration speaks of it, for error texts. `uses_environment`: whether what the
    environment holds for OpenAI (OPENAI_API_KEY and more) is sent there.
    """

    section: str
    url: str = field(repr=False)
    key: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    uses_environment: bool = False

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI's own."""
        return self.url == OPENAI_URL

    @property
    def attributes(self) -> dict[str, str | int | None]:
        """What a span tells about it."""
        parts = urlsplit(self.url)
        return {"gen_ai.provider.name": "openai", "server.address": parts.hostname, "server.port": parts.port}


def resolve_endpoint(section: str, api_key: str | None, base_url: str | None) -> Endpoint:
    """The endpoint that is configured, else that of OPENAI_BASE_URL and OPENAI_API_KEY. Raises ConfigError.

    OPENAI_API_KEY is for OpenAI and for URLs that the environment names, too: a key is configured beside its URL.
    """
    url, headers = _place(section, base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)
    takes_environment = not base_url or _is_openais(url) or _is_in_environment(section, base_url)
    key = (api_key or (os.environ.get("OPENAI_API_KEY") if takes_environment else None) or "").strip()
    if not key and url == OPENAI_URL:
        raise ConfigError(
            f"{section}.api_key: OpenAI's endpoint needs a key; set it, or OPENAI_API_KEY, or for a server of your own "
            f"{section}.openai_base_url"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{section}.api_key: holds characters that no key has; copy it anew (not shown)")
    return Endpoint(section, url, key or NO_KEY, headers, takes_environment)


def _is_openais(url: str) -> bool:
    """Whether a URL is OpenAI's, of any region."""
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{urlsplit(OPENAI_URL).hostname}")


def _is_in_environment(section: str, url: str) -> bool:
    """Whether a variable names the URL that is configured."""
    names = "OPENAI_BASE_URL", f"GRAPHMEM_{section.replace('.', '__').upper()}__OPENAI_BASE_URL"
    return any((os.environ.get(name) or "").strip().rstrip("/") == url.strip().rstrip("/") for name in names)


def _place(section: str, said: str) -> tuple[str, dict[str, str]]:
    """A URL as it is called, and the headers that stand for the user and password in it."""
    try:
        parts = urlsplit(said.strip())
        address, port = parts.hostname, parts.port
    except ValueError:
        address, port = None, None
    if address is None or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise ConfigError(
            f"{section}.openai_base_url: must be like https://host/v1, without '?' and '#'; correct it, or "
            "OPENAI_BASE_URL (not shown: it may hold a password)"
        )
    host = f"[{address}]" if ":" in address else address
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    if parts.username is None:
        return url, {}
    # Left in the URL they would stand in the transport's logs.
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return url, {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


class Connection:
    """A client to an endpoint, made when it is first asked for. Safe to use from several threads.

    `timeout` is of each try, in seconds. `failed` is raised where there can be no client, and once closed.
    """

    def __init__(self, endpoint: Endpoint, timeout: float, failed: type[ModelError]) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._failed = failed
        self._lock = Lock()
        self._client: OpenAI | None = None
        self._closed = False

    def client(self) -> OpenAI:
        """The SDK's client."""
        with self._lock:
            if self._closed:
                raise self._failed(CLOSED)
            if self._client is None:
                self._client = _connect(self._endpoint, self._timeout, self._failed)
            return self._client

    def close(self) -> None:
        """Lets go of it. A second call does nothing."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _connect(endpoint: Endpoint, timeout: float, failed: type[ModelError]) -> OpenAI:
    import openai

    _hush_transport()
    try:
        return openai.OpenAI(
            api_key=endpoint.key,
            base_url=endpoint.url,
            default_headers={**_withheld(endpoint), **endpoint.headers},
            timeout=request_timeout(timeout),
            max_retries=RETRIES,
            # The SDK's own with its own defaults, but for redirects: those it would follow with the words, to any host.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )
    except Exception as error:  # noqa: BLE001  (a proxy it cannot use, certificates it cannot read)
        raise failed(
            f"the openai SDK cannot be set up ({type(error).__name__}); check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
        ) from None


def _withheld(endpoint: Endpoint) -> dict[str, Any]:
    """What keeps the headers that the SDK takes from the environment from being sent."""
    if endpoint.uses_environment:
        return {}
    import openai

    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    names = {line.partition(":")[0].strip() for line in lines if ":" in line}
    omitted = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project", *names), openai.Omit())
    return {**omitted, "Authorization": f"Bearer {endpoint.key}"}


def strip_surrogates(text: str) -> str:
    """Text without lone surrogates, which cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def request_timeout(seconds: float) -> Timeout:
    """A time limit as the SDK has it: of connecting, and of each silence."""
    import openai

    return openai.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The JSON value an endpoint answered with (None: it was none), after so many tries."""

    body: Any
    tries: int


@dataclass(frozen=True, slots=True)
class EndpointError:
    """An endpoint that did not answer. `status` None: there was no response at all.

    `code` and `text` are its own words, to be searched only.
    """

    status: int | None = None
    timed_out: bool = False
    code: str = field(default="", repr=False)
    text: str = field(default="", repr=False)
    tries: int = 1

    @property
    def is_transient(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status is None or self.status in _PASSING or self.status >= _FAILED

    @property
    def is_too_large(self) -> bool:
        """Whether the request is longer than the endpoint takes."""
        return self.status == _TOO_LARGE or self.code == "context_length_exceeded"

    def mentions_any(self, *words: str) -> bool:
        """Whether it refuses the request for something that one of these (in lower case) names."""
        return self.status in _BAD and any(word in self.text for word in words)

    def describe(self, endpoint: Endpoint, model: str) -> str:
        """What happened and what to do, in words of ours."""
        section = endpoint.section
        if self.timed_out:
            return f"gave no answer in time; raise {section}.timeout, or use a quicker model"
        if self.status is None:
            return f"cannot be reached; check {section}.openai_base_url, and that the server is up"
        if self.is_too_large:
            return f"finds the request too large (HTTP {self.status}); use a model that takes more"
        if self.code == "insufficient_quota":
            return "says that the account has no credit left; add some, or use another key"
        if self.status in _REDIRECTS:
            return (
                f"answers that it is at another address (HTTP {self.status}), which is not followed: words and keys go "
                f"only where the configuration says; correct {section}.openai_base_url, or OPENAI_BASE_URL"
            )
        other = "or OPENAI_API_KEY" if endpoint.uses_environment else "beside its URL (OPENAI_API_KEY is not sent)"
        known = {
            401: f"does not accept the key; set {section}.api_key, {other}",
            403: f"does not let this key use the model {model!r}; check the key's rights",
            404: f"knows no model {model!r}, or its address is another; check {section}.model, and that "
            f"{section}.openai_base_url ends as it should (mostly in /v1)",
            429: "takes no more for now; ask less often, or have the account's limits raised",
        }
        otherwise = "failed; look into its logs, or ask again later" if self.is_transient else "refuses the request"
        return f"{known.get(self.status, otherwise)} (HTTP {self.status})"


def send(call: Callable[[], Any]) -> EndpointResponse | EndpointError:
    """What comes of a call of the SDK's raw kind (`with_raw_response`), whatever goes wrong."""
    import openai

    try:
        with _hush():
            raw = call()
            return EndpointResponse(_json(raw.content), raw.retries_taken + 1)
    except openai.APIStatusError as error:
        text = json.dumps(error.body, ensure_ascii=False, default=str).lower()
        return EndpointError(error.status_code, code=str(error.code or ""), text=text, tries=_tries(error))
    except openai.APIConnectionError as error:
        return EndpointError(timed_out=isinstance(error, openai.APITimeoutError), tries=_tries(error))
    except Exception:  # noqa: BLE001  (what the transport raises past the SDK, which may quote what it was at)
        return EndpointError()


def _tries(error: Any) -> int:
    return int(error.request.headers.get("x-stainless-retry-count", 0)) + 1


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _hush() -> Iterator[None]:
    token = _hushed.set(True)
    try:
        yield
    finally:
        _hushed.reset(token)


class _UrlLogFilter(logging.Filter):
    """Keeps the transport from logging the URLs that we call: gateways have keys in their paths."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not _hushed.get()


@cache
def _hush_transport() -> None:
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).addFilter(_UrlLogFilter())
