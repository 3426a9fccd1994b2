"""`.github/workflows/ci.yml`, the Makefile and `.ci/run` agree with each other and with `docker-compose.yml`.

Not covered, for want of a runner: that the actions exist under these tags, and that the service containers start.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.waiting import TIMEOUT

CHECKOUT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((CHECKOUT / ".github/workflows/ci.yml").read_text("utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text("utf-8"))["services"]
JOBS: dict[str, Any] = WORKFLOW["jobs"]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_on_the_servers_of_the_compose_file(job: str) -> None:
    images = {name: service["image"] for name, service in JOBS[job]["services"].items()}
    assert images == {name: COMPOSE[name]["image"] for name in COMPOSE["tests"]["depends_on"]}


def test_the_workflow_reads_the_repository_and_does_no_more() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not [name for name, job in JOBS.items() if "permissions" in job]
    for job in JOBS.values():
        (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert checkout["with"]["persist-credentials"] is False


def test_actions_are_pinned() -> None:
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", action) for action in used)


def run_steps(*names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECKOUT / ".ci" / "run", *names], check=False, capture_output=True, text=True, timeout=TIMEOUT
    )


def test_an_unknown_step_is_refused_before_any_other_runs() -> None:
    done = run_steps("lint", "no-such-step")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no step 'no-such-step'; the steps: setup test format lint" in done.stderr


def test_the_makefile_calls_steps_that_exist() -> None:
    makefile = (CHECKOUT / "Makefile").read_text("utf-8")
    called = {
        name for names in re.findall(r"^\t\.ci/run((?: \w+)*)$", makefile, re.MULTILINE) for name in names.split()
    }
    script = (CHECKOUT / ".ci" / "run").read_text("utf-8")
    assert called == set(re.findall(r"^run_(\w+)\(\)", script, re.MULTILINE))
