"""Another process on a ledger: `python peer.py URL HOME ORDER NAME`. It prints "ready", waits for a line, then executes
the order.

`open` prints the ledger's id; `write` adds memories and prints their ids; `linger` adds one, and in the middle of its
transaction prints "inside" and waits for another line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.databases import KEY, KEYRING
from support.fakes import fake_models

from graphmem import Memory, Settings
from graphmem.stores.ledger import Ledger, events
from graphmem.stores.ledger.postgres import parse_url

WRITTEN = 15


def say(message: object) -> None:
    print(json.dumps(message), flush=True)


def linger() -> None:
    """Holds the next transaction open near its end: it has its sequence number, and its rows are written."""
    real = events.add_first_events

    def waiting(*args: object, **more: object) -> object:
        added = real(*args, **more)
        events.add_first_events = real
        say("inside")
        sys.stdin.readline()
        return added

    events.add_first_events = waiting


def main(url: str, home: str, order: str, name: str) -> None:
    say("ready")
    sys.stdin.readline()
    if order == "open":
        ledger = Ledger(parse_url(url), KEYRING)
        say(ledger.uuid)
        ledger.close()
        return
    with Memory(home, settings=Settings.from_dict(fake_models(ledger_url=url, secret_key=KEY))) as memory:
        if order == "linger":
            linger()
        texts = [f"{name} says {n}" for n in range(WRITTEN if order == "write" else 1)]
        say([memory.add(text, user_id="u1")["results"][0]["id"] for text in texts])


if __name__ == "__main__":
    main(*sys.argv[1:])
