"""The `.env` of `docker-compose.yml`: all that an operator sets there arrives, and nobody gets the passwords of others.

What containers get is read by the tests' own reader and, where there is one, by Compose itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from support.compose import CHECKOUT, FILE, FILLED_IN, SECRETS, read_env

from graphmem import Settings
from graphmem.errors import ConfigError
from graphmem.service.server import _check_shared_ledger

Render = Callable[[str], dict[str, dict[str, Any]]]
EXAMPLE = (CHECKOUT / ".env.example").read_text("utf-8")
_EXAMPLE_LINE = re.compile(r"# (\w+=.*)")
# The examples, in the groups in which they stand: each is usable by itself.
GROUPS = [
    "".join(f"{line}\n" for line in lines)
    for paragraph in EXAMPLE.split("\n\n")
    if (lines := [found[1] for line in paragraph.splitlines() if (found := _EXAMPLE_LINE.fullmatch(line))])
]
ALL_SERVICES = "COMPOSE_PROFILES=*\n"
# What an operator of a service with a model, a proxy and two processes writes.
OPERATED = (
    FILLED_IN
    + r"""
COMPOSE_PROFILES=workers
GRAPHMEM_SERVE__WORKERS=2
GRAPHMEM_LEDGER_URL=postgresql://graphmem:${POSTGRES_PASSWORD}@postgres:5432/graphmem
GRAPHMEM_SERVE__REDIS_URL=redis://redis:6379/0
GRAPHMEM_LLM__CONFIG__MODEL=llama3.1   # on this machine
GRAPHMEM_LLM__CONFIG__OPENAI_BASE_URL="http://host.docker.internal:11434/v1"
GRAPHMEM_LLM__CONFIG__API_KEY='with $ and # in it'
GRAPHMEM_LLM__CONFIG__TEMPERATURE=
GRAPHMEM_EMBEDDER__PROVIDER=openai
GRAPHMEM_EMBEDDER__CONFIG__MODEL=bge-m3
GRAPHMEM_SERVE__PROXY__UPSTREAM_URL=https://models.example.org/v1
GRAPHMEM_SERVE__PROXY__SKIP='["\\A### Task:", "a{1,2}"]'
GRAPHMEM_SERVE__CORS_ORIGINS=https://chat.example.org,https://app.example.org
GRAPHMEM_SERVE__ALLOWED_HOSTS=memory.example.org, memory.internal
GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS=172.16.0.0/12
GRAPHMEM_SECRET_KEY=0123456789abcdef0123456789abcdef
OPENAI_API_KEY=openaikey
"""
)


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def test_a_model_a_proxy_and_two_processes_are_set_by_the_file_alone(render: Render) -> None:
    services = render(OPERATED)
    assert set(services) == {"neo4j", "qdrant", "postgres", "redis", "serve"}
    environment = services["serve"]["environment"]
    settings = Settings.from_env(environment)
    _check_shared_ledger(settings)
    assert settings.serve.workers == 2
    assert secret(settings.ledger_url) == "postgresql://graphmem:postgressecret@postgres:5432/graphmem"
    assert secret(settings.secret_key) == "0123456789abcdef0123456789abcdef"
    assert secret(settings.vector_store.config.url) == "http://qdrant:6333"
    assert secret(settings.vector_store.config.api_key) == SECRETS["QDRANT_API_KEY"]
    assert secret(settings.graph_store.config.password) == SECRETS["NEO4J_PASSWORD"]
    assert secret(settings.serve.redis_url) == "redis://redis:6379/0"
    assert settings.llm.config.model == "llama3.1"
    assert secret(settings.llm.config.openai_base_url) == "http://host.docker.internal:11434/v1"
    assert secret(settings.llm.config.api_key) == "with $ and # in it"
    assert settings.llm.config.temperature is None
    assert (settings.embedder.provider, settings.embedder.config.model) == ("openai", "bge-m3")
    assert secret(settings.serve.proxy.upstream_url) == "https://models.example.org/v1"
    assert settings.serve.proxy.skip == (r"\A### Task:", "a{1,2}")
    assert settings.serve.cors_origins == ("https://chat.example.org", "https://app.example.org")
    assert settings.serve.allowed_hosts == ("serve", "memory.example.org", "memory.internal")
    assert settings.serve.forwarded_allow_ips == "172.16.0.0/12"
    assert environment["OPENAI_API_KEY"] == "openaikey"
    assert any("host.docker.internal" in host for host in services["serve"]["extra_hosts"])


def test_two_processes_without_postgresql_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than one process needs ledger_url"):
        _check_shared_ledger(Settings.from_env({"GRAPHMEM_SERVE__WORKERS": "2"}))


def test_without_further_lines_everything_else_is_the_default(render: Render) -> None:
    environment = render(FILLED_IN + ALL_SERVICES)["serve"]["environment"]
    settings = Settings.from_env(environment)
    set_by_compose = {"allowed_hosts": (), "admin_api_key": None}
    assert settings.serve.model_copy(update=set_by_compose) == Settings().serve
    names = set(Settings.model_fields) - {"serve", "home", "vector_store", "graph_store"}
    assert {name: getattr(settings, name) for name in names} == {name: getattr(Settings(), name) for name in names}


def test_what_the_compose_file_sets_counts_more(render: Render) -> None:
    env = "GRAPHMEM_HOME=/home/ana\nGRAPHMEM_SERVE__HOST=10.0.0.1\nGRAPHMEM_SERVE__PORT=9000\n"
    service = render(FILLED_IN + ALL_SERVICES + env)["serve"]
    assert service["environment"]["GRAPHMEM_HOME"] == "/data"
    assert service["command"] == ["serve", "--host", "0.0.0.0", "--port", "8700"]  # noqa: S104
    assert "127.0.0.1:8700" in service["healthcheck"]["test"][-1]
    (port,) = service["ports"]
    published = port if isinstance(port, str) else "{host_ip}:{published}:{target}".format(**port)
    assert published == "127.0.0.1:9000:8700"


def test_each_container_gets_the_passwords_that_it_needs_and_no_others(render: Render) -> None:
    services = render(FILLED_IN + ALL_SERVICES)
    given = {
        name: {secret for secret, value in SECRETS.items() if value in str(service.get("environment"))}
        for name, service in services.items()
    }
    assert given == {
        "neo4j": {"NEO4J_PASSWORD"},
        "qdrant": {"QDRANT_API_KEY"},
        "postgres": {"POSTGRES_PASSWORD"},
        "redis": set(),
        "prometheus": set(),
        "serve": {"NEO4J_PASSWORD", "QDRANT_API_KEY", "GRAPHMEM_ADMIN_API_KEY"},
        "graphmem": {"NEO4J_PASSWORD", "QDRANT_API_KEY"},
        "worker": {"NEO4J_PASSWORD", "QDRANT_API_KEY"},
        "tests": {"NEO4J_PASSWORD", "QDRANT_API_KEY", "POSTGRES_PASSWORD"},
    }
    for name in ("serve", "graphmem"):  # under the names of settings alone
        assert not any(services[name]["environment"][server] for server in SECRETS if not server.startswith("GRAPHMEM"))


# --- .env.example ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.partition("=")[0])
def test_an_example_is_usable_as_it_stands(render: Render, group: str) -> None:
    profiles = "" if "COMPOSE_PROFILES" in group else ALL_SERVICES
    services = render(FILLED_IN + group + profiles)
    if "serve" not in services:
        assert "GRAPHMEM_" not in group
        return
    environment = services["serve"]["environment"]
    settings = Settings.from_env(environment)  # refuses what is no setting
    assert settings.without_effect() == []
    if settings.serve.workers > 1:
        _check_shared_ledger(settings)
    for name, value in read_env(FILLED_IN + group).items():
        if name.startswith(("GRAPHMEM_", "OPENAI_")):
            assert value in environment[name]


@pytest.mark.parametrize("page", ["service.md", "servers.md"])
def test_a_page_has_the_lines_of_an_example(page: str) -> None:
    text = (CHECKOUT / "docs" / "how-to" / page).read_text("utf-8")
    (block,) = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    lines = block.splitlines()
    assert any(set(lines) - {"COMPOSE_PROFILES=serve"} <= set(group.splitlines()) for group in GROUPS)


def test_an_example_without_its_value_is_not_set(render: Render) -> None:
    empty = "".join(f"{name}=\n" for group in GROUPS for name in read_env(group) if not name.startswith("COMPOSE_"))
    services = render(FILLED_IN + empty + ALL_SERVICES)
    expected = render(FILLED_IN + ALL_SERVICES)
    for name in ("serve", "graphmem"):
        assert Settings.from_env(services[name]["environment"]) == Settings.from_env(expected[name]["environment"])
    assert {name: (one["cpus"], one["mem_limit"]) for name, one in services.items()} == {
        name: (one["cpus"], one["mem_limit"]) for name, one in expected.items()
    }


def test_an_example_that_is_no_setting_is_one_of_the_compose_files() -> None:
    files = "".join(path.read_text("utf-8") for path in (FILE, CHECKOUT / "examples" / "tls" / FILE.name))
    names = {name for group in GROUPS for name in read_env(group) if not name.startswith(("GRAPHMEM_", "OPENAI_"))}
    of_compose = {"COMPOSE_FILE", "COMPOSE_PROFILES"}
    assert names - of_compose == names & set(re.findall(r"\$\{(\w+)", files))
    # All of them are there: the file says what can be set.
    used = set(re.findall(r"\$\{(\w+):[-+]", files)) - {"TLS_NETWORK"}
    assert used <= {name for group in GROUPS for name in read_env(group)}


def test_the_examples_say_how_to_set_what_an_operator_asks_for_first() -> None:
    sections = {"LLM", "EMBEDDER", "EXTRACTOR", "SERVE", "SERVE__PROXY", "VECTOR_STORE"}
    named = {name for group in GROUPS for name in read_env(group)}
    assert all(any(name.startswith(f"GRAPHMEM_{section}__") for name in named) for section in sections)
    assert {
        "GRAPHMEM_SERVE__WORKERS",
        "GRAPHMEM_SERVE__CORS_ORIGINS",
        "GRAPHMEM_SERVE__ALLOWED_HOSTS",
        "GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS",
    } <= named
