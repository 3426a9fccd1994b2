"""A process that dies at a given point.

`python child.py serve MODULE...` is a server with everything imported, these modules too, and nothing opened. It reads
one order a line and forks; the fork executes the order until the named point kills it with SIGKILL. The answer is the
fork's exit code. Points are library functions wrapped from outside; the library knows nothing of them. `dying.py` has
the order to make any calls and to die at an event given by its number; `victims.py` is the client of this server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from dying import make_calls

from graphmem import Memory
from graphmem.settings import Settings
from graphmem.stores.ledger.schema import memories
from graphmem.testing import HashEmbedder, WordExtractor

SEEDS = (
    "alpha Adam likes Amber quartzstone",
    "beta Bella visited Bergen harbourlight",
    "gamma Carl met Dora fernwhistle",
)
# Like ones, which a model is to make one of.
LIKE = (
    "Paula drinks green tea each morning",
    "Each morning Paula drinks green tea",
    "green tea Paula drinks, each morning",
)
NEW = "delta Emil bought Fagott moonladder"
REVISED = "beta Bella left Bergen snowlantern"


def settings(home: Path, dims: int = 64, graph: str = "ledger", model: str | None = None, **config: object) -> Settings:
    """The library over models that answer in microseconds; `config` is laid over it."""
    fake = HashEmbedder(dims)
    return Settings.from_dict(
        {
            "home": str(home),
            "embedder": {
                "provider": "callable",
                "config": {
                    "embed": lambda texts: np.stack([rows.mean(axis=0) for rows in fake.embed(texts)]),
                    "embedding_dims": dims,
                    "model": model or f"fake-{dims}",
                },
            },
            "extractor": {"provider": "none"},
            "graph_store": {"provider": graph},
            "lifecycle": {"enabled": True, "since": "2020-01-01", "daily_at": "never"},
            **config,
        }
    )


def open_memory(home: Path, dims: int = 64, graph: str = "ledger", **config: object) -> Memory:
    """A Memory with the word extractor, which settings cannot name."""
    import graphmem.wiring as wiring

    real = wiring._extractor
    wiring._extractor = lambda _settings: WordExtractor()
    try:
        return Memory(settings=settings(home, dims, graph, **config))
    finally:
        wiring._extractor = real


class Journal:
    """A file of begun and acknowledged calls, each line synced."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def note(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


class KillSwitch:
    """Kills this process the n-th time it is reached, once armed."""

    def __init__(self, nth: int) -> None:
        self.armed = False
        self.left = nth

    def reach(self) -> None:
        if self.armed:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def install_switch(point: str, nth: int) -> KillSwitch:
    """Puts a kill switch at "before|after module:attribute"."""
    switch = KillSwitch(nth)
    when, where = point.split(" ", 1)
    module, _, dotted = where.partition(":")
    owner = importlib.import_module(module)
    *path, last = dotted.split(".")
    for step in path:
        owner = getattr(owner, step)
    real = getattr(owner, last)

    def wrapped(*args, **named):
        if when == "before":
            switch.reach()
        result = real(*args, **named)
        if when == "after":
            switch.reach()
        return result

    setattr(owner, last, wrapped)
    return switch


def store_seeds(home: Path, journal: Journal, dims: int = 64) -> tuple[Memory, list[str]]:
    memory = open_memory(home, dims)
    ids = []
    for number, text in enumerate(SEEDS):
        message = {"role": "user", "content": text, "id": f"seed-{number}"}
        ids.append(memory.add(message, user_id="u")["results"][0]["id"])
        journal.note(done="add", id=ids[-1], text=text, message=f"seed-{number}")
    other = memory.add("omega Olga owns a blueferret", user_id="other")["results"][0]["id"]
    journal.note(done="other", id=other)
    return memory, ids


