"""Connects to OpenAI-compatible endpoints through the `openai` SDK and classifies their errors, for all model clients.

The SDK's errors quote the endpoint's answers, which may quote keys and prompts. `send` therefore replaces them by an
`EndpointError`, whose text serves for classification only and appears in no message.
"""

from __future__ import annotations

import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from graphmem.boundary import validation
from graphmem.errors import CLOSED, ConfigError, GraphmemError, ModelError
from graphmem.plugins import Closeable

if TYPE_CHECKING:
    from openai import OpenAI, Timeout

OPENAI_URL = "https://api.openai.com/v1"
# Retries by the SDK, on lost connections, 408, 409, 429 and 5xx, after the `Retry-After` delay (up to 2 minutes), else
# after 0.5 and 1 s. Callers must not retry again: the numbers of tries would multiply.
RETRIES = 2
CONNECT_SECONDS = 5.0
# Sent to servers that need no key, because the SDK requires one.
NO_KEY = "none"

_OK = 200
_PAYMENT_REQUIRED = 402
_TOO_LARGE = 413
_REFUSALS = frozenset((400, 404, 422))
_TRANSIENT = frozenset((408, 409, 429))
# The codes of errors in responses with status 200: a status, or one of these words.
_ERROR_STATUS = re.compile(r"[45][0-9]{2}")
_STATUS_BY_CODE = {"rate_limit_exceeded": 429, "insufficient_quota": 429, "context_length_exceeded": 413}
_REDIRECTS = range(300, 400)
_SERVER_ERRORS = 500  # and above

_request_logs_muted: ContextVar[bool] = ContextVar("request_logs_muted", default=False)


class EndpointNames(NamedTuple):
    """The settings of a section that have an endpoint's URL and key, for error messages."""

    url: str = "openai_base_url"
    key: str = "api_key"


NAMES = EndpointNames()


C = TypeVar("C", bound=Closeable)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and credentials of an OpenAI-compatible endpoint.

    `url` contains no user and password; credentials from a configured URL are in `headers` and replace the key.
    `section` is the endpoint's configuration section, for error messages. `uses_environment` tells whether the contents
    of OPENAI_API_KEY and the other OPENAI_* variables are sent to this endpoint.
    """

    section: str
    url: str = field(repr=False)
    key: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    uses_environment: bool = False

    @property
    def is_openai(self) -> bool:
        """Whether this is OpenAI's own endpoint."""
        return self.url == OPENAI_URL

    @property
    def attributes(self) -> dict[str, str | int | None]:
        """The tracing attributes that describe this endpoint."""
        parts = urlsplit(self.url)
        return {"gen_ai.provider.name": "openai", "server.address": parts.hostname, "server.port": parts.port}


