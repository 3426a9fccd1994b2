"""The steps of the Dockerfile, run in an empty folder, and then the command of the image.

The steps are read from the Dockerfile: each COPY and RUN of the stages that the last one needs is carried out with the
absolute paths of the image moved below one folder, and with a new virtual environment in the part of the base image.
Left out are the two steps that change the system (`useradd`, `install --directory` with an owner); the test fails at
any other step that it does not know. Then `graphmem`, and its service, run with the variables of the last stage and no
others.

Not covered, because that needs an engine: the base image itself (its Python, its libraries), layers, users and
ownership, the read-only root, the stage `tests`, and that each stage sees its own files only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from subprocess import PIPE
from urllib.error import URLError

import dockerfile_parse
import pytest
import yaml
from support.waiting import SLOWNESS, TIMEOUT, wait_until

CHECKOUT = Path(__file__).parents[2]
SERVE = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text("utf-8"))["services"]["serve"]
ROOTS = ("/src", "/wheels", "/opt/graphmem", "/data")  # the folders that the Dockerfile writes to
SYSTEM = ("useradd", "install")  # commands that change the system, not these folders


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by the stage's name; the first is FROM."""
    with (CHECKOUT / "Dockerfile").open("rb") as file:
        steps = dockerfile_parse.DockerfileParser(fileobj=file).structure
    instructions: dict[str, list[tuple[str, str]]] = {}
    for step in steps:
        if step["instruction"] == "COMMENT":
            continue
        if step["instruction"] == "FROM":
            name = step["value"].split(" AS ")[1]
            instructions[name] = []
        instructions[name].append((step["instruction"], step["value"]))
    return instructions


def needed(name: str) -> list[str]:
    """The stages that this one builds on or copies from, then this one."""
    before = []
    for instruction, value in stages()[name]:
        source = value.split()[0] if instruction == "FROM" else (re.findall(r"--from=(\S+)", value) or [""])[0]
        before += [one for one in (needed(source) if source in stages() else []) if one not in before]
    return [*before, name]


def variables(name: str) -> dict[str, str]:
    """The ENV variables of this stage and those it builds on."""
    inherited = stages()[name][0][1].split()[0]
    values = variables(inherited) if inherited in stages() else {}
    for instruction, value in stages()[name]:
        if instruction == "ENV":
            values |= dict(pair.split("=", 1) for pair in shlex.split(value))
    return values


def test_the_image_is_pinned_small_and_not_root() -> None:
    steps = stages()
    *_, last = steps
    assert last == "graphmem"
    (outside,) = {steps[name][0][1].split()[0] for name in steps} - set(steps)
    assert re.fullmatch(r"python:3\.1[123]\.\d+-slim-\w+@sha256:[0-9a-f]{64}", outside)
    final = dict(steps[last])
    assert final["ENTRYPOINT"] == '["graphmem"]'
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"])
    assert variables(last)["GRAPHMEM_HOME"] == final["VOLUME"] == "/data"
    assert [value for instruction, value in steps[last] if instruction == "COPY"] == [
        "--from=build /opt/graphmem /opt/graphmem"
    ]
    assert dict(steps["tests"])["USER"] == final["USER"]
    assert [final["EXPOSE"]] == [port.split(":")[-1] for port in SERVE["ports"]]


