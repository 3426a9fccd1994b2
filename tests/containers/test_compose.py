"""`docker-compose.yml` without a container engine: its content, its validation by Compose, and its health checks.

Compose itself reads the file (the installed one or, with BUILD_COMPOSE=1, one built from the Go module proxy, which
takes minutes); it checks against the schema of the Compose specification. The commands of the health checks run here,
with other addresses, against real servers, a closed port, and a server that is not ready. Redis and Prometheus, where
they are installed, run with the commands that stand in the file. The Neo4j settings are looked up in a real server.

Not covered, because that needs an engine: that the images exist under these names and hold the tools that the health
checks call, and that the servers start in them with these users, read-only roots and dropped capabilities.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from support.compose import CHECKOUT, FILE, FILLED_IN, SECRETS, rendered, run_config
from support.service import served
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings

MONITORING = CHECKOUT / "graphmem" / "service" / "monitoring"
SCRAPES: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8"))
TEXT = FILE.read_text("utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
VOLUMES = set(yaml.safe_load(TEXT)["volumes"])
SERVERS = {name: service for name, service in SERVICES.items() if "restart" in service}


# --- content of the file -------------------------------------------------------------------------------------------


def test_what_stays_up_is_the_service_and_the_servers_around_it() -> None:
    assert set(SERVERS) == {"neo4j", "qdrant", "postgres", "redis", "prometheus", "serve", "worker"}
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"neo4j", "qdrant"}


@pytest.mark.parametrize("name", SERVERS)
def test_what_stays_up_is_pinned_checked_kept_and_locked_in(name: str) -> None:
    service = SERVERS[name]
    if name in {"serve", "worker"}:  # what the Dockerfile pins
        assert service["build"] == "."
    else:
        assert re.fullmatch(r"[a-z0-9/]+:v?\d+\.\d+(\.\d+)?(-[a-z-]+)*(@sha256:[0-9a-f]{64})?", service["image"])
    if name != "worker":  # which answers nobody
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    kept = [volume for volume in service.get("volumes", []) if not volume.startswith("./")]
    assert bool(kept) == (name != "redis")  # which holds nothing that is nowhere else but counters
    assert {volume.split(":")[0] for volume in kept} <= VOLUMES
    for file in set(service.get("volumes", [])) - set(kept):  # of the checkout, read only
        source, _, mode = file.split(":")
        assert (CHECKOUT / source).is_file()
        assert mode == "ro"
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_on_loopback_and_privileges_are_dropped(name: str) -> None:
    service = SERVICES[name]
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+|\$\{\w+:-\d+\}):\d+", port) for port in service.get("ports", []))
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_takes_no_more_than_its_share_of_memory_processors_and_disk(name: str) -> None:
    service = rendered(FILLED_IN + "COMPOSE_PROFILES=*\n")[name]
    assert re.fullmatch(r"\d+[gm]", service["mem_limit"])
    assert 1 <= float(service["cpus"]) <= 2  # the machine needs as many, or Docker refuses
    options = service["logging"]["options"]
    assert service["logging"]["driver"] == "json-file"
    assert options.keys() == {"max-size", "max-file"}


def test_the_shares_are_settings() -> None:
    env = "COMPOSE_PROFILES=*\nCPU_LIMIT=1\nSERVE_MEMORY=4g\nPOSTGRES_MEMORY=1g\nPOSTGRES_MAX_CONNECTIONS=200\n"
    services = rendered(FILLED_IN + env)
    assert {float(service["cpus"]) for service in services.values()} == {1}
    assert services["serve"]["mem_limit"] == services["graphmem"]["mem_limit"] == "4g"
    assert services["postgres"]["mem_limit"] == "1g"
    assert services["postgres"]["command"][-1] == "max_connections=200"


def test_no_secret_has_a_default_nor_stands_in_the_file() -> None:
    assert set(re.findall(r"\$\{(\w+):\?", TEXT)) == set(SECRETS)
    for name in SECRETS:  # never without the question mark that refuses an empty value ($$ is the container's own)
        assert not re.search(rf"(?<!\$)\$\{{?{name}\b(?!:\?)", TEXT)
    example = (CHECKOUT / ".env.example").read_text("utf-8")
    assert dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE)) == dict.fromkeys(SECRETS, "")
    assert ".env" in (CHECKOUT / ".gitignore").read_text("utf-8").split()


def test_the_command_line_and_the_service_work_on_the_same_memories() -> None:
    services = rendered(FILLED_IN + "COMPOSE_PROFILES=*\nGRAPHMEM_SESSION_GAP=5\n")
    command_line, worker, service = (
        Settings.from_env(services[name]["environment"]) for name in ("graphmem", "worker", "serve")
    )
    assert command_line.model_copy(update={"serve": service.serve}) == service
    assert worker == command_line
    assert services["graphmem"]["volumes"] == services["worker"]["volumes"] == services["serve"]["volumes"]


def test_the_service_takes_its_settings_and_is_reached_by_the_name_under_which_it_is_scraped() -> None:
    service = rendered(FILLED_IN + "COMPOSE_PROFILES=serve\n")["serve"]
    settings = Settings.from_env(service["environment"]).serve
    assert settings.admin_api_key is not None
    assert settings.admin_api_key.get_secret_value() == SECRETS["GRAPHMEM_ADMIN_API_KEY"]
    (job,) = SCRAPES["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in SERVICES
    assert host in settings.allowed_hosts
    assert int(port) == settings.port
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_prometheus_gets_the_key_as_a_file_and_keeps_data_for_as_long_as_the_alerts_look_back() -> None:
    service = SERVICES["prometheus"]
    (secret,) = service["secrets"]
    (job,) = SCRAPES["scrape_configs"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    assert "/metrics.key" in (CHECKOUT / ".gitignore").read_text("utf-8").split()
    (days,) = [int(found) for found in re.findall(r"retention\.time=(\d+)d", " ".join(service["command"]))]
    rules = (CHECKOUT / "graphmem/service/monitoring/alerts.yml").read_text("utf-8")
    assert days > max(int(found) for found in re.findall(r"offset (\d+)d", rules))


# --- validation by Compose -----------------------------------------------------------------------------------------


Config = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(compose: list[str], alone: Path) -> Config:
    """`config(*arguments, **variables)`: runs `compose config` on the file in `alone`, with these variables only."""

    return partial(run_config, compose, alone)


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with the file and nothing else, so that no .env of this machine is read."""
    shutil.copy(FILE, tmp_path)
    return tmp_path


