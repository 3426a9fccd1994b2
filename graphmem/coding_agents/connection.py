"""The service that the hooks of a home folder ask: its settings in a file, and requests that end in time.

Hooks run at every prompt, so this imports nothing that takes long. `http.client` alone takes as long as the rest of a
hook, and its timeout is that of each read: an answer that comes byte by byte would hold the agent up.
"""

from __future__ import annotations

import json
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE_NAME = "hooks.json"
DEFAULT_URL = "http://127.0.0.1:8700"
MAX_ANSWER_BYTES = 1 << 20


class HookError(Exception):
    """What a hook could not do, in one line without texts of the conversation."""


def home_folder(home: str | None = None) -> str:
    """Returns the folder of the memory: the given one, $GRAPHMEM_HOME, or ~/.graphmem."""
    return os.path.expanduser(home or os.environ.get("GRAPHMEM_HOME") or "~/.graphmem")


def read_settings(home: str) -> dict[str, Any]:
    """Returns the settings of the hooks, `{"url", "user_id", "api_key"?, …}`. Raises HookError without usable ones."""
    path = os.path.join(home, FILE_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except FileNotFoundError:
        raise HookError(f"{path} is missing; run 'graphmem install' again") from None
    except (OSError, ValueError):
        settings = None
    if not isinstance(settings, dict) or not all(isinstance(settings.get(key), str) for key in ("url", "user_id")):
        raise HookError(f"{path} cannot be used; delete it and run 'graphmem install' again")
    return settings


def address_of(url: str) -> tuple[bool, str, int, str]:
    """Splits a URL into whether it is HTTPS, host, port and path. Raises ValueError for anything else."""
    scheme, separator, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    if not separator or scheme not in {"http", "https"} or not authority or "@" in authority or set("?#") & set(rest):
        raise ValueError(url)
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    is_https = scheme == "https"
    number = int(port) if port else (443 if is_https else 80)
    if not host or not 0 < number < 65_536:  # noqa: PLR2004
        raise ValueError(url)
    return is_https, host, number, f"/{path}".rstrip("/")


def post(settings: dict[str, Any], path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Sends JSON to the service and returns that of its answer. Raises HookError, at the latest after `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        is_https, host, port, prefix = address_of(settings["url"])
    except ValueError:
        raise HookError("the url in hooks.json cannot be used; run 'graphmem install' with --url") from None
    key = settings.get("api_key") or ""
    content = json.dumps(body).encode()
    shown_host = f"[{host}]" if ":" in host else host
    head = (
        # HTTP/1.0: the answer ends with the connection, and has no chunks.
        f"POST {prefix}{path} HTTP/1.0\r\nHost: {shown_host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n{f'X-API-Key: {key}' + chr(13) + chr(10) if key else ''}\r\n"
    )
    try:
        answer = _exchange((host, port), head.encode("ascii") + content, deadline, is_https=is_https)
    except TimeoutError:
        raise HookError(f"{settings['url']} does not answer within {seconds:g} s") from None
    except UnicodeError:
        raise HookError("the url or the key in hooks.json has characters outside ASCII") from None
    except OSError as error:
        hint = "; start 'graphmem serve'" if isinstance(error, ConnectionRefusedError) else ""
        raise HookError(f"{settings['url']} cannot be reached ({type(error).__name__}){hint}") from None
    return _parsed(answer, settings["url"])


def _exchange(address: tuple[str, int], request: bytes, deadline: float, *, is_https: bool) -> bytes:
    host, port = address
    # As bytes: for a text, Python would load the tables of international names.
    place: Any = (host.encode("ascii"), port)
    connection = socket.create_connection(place, _left(deadline))
    try:
        if is_https:
            import ssl  # noqa: PLC0415  (takes as long as a fifth of a hook)

            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        connection.settimeout(_left(deadline))
        connection.sendall(request)
        answer = bytearray()
        while len(answer) <= MAX_ANSWER_BYTES:
            connection.settimeout(_left(deadline))
            part = connection.recv(65_536)
            if not part:
                return bytes(answer)
            answer += part
    finally:
        connection.close()
    raise HookError("the answer is longer than any of graphmem's")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _parsed(answer: bytes, url: str) -> dict[str, Any]:
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head[9:12].decode("latin-1")
    if not head.startswith(b"HTTP/1.") or not status.isdigit():
        raise HookError(f"{url} broke off its answer" if not head else f"{url} does not speak HTTP")
    if status in {"401", "403"}:
        raise HookError(f"{url} refuses the key ({status}); run 'graphmem install' with --key-file")
    if status[0] != "2":
        raise HookError(f"{url} answered with status {status}")
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise HookError(f"{url} broke off its answer")
    return value
