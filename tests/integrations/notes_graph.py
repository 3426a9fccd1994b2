"""A graph whose node recalls and stores notes. `notes_graph.py HOME USER TEXT…` runs it and prints what it recalls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.fakes import fake_models
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.integrations.langgraph import GraphmemStore, label


class State(TypedDict):
    said: str
    recalled: list[str]


class Context(TypedDict):
    user_id: str


def recall_and_remember(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    namespace = ("notes", label(runtime.context["user_id"]))
    found = runtime.store.search(namespace, query=state["said"], limit=1)
    runtime.store.put(namespace, state["said"], {"text": state["said"]})
    return {"recalled": [item.value["text"] for item in found]}


def recalled(memory: Memory, user_id: str, said: str) -> list[str]:
    """Runs the graph once."""
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("notes", recall_and_remember)
    builder.add_edge(START, "notes")
    graph = builder.compile(store=GraphmemStore(memory, user_label=1))
    return graph.invoke({"said": said}, context=Context(user_id=user_id))["recalled"]


def open_memory(home: Path) -> Memory:
    return Memory(home, settings=Settings.from_dict(fake_models(delivery_wait=TIMEOUT)))


if __name__ == "__main__":
    with open_memory(Path(sys.argv[1])) as memory:
        print(json.dumps([recalled(memory, sys.argv[2], text) for text in sys.argv[3:]]))
