"""Every record of an export is valid by the published schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from support.facts import fact, summary
from support.fake_llm import NEAR_DIMS, NONE, Scripted, all_near
from support.fake_llm import fact as extracted
from support.fakes import fake_models
from support.ledger_snapshot import exported
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.commands.types import RestoreMemory, RetireMemory
from graphmem.testing import ModelEndpoint
from graphmem.transfer import records

Make = Callable[..., Memory]
ADAPTER = records.record_adapter()
JUNE = datetime(2024, 6, 1, 12, tzinfo=UTC)
SISTER, AGAIN = "My sister Bea sings.", "Bea, my sister, is a singer."
HAS_SISTER, IS_SISTER = "Has a sister Bea who sings", "Bea, a sister, is a singer"


def validated(memory: Memory, **scope: Any) -> list[dict[str, Any]]:
    """Returns the records of an export, each of which the schema accepts as it is, without converting anything."""
    export_lines = exported(memory, **scope)
    for record in export_lines:
        ADAPTER.validate_json(json.dumps(record), strict=True)
    return export_lines


def values(export_lines: list[dict[str, Any]], field: str, inner: str) -> set[str]:
    return {item[inner] for record in export_lines for item in record.get(field) or ()}


def test_records_of_each_type_are_valid(make: Make) -> None:
    memory = make()

    def add(text: str, **more: Any) -> str:
        message = {"role": "user", "content": text, **more}
        return memory.add(message, user_id="ana", run_id="r1", timestamp=JUNE)["results"][0]["id"]

    paris = add("Anna Berg lives in Paris", name="Tom", id="message-1", metadata={"tags": ["x", {"a": None}], "n": 1.5})
    rome, erased = add("Anna Berg moved to Rome"), add("Nobody knows Leo Quartz", id="message-2")
    memory.update(paris, "Anna Berg lived in Paris", metadata={"sure": True}, expiration_date="2099-01-01")
    memory.delete(erased)
    retire = [RetireMemory(old, JUNE + timedelta(days=1), "changed", successor=rome) for old in (paris, add("Old"))]
    memory.engine.commit([*retire, RestoreMemory(paris, "it was not")])
    memory.alias("anna berg", "tom", user_id="ana")
    memory.alias("anna berg", "rome", user_id="ana")
    memory.unalias("anna berg", "rome", user_id="ana")
    memory.rename_entity("anna berg", "Anna", user_id="ana")
    summary(memory, "Anna is in Rome.", fact(memory, "Anna Berg is in Rome", rome, user_id="ana"), user_id="ana")
    memory.add("Hello", agent_id="helper")

    export_lines = validated(memory)
    assert {record["type"] for record in export_lines} == {"graphmem", "memory", "erased", "alias", "name", "end"}
    assert {record["kind"] for record in export_lines if record["type"] == "memory"} == {"episode", "fact", "summary"}
    assert values(export_lines, "events", "event") == {"ADD", "UPDATE", "RETIRE", "RESTORE", "DELETE"}
    assert values(export_lines, "links", "kind") == {"drawn_from", "replaces"}
    assert {record["negated"] for record in export_lines if record["type"] == "alias"} == {True, False}
    validated(memory, user_id="ana")
    validated(memory, user_id="ana", run_id="r1")


def test_facts_of_several_runs_and_corrections_are_valid(make_memory: Make) -> None:
    bea = ("user", "has sister", "Bea")
    model = Scripted(
        {SISTER: [extracted(HAS_SISTER, bea)], AGAIN: [extracted(IS_SISTER, bea)]}, {(IS_SISTER, HAS_SISTER): NONE}
    )
    with ModelEndpoint(default=model) as endpoint:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "scripted", "timeout": TIMEOUT}
        embedder = {"provider": "callable", "config": {"embed": all_near, "embedding_dims": NEAR_DIMS, "model": "near"}}
        memory = make_memory(**fake_models(llm={"provider": "openai", "config": llm}, embedder=embedder))
        (first,) = memory.add(SISTER, user_id="ann", run_id="r1", timestamp=JUNE)["results"]
        memory.add(AGAIN, user_id="ann", run_id="r2", timestamp=JUNE + timedelta(days=1))
        memory.update(first["id"], "Has a sister Bea who dances")
        memory.update(first["id"], "Has a sister Bea who paints")
        export_lines = validated(memory)
    (stored,) = [record for record in export_lines if record.get("kind") == "fact"]
    assert stored["further_runs"] == ["r2"]
    assert [event["event"] for event in stored["events"]] == ["ADD", "SCOPE", "UPDATE", "UPDATE"]
    assert stored["events"][-1]["previous_state"]["corrects"]
    assert values(export_lines, "links", "kind") == {"drawn_from", "corrects"}


def test_imported_previous_state_without_session_is_exported_as_valid_record(make: Make) -> None:
    scope = {"user_id": "ana"}
    identity = {"type": "memory", "id": "0b7c8f2e-6a5d-4c3b-9e1f-2d4a6b8c0e1f", "text": "Anna lives in Rome"}
    before = {"text": "Anna lives in Paris", "at": JUNE.isoformat()}
    texts = {"old_memory": before["text"], "new_memory": identity["text"]}
    events = [{"id": "event-1", "event": "UPDATE", "at": before["at"], **texts, "previous_state": before}]
    memory = make()
    memory.import_([{**identity, **scope, "at": JUNE.isoformat(), "events": events}])
    records_of_export = validated(memory)
    again = make()
    assert again.import_(records_of_export)["added"] == 1
    (event,) = again.history(identity["id"], **scope)
    again.undo(event["id"], **scope)
    assert again.get(identity["id"], **scope)["memory"] == before["text"]