@pytest.mark.server
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ([], {"neo4j", "qdrant"}),
        (["--profile", "postgres"], {"neo4j", "qdrant", "postgres"}),
        (["--profile", "cli"], {"neo4j", "qdrant", "graphmem"}),
        (["--profile", "serve"], {"neo4j", "qdrant", "serve"}),
        (["--profile", "worker"], {"neo4j", "qdrant", "worker"}),
        (["--profile", "workers"], {"neo4j", "qdrant", "postgres", "serve", "redis"}),
        (["--profile", "monitoring"], {"neo4j", "qdrant", "prometheus"}),
        (["--profile", "tests"], {"neo4j", "qdrant", "postgres", "tests"}),
    ],
)
def test_compose_takes_the_file(config: Config, profile: list[str], expected: set[str]) -> None:
    process = config(*profile, **SECRETS)
    assert process.returncode == 0, process.stderr
    assert not process.stderr
    services = json.loads(process.stdout)["services"]
    assert set(services) == expected
    for service in services.values():
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", []))
        for name, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy", name


@pytest.mark.server
def test_compose_checks_the_schema(config: Config, alone: Path) -> None:
    (alone / FILE.name).write_text(TEXT.replace("    healthcheck:", "    healthchek:"), "utf-8")
    process = config(**SECRETS)
    assert process.returncode != 0
    assert "healthchek" in process.stderr


@pytest.mark.server
@pytest.mark.parametrize("missing", SECRETS)
@pytest.mark.parametrize("empty", [False, True])
def test_compose_refuses_a_missing_secret_and_says_what_to_do(config: Config, missing: str, empty: bool) -> None:
    secrets = {name: value for name, value in SECRETS.items() if name != missing} | ({missing: ""} if empty else {})
    process = config(**secrets)
    assert process.returncode != 0
    assert f"set {missing} in .env, see .env.example" in process.stderr
    assert not any(value in process.stderr for value in SECRETS.values())


@pytest.mark.server
def test_compose_refuses_the_example_as_it_is(config: Config, alone: Path) -> None:
    shutil.copy(CHECKOUT / ".env.example", alone / ".env")
    assert config().returncode != 0


