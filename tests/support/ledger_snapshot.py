"""The whole content of a ledger, to compare two ledgers."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from sqlalchemy import select

from graphmem import Memory
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger import schema as s


def contents(memory: Memory) -> dict[str, list[Any]]:
    """Every table, without row ids, sequence numbers and values derived from the ledger's own UUID."""
    return contents_of(memory.engine.ledger)


def contents_of(ledger: Ledger) -> dict[str, list[Any]]:
    """The same of a ledger."""
    with ledger.read() as c:
        uids = dict(c.execute(select(s.memories.c.id, s.memories.c.uid)).all())
        partitions = dict(c.execute(select(s.partitions.c.id, s.partitions.c.key)).all())
        keys = dict(c.execute(select(s.entities.c.id, s.entities.c.key)).all())
        relations = {
            row.id: (partitions[row.partition], keys[row.subject], row.predicate, keys[row.object], row.at)
            for row in c.execute(select(s.relations))
        }

        def rows(table: Any, omit: str = "", **resolved: dict[Any, Any]) -> list[Any]:
            records = []
            for row in c.execute(select(table)).mappings():
                values = {
                    k: resolved[k].get(v) if k in resolved else v for k, v in row.items() if k not in omit.split()
                }
                if values.get("previous_state"):
                    values["previous_state"] = {**values["previous_state"], "seq": 0}
                records.append({k: bytes(v) if isinstance(v, memoryview) else v for k, v in values.items()})
            return sorted(records, key=lambda row: json.dumps(row, default=repr, sort_keys=True))

        tombstones = select(s.tombstones).where(s.tombstones.c.kind == "memory")
        return {
            "order": [uids[row] for row in sorted(uids)],
            "memories": rows(s.memories, "id seq", partition=partitions, previous=uids),
            # Digests of erased messages are of use in their own ledger only.
            "messages": sorted(row.memory for row in c.execute(select(s.messages)) if row.content_digest is not None),
            "links": rows(s.links, memory=uids, other=uids),
            "events": rows(s.events, "id seq digest"),
            "lives": [
                (e.memory, e.event) for e in c.execute(select(s.events).order_by(s.events.c.memory, s.events.c.id))
            ],
            "further_runs": rows(s.further_runs, memory=uids),
            "tombstones": sorted(
                (t.uid, t.partition, t.user_id, t.agent_id, t.run_id, t.at) for t in c.execute(tombstones)
            ),
            "entities": rows(s.entities, "id seq", partition=partitions),
            "mentions": rows(s.mentions, memory=uids, entity=keys),
            "relations": sorted(relations.values()),
            "supports": rows(s.supports, relation=relations, memory=uids),
            "embeddings": rows(s.embeddings),
            "aliases": rows(s.aliases, partition=partitions),
            "names": rows(s.names, partition=partitions),
            "terms": rows(s.terms, partition=partitions),
            "partitions": sorted((row.key, row.size) for row in c.execute(select(s.partitions)) if row.size),
            "cycles": sorted(
                (row.key, row.cycled_at, row.cycle_changed, row.held_forgotten or 0, row.held_memories or 0)
                for row in c.execute(select(s.partitions))
                if row.cycled_at
            ),
            "vitals": rows(s.vitals, memory=uids),
            "lifecycle": c.scalars(select(s.ledger.c.lifecycle_since)).all(),
            "settings": rows(s.settings),
            "jobs": rows(s.jobs, "id attempts error holder claimable_at created_at", memory=uids, partition=partitions),
        }


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def contents_without_ids(ledger: Ledger) -> dict[str, list[Any]]:
    """The same with numbers in place of UUIDs: those of memories in the order of their rows, then those of sessions."""
    tables = contents_of(ledger)
    place = {uid: number for number, uid in enumerate(tables["order"])}
    tables["memories"].sort(key=lambda row: place[row["uid"]])
    for event in tables["events"]:
        del event["uid"]
    numbers: dict[str, str] = {}
    number = lambda found: numbers.setdefault(found[0], f"id {len(numbers)}")
    # A database returns their rows in any order. Those of erased memories are told apart by nothing else in others.
    tables["tombstones"].sort(key=lambda row: _UUID.sub("", json.dumps(row, default=repr)))
    numbered = {
        table: json.loads(_UUID.sub(number, json.dumps(tables[table], default=repr, sort_keys=True)))
        for table in dict.fromkeys(["order", "memories", "tombstones", *tables])
    }
    return {table: sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) for table, rows in numbered.items()}


def same(one: Memory, other: Memory, but: str = "") -> None:
    """Both ledgers hold the same, and give the same answers."""
    mine, theirs = contents(one), contents(other)
    for table in mine.keys() - set(but.split()):
        assert mine[table] == theirs[table], table
    for memory in (one, other):
        report = memory.verify()
        assert report["ok"], report


def exported(memory: Memory, **scope: Any) -> list[dict[str, Any]]:
    file = io.BytesIO()
    memory.export(file, **scope)
    return [json.loads(line) for line in file.getvalue().splitlines()]
