"""docs/how-to/operate.md: its configurations of nginx and Caddy in front of a service, and what it has a shell do.

Only addresses and paths are put in their place, and Caddy gets no certificate. Its other examples run in
`test_examples.py`, its commands for PostgreSQL in tests/server/test_postgres_backup.py.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from support.service import free_port, headers, ok, served
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.testing import ModelEndpoint, behaviours

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operate.md").read_text("utf-8")
HOST = "memory.example.org"
SERVICE = "127.0.0.1:8700"
TEXT = "An answer of some words, which comes in parts."


def block(title: str) -> str:
    """The text of the page's block with this title."""
    (text,) = re.findall(rf'(?ms)^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE)
    return str(text)


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A program that listens on a port until the end of the block."""
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text("utf-8")
            try:
                httpx2.get(f"http://127.0.0.1:{port}/")
            except httpx2.ConnectError:
                return False
            except httpx2.HTTPError:
                pass
            return True

        wait_until(answers)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def nginx(upstream: str, folder: Path) -> Iterator[str]:
    """The page's nginx, with a certificate of its own; yields its address."""
    port, key, certificate = free_port(), folder / "memory.key", folder / "memory.pem"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={HOST}".split()
    subprocess.run([*request, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = block("nginx.conf")
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"), ("/etc/ssl/memory.pem", str(certificate)),
        ("/etc/ssl/memory.key", str(key)), (SERVICE, upstream),
    ):  # fmt: skip
        assert server.count(old) == 1, old
        server = server.replace(old, new)
    account = "user root;" if os.geteuid() == 0 else ""  # whose folders the tests write to
    configuration = folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration.write_text(
        f"daemon off; master_process off; {account} pid {folder}/pid; error_log {folder}/error.log; events {{}} "
        f"http {{ {temporary} {server} }}"
    )
    command = ["nginx", "-c", str(configuration), "-e", str(folder / "start.log")]
    with running(command, port, folder):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def caddy(upstream: str, folder: Path) -> Iterator[str]:
    """The page's Caddy, without TLS; yields its address."""
    port, configuration = free_port(), folder / "Caddyfile"
    configuration.write_text(block("Caddyfile"))
    validate = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(configuration)]
    subprocess.run(validate, env={**os.environ, "HOME": str(folder)}, check=True, capture_output=True, timeout=TIMEOUT)
    server = block("Caddyfile")
    assert server.count(f"{HOST} {{") == server.count(SERVICE) == 1
    server = server.replace(f"{HOST} {{", f"http://{HOST}:{port} {{\n    bind 127.0.0.1").replace(SERVICE, upstream)
    configuration.write_text("{\n    admin off\n}\n" + server)
    with running(["caddy", "run", "--adapter", "caddyfile", "--config", str(configuration)], port, folder):
        yield f"http://127.0.0.1:{port}"


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(
    params=[pytest.param(nginx, marks=needs("nginx", "openssl")), pytest.param(caddy, marks=needs("caddy"))]
)
def proxied(
    request: pytest.FixtureRequest, memory: Memory, tmp_path: Path
) -> Iterator[tuple[httpx2.Client, ModelEndpoint]]:
    """A client of a service behind a proxy, with the key of an admin, and the service's language model."""
    start: Callable[[str, Path], Iterator[str]] = request.param
    with ExitStack() as stack:
        endpoint = stack.enter_context(ModelEndpoint(default=TEXT))
        configured = tomllib.loads(block("service.toml"))["serve"]
        url = stack.enter_context(served(memory, **configured, proxy={"upstream_url": endpoint.url}))
        address = stack.enter_context(start(url.removeprefix("http://"), tmp_path))  # type: ignore[arg-type]
        sent = {**headers(memory), "Host": HOST}
        client = stack.enter_context(httpx2.Client(base_url=address, headers=sent, verify=False, timeout=TIMEOUT))
        yield client, endpoint


def test_a_proxy_passes_requests_on_but_for_metrics(proxied: tuple[httpx2.Client, ModelEndpoint]) -> None:
    client, _ = proxied
    assert ok(client.get("/caller"))["role"] == "admin"
    assert client.get("/ui/").status_code == 200
    assert client.get("/metrics").status_code == 404
    page = {"Origin": f"https://{HOST}"}
    assert ok(client.post("/search", json={"user_id": "ana", "query": "tea"}, headers=page))["results"] == []
    assert ok(client.get("/caller", headers={"Origin": "https://elsewhere.example"}), 403)


def test_an_address_that_a_client_claims_is_not_believed(proxied: tuple[httpx2.Client, ModelEndpoint]) -> None:
    client, _ = proxied
    answers = [
        client.get("/memories", headers={"X-API-Key": "wrong", "X-Forwarded-For": f"192.0.2.{number}"}).status_code
        for number in range(21)
    ]
    assert answers == [401] * 20 + [429]


def test_streams_and_large_bodies_pass(proxied: tuple[httpx2.Client, ModelEndpoint], memory: Memory) -> None:
    client, endpoint = proxied
    endpoint.then(behaviours.stalled())
    chat = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "How is tea?"}]}
    with client.stream("POST", "/v1/chat/completions", json=chat) as answer:
        assert "data:" in next(answer.iter_text())  # while the endpoint has not come to its end
    assert endpoint.requests[-1].abandoned.wait(TIMEOUT)
    large = [{"role": "user", "content": f"Tea {number}.", "metadata": {"note": "x" * 250_000}} for number in range(20)]
    memory.add(large, user_id="ana")
    memory.export(file := io.BytesIO())
    assert len(file.getvalue()) > 5_000_000
    file.seek(0)
    assert ok(client.post("/import", content=iter(lambda: file.read(100_000), b"")))["known"] == 20
    assert client.get("/export").content.count(b"\n") == file.getvalue().count(b"\n")


def test_the_ledger_of_a_volume_is_put_in_place_of_the_former_one(tmp_path: Path) -> None:
    """The shell's part of the command for containers, with the volume in another place."""
    (line,) = re.findall(r"(?m)^(docker compose run .*--entrypoint=sh serve .*\\\n.*)$", PAGE)
    *_, script, source = shlex.split(line.replace("\\\n", " ").replace(" <ledger.sqlite", " ledger.sqlite"))
    assert source == "ledger.sqlite"
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "secret.key"):
        (tmp_path / name).write_text(f"former {name}")
    shell = ["sh", "-euc", script.replace("/data", str(tmp_path))]
    subprocess.run(shell, input=b"restored", check=True, timeout=TIMEOUT)
    assert sorted(os.listdir(tmp_path)) == ["before", "ledger.sqlite", "secret.key"]
    assert sorted(os.listdir(tmp_path / "before")) == ["ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal"]
    assert (tmp_path / "ledger.sqlite").read_bytes() == b"restored"
    assert (tmp_path / "ledger.sqlite").stat().st_mode & 0o77 == 0


def test_a_backup_and_its_secret_key_are_put_into_a_new_home(tmp_path: Path) -> None:
    lines = re.findall(r"(?m)^(?:mkdir|install) .*$", PAGE)
    assert len(lines) == 2
    for name in ("ledger.sqlite", "secret.key"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o644)
    subprocess.run(["sh", "-euc", "\n".join(lines)], cwd=tmp_path, check=True, timeout=TIMEOUT)
    assert (tmp_path / "restored").stat().st_mode & 0o777 == 0o700
    for name in ("ledger.sqlite", "secret.key"):
        assert (tmp_path / "restored" / name).read_text() == name
        assert (tmp_path / "restored" / name).stat().st_mode & 0o777 == 0o600