@pytest.mark.server
def test_the_command_line_gets_settings_that_graphmem_takes(config: Config) -> None:
    process = config("--profile", "cli", **SECRETS)
    settings = Settings.from_env(json.loads(process.stdout)["services"]["graphmem"]["environment"])
    assert settings.vector_store.config.url.get_secret_value() == "http://qdrant:6333"
    assert settings.vector_store.config.api_key is not None
    assert settings.vector_store.config.api_key.get_secret_value() == SECRETS["QDRANT_API_KEY"]
    assert settings.graph_store.provider == "neo4j"
    assert settings.graph_store.config.password.get_secret_value() == SECRETS["NEO4J_PASSWORD"]
    assert settings.ledger_url is None


# --- the programs that are no stores, run with their commands --------------------------------------------------------


@contextmanager
def running(*command: str | Path) -> Iterator[None]:
    """Runs a program while the block runs. Skips the test where the program is not installed."""
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.thorough
def test_redis_starts_with_its_command_and_is_healthy(tmp_path: Path) -> None:
    port = free_port()
    with running(*SERVICES["redis"]["command"], "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)):
        wait_until(lambda: check("redis", "127.0.0.1", port), "Redis did not get healthy")
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_prometheus_scrapes_with_the_key_and_has_the_rules_and_is_healthy(tmp_path: Path) -> None:
    key = tmp_path / "metrics.key"
    key.write_text("gm_0123abcd_secret\n", "utf-8")
    with serving(Metrics) as target:
        text = (MONITORING / "prometheus.yml").read_text("utf-8")
        for there, here in (
            ("/run/secrets/metrics-key", str(key)),
            ("serve:8700", f"127.0.0.1:{target}"),
            ("15s", "1s"),
        ):
            assert there in text
            text = text.replace(there, here)
        (tmp_path / "prometheus.yml").write_text(text, "utf-8")
        shutil.copy(MONITORING / "alerts.yml", tmp_path)
        moved = {"/etc/prometheus/": f"{tmp_path}/", "=/prometheus": f"={tmp_path}/data"}
        command = ["prometheus", *SERVICES["prometheus"]["command"]]
        for there, here in moved.items():
            command = [word.replace(there, here) for word in command]
        port = free_port()
        with running(*command, f"--web.listen-address=127.0.0.1:{port}"):
            wait_until(lambda: check("prometheus", "127.0.0.1", port), "Prometheus did not get healthy")

            def answer(path: str) -> Any:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=TIMEOUT) as response:
                    return json.load(response)["data"]

            wait_until(lambda: answer("query?query=graphmem_build_info")["result"], "nothing was scraped")
            rules = [rule["name"] for rule in answer("rules")["groups"][0]["rules"]]
            assert rules == re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text("utf-8"))


# --- the health checks ---------------------------------------------------------------------------------------------

