"""`examples/tls`: Caddy in front of the service. Caddy itself, where it is installed, reads its configuration and runs.

Not covered, for want of an engine and of a public name: certificates of Let's Encrypt, the network of both containers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from support.compose import CHECKOUT, FILE, FILLED_IN, rendered
from support.service import free_port, headers, ok, served
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.service.limits import MAX_IMPORT_BYTES
from graphmem.service.problems import OPENAI_PATHS
from graphmem.settings.schema import ServeSettings

Render = Callable[[str], dict[str, dict[str, Any]]]
FOLDER = CHECKOUT / "examples" / "tls"
CADDYFILE = (FOLDER / "Caddyfile").read_text("utf-8")
HOST = "memory.example.org"
ENV = FILLED_IN + f"COMPOSE_FILE={FILE.name}:examples/tls/{FILE.name}\nCOMPOSE_PROFILES=serve\nTLS_HOST={HOST}\n"
needs_caddy = pytest.mark.skipif(not shutil.which("caddy"), reason="no Caddy on this machine (Debian: caddy)")


# --- the compose file ------------------------------------------------------------------------------------------------


def test_caddy_is_pinned_checked_locked_in_and_limited() -> None:
    caddy = yaml.safe_load((FOLDER / FILE.name).read_text("utf-8"))["services"]["caddy"]
    base = yaml.safe_load(FILE.read_text("utf-8"))["services"]["serve"]
    assert re.fullmatch(r"caddy:\d+\.\d+\.\d+-alpine@sha256:[0-9a-f]{64}", caddy["image"])
    for name in ("security_opt", "cap_drop", "read_only", "restart", "logging", "stop_grace_period", "profiles"):
        assert caddy[name] == base[name], name
    assert caddy["mem_limit"]
    assert caddy["cpus"]
    assert caddy["cap_add"] == ["NET_BIND_SERVICE"]
    for volume in caddy["volumes"]:
        source, *_ = volume.split(":")
        assert (CHECKOUT / source).is_file() if source.startswith("./") else source.startswith("caddy-")


def test_the_service_takes_the_host_and_believes_caddy_alone(render: Render) -> None:
    services = render(ENV + "GRAPHMEM_SERVE__ALLOWED_HOSTS=memory.internal\n")
    serve = Settings.from_env(services["serve"]["environment"]).serve
    assert serve.allowed_hosts == ("serve", HOST, "memory.internal")
    assert serve.forwarded_allow_ips == services["caddy"]["networks"]["tls"]["ipv4_address"]
    assert set(services["serve"]["networks"]) == {"default", "tls"}
    assert set(services["caddy"]["networks"]) == {"tls"}
    assert services["caddy"]["environment"]["TLS_HOST"] == HOST
    assert not [value for value in services["caddy"]["environment"].values() if value.endswith(("secret", "key00"))]


def test_without_a_host_name_nothing_starts() -> None:
    with pytest.raises(ValueError, match=r"set TLS_HOST in \.env"):
        rendered(ENV.replace(f"TLS_HOST={HOST}", "TLS_HOST="))


# --- the configuration, as Caddy reads it ----------------------------------------------------------------------------


def adapted(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The routes of the one server that Caddy makes of the Caddyfile, in their order; checks that it would start."""
    command = ["caddy", "adapt", "--config", str(FOLDER / "Caddyfile"), "--adapter", "caddyfile", "--validate"]
    variables = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
    process = subprocess.run(command, env=variables, check=False, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode == 0, process.stderr
    (server,) = json.loads(process.stdout)["apps"]["http"]["servers"].values()
    assert server["listen"] == [":443"]
    (site,) = server["routes"]
    assert site["match"] == [{"host": [environment["TLS_HOST"]]}]
    routes: list[dict[str, Any]] = site["handle"][0]["routes"]
    return routes


def limits(routes: list[dict[str, Any]]) -> dict[str, int]:
    """The most bytes of a body, by path; "" are all other paths."""
    found: dict[str, int] = {}
    excepted = []
    for route in routes:
        if route["handle"][0]["handler"] == "request_body":
            (match,) = route["match"]
            excepted += match.get("not", [{}])[0].get("path", [])
            found |= dict.fromkeys(match.get("path", [""]), route["handle"][0]["max_size"])
    assert set(excepted) == set(found) - {""}  # each path has one limit
    return found


@needs_caddy
@pytest.mark.parametrize(
    ("setting", "value"), [("", 0), ("max_body_bytes", 8_000_000), ("proxy.max_body_bytes", 50_000_000)]
)
def test_the_limits_of_bodies_are_those_of_the_service(render: Render, setting: str, value: int) -> None:
    line = f"GRAPHMEM_SERVE__{setting.replace('.', '__').upper()}={value}\n" if setting else ""
    services = render(ENV + line)
    serve = Settings.from_env(services["serve"]["environment"]).serve
    routes = adapted(services["caddy"]["environment"])
    chats = dict.fromkeys(OPENAI_PATHS, serve.proxy.max_body_bytes)
    assert limits(routes) == {"": serve.max_body_bytes, "/import": MAX_IMPORT_BYTES, **chats}


@needs_caddy
def test_by_itself_it_has_the_limits_that_the_service_has_by_default() -> None:
    found = limits(adapted({"TLS_HOST": HOST}))
    assert found[""] == ServeSettings().max_body_bytes
    assert found["/v1/models"] == ServeSettings().proxy.max_body_bytes


@needs_caddy
def test_requests_go_to_the_service_with_the_header_host_as_it_is(render: Render) -> None:
    services = render(ENV)
    (proxy,) = [
        handler
        for route in adapted(services["caddy"]["environment"])
        for handler in route["handle"]
        if handler["handler"] == "reverse_proxy"
    ]
    port = services["serve"]["command"][-1]
    assert proxy == {"handler": "reverse_proxy", "upstreams": [{"dial": f"serve:{port}"}]}  # so nothing is rewritten


# --- Caddy in front of a service --------------------------------------------------------------------------------------


@contextmanager
def caddy(folder: Path, upstream: str) -> Iterator[tuple[str, ssl.SSLContext, int]]:
    """Runs Caddy with its own authority and on free ports: its address, what to trust, the port of its admin."""
    https, http, admin = free_port(), free_port(), free_port()
    options = (
        f"{{\n http_port {http}\n https_port {https}\n admin 127.0.0.1:{admin}\n skip_install_trust\n local_certs\n}}\n"
    )
    (folder / "Caddyfile").write_text(options + CADDYFILE, "utf-8")
    variables = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder),
        "TLS_HOST": HOST, "UPSTREAM": upstream,
    }  # fmt: skip
    root = folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    certificates = folder / "caddy" / "certificates" / "local" / HOST / f"{HOST}.crt"
    with subprocess.Popen(
        ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"],
        env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: certificates.exists() or process.poll() is not None, "Caddy makes no certificate")
            assert process.poll() is None
            yield f"https://127.0.0.1:{https}", ssl.create_default_context(cafile=str(root)), admin
        finally:
            process.terminate()


