"""A client of `graphmem mcp` without a model: `python examples/mcp_client.py ana "a text to remember" "a question"`.

Start it again with only a question: the memories are in $GRAPHMEM_HOME (default ~/.graphmem). Needs the extra
`mcp`: `pip install '.[mcp]'` in a clone of graphmem.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from mcp import Client, StdioServerParameters


async def talk(user: str, texts: list[str], question: str) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "graphmem", "mcp", "--user", user], env=dict(os.environ)
    )
    async with Client(server) as client:
        for text in texts:
            await client.call_tool("add_memory", {"content": text})
        found = await client.call_tool("search_memories", {"query": question, "top_k": 3})
        print(found.content[0].text)
        for hit in (found.structured_content or {})["results"]:
            print(f"{hit['score']:.2f} {hit['why']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("user", help="whose memories these are")
    parser.add_argument("text", nargs="*", default=[], help="what to remember")
    parser.add_argument("question", help="what to search for then")
    arguments = parser.parse_args()
    asyncio.run(talk(arguments.user, arguments.text, arguments.question))


if __name__ == "__main__":
    main()
