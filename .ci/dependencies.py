"""Reports what CI installs: the licence of each package and how old the pins are. Fails on a licence that is not known.

Needs no network. Known vulnerabilities are told by pip-audit, where the database that it asks can be reached:
    pipx run pip-audit --require-hashes --disable-pip -r .ci/constraints.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

PINS = Path(__file__).with_name("constraints.txt")
STALE_DAYS = 90
# As expressions of SPDX, as classifiers, and as some wrote it before there were any.
ALLOWED = frozenset(
    """0BSD; Apache-2.0; Apache License 2.0; Apache Software License; BSD License; BSD-2-Clause; BSD-3-Clause;
    3-Clause BSD License; CC0-1.0; ISC; ISC License (ISCL); MIT; MIT-0; MIT License; MPL-2.0;
    Mozilla Public License 2.0 (MPL 2.0); PSF-2.0; Python Software Foundation License; Python-2.0; Zlib;
    The Unlicense (Unlicense); Unlicense""".replace("\n    ", " ").split("; ")
)
# The driver of PostgreSQL, an extra: used as a package of its own, unmodified. The parser of PromQL, for tests alone:
# its metadata name no licence, its source has MIT's.
EXCEPTIONS = {"psycopg": "LGPL-3.0-only", "psycopg-binary": "LGPL-3.0-only", "promql-parser": "none given"}


def pinned(text: str) -> list[tuple[str, str]]:
    """Names and versions."""
    return re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^\s;]+)", text, re.MULTILINE)


def licences(package: str) -> list[str]:
    """The licences that all hold for a package; of alternatives one that is allowed, if any is."""
    about = metadata(package)
    if expression := about.get("License-Expression"):
        return [_best(part) for part in re.sub("[()]", "", expression).split(" AND ")]
    classifiers = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", []) if one.startswith("License ::")]
    named = [one for one in classifiers if one != "OSI Approved"]
    if named:
        return named
    written = (about.get("License") or "").strip().partition("\n")[0]
    return [_best(part) for part in written.split(" AND ")] if written else ["none given"]


def _best(alternatives: str) -> str:
    listed = alternatives.split(" OR ")
    return next((one for one in listed if one in ALLOWED), listed[0])


def refused(package: str, found: Iterable[str]) -> list[str]:
    """Those that are not on the list."""
    return [one for one in found if one not in ALLOWED and EXCEPTIONS.get(package) != one]


def _age() -> str:
    said = ["git", "log", "-1", "--format=%ct", "--", PINS.name]
    told = subprocess.run(said, cwd=PINS.parent, capture_output=True, text=True, check=False).stdout.strip()
    if not told:
        return "nobody knows when the pins were made"
    days = (datetime.now(UTC) - datetime.fromtimestamp(int(told), UTC)).days
    return f"the pins are {days} days old{': renew them' if days > STALE_DAYS else ''}"


def main() -> int:
    """Prints the report; 1 for a licence that is not on the list."""
    wrong = []
    for package, version in pinned(PINS.read_text("utf-8")):
        try:
            found = licences(package)
        except PackageNotFoundError:  # for another system or Python
            continue
        bad = refused(package, found)
        wrong += [f"{package}: {one}" for one in bad]
        print(f"{package:28} {version:16} {' AND '.join(found)}{'   <- not on the list' if bad else ''}")
    print(_age())
    if wrong:
        print("licences that are not on the list:", *wrong, sep="\n  ", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
