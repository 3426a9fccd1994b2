"""`graphmem demo`: a conversation is remembered, and questions are asked whose answers lie some hops away.

Only the conversation and the questions are written here; what is shown is what `search` and `history` return.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from graphmem.cli.options import CommandContext
from graphmem.cli.render import Renderer
from graphmem.memory import Memory
from graphmem.settings import Settings

USER = "demo"
HITS_SHOWN = 3
# A group chat of four friends who prepare a concert.
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
QUESTIONS = (
    "Whom should Paulo Reyes see about his sore wrist?",
    "What should we not serve the man who records us with microphones?",
    "What favour could we ask of whoever owns the Old Brewery?",
    "In which town is the man who repaired the cello?",
)
# The last question once more, as it would have been answered before he moved.
AS_OF_DATE = "2025-05-01"
DATE_QUESTION = "When is the concert?"
CORRECTION = ("21 June", "28 June")


def messages() -> Iterator[dict[str, str]]:
    """The conversation as `add` takes it."""
    day = ""
    for line in CONVERSATION.strip().splitlines():
        turn = re.fullmatch(r"(\d\d:\d\d) (\w+): (.*)", line)
        if turn is None:
            day = line
        else:
            yield {"role": "user", "name": turn[2], "content": turn[3], "timestamp": f"{day}T{turn[1]}:00+00:00"}


def run_demo(call: CommandContext) -> None:
    """Runs it: in the folder that `--home` names, where it can be explored, else in one that is gone afterwards."""
    call.warn_scope_ignored()
    if call.home is None and call.config is not None:
        raise typer.BadParameter("with --config, the demo needs --home as well")
    with _memory(call) as memory:
        told = _tell(memory)
    call.print_answer(told, lambda renderer: _DemoPresenter(renderer, told).run(call.home))


@contextmanager
def _memory(call: CommandContext) -> Iterator[Memory]:
    if call.home is not None:
        with call.memory() as memory:
            yield memory
        return
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(folder, settings=Settings()) as memory:
        yield memory  # whatever the environment says: a demo must not write into somebody's ledger


def _tell(memory: Memory) -> dict[str, Any]:
    """Everything that the demo shows, as data."""
    added = memory.add(list(messages()), user_id=USER)
    questions = [_ask(memory, question) for question in QUESTIONS]
    earlier = _ask(memory, QUESTIONS[-1], AS_OF_DATE)
    return {
        "user": USER,
        "messages": len(added["results"]),
        "entities": len(memory.entities(user_id=USER)),
        "questions": [*questions, earlier],
        "correction": _correct(memory),
    }


def _ask(memory: Memory, question: str, as_of: str | None = None) -> dict[str, Any]:
    found = memory.search(question, user_id=USER, top_k=HITS_SHOWN, as_of=as_of, explain=True)
    return {"question": question, "as_of": as_of, "results": found["results"]}


def _correct(memory: Memory) -> dict[str, Any]:
    """A fact is corrected: the memory says the new words, its history both."""
    before = _ask(memory, DATE_QUESTION)["results"][0]
    memory.update(before["id"], before["memory"].replace(*CORRECTION))
    after = _ask(memory, DATE_QUESTION)["results"][0]
    return {"question": DATE_QUESTION, "before": before, "after": after, "history": memory.history(before["id"])}


class _DemoPresenter:
    """The same for people."""

    def __init__(self, renderer: Renderer, told: Mapping[str, Any]) -> None:
        self._screen = renderer
        self._told = told

    def run(self, home: Path | None) -> None:
        """From the first line to the last."""
        told, line = self._told, self._screen.line
        days = len({message["timestamp"][:10] for message in messages()})
        line(f"Four friends prepare a concert. {told['messages']} messages of {days} days are remembered:")
        line(f"{told['entities']} people, places and things in them are linked. No server, no key, no language model.")
        for number, asked in enumerate(told["questions"], 1):
            self._answer(number, asked)
        self._correction()
        self._further(home)

    def _answer(self, number: int, asked: Mapping[str, Any]) -> None:
        when = f"  (as of {asked['as_of']})" if asked["as_of"] else ""
        self._screen.title(f"{number}. {asked['question']}{when}")
        for place, hit in enumerate(asked["results"], 1):
            self._hit(place, hit)

    def _hit(self, place: int, hit: Mapping[str, Any]) -> None:
        renderer, because = self._screen, hit["explain"]
        when, who = (hit["at"][:10], "green"), (f"{hit['actor_id']}: ", "bold")
        renderer.line((f"{place}  ", "bold"), when, "  ", who, hit["memory"], hang=3)
        if not any(step["type"] == "entity" for step in because["path"]):
            return
        renderer.path(because["path"], indent=5)
        alone = because["arms"].get("dense", {}).get("rank", 0)
        if alone > place:
            renderer.line(
                (f"(number {place}; by likeness alone it would be {alone} of {self._told['messages']})", "dim"),
                indent=5,
            )

    def _correction(self) -> None:
        correction = self._told["correction"]
        self._screen.title(f"A correction: {correction['question']}")
        for name in ("before", "after"):
            self._screen.line((f"{name:<7}", "dim"), correction[name]["memory"])
        self._screen.line(("its history:", "dim"))
        self._screen.history(correction["history"])

    def _further(self, home: Path | None) -> None:
        self._screen.title("Go on")
        if home is None:
            self._screen.line("This conversation is gone now; graphmem demo --home DIR keeps it. Your own:")
            where = "--user me"
        else:
            where = f"--user {USER} --home {home}"
        self._screen.line(f'graphmem add "Anna works at the observatory now." {where}', indent=2)
        self._screen.line(f'graphmem search "Who looks at stars?" {where} --explain', indent=2)
        self._screen.line(f"graphmem graph {where} --output graph.html", indent=2)
