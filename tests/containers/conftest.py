"""Compose itself, and what a `.env` makes of the compose file: by the tests' own reader, and by Compose."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.compose import CHECKOUT, FILE, rendered, run_config
from support.waiting import SLOWNESS, TIMEOUT

Render = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs Compose."""
    if shutil.which("docker"):
        installed = subprocess.run(["docker", "compose", "version"], check=False, capture_output=True, timeout=TIMEOUT)
        if installed.returncode == 0:
            return ["docker", "compose"]
    if not (os.environ.get("BUILD_COMPOSE") and shutil.which("go")):
        pytest.skip("no Docker Compose; BUILD_COMPOSE=1 builds it with Go, which takes minutes")
    source = Path(__file__).parent / "compose"
    built = tmp_path_factory.mktemp("compose") / "docker-compose"
    subprocess.run(
        ["go", "build", "-o", str(built), "github.com/docker/compose/v5/cmd"],
        cwd=source,
        check=True,
        timeout=900 * SLOWNESS,
    )
    return [str(built)]


@pytest.fixture(params=["reader", pytest.param("compose", marks=pytest.mark.server)])
def render(request: pytest.FixtureRequest, tmp_path: Path) -> Render:
    """`render(env)`: the services that start with this `.env`, each with its whole `environment`."""
    if request.param == "reader":
        return rendered
    command = request.getfixturevalue("compose")
    shutil.copy(FILE, tmp_path)
    shutil.copytree(CHECKOUT / "examples" / "tls", tmp_path / "examples" / "tls")

    def config(env: str) -> dict[str, dict[str, Any]]:
        (tmp_path / ".env").write_text(env, "utf-8")
        process = run_config(command, tmp_path)
        assert process.returncode == 0, process.stderr
        # Its output is a compose file again, in which a dollar sign is written twice.
        services: dict[str, dict[str, Any]] = json.loads(process.stdout.replace("$$", "$"))["services"]
        return services

    return config
