"""Parsing of a PostgreSQL ledger's URL. Tests that need a server are in tests/server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.fakes import fake_models

from graphmem import Memory
from graphmem.errors import ConfigError
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.postgres import parse_url

SECRET = "Xanthippe"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_any_name_of_postgresql_means_the_one_driver(scheme: str) -> None:
    url = parse_url(f"{scheme}://ana:p%40ss@h:5433/db?sslmode=require")
    assert (url.drivername, url.username, url.password) == ("postgresql+psycopg", "ana", "p@ss")
    assert (url.host, url.port, url.database, url.query["sslmode"]) == ("h", 5433, "db", "require")


@pytest.mark.parametrize(
    "bad", ["postgresql:/h/db", "postgresql", f"postgresql://u:{SECRET}@h:port/db", f"postgresql+asyncpg://u:{SECRET}@h/db",
            f"postgresql://u:a@{SECRET}@h/db", f"postgresql://u:a@{SECRET}/b@h/db",
            f"postgresql://u:a@h?{SECRET}=x@h/db", f"postgresql://u@h/db?password=a@{SECRET}",
            f"postgresql://h:5432/db?password=a@{SECRET}", f"postgresql://u@h/db?connect_timeout=a@{SECRET}"]
)  # fmt: skip
def test_an_invalid_url_is_refused_without_showing_its_password(bad: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ledger_url: ") as caught:
        Memory.from_config({**fake_models(), "home": str(tmp_path), "ledger_url": bad})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_psycopg_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[postgres\]'"):
        Ledger(parse_url("postgresql://h/db"))
