"""Requests that schemathesis makes of the OpenAPI document: over every route, with a key of each role and without one.

No answer is an error of the server or undocumented, and none holds or changes anything of another tenant, whose ids are
the document's examples. New routes take part by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx2
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from support.databases import SQLITE_ONLY
from support.service import headers, served

from graphmem import Memory
from graphmem.service import limits
from graphmem.service.rest.transfer import JSON_LINES
from graphmem.testing import ModelEndpoint

pytestmark = SQLITE_ONLY
ANA, BEN, BEN_AGENT, BEN_RUN = "ana", "ben-5f0c1a", "bot-5f0c1a", "chat-5f0c1a"
# Words that only the other tenant's memories have.
BEN_WORDS = ("Quartzstone", "Fernwhistle")
MANY = "100000000/minute"
# Checks that only the endpoint behind the proxy could pass: whatever it answers is passed on.
OF_THE_ENDPOINT = {
    name: {"enabled": False}
    for name in ("negative_data_rejection", "content_type_conformance", "positive_data_acceptance")
}
PHASES = ("examples", "coverage", "fuzzing", "stateful")


@schemathesis.serializer(JSON_LINES)
def serialize_lines(_: Any, value: Any) -> bytes:
    """Writes the body of an import: one generated value as a line."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


class Tenants(NamedTuple):
    """A memory of two users, of whom the requests may reach the first, and the ids of the second as examples."""

    memory: Memory
    examples: Mapping[str, str]

    def of_ben(self) -> list[Any]:
        """All that is stored of the other tenant."""
        found = self.memory.get_all(user_id=BEN, show_expired=True, limit=1000)["results"]
        return [(one, self.memory.history(one["id"], user_id=BEN)) for one in found]


@pytest.fixture
def tenants(memory: Memory) -> Tenants:
    memory.add([{"role": "user", "content": "Clara lives in Lisbon."}], user_id=ANA)
    added = [
        memory.add([{"role": "user", "content": f"My {word} is in Bergen."}], user_id=BEN, **more)["results"][0]
        for word, more in zip(BEN_WORDS, ({"run_id": BEN_RUN}, {"agent_id": BEN_AGENT}), strict=True)
    ]
    event = memory.history(added[0]["id"], user_id=BEN)[0]["id"]
    ids = {"memory_id": added[0]["id"], "event_id": event, "user_id": BEN, "agent_id": BEN_AGENT, "run_id": BEN_RUN}
    return Tenants(memory, ids)


def with_examples(node: Any, examples: Mapping[str, str]) -> Any:
    """Returns an OpenAPI document in which parameters and properties with these names have these examples."""
    if isinstance(node, list):
        return [with_examples(part, examples) for part in node]
    if not isinstance(node, dict):
        return node
    copy = {name: with_examples(part, examples) for name, part in node.items()}
    if "in" in copy and (example := examples.get(str(copy.get("name")))):
        copy["example"] = example
    for name in (copy.get("properties") or {}) if isinstance(copy.get("properties"), dict) else ():
        if name in examples:
            copy["properties"][name]["example"] = examples[name]
    return copy


def run(
    tenants: Tenants, role: str | None, *, most: int, phases: tuple[str, ...] = PHASES
) -> tuple[set[str], list[str], str]:
    """Makes up to `most` requests of each kind to each route; returns the routes left out, failures, all answers.

    Among the answers is what the proxy has sent to its endpoint.
    """
    bound = {"user_id": ANA} if role == "user" else {}
    config = SchemathesisConfig.from_dict(
        {
            "seed": 20261125,
            "headers": {} if role is None else headers(tenants.memory, role, **bound),
            "continue-on-failure": True,
            "generation": {"max-examples": most, "database": "none"},
            # Many bodies have the form of the schema and are refused for their ids, as the role's scope has it.
            "checks": {"positive_data_acceptance": {"enabled": False}},
            "operations": [{"include-tag": "proxy", "checks": OF_THE_ENDPOINT}],
            "phases": {phase: {"enabled": phase in phases} for phase in PHASES},
        }
    )
    routes, failures, answers = set[str](), list[str](), list[str]()
    with (
        ModelEndpoint() as endpoint,
        served(tenants.memory, proxy={"upstream_url": endpoint.url, "upstream_key": "any"}) as address,
    ):
        document = httpx2.get(f"{address}/openapi.json").json()
        schema = schemathesis.openapi.from_dict(with_examples(document, tenants.examples), config=config)
        schema.config.update(base_url=address)
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                failures += failures_of(event)
                for interaction in event.recorder.interactions.values():
                    routes.add(event.recorder.label)
                    answers.append(text_of(interaction.response))
            elif isinstance(event, events.NonFatalError):
                failures.append(f"{event.label}: {event.value!r}")
            elif isinstance(event, events.FatalError):
                failures.append(repr(event.exception))
        answers += [str(request) for request in endpoint.requests]
    operations = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    return operations - routes, failures, "\n".join(answers)


def failures_of(event: events.ScenarioFinished) -> Iterator[str]:
    """The failed checks of a scenario, with the request that repeats each."""
    for checks in event.recorder.checks.values():
        for check in checks:
            if check.failure_info is not None:
                failure, request = check.failure_info.failure, check.failure_info.code_sample
                yield f"{event.phase} {check.name}: {failure.title}: {failure.message}\n{request}"


def text_of(response: Any) -> str:
    """The headers and the body of a response; "" without one."""
    return "" if response is None else f"{response.headers} {(response.content or b'').decode('utf-8', 'replace')}"


def check(tenants: Tenants, role: str | None, most: int, phases: tuple[str, ...] = PHASES) -> None:
    before = tenants.of_ben()
    left_out, failures, answers = run(tenants, role, most=most, phases=phases)
    assert not failures, f"{len(failures)} failures, such as {failures[:3]}"
    assert not left_out or phases != PHASES
    if role != "admin":  # who may read and erase all
        assert tenants.of_ben() == before
        assert not [word for word in (*BEN_WORDS, BEN, tenants.examples["memory_id"]) if word in answers]


@pytest.mark.thorough
@pytest.mark.parametrize("role", ["user", "app", "admin", "metrics", None])
def test_every_route(tenants: Tenants, role: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSALS", MANY)
    if role == "app":  # may reach every user that a request names
        tenants = tenants._replace(examples={name: tenants.examples[name] for name in ("memory_id", "event_id")})
    check(tenants, role, most=15)


@pytest.mark.thorough
def test_ids_of_another_tenant_on_every_route(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSALS", MANY)
    check(tenants, "user", most=1, phases=("examples",))


@pytest.mark.thorough
def test_many_requests_without_a_key_are_refused_as_documented(tenants: Tenants) -> None:
    """After twenty refusals with status 401 all others have 429, which the check `ignored_auth` does not know."""
    _, failures, answers = run(tenants, None, most=2, phases=("examples", "fuzzing"))
    assert not [one for one in failures if "ignored_auth" not in one]
    assert '"status":429' in answers