class Browser:
    """Sends requests to the host of the Caddyfile from an address of this machine."""

    def __init__(self, address: str, trusted: ssl.SSLContext, source: str) -> None:
        transport = httpx2.HTTPTransport(verify=trusted, local_address=source)
        self._client = httpx2.Client(base_url=address, transport=transport, timeout=TIMEOUT)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        sent = {"Host": HOST, **options.pop("headers", {})}
        return self._client.request(method, path, headers=sent, extensions={"sni_hostname": HOST}, **options)


@needs_caddy
@pytest.mark.thorough
def test_a_service_behind_caddy_has_tls_addresses_and_limits(memory: Memory, tmp_path: Path) -> None:
    with ExitStack() as stack:
        upstream = stack.enter_context(
            served(memory, allowed_hosts=[HOST], forwarded_allow_ips="127.0.0.1")
        ).removeprefix("http://")
        address, trusted, admin = stack.enter_context(caddy(tmp_path, upstream))
        one = stack.enter_context(Browser(address, trusted, "127.0.0.2"))
        other = stack.enter_context(Browser(address, trusted, "127.0.0.3"))
        wait_until(lambda: is_answered(one), "Caddy does not answer")

        key = headers(memory)
        body = {"messages": "Clara drinks tea.", "user_id": "ana"}
        ok(one.send("POST", "/memories", json=body, headers={**key, "Origin": f"https://{HOST}"}))
        assert one.send("GET", "/healthz", headers=key).headers["Strict-Transport-Security"]

        # What a client says about its address is dropped, what Caddy says is believed: another client is not refused.
        addresses = (f"10.0.{number // 256}.{number % 256}" for number in count())
        wait_until(lambda: refusal(one, next(addresses)) == 429, "each request seems to come from somewhere else")
        assert refusal(other, "10.0.0.1") == 401

        serve = ServeSettings()
        too_long = b" " * (serve.max_body_bytes + 1)
        json_type = {**key, "Content-Type": "application/json"}
        assert one.send("POST", "/memories", content=too_long, headers=json_type).status_code == 413
        assert one.send("POST", "/memories", content=iter([too_long]), headers=json_type).status_code == 413
        for path in ("/import", "/v1/chat/completions"):
            assert one.send("POST", path, content=too_long, headers=json_type).status_code not in {413, 502}

        kind, *check = yaml.safe_load((FOLDER / FILE.name).read_text("utf-8"))["services"]["caddy"]["healthcheck"][
            "test"
        ]
        assert kind == "CMD"
        command = [word.replace("127.0.0.1:2019", f"127.0.0.1:{admin}") for word in check]
        assert command != check
        subprocess.run(command, check=True, timeout=TIMEOUT)


def refusal(browser: Browser, forged: str) -> int:
    """The status of a request with a wrong key that says it comes from another address."""
    return browser.send("GET", "/memories", headers={"X-Forwarded-For": forged, "X-API-Key": "wrong"}).status_code


def is_answered(browser: Browser) -> bool:
    try:
        return browser.send("GET", "/healthz").status_code == 200
    except httpx2.TransportError:
        return False
