"""A client of `graphmem mcp` without a model: `python examples/mcp_client.py ana "a text to remember" "a question"`.

Start it again with only a question: the memories are in $GRAPHMEM_HOME (default ~/.graphmem). Needs graphmem[mcp].
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters


async def main(user: str, *texts: str) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "graphmem", "mcp", "--user", user], env=dict(os.environ)
    )
    async with Client(server) as client:
        for text in texts[:-1]:
            await client.call_tool("add_memory", {"content": text})
        found = await client.call_tool("search_memories", {"query": texts[-1], "top_k": 3})
        print(found.content[0].text)
        for hit in (found.structured_content or {})["results"]:
            print(f"{hit['score']:.2f} {hit['why']}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
