"""A mem0 that keeps its memories on a Qdrant server."""

from __future__ import annotations

import json
import os
from uuid import uuid4

import pytest
from support import mem0_fixture
from support.fakes import fake_models
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif("QDRANT_URL" not in os.environ, reason="needs QDRANT_URL"),
    # mem0's client is newer than the server, and warns of it.
    pytest.mark.filterwarnings("ignore:Qdrant client version"),
]
runner = CliRunner()


@pytest.fixture
def collection():
    return f"mem0-{uuid4().hex}"


@pytest.fixture
def theirs(tmp_path, collection):
    url = os.environ["QDRANT_URL"]
    host, _, port = url.partition("://")[2].strip("/").partition(":")
    memory = mem0_fixture.opened(tmp_path, collection_name=collection, host=host, port=int(port or 6333), path=None)
    yield memory
    for one in memory.vector_store.list_cols().collections:
        if one.name.startswith(collection):
            memory.vector_store.client.delete_collection(one.name)
    mem0_fixture.closed(memory)


def migrate(tmp_path, *arguments, status=0):
    options = ["migrate", "mem0", "--qdrant", os.environ["QDRANT_URL"], "--history", str(tmp_path / "history.db")]
    result = runner.invoke(app, [*options, *arguments])
    assert result.exit_code == status, (result.stdout, result.stderr, result.exception)
    return result


def test_memories_on_a_server_are_taken_over_page_by_page(tmp_path, theirs, collection, monkeypatch):
    from qdrant_client import models  # a second, which every run would pay that only collects this file

    monkeypatch.setattr(Settings, "from_env", lambda **_: Settings.from_dict(fake_models(home=tmp_path / "home")))
    ids = mem0_fixture.live(theirs)
    many = [str(uuid4()) for _ in range(1100)]
    theirs.vector_store.client.upsert(
        collection,
        [
            models.PointStruct(
                id=uid,
                vector=[1.0] * mem0_fixture.DIMS,
                payload={"data": f"n {n}", "user_id": "tom", "created_at": "2024"},
            )
            for n, uid in enumerate(many)
        ],
        wait=True,
    )
    theirs.vector_store.client.set_payload(collection, {"created_at": "2024-05-01"}, points=many)
    report = json.loads(migrate(tmp_path, "--collection", collection, "--json").stdout)
    assert report["added"] == 4 + len(many)
    again = json.loads(migrate(tmp_path, "--collection", collection, "--json").stdout)
    assert (again["added"], again["known"]) == (0, 4 + len(many))
    with Memory() as ours:
        assert ours.get(ids[2])["memory"] == "I like coffee."
        assert [one["event"] for one in ours.history(ids[2])] == ["ADD", "UPDATE"]


def test_a_wrong_collection_names_those_there(tmp_path, theirs, collection):
    assert f"'{collection}'" in migrate(tmp_path, "--collection", "nothing-like-it", status=2).stderr
