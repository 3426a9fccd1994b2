"""How long the hook of a coding agent takes at a prompt: wall-clock and processor time of the whole program.

`python benchmarks/agent_hooks.py` asks the service of ~/.graphmem/hooks.json (`--home DIR`: of another folder). Without
one that answers it measures the hook alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

PROMPT = {"session_id": "benchmark", "prompt": "How do we deploy the billing service?"}


def measure(name: str, command: list[str], count: int) -> None:
    """Runs a command and prints the lowest, the median and the 95th percentile of its milliseconds."""
    taken: list[float] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(command, input=json.dumps(PROMPT).encode(), capture_output=True, check=True)  # noqa: S603  (our own)
        taken.append((time.perf_counter() - begin) * 1000)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken.sort()
    processor = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / count
    print(
        f"{name}: {taken[0]:.0f} least, {taken[count // 2]:.0f} median, {taken[int(count * 0.95)]:.0f} p95 ms; "
        f"{processor:.0f} ms of processor time; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Measures Python alone, and the hook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home")
    parser.add_argument("--count", type=int, default=40)
    arguments = parser.parse_args()
    home = ["--home", arguments.home] if arguments.home else []
    measure("Python alone", [sys.executable, "-c", "pass"], arguments.count)
    hook = [sys.executable, "-P", "-m", "graphmem", "hook", "claude-code", "recall", *home]
    measure("the hook", hook, arguments.count)


if __name__ == "__main__":
    main()
