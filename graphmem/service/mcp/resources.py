"""The MCP resources, which are read-only views of a user's memories as JSON, and the prompts.

A resource is named by the user it belongs to, which has to be the caller's own: `memory://ana%40example.org/recent`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from graphmem.async_memory import AsyncMemory
from graphmem.errors import NotFoundError
from graphmem.model import Scope
from graphmem.service.mcp import tools
from graphmem.service.mcp.graph_parts import whole_graph
from graphmem.service.mcp.results import fitting, in_zone

MIME_TYPE = "application/json"
DESCRIPTIONS = {
    "recent": "The newest memories of the user",
    "profile": "What is known of the user: standing facts, what was found last, summaries and recent topics",
    "graph": "The people, places and things that the newest memories mention, and their relations",
}
# The newest memories whose part of the graph is shown.
GRAPH_MEMORIES = 50


class PromptTemplate(NamedTuple):
    """A prompt that a user can choose in a client: its arguments with their descriptions, and its text."""

    description: str
    arguments: dict[str, str]
    template: str


PROMPTS = {
    "recall": PromptTemplate(
        "Answer from memory: everything that is remembered about a topic",
        {"topic": "The topic"},
        "Search my memories about the topic below, from several sides and with several queries. Then tell me what you "
        "found, with dates, and say what seems out of date or contradictory.\n\nTopic: {topic}",
    ),
    "remember_this": PromptTemplate(
        "Store a text as memories",
        {"text": "The text"},
        "Search whether my memories have the following already. Then correct those that have changed, and add what is "
        "new: one statement for each memory, understood by itself.\n\n{text}",
    ),
    "weekly_review": PromptTemplate(
        "Review the memories of the last seven days",
        {},
        "List my memories of the last seven days. Sum up what happened and what I planned; name open points, and "
        "memories that contradict each other or should be corrected. Change nothing before I agree.",
    ),
}


def uri(user_id: str, name: str) -> str:
    """Returns the address of a user's resource."""
    return f"memory://{quote(user_id, safe='')}/{name}"


async def read(address: str, memory: AsyncMemory, scope: Scope) -> str:
    """Returns a resource as JSON. Raises NotFoundError if there is none, or it is not the caller's own."""
    user_id, name = _parts(address)
    if user_id != scope.user_id or name not in DESCRIPTIONS:
        raise NotFoundError("There is no such resource; resources/list names those that there are.")
    shown = in_zone(await _READERS[name](memory, scope), memory.sync.limits.timezone)
    return json.dumps(shown, ensure_ascii=False)


def _parts(address: str) -> tuple[str, str]:
    """Returns the decoded user and the name of a resource's address; "" for parts that it does not have."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", ""
    return (unquote(parts.netloc), parts.path.removeprefix("/")) if parts.scheme == "memory" else ("", "")


async def _recent(memory: AsyncMemory, scope: Scope) -> dict[str, Any]:
    return (await tools.GetMemories(limit=20).run(memory, scope)).model_dump(mode="json", exclude_none=True)


async def _graph(memory: AsyncMemory, scope: Scope) -> dict[str, Any]:
    graph = await memory.graph(**scope.parts, limit=GRAPH_MEMORIES)
    return fitting(await asyncio.to_thread(whole_graph, graph, GRAPH_MEMORIES))


async def _profile(memory: AsyncMemory, scope: Scope) -> dict[str, Any]:
    return {**await memory.profile(**scope.parts)}


_READERS = {"recent": _recent, "profile": _profile, "graph": _graph}