def test_only_what_an_image_is_made_of_reaches_it() -> None:
    lines = (CHECKOUT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert all((CHECKOUT / path).exists() for path in let_in)
    copied = {
        path
        for name in needed("graphmem")
        for instruction, value in stages()[name]
        if instruction == "COPY" and "--from" not in value
        for path in value.split()[:-1]
    }
    assert copied <= let_in


@pytest.mark.server
def test_its_steps_make_a_graphmem_that_runs_the_demo(tmp_path: Path) -> None:
    root = tmp_path / "image"
    base = tmp_path / "base"
    subprocess.run([sys.executable, "-m", "venv", str(base)], check=True, timeout=2 * TIMEOUT)
    environment = {"PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    # Of the environment only the settings by which this machine reaches packages are passed on.
    pattern = re.compile(r"PIP_(INDEX_URL|CERT|DEFAULT_TIMEOUT)|SSL_CERT_FILE|https?_proxy|no_proxy", re.IGNORECASE)
    network = {name: value for name, value in os.environ.items() if pattern.fullmatch(name)}

    def relocate(text: str) -> str:
        return re.sub(rf"(?<![\w/])({'|'.join(ROOTS)})(?![\w-])", lambda match: f"{root}{match[1]}", text)

    skipped = []
    for name in needed("graphmem"):
        for instruction, value in stages()[name]:
            if instruction == "COPY" and "--from" not in value:
                *sources, target = value.split()
                for source in sources:
                    to = Path(relocate(target)) / (source if target.endswith("/") else "")
                    to.parent.mkdir(parents=True, exist_ok=True)
                    if (CHECKOUT / source).is_dir():
                        shutil.copytree(CHECKOUT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(CHECKOUT / source, to)
            elif instruction == "COPY":  # all stages share one folder here
                assert Path(relocate(value.split()[-1])).exists()
            elif instruction == "RUN" and value.split()[0] in SYSTEM:
                skipped.append(value.split()[0])
            elif instruction == "RUN":
                process = subprocess.run(
                    ["/bin/sh", "-c", relocate(value)],
                    cwd=tmp_path, env=environment | network | variables(name), check=False, capture_output=True,
                    text=True, timeout=600 * SLOWNESS,
                )  # fmt: skip
                assert process.returncode == 0, f"{value}\n{process.stdout}{process.stderr}"
            else:
                assert instruction in {"FROM", "ENV", "LABEL", "VOLUME", "EXPOSE", "USER", "ENTRYPOINT", "CMD"}
    assert skipped == list(SYSTEM)

    installed = {path.name.split("-")[0].lower() for path in root.glob("opt/graphmem/lib/*/site-packages/*.dist-info")}
    assert {"graphmem", "spacy", "onnxruntime", "neo4j", "qdrant_client", "psycopg"} <= installed
    assert {"fastapi", "uvicorn", "prometheus_client", "redis", "pyyaml"} <= installed  # for `graphmem serve`
    assert not installed & {"pip", "hatchling", "editables", "pytest", "mypy", "ruff"}

    shutil.rmtree(root / "src")  # the last stage has neither
    shutil.rmtree(root / "wheels")
    final = {name: relocate(value) for name, value in variables("graphmem").items()}
    final["PATH"] = final["PATH"].replace("$PATH", "/usr/bin:/bin")
    (command,) = json.loads(dict(stages()["graphmem"])["ENTRYPOINT"])

    def run_command(*arguments: str) -> str:
        process = subprocess.run(
            [shutil.which(command, path=final["PATH"]) or command, *arguments],
            cwd="/", env=final, check=False, capture_output=True, text=True, timeout=2 * TIMEOUT,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        return process.stdout

    assert "Usage: graphmem" in run_command(*json.loads(dict(stages()["graphmem"])["CMD"]))
    assert json.loads(run_command("demo", "--json"))
    run_command("add", "Tea is better than coffee", "--user", "ana")
    assert (root / "data" / "ledger.sqlite").exists()
    assert "Tea is better" in run_command("search", "what does she drink?", "--user", "ana")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    program = shutil.which(command, path=final["PATH"]) or command
    with subprocess.Popen(
        [program, "serve", "--port", str(port)], cwd="/", env=final, stderr=PIPE, text=True
    ) as service:

        def answers() -> bool:
            assert service.poll() is None, service.stderr.read()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=TIMEOUT) as response:
                    return response.status == 200
            except URLError:
                return False

        try:
            wait_until(answers, "the service did not get ready")
        finally:
            service.terminate()