def execute(order: dict) -> None:
    home, journal = Path(order["home"]), Journal(Path(order["journal"]))
    act = order["act"]
    if act == "open":
        install_switch(order["point"], order["nth"]).armed = True
        open_memory(home)
        return
    if act == "loop":
        return loop(home, journal)
    if act == "import":
        return import_file(order, journal)
    if act == "calls":
        return make_calls(order, open_memory, journal.note)
    switch = install_switch(order["point"], order["nth"])
    memory, ids = store_seeds(home, journal)
    memory.flush()
    if act == "tend":
        importlib.import_module("graphmem.jobs.cycle").COMMAND_BATCH = 1
        with memory.engine.ledger.write() as connection:
            connection.execute(memories.update().values(created_at=0))
    if act == "merge":
        memory.close()
        memory = open_memory(home, llm=order["llm"])
        memory.add([{"role": "user", "content": text} for text in LIKE], user_id="u", infer=False)
        memory.flush()
    if act == "remodel":
        memory.close()
        memory = open_memory(home, 32)
    switch.armed = True
    journal.note(begun=act)
    message = {"role": "user", "content": NEW, "id": "new"}
    acts = {
        "add": lambda: memory.add(message, user_id="u"),
        "add later": lambda: (memory.add(message, user_id="u", wait=False), journal.note(done="later"), memory.flush()),
        "update": lambda: memory.update(ids[1], REVISED),
        "delete": lambda: memory.delete(ids[1]),
        "delete_all": lambda: memory.delete_all(user_id="u"),
        "rebuild": memory.rebuild,
        "remodel": memory.rebuild,
        "reset": memory.reset,
        "tend": lambda: memory.tend(user_id="u"),
        "merge": lambda: memory.tend(user_id="u"),
        "close": lambda: (memory.delete(ids[1]), journal.note(done="delete"), memory.close()),
    }
    acts[act]()
    journal.note(returned=act)
    if act != "close":
        memory.flush()


def import_file(order: dict, journal: Journal) -> None:
    """Imports a file in batches of two records."""
    importlib.import_module("graphmem.transfer.importer").BATCH = 2
    switch = install_switch(order["point"], order["nth"])
    memory = open_memory(Path(order["home"]))
    switch.armed = True
    journal.note(begun="import")
    memory.import_(order["file"])
    journal.note(done="import")


def loop(home: Path, journal: Journal) -> None:
    """Adds, updates, deletes and searches until it is killed."""
    memory = open_memory(home)
    number = memory.get_all(user_id="u", limit=1)["total"] * 1000 + time.time_ns() % 1000
    journal.note(begun="loop")
    while True:
        number += 1
        journal.note(begun="add", message=f"m{number}", text=f"loop word{number} says Nr{number}")
        uid = memory.add(
            {"role": "user", "content": f"loop word{number} says Nr{number}", "id": f"m{number}"},
            user_id="u",
            wait=number % 3 != 0,
        )["results"][0]["id"]
        journal.note(done="add", id=uid, text=f"loop word{number} says Nr{number}", message=f"m{number}")
        if number % 4 == 0:
            journal.note(begun="update", id=uid, text=f"loop fresh{number} says Nr{number}")
            memory.update(uid, f"loop fresh{number} says Nr{number}")
            journal.note(done="update", id=uid, text=f"loop fresh{number} says Nr{number}")
        if number % 5 == 0:
            journal.note(begun="delete", id=uid)
            memory.delete(uid)
            journal.note(done="delete", id=uid)
        if number % 7 == 0:
            memory.search("loop", user_id="u")


def serve(modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    HashEmbedder().embed_query("the first text fills a table of all letters")
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 3
            try:
                execute(order)
                code = 0
            except BaseException:
                Path(order["journal"] + ".err").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        if (seconds := order.get("kill_after")) is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def peer(home: Path, graph: str) -> None:
    """Opens the same folder in another process, and makes the calls that it reads."""
    memory = open_memory(home, graph=graph)
    print(json.dumps({"opened": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            result = getattr(memory, order["call"])(*order["args"], **order["named"])
            answer = {"result": result}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
        if order["call"] == "close":
            return


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    serve(rest) if verb == "serve" else peer(Path(rest[0]), rest[1])
