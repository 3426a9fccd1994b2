"""langmem's tools and its memory manager over the store: what is told is found, changed and deleted by its user."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.func import entrypoint
from langmem import create_manage_memory_tool, create_memory_store_manager, create_search_memory_tool

from graphmem import Memory
from graphmem.integrations.langgraph import GraphmemStore, label

SPACE = ("memories", "{langgraph_user_id}")


class Model(GenericFakeChatModel):
    """A model that says what it was given to say."""

    def bind_tools(self, *_: Any, **__: Any) -> "Model":
        return self


def saying(name: str, **arguments: Any) -> Model:
    call = {"name": name, "args": arguments, "id": "call-1"}
    return Model(messages=iter([AIMessage("", tool_calls=[call]), *[AIMessage("Done.")] * 5]))


def tools_of(store: GraphmemStore) -> Callable[..., Any]:
    tools = {"manage": create_manage_memory_tool(SPACE), "search": create_search_memory_tool(SPACE)}

    @entrypoint(store=store)
    def act(call: dict[str, Any]) -> Any:
        return tools[call.pop("tool")].invoke(call)

    @entrypoint(store=store)
    async def act_later(call: dict[str, Any]) -> Any:
        return await tools[call.pop("tool")].ainvoke(call)

    def run(user: str, *, is_async: bool = False, **call: Any) -> Any:
        config = {"configurable": {"langgraph_user_id": label(user)}}
        return asyncio.run(act_later.ainvoke(call, config)) if is_async else act.invoke(call, config)

    return run


def main() -> None:
    with Memory("./langmem") as memory:
        store = GraphmemStore(memory, user_label=1)
        run = tools_of(store)

        def texts(user: str) -> list[str]:
            return [one["memory"] for one in memory.get_all(user_id=user)["results"]]

        for is_async in (False, True):
            item = run("ana@x.org", tool="manage", content="Clara works in Lisbon.", is_async=is_async).split()[-1]
            (found,) = json.loads(run("ana@x.org", tool="search", query="Where does Clara work?", is_async=is_async))
            assert (found["key"], found["value"]) == (item, {"content": "Clara works in Lisbon."})
            assert json.loads(run("ben", tool="search", query="Where does Clara work?", is_async=is_async)) == []
            change = {"content": "Clara works in Porto.", "action": "update", "id": item}
            run("ana@x.org", tool="manage", **change, is_async=is_async)
            assert texts("ana@x.org") == ["Clara works in Porto."]
            run("ana@x.org", tool="manage", action="delete", id=item, is_async=is_async)
            assert texts("ana@x.org") == []

        config = {"configurable": {"langgraph_user_id": "ben"}}
        said = {"messages": [{"role": "user", "content": "By the way, Clara moved to Faro."}]}
        manager = create_memory_store_manager(
            saying("Memory", content="Clara lives in Faro."), namespace=SPACE, store=store
        )
        (put,) = manager.invoke(said, config=config)
        assert texts("ben") == ["Clara lives in Faro."]
        assert [item.key for item in manager.search(query="Where does Clara live?", config=config)] == [put["key"]]
        manager.delete(put["key"], config=config)
        assert texts("ben") == []


if __name__ == "__main__":
    main()