def resolve_endpoint(section: str, api_key: str | None, base_url: str | None, names: EndpointNames = NAMES) -> Endpoint:
    """Returns the configured endpoint, else the one of OPENAI_BASE_URL and OPENAI_API_KEY.

    OPENAI_API_BASE, the older name, counts if OPENAI_BASE_URL is not set. OPENAI_API_KEY is sent only to OpenAI and to
    URLs that an environment variable contains; any other URL gets only the configured key. Raises ConfigError for an
    invalid URL or key, or if OpenAI's endpoint has no key.
    """
    url, headers = parse_url(
        f"{section}.{names.url}",
        base_url or _environment_url() or OPENAI_URL,
        like="https://host/v1 (here, or in OPENAI_BASE_URL or OPENAI_API_BASE)",
    )
    parts, ours = urlsplit(url), os.environ.get(f"GRAPHMEM_{section}.{names.url}".replace(".", "__").upper())
    is_openai = parts.scheme == "https" and f".{parts.hostname}".endswith(f".{urlsplit(OPENAI_URL).hostname}")
    in_environment = {(one or "").strip().rstrip("/") for one in (_environment_url(), ours)}
    uses_environment = not base_url or is_openai or base_url.strip().rstrip("/") in in_environment
    key = (api_key or (os.environ.get("OPENAI_API_KEY") if uses_environment else None) or "").strip()
    if not key and url == OPENAI_URL:
        raise ConfigError(
            f"{section}.{names.key}: OpenAI's endpoint needs a key; set it, or OPENAI_API_KEY, or for a server of your "
            f"own {section}.{names.url}"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{section}.{names.key}: holds characters that no key has; copy it anew (not shown)")
    return Endpoint(section, url, key or NO_KEY, headers, uses_environment)


def _environment_url() -> str | None:
    return os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")


def parse_url(setting: str, configured_url: str, *, like: str) -> tuple[str, dict[str, str]]:
    """Returns the URL without user and password, and the headers that carry these instead.

    Raises ConfigError for one that is not like the example `like`.
    """
    try:
        parts = urlsplit(configured_url.strip())
        hostname, port = parts.hostname, parts.port
    except ValueError:
        hostname, port = None, None
    if hostname is None or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise ConfigError(
            f"{setting}: must be like {like}, without '?' and '#'; correct it (not shown: it may hold a password)"
        )
    host = f"[{hostname}]" if ":" in hostname else hostname
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    if parts.username is None:
        return url, {}
    # In the URL, user and password would appear in the transport's logs.
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return url, {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}


class LazyClient(Generic[C]):
    """A client with connections, which `open_client` opens on first use. Thread-safe. `closed_error`: see `client`."""

    def __init__(self, open_client: Callable[[], C], closed_error: type[GraphmemError]) -> None:
        self._open_client = open_client
        self._closed_error = closed_error
        self._lock = Lock()
        self._client: C | None = None
        self._closed = False

    def client(self) -> C:
        """Returns the client. Raises `closed_error` after `close`, and what opening it raises."""
        with self._lock:
            if self._closed:
                raise self._closed_error(CLOSED)
            if self._client is None:
                self._client = self._open_client()
            return self._client

    def close(self) -> None:
        """Closes the client. A second call does nothing."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()


def sdk_client(endpoint: Endpoint, timeout: float, error_type: type[ModelError]) -> LazyClient[OpenAI]:
    """Returns the SDK's client for an endpoint. `timeout` limits each try, in seconds.

    `error_type` is raised if no client can be created, and after `close`.
    """
    return LazyClient(partial(_create_client, endpoint, timeout, error_type), error_type)


def _create_client(endpoint: Endpoint, timeout: float, error_type: type[ModelError]) -> OpenAI:
    import openai

    try:
        overrides: dict[str, Any] = {}
        if not endpoint.uses_environment:  # replaces or omits the headers that the SDK takes from there
            lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
            custom_headers = {line.partition(":")[0].strip() for line in lines if ":" in line}
            overrides = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project", *custom_headers), openai.Omit())
            overrides["Authorization"] = f"Bearer {endpoint.key}"
        return openai.OpenAI(
            api_key=endpoint.key,
            base_url=endpoint.url,
            default_headers={**overrides, **endpoint.headers},
            timeout=request_timeout(timeout),
            max_retries=RETRIES,
            # The SDK's default client follows redirects, and would send the user's texts to any host.
            http_client=openai.DefaultHttpxClient(
                follow_redirects=False, event_hooks={"response": [_restore_error_status]}
            ),
        )
    except Exception as error:  # noqa: BLE001  (an unusable proxy, unreadable certificates)
        raise error_type(
            f"the openai SDK cannot be set up ({type(error).__name__}); check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
        ) from None


def _restore_error_status(response: Any) -> None:
    """Gives a response with status 200 the status of the error that its body reports, if any.

    OpenRouter and other gateways begin the response before the model's provider answers, and write the provider's
    error into it or into its first choice. Done before the SDK reads the status, so that it retries as it should.
    """
    if response.status_code != _OK:
        return
    response.read()
    body = _parse_body(response.content)
    if not isinstance(body, dict):
        return
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for error in (body.get("error"), first.get("error") if isinstance(first, dict) else None):
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if _ERROR_STATUS.fullmatch(code) else _STATUS_BY_CODE.get(code)
        if status is not None:
            response.status_code = status
            return


def content_text(content: Any) -> str | None:
    """Returns the text of an answer's content, a string or a list of parts; None if there is none.

    Mistral's reasoning models and some gateways send parts. Those that are no text, such as thinking, are left out.
    """
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        part.get("text") if isinstance(part, dict) and str(part.get("type")) in validation.TEXT_PART_TYPES else part
        for part in parts
    ]
    return "".join(text for text in texts if isinstance(text, str)) or None


def strip_surrogates(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, by "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def request_timeout(seconds: float) -> Timeout:
    """Returns the SDK's timeout: at most `CONNECT_SECONDS` for connecting, `seconds` for each wait for data."""
    import openai

    return openai.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The JSON body of an endpoint's answer (None if it is no JSON) and the number of tries."""

    body: Any
    tries: int


@dataclass(frozen=True, slots=True)
class EndpointError:
    """A failed request. `status` is None if there was no response.

    `code` and `text` (lower case) come from the endpoint and may quote prompts: search them, never show them.
    `retry_after` are the seconds that it asks to wait, None if it does not say.
    """

    status: int | None = None
    timed_out: bool = False
    code: str = field(default="", repr=False)
    text: str = field(default="", repr=False)
    tries: int = 1
    retry_after: float | None = None

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status in _TRANSIENT or self.status >= _SERVER_ERRORS

    @property
    def is_too_large(self) -> bool:
        """Whether the request is longer than the endpoint accepts."""
        return self.status == _TOO_LARGE or self.code == "context_length_exceeded"

    def mentions_any(self, *words: str) -> bool:
        """Whether the endpoint refused the request with an error text that contains one of these lower-case words."""
        return self.status in _REFUSALS and any(word in self.text for word in words)

    def describe(self, endpoint: Endpoint, model: str) -> str:
        """Returns the cause and the remedy as the end of a sentence, without quoting the endpoint."""
        section = endpoint.section
        if self.timed_out:
            return f"gave no answer in time; raise {section}.timeout, or use a quicker model"
        if self.status is None:
            return f"cannot be reached; check {section}.openai_base_url, and that the server is up"
        if self.is_too_large:
            return f"finds the request too large (HTTP {self.status}); use a model that takes more"
        if self.code == "insufficient_quota" or self.status == _PAYMENT_REQUIRED:
            return f"says that the account has no credit left (HTTP {self.status}); add some, or use another key"
        if self.status in _REDIRECTS:
            return (
                f"answers that it is at another address (HTTP {self.status}), which is not followed: words and keys go "
                f"only where the configuration says; correct {section}.openai_base_url, or OPENAI_BASE_URL or "
                "OPENAI_API_BASE"
            )
        other = "or OPENAI_API_KEY" if endpoint.uses_environment else "beside its URL (OPENAI_API_KEY is not sent)"
        explanations = {
            401: f"does not accept the key; set {section}.api_key, {other}",
            403: f"does not let this key use the model {model!r}; check the key's rights",
            404: f"knows no model {model!r}, or its address is another; check {section}.model, and that "
            f"{section}.openai_base_url ends as it should (mostly in /v1)",
            429: "takes no more for now; ask less often, or have the account's limits raised",
        }
        default = "failed; look into its logs, or ask again later" if self.is_transient else "refuses the request"
        return f"{explanations.get(self.status, default)} (HTTP {self.status})"


def open_client(timeout: float) -> Any:
    """Returns an HTTP client for requests that are no calls of a model: it follows no redirects, as all others here.

    `timeout` is as in `request_timeout`.
    """
    import openai

    return openai.DefaultHttpxClient(follow_redirects=False, timeout=request_timeout(timeout))


def post(client: Any, url: str, headers: Mapping[str, str], body: bytes) -> EndpointError | None:
    """Posts bytes with a client of `open_client`; returns None for an answer of status 2xx, else the failure.

    Of the answer only the status and the header Retry-After are read. Never raises.
    """
    try:
        with mute_request_logs(), client.stream("POST", url, headers=headers, content=body) as response:
            if response.is_success:
                return None
            return EndpointError(response.status_code, retry_after=_retry_after(response.headers.get("retry-after")))
    except Exception as error:  # noqa: BLE001  (errors of the transport, whose text may quote the request)
        return EndpointError(timed_out="Timeout" in type(error).__name__)


def _retry_after(value: str | None) -> float | None:
    """Returns the seconds of a header Retry-After, which has seconds or a date (RFC 9110 §10.2.3); None for others."""
    if value is None:
        return None
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # no date, or one without a time zone
        return None


def send(call: Callable[[], Any]) -> EndpointResponse | EndpointError:
    """Runs a call of the SDK's `with_raw_response` interface. Never raises: every failure becomes an EndpointError."""
    import openai

    try:
        with mute_request_logs():
            response = call()
            return EndpointResponse(_parse_body(response.content), response.retries_taken + 1)
    except openai.APIStatusError as error:
        text = json.dumps(error.body, ensure_ascii=False, default=str).lower()
        return EndpointError(error.status_code, code=str(error.code or ""), text=text, tries=_tries(error))
    except openai.APIConnectionError as error:
        return EndpointError(timed_out=isinstance(error, openai.APITimeoutError), tries=_tries(error))
    except Exception:  # noqa: BLE001  (errors of the transport that bypass the SDK; their text may quote the request)
        return EndpointError()


def _tries(error: Any) -> int:
    return int(error.request.headers.get("x-stainless-retry-count", 0)) + 1


def _parse_body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@contextmanager
def mute_request_logs() -> Iterator[None]:
    """Keeps the transport from logging the URLs of requests made in the block."""
    _install_log_filter()
    token = _request_logs_muted.set(True)
    try:
        yield
    finally:
        _request_logs_muted.reset(token)


class _UrlLogFilter(logging.Filter):
    """Drops the transport's log entries about graphmem's requests: URLs of gateways may contain keys."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not _request_logs_muted.get()


@cache
def _install_log_filter() -> None:
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).addFilter(_UrlLogFilter())
