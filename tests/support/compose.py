"""`docker-compose.yml` as Compose reads it, without Compose: with the variables of a `.env`, and what containers get.

Read are the parts of the format that the file uses: `${NAME}` with `:-`, `:+` and `:?`, `env_file`, profiles, and
further files in COMPOSE_FILE. `tests/containers` has Compose itself read the same where there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from graphmem.settings.sources import merge
from support.waiting import TIMEOUT

CHECKOUT = Path(__file__).parents[2]
FILE = CHECKOUT / "docker-compose.yml"
SECRETS = {
    "NEO4J_PASSWORD": "neo4jsecret",
    "QDRANT_API_KEY": "qdrantsecret",
    "POSTGRES_PASSWORD": "postgressecret",
    "GRAPHMEM_ADMIN_API_KEY": "adminkeysecret00",
}
# A `.env` without which nothing starts.
FILLED_IN = "".join(f"{name}={value}\n" for name, value in SECRETS.items())

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>\w+)|\{(?P<name>\w+)(?::(?P<kind>[-+?])(?P<other>[^{}]*))?\})")
_LINE = re.compile(r"""^(\w+)=(?:'([^']*)'|"([^"]*)"|(.*?))(?:\s+#.*)?\s*$""")


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """A value with the contents of variables. Raises ValueError for an empty one that is needed, with its message."""

    def content(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        text, other = variables.get(found["plain"] or found["name"], ""), found["other"] or ""
        if found["kind"] == "?" and not text:
            raise ValueError(other)
        if (found["kind"] == "-" and not text) or (found["kind"] == "+" and text):
            return str(interpolated(other, variables))
        return "" if found["kind"] == "+" else text

    if isinstance(value, str):
        return _VARIABLE.sub(content, value)
    if isinstance(value, Mapping):
        return {key: interpolated(one, variables) for key, one in value.items()}
    return [interpolated(one, variables) for one in value] if isinstance(value, list) else value


def read_env(text: str) -> dict[str, str]:
    """The variables of a `.env`; they may name those above them."""
    variables: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            found = _LINE.match(line)
            assert found is not None, "no line of a .env"
            name, literal, quoted, plain = found.groups()
            variables[name] = literal if literal is not None else interpolated(quoted or plain or "", variables)
    return variables


def rendered(env: str) -> dict[str, dict[str, Any]]:
    """The services that start with this `.env`, each with its whole `environment`."""
    variables = read_env(env)
    document: dict[str, Any] = {}
    for file in variables.get("COMPOSE_FILE", FILE.name).split(":"):
        document = merge(document, yaml.safe_load((CHECKOUT / file).read_text("utf-8")))
    profiles = set(variables.get("COMPOSE_PROFILES", "").split(","))
    services = {}
    for name, service in document["services"].items():
        if "profiles" not in service or profiles & {"*", *service["profiles"]}:
            values = interpolated(service, variables)
            assert values.get("env_file", []) in ([], [{"path": ".env", "required": False}])
            given = variables if "env_file" in values else {}
            services[name] = {**values, "environment": {**given, **values.get("environment", {})}}
    return services


def run_config(compose: list[str], folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `compose config` in a folder, with these variables only."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [*compose, *arguments, "config", "--format", "json"],
        cwd=folder, env=inherited | variables, check=False, capture_output=True, text=True, timeout=2 * TIMEOUT,
    )  # fmt: skip
