"""The dependency check of CI: pins and licences of the installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "dependencies.py"
spec = importlib.util.spec_from_file_location("dependencies", SCRIPT)
dependencies = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dependencies)


def test_pins_are_read():
    text = "# a comment\nnumpy==2.4.6 \\\n    --hash=sha256:00\npsycopg[binary]==3.3.9 ; python_version > '3'\n"
    assert dependencies.pinned(text) == [("numpy", "2.4.6"), ("psycopg", "3.3.9")]
    assert len(dependencies.pinned(dependencies.PINS.read_text())) > 80


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"License-Expression": "MIT AND (GPL-3.0-only OR BSD-3-Clause)"}, ["MIT", "BSD-3-Clause"]),
        ({"License-Expression": "GPL-3.0-only OR AGPL-3.0-only"}, ["GPL-3.0-only"]),
        ({"License": "MIT\nPermission is hereby granted"}, ["MIT"]),
        ({}, ["none given"]),
    ],
)
def test_licences_are_found(monkeypatch, about, expected):
    class About(dict):
        def __getitem__(self, name):
            return self.get(name)

        def get_all(self, _name, otherwise):
            return otherwise

    monkeypatch.setattr(dependencies, "metadata", lambda _: About(about))
    assert dependencies.licences("x") == expected


def test_a_licence_that_is_not_on_the_list_is_refused():
    assert dependencies.refused("x", ["MIT", "GPL-3.0-only"]) == ["GPL-3.0-only"]
    assert dependencies.refused("x", ["none given"])
    assert dependencies.refused("x", ["LGPL-3.0-only"])
    assert not dependencies.refused("psycopg", ["LGPL-3.0-only"])


def test_every_installed_licence_is_on_the_list(capsys):
    assert dependencies.main() == 0
    assert "the pins are" in capsys.readouterr().out
