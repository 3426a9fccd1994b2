"""An agent of the OpenAI Agents SDK that remembers: `python examples/openai_agents_agent.py ana "I live in Graz."`.

Each call is a process, and a chat, of its own; the memories are in $GRAPHMEM_HOME (default ~/.graphmem). Needs
the extra `openai-agents`: `pip install '.[openai-agents]'` in a clone of graphmem.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from uuid import uuid4

from agents import Agent, RunConfig, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from graphmem import Memory
from graphmem.integrations.openai_agents import GraphmemSession, memory_tools, recall_filter

# Seconds. The default of 2 is for programs that have loaded the models; this one loads them in each call.
TIME_LIMIT = 60.0


@dataclass
class Context:
    user_id: str


def scripted_model(text: str) -> ScriptedModel:
    """Stands in for a model, so that the example runs offline: it searches the memories for the text, then answers.

    Leave out `model=` below to ask OpenAI's.
    """
    search = function_call("search_memories", {"query": text}, call_id="1")
    return ScriptedModel([[search], [assistant_message("(what your model makes of the prompt)")]])


async def run(memory: Memory, user_id: str, text: str) -> None:
    model = scripted_model(text)
    agent = Agent[Context](
        name="Max", instructions="You are Max.", model=model, tools=memory_tools(memory, time_limit=TIME_LIMIT)
    )
    result = await Runner.run(
        agent,
        text,
        context=Context(user_id),
        session=GraphmemSession(uuid4().hex, memory),
        run_config=RunConfig(call_model_input_filter=recall_filter(memory, time_limit=TIME_LIMIT)),
    )
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print("Found by the tool:", item.output)
    if model.last_call is not None:
        print("The prompt:", *(item for item in model.last_call.input if "role" in item), sep="\n- ")
    print(result.final_output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("user", help="whose memories these are")
    parser.add_argument("text", help="what the user says")
    arguments = parser.parse_args()
    set_tracing_disabled(True)  # the SDK would send texts to OpenAI
    with Memory() as memory:
        asyncio.run(run(memory, arguments.user, arguments.text))


if __name__ == "__main__":
    main()
