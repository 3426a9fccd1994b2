"""A chat in the terminal that remembers: `python examples/chat_loop.py --user ana`. An empty line ends it.

Start it again and ask about what you said: the memories are in $GRAPHMEM_HOME (default ~/.graphmem).
"""

from __future__ import annotations

import argparse
import sys

from graphmem import ChatLink, Memory

# Seconds. The default of 3 is for programs that have loaded the models; this one loads them when it starts.
TIME_LIMIT = 60.0


def ask_model(messages: list[dict[str, str]]) -> str:
    """Stands in for a language model, so that the example runs offline: it repeats what the prompt says of memories.

    Put the call of your model here.
    """
    remembered = [
        line for message in messages if message["role"] == "system" for line in message["content"].split("\n")
    ]
    return "\n".join(remembered) or "I know nothing about that yet."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", required=True, help="whose memories these are")
    user = parser.parse_args().user
    chat: list[dict[str, str]] = []
    with Memory() as memory, ChatLink(memory, user_id=user, agent_id="chat-loop", time_limit=TIME_LIMIT) as link:
        for line in sys.stdin:
            if not line.strip():
                break
            chat.append({"role": "user", "content": line.strip()})
            answer = ask_model(link.inject(chat, link.recall(line, chat)))
            chat.append({"role": "assistant", "content": answer})
            print(answer)
            link.saved(chat)
        link.flush()


if __name__ == "__main__":
    main()
