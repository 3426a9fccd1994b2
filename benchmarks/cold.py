"""What a command costs that starts anew: CPU, memory, and room on the disk, beside those of another checkout.

    python benchmarks/cold.py --before ../graphmem-before > benchmarks/results/cold.json

`search`, `list` and `add` of `graphmem` run in processes of their own on 2,000 memories, those of both checkouts in
turn. CPU is user and system time of the process, the least of the runs, as other programs only ever add to it; memory
is the largest resident size. Each `add` has other words: what is said again is not embedded again.

Each checkout stores the memories in a home of its own; `files` counts those of the home once it is closed,
`home_megabytes` is what they take on the disk. `install` adds up the files of the packages that `pip install graphmem`
brings, byte code included, as they are installed here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from latency import enlarge
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphmem import Memory
from graphmem.evaluation.chats import load
from graphmem.evaluation.datasets import POOLED, pooled
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import store
from graphmem.settings import Settings

# A process begins with the largest size of the one that started it: so a small one starts the command.
LAUNCHER = """
import json, os, sys
null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, usage = os.wait4(process, 0)
print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
CHECKOUT = Path(__file__).parents[1]
MEMORIES, RUNS = 2000, 7
SCOPE = ("--user", POOLED)
COMMANDS = {
    "search": ("search", "When did she go to the doctor?", *SCOPE),
    "list": ("list", *SCOPE),
    "add": ("add", "Melanie and Caroline went to lake number {run} last weekend.", *SCOPE),
}


def fill(home: Path) -> None:
    """Stores 2,000 turns: the English chats of this folder, repeated as `latency.py` does."""
    chats = pooled([load(file) for file in sorted((CHECKOUT / "benchmarks" / "chats").glob("en-*.json"))])
    turns = tuple(
        {"name": turn["role"], **turn, "timestamp": turn["timestamp"].isoformat()} for turn in chats.partitions[POOLED]
    )
    with Memory(home, settings=Settings()) as memory:
        store(memory, enlarge(replace(chats, partitions={POOLED: turns}), MEMORIES), lambda *_: None)


def fill_by(checkout: Path, home: Path) -> None:
    """Stores the turns by a checkout's code, in a process of its own: another release has another schema."""
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run([sys.executable, __file__, "--fill", str(home)], env=environ, check=True)  # noqa: S603


def run(checkout: Path, home: Path, arguments: tuple[str, ...]) -> tuple[float, float]:
    """Returns seconds of CPU and megabytes of a command of a checkout. Its output goes nowhere."""
    command = [sys.executable, "-m", "graphmem", *arguments, "--home", str(home)]
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    launch = [sys.executable, "-c", LAUNCHER, *command]
    done = subprocess.run(launch, cwd=checkout, env=environ, capture_output=True, check=True)  # noqa: S603
    status, cpu, peak = json.loads(done.stdout)
    assert status == 0, arguments
    return cpu, peak / 1024


def measure(checkouts: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Returns the figures of each checkout, by its name."""
    homes = {name: folder / name for name in checkouts}
    for name, home in homes.items():
        fill_by(checkouts[name], home)
    figures: dict[str, Any] = {name: {} for name in checkouts}
    for command, arguments in COMMANDS.items():
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
        for number in range(RUNS + 1):
            for name, checkout in checkouts.items():
                said = tuple(one.format(run=number) for one in arguments)
                runs[name].append(run(checkout, homes[name], said))
        for name, measured in runs.items():
            figures[name][command] = {  # the first run may have written byte code
                "cpu_seconds": round(min(cpu for cpu, _ in measured[1:]), 2),
                "peak_megabytes": round(min(peak for _, peak in measured[1:])),
            }
    for name, home in homes.items():
        files = [file.stat() for file in home.rglob("*") if file.is_file()]
        figures[name]["files"] = len(files)
        figures[name]["home_megabytes"] = _megabytes(sum(512 * file.st_blocks for file in files))
    return figures


def installed(root: Requirement, seen: set[str]) -> Iterator[Distribution]:
    """Yields the installed packages that a requirement brings, each once. Leaves out what is not installed."""
    if (name := canonicalize_name(root.name)) in seen:
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    yield found
    for text in found.requires or ():
        required = Requirement(text)
        if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in ("", *root.extras)):
            yield from installed(required, seen)


def install_size() -> dict[str, Any]:
    """Returns the megabytes of the package and of what it requires, in all and for the ten largest."""
    sizes: dict[str, int] = {}
    for one in installed(Requirement("graphmem"), set()):
        paths = (Path(str(one.locate_file(file))) for file in one.files or ())
        sizes[one.name] = sum(512 * path.stat().st_blocks for path in paths if path.is_file())
    largest = sorted(sizes.items(), key=lambda pair: -pair[1])[:10]
    return {
        "packages": len(sizes),
        "megabytes": _megabytes(sum(sizes.values())),
        "largest": {name: _megabytes(size) for name, size in largest},
    }


def _megabytes(count: int) -> float:
    return round(count / 2**20, 1)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill is not None:
        fill(arguments.fill)
        return
    before = arguments.before
    checkouts = {**({} if before is None else {"before": before.resolve()}), "now": CHECKOUT}
    with tempfile.TemporaryDirectory(prefix="graphmem-") as name:
        figures = measure(checkouts, Path(name))
    print(
        json.dumps(
            {"benchmark": "cold", **environment(), "memories": MEMORIES, **figures, "install": install_size()}, indent=2
        )
    )


if __name__ == "__main__":
    main()
