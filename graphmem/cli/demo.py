"""`graphmem demo`: stores a conversation and asks questions whose answers are several hops of the graph away.

Only the conversation, what became of it and the questions are fixed; all answers are results of `search` and `history`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from graphmem.cli.options import CommandContext, error_exit
from graphmem.cli.render import ProgressBar, Renderer
from graphmem.commands.types import RetireMemory
from graphmem.concurrency import Pool
from graphmem.memory import Memory
from graphmem.settings import Settings

USER = "demo"
HITS_SHOWN = 3
# A group chat of four friends who prepare a concert: lines "HH:MM name: words" after a line with their date.
CONVERSATION = """
2025-03-03
08:10 Ravi: We have a venue for the summer concert, the Old Brewery. Greta Lindholm owns it and wants no rent at all.
12:30 Maya: Then the date stands: the concert is on Saturday, 21 June, at eight.
12:33 Ines: I can paint the poster. Something with a moon and a lot of yellow.
12:35 Ravi: And I'll cook lentils for everybody on the night.
18:40 Ines: My cello is healed! Bela Moravec glued the crack, and I can't even see where it was.
20:15 Tomas: A tip for all with broken strings: Bela Moravec sits in a cellar on Harbour Street.
22:05 Maya: Samir Haddad will record the whole evening for us, with proper microphones.
2025-04-14
07:55 Tomas: It snowed on my bicycle this morning.
07:58 Maya: Is it me or does spring not come at all this year?
13:05 Maya: Tickets are printed, 150 of them, in blue.
13:09 Ravi: Next rehearsal is on Tuesday, seven o'clock, and bring pencils.
17:20 Tomas: Paulo Reyes drums for us from now on. He has moved in with his sister, right above the Marlow Clinic.
17:22 Ines: Then he hears the ambulances in four-four time at least.
20:15 Ravi: Imagine, Greta Lindholm sits on the board of Kestrel Ferries.
21:30 Tomas: Who took my music stand, by the way?
21:31 Maya: Your stand is in my car, Tomas.
2025-06-02
08:00 Maya: Three weeks left, how do we all feel?
08:02 Tomas: Nervous. The second movement still falls apart on me.
08:05 Ravi: A hundred and ten seats are sold. My uncle alone bought nine.
12:10 Ines: Bela Moravec has packed his tools and gone to live in Ljubljana.
12:15 Ravi: A pity, nobody else was that cheap.
15:20 Tomas: I ran into Samir Haddad at the market. One spoonful of lentils, he says, and he itches for a week.
16:30 Maya: With all the dust in that hall I cough day and night.
16:41 Ines: At the Marlow Clinic insist on Hannah Osei, everybody else is booked until autumn.
19:50 Tomas: My mother made forty sandwiches, we need a fridge.
20:45 Maya: Kestrel Ferries carries musicians and their instruments for nothing on weekdays.
20:50 Ravi: Then the island festival is not out of reach after all.
"""
# Said afterwards, so that every question of cypher/explore has an answer: something that changed, two relations that
# contradict each other, a second name of one man, and the words of an assistant.
EPILOGUE = """
2025-06-05
18:40 Ravi: From now on we rehearse on Thursdays.
19:00 Maya: Ravi likes jazz.
19:02 Tomas: Ravi does not like jazz.
20:00 Ines: Mr Moravec sent a postcard from Ljubljana.
"""
ALIAS = ("Mr Moravec", "Bela Moravec")
AGENT = "helper"
AGENT_MESSAGE = {
    "role": "assistant",
    "content": "I have booked Kestrel Ferries for Maya.",
    "timestamp": "2025-06-05T22:00:00+00:00",
}
# Words of a message that no longer holds, of the one that says so, and the moment.
REPLACED, REPLACEMENT, REPLACED_AT = "on Tuesday", "on Thursdays", datetime(2025, 6, 5, 18, 40, tzinfo=UTC)
QUESTIONS = (
    "Whom should Paulo Reyes see about his sore wrist?",
    "What should we not serve the man who records us with microphones?",
    "What favour could we ask of whoever owns the Old Brewery?",
    "In which town is the man who repaired the cello?",
)
# The last question is asked a second time as of this date, before the man moved.
AS_OF_DATE = "2025-05-01"
DATE_QUESTION = "When is the concert?"
CORRECTION = ("21 June", "28 June")
# Seconds between two looks at what is still to be delivered.
PROGRESS_INTERVAL = 0.2


def messages(conversation: str = CONVERSATION) -> Iterator[dict[str, str]]:
    """Yields the messages of a conversation in the format of `Memory.add`."""
    day = ""
    for line in conversation.strip().splitlines():
        message = re.fullmatch(r"(\d\d:\d\d) (\w+): (.*)", line)
        if message is None:
            day = line
        else:
            yield {
                "role": "user",
                "name": message[2],
                "content": message[3],
                "timestamp": f"{day}T{message[1]}:00+00:00",
            }


def run_demo(call: CommandContext) -> None:
    """Runs the demo and prints it: in the folder of --home, which is kept, or in a temporary one."""
    if call.home is None and call.config is not None:
        raise typer.BadParameter("with --config, the demo needs --home as well")
    with _demo_memory(call) as memory:
        data = _collect(memory)
    call.print_answer(data, lambda renderer: _DemoPresenter(renderer, data).run(call))
    if pending := data["pending"]:
        options = "".join(f" --{name} {value}" for name in ("home", "config") if (value := getattr(call, name)))
        raise error_exit(
            f"the conversation is stored, but not yet in {' and '.join(pending)}, so that answers may lack something; "
            f"'graphmem repair{options}' delivers it, 'graphmem stats{options}' shows what is still pending"
        )


@contextmanager
def _demo_memory(call: CommandContext) -> Iterator[Memory]:
    if call.home is not None:
        with call.memory(may_create=True) as memory:
            yield memory
        return
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(folder, settings=Settings()) as memory:
        yield memory  # with default settings, as the environment may name somebody's own ledger


def _collect(memory: Memory) -> dict[str, Any]:
    """Stores the conversation, asks the questions, corrects a fact; returns everything that is shown, for JSON."""
    message_count = store(memory)
    pending = _wait_for_delivery(memory)
    questions = [_ask(memory, question) for question in QUESTIONS]
    earlier = _ask(memory, QUESTIONS[-1], AS_OF_DATE)
    before = _ask(memory, DATE_QUESTION)["results"][0]
    memory.update(before["id"], before["memory"].replace(*CORRECTION))
    after = _ask(memory, DATE_QUESTION)["results"][0]
    correction = {"question": DATE_QUESTION, "before": before, "after": after, "history": memory.history(before["id"])}
    return {
        "user": USER,
        "messages": message_count,
        "entities": len(memory.entities(user_id=USER)),
        "questions": [*questions, earlier],
        "correction": correction,
        # A store that has just been waited for in vain is not waited for again.
        "pending": memory.stats()["pending"] if pending else _wait_for_delivery(memory),
    }


def store(memory: Memory) -> int:
    """Stores the conversation and what became of it, as it was said; returns the number of messages.

    A language model is not asked, also where one is configured: the questions are about the messages.
    """
    added = memory.add([*messages(), *messages(EPILOGUE)], user_id=USER, infer=False)["results"]
    added += memory.add([AGENT_MESSAGE], user_id=USER, agent_id=AGENT, infer=False)["results"]
    memory.alias(*ALIAS, user_id=USER)
    replaced, replacement = (
        next(item["id"] for item in added if words in item["memory"]) for words in (REPLACED, REPLACEMENT)
    )
    if memory.get(replaced) and memory.get(replacement):  # neither was erased since the demo ran here before
        retirement = RetireMemory(replaced, REPLACED_AT, "another day", replacement)
        memory.engine.commit([retirement])  # otherwise only a language model retires memories
    return len(added)


def _wait_for_delivery(memory: Memory) -> list[str]:
    """Waits until all is in vector index and graph, as long as deliveries advance; returns what is still pending.

    A terminal shows how far they are.
    """
    with ProgressBar() as bar:
        pool = Pool(1, thread_name_prefix="graphmem-demo")
        flushing = pool.submit(memory.flush)
        pool.shutdown(wait=False)
        first: dict[str, int] = {}
        while not wait([flushing], PROGRESS_INTERVAL).done:
            for state in memory.stats()["stores"]:
                name, left = state["name"], state["pending"]
                if total := first.setdefault(name, left):
                    bar.update(name, total - left, total)
    return flushing.result()["pending"]


def _ask(memory: Memory, question: str, as_of: str | None = None) -> dict[str, Any]:
    answer = memory.search(question, user_id=USER, top_k=HITS_SHOWN, as_of=as_of, explain=True)
    return {"question": question, "as_of": as_of, "results": answer["results"]}


class _DemoPresenter:
    """Prints the data of the demo for people."""

    def __init__(self, renderer: Renderer, data: Mapping[str, Any]) -> None:
        self._renderer = renderer
        self._data = data

    def run(self, call: CommandContext) -> None:
        """Prints introduction, answers, correction, and commands to try next."""
        data, line = self._data, self._renderer.line
        days = len({message["timestamp"][:10] for text in (CONVERSATION, EPILOGUE) for message in messages(text)})
        without = "No language model." if call.config else "No server, no key, no language model."
        line(f"Four friends prepare a concert. {data['messages']} messages of {days} days are stored:")
        line(f"{data['entities']} people, places and things in them are linked. {without}")
        for number, question in enumerate(data["questions"], 1):
            as_of = f"  (as of {question['as_of']})" if question["as_of"] else ""
            self._renderer.title(f"{number}. {question['question']}{as_of}")
            for rank, hit in enumerate(question["results"], 1):
                self._print_hit(rank, hit)
        correction = self._data["correction"]
        self._renderer.title(f"A correction: {correction['question']}")
        for name in ("before", "after"):
            self._renderer.line((f"{name:<7}", "dim"), correction[name]["memory"])
        self._renderer.line(("its history:", "dim"))
        self._renderer.history(correction["history"])
        self._print_next_commands(call.home, call.config)

    def _print_hit(self, rank: int, hit: Mapping[str, Any]) -> None:
        """Prints a hit and, if entities led to it, its path and its rank by similarity alone."""
        renderer, explanation = self._renderer, hit["explain"]
        date, speaker = (renderer.day(hit["at"]), "green"), (f"{hit['actor_id']}: ", "bold")
        renderer.line((f"{rank}  ", "bold"), date, "  ", speaker, hit["memory"], hang=3)
        if not any(step["type"] == "entity" for step in explanation["path"]):
            return
        renderer.path(explanation["path"], indent=5)
        dense_rank = explanation["arms"].get("dense", {}).get("rank", 0)
        if dense_rank > rank:
            renderer.line(
                (f"(rank {rank}; by similarity alone {dense_rank} of {self._data['messages']})", "dim"), indent=5
            )

    def _print_next_commands(self, home: Path | None, config: Path | None) -> None:
        self._renderer.title("Go on")
        if home is None:
            self._renderer.line("This conversation is gone now; graphmem demo --home DIR keeps it. Your own:")
            options = "--user me"
        else:
            options = f"--user {USER} --home {home}" + (f" --config {config}" if config else "")
        self._renderer.line(f'graphmem add "Anna works at the observatory now." {options}', indent=2)
        self._renderer.line(f'graphmem search "Who looks at stars?" {options} --explain', indent=2)
        self._renderer.line(f"graphmem graph {options} --output graph.html", indent=2)