ADDRESSES = {  # the address of each check in its command, and the same for another host and port
    "neo4j": ("http://127.0.0.1:7474", "http://{host}:{port}"),
    "qdrant": ("/dev/tcp/127.0.0.1/6333", "/dev/tcp/{host}/{port}"),
    "postgres": ("-h 127.0.0.1 -p 5432", "-h {host} -p {port}"),
    "redis": ("-h 127.0.0.1 -p 6379", "-h {host} -p {port}"),
    "prometheus": ("http://127.0.0.1:9090", "http://{host}:{port}"),
    "serve": ("http://127.0.0.1:8700", "http://{host}:{port}"),
}
TOOLS = {
    "neo4j": "wget", "qdrant": "bash", "postgres": "psql", "redis": "redis-cli", "prometheus": "wget", "serve": "python"
}  # fmt: skip
# The image has the command `python` that runs graphmem, as these tests' environment has.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def check(name: str, host: str, port: int, timeout: float = TIMEOUT, **environment: str) -> bool:
    """Run the health check of this service against another address, as the engine would: is the server healthy?"""
    kind, *command = SERVERS[name]["healthcheck"]["test"]
    if kind == "CMD-SHELL":
        command = ["/bin/sh", "-c", *command]
    here, there = ADDRESSES[name]
    assert sum(here in word for word in command) == 1
    command = [word.replace(here, there.format(host=host, port=port)).replace("$$", "$") for word in command]
    if not shutil.which(TOOLS[name], path=PATH):
        pytest.skip(f"no {TOOLS[name]} here")
    # The check's own timeout, or longer where a healthy server is expected: this machine may be busy.
    timeout = max(timeout, float(SERVERS[name]["healthcheck"]["timeout"].removesuffix("s")))
    variables = {"PATH": PATH, "NEO4J_AUTH": "neo4j/no-password", "POSTGRES_USER": "u",
                 "POSTGRES_DB": "d", "POSTGRES_PASSWORD": "p", **environment}  # fmt: skip
    try:
        process = subprocess.run(command, env=variables, check=False, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return False
    return process.returncode == 0


def from_url(variable: str) -> Any:
    """The parts of the URL in this variable; without it the test is skipped."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: no such server to ask")
    return urlsplit(os.environ[variable])


@pytest.mark.server
def test_neo4j_is_healthy() -> None:
    from_url("NEO4J_URI")
    url = from_url("NEO4J_BROWSER")  # the check asks over HTTP
    assert check("neo4j", url.hostname, url.port, NEO4J_AUTH=f"neo4j/{os.environ['NEO4J_PASSWORD']}")


@pytest.mark.server
def test_qdrant_is_healthy() -> None:
    url = from_url("QDRANT_URL")
    assert check("qdrant", url.hostname, url.port)


@pytest.mark.server
def test_postgres_is_healthy() -> None:
    url = from_url("POSTGRES_URL")
    account = {
        "POSTGRES_USER": url.username,
        "POSTGRES_PASSWORD": url.password,
        "POSTGRES_DB": url.path.removeprefix("/"),
    }
    assert check("postgres", url.hostname, url.port, **account)
    assert not check("postgres", url.hostname, url.port, **account | {"POSTGRES_DB": "no-such-database"})


class Unready(BaseHTTPRequestHandler):
    """Answers every request as a server does that is still starting."""

    def answer(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{"results": [], "errors":[{"code": "Neo.TransientError.General.DatabaseUnavailable"}]}')

    do_GET = do_POST = answer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Unwilling(Unready):
    """Answers at once, but the query failed: Neo4j says so in the body, with a status of success."""

    def send_response(self, *_: Any) -> None:
        super().send_response(200)

    do_GET = do_POST = Unready.answer


class Metrics(Unready):
    """Answers as `/metrics` does, to a request with the key of the test."""

    def do_GET(self) -> None:
        is_known = self.headers["Authorization"] == "Bearer gm_0123abcd_secret"
        self.send_response(200 if is_known and self.path == "/metrics" else 401)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b'graphmem_build_info{version="1"} 1\n')


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of an HTTP server on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name, service in SERVERS.items() if "healthcheck" in service])
def test_nothing_and_a_server_that_is_not_ready_are_unhealthy(name: str) -> None:
    with serving(Unready) as port:
        assert not check(name, "127.0.0.1", port, timeout=0)
    assert not check(name, "127.0.0.1", port)  # closed by now


def test_the_service_is_healthy_while_its_ledger_answers(memory: Memory) -> None:
    with served(memory) as address:
        port = int(address.rpartition(":")[2])
        assert check("serve", "127.0.0.1", port)
        memory.close()
        assert not check("serve", "127.0.0.1", port)


def test_a_neo4j_that_cannot_run_the_query_is_unhealthy() -> None:
    with serving(Unwilling) as port:
        assert not check("neo4j", "127.0.0.1", port)


# --- Neo4j's settings ----------------------------------------------------------------------------------------------


@pytest.mark.server
def test_the_server_knows_every_setting() -> None:
    browser = from_url("NEO4J_BROWSER")
    account = base64.b64encode(f"neo4j:{os.environ['NEO4J_PASSWORD']}".encode()).decode()
    statement = {"statements": [{"statement": "SHOW SETTINGS YIELD name RETURN name"}]}
    request = urllib.request.Request(
        f"http://{browser.netloc}/db/system/tx/commit",
        json.dumps(statement).encode(),
        {"Content-Type": "application/json", "Authorization": f"Basic {account}"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
        (result,) = json.load(response)["results"]
    server_settings = {row["row"][0] for row in result["data"]}
    variables = set(SERVERS["neo4j"]["environment"]) - {"NEO4J_AUTH"}
    # As the image's start script reads them: _ is a dot, __ an underscore.
    settings = {name.removeprefix("NEO4J_").replace("_", ".").replace("..", "_") for name in variables}
    assert len(settings) > 5
    assert settings <= server_settings
