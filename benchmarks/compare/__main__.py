r"""Compares graphmem with other memories and two baselines, in one run: what is found, and what it costs.

    python benchmarks/compare --locomo locomo10.json --multihop musique.json --corpus musique_corpus.json \
        --chats benchmarks/chats --chinese benchmarks/chinese/chats.json --out benchmarks/results/compare
    python benchmarks/compare --small --locomo locomo10.json --out small       # minutes: shows that all works
    python benchmarks/compare --report benchmarks/results/compare              # the report anew, from the records

Writes the records of the run (`compare_measuring`) to OUT.jsonl, and the report to OUT.md. Systems whose packages are
not there are left out. Recall is measured over the data as it is; times over LOCOMO's turns in one partition, repeated
by other people with other words (`benchmarks/latency.py`) until they are as many as `--memories` says.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
sys.path += [str(FOLDER), str(FOLDER.parent)]

from compare_measuring import Progress, Record, Task, measure  # noqa: E402
from compare_report import report  # noqa: E402
from latency import enlarge  # noqa: E402
from systems import FLOOR, OWN, SYSTEMS, Encoder, Place, switch_off_telemetry  # noqa: E402

from graphmem.cli.render import ProgressBar  # noqa: E402
from graphmem.evaluation import chats, locomo, multihop  # noqa: E402
from graphmem.evaluation.datasets import POOLED, Dataset, pooled  # noqa: E402
from graphmem.evaluation.environment import environment  # noqa: E402
from graphmem.evaluation.metrics import DEPTHS  # noqa: E402

# Hits of a search that is timed: the default of `Memory.search`.
TIMED_TOP_K = 10


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a run does: of the data (None: all of it) and for the times."""

    partitions: int | None
    messages: int | None
    questions: int | None
    memories: tuple[int, ...]
    timed_questions: int
    single_adds: int
    list_adds: int
    list_size: int


FULL = Effort(None, None, None, (2_000,), 100, 40, 6, 50)
SMALL = Effort(2, 200, 20, (300,), 20, 8, 2, 20)


def shrink(data: Dataset, effort: Effort) -> Dataset:
    """Returns the first partitions, of each the first questions, with what answers these and the first messages."""
    partitions, cases = {}, []
    for name, messages in list(data.partitions.items())[: effort.partitions]:
        asked = [case for case in data.cases if case.partition == name][: effort.questions]
        gold = frozenset[str]().union(*(case.gold for case in asked))
        first = {message["id"] for message in messages[: effort.messages]}
        partitions[name] = tuple(message for message in messages if message["id"] in gold | first)
        cases += asked
    return replace(data, partitions=partitions, cases=tuple(cases))


def timed_task(turns: Dataset, memories: int, effort: Effort) -> Task:
    """Returns the task of so many turns in one partition; the turns after them are added one by one and in lists."""
    calls = [1] * effort.single_adds + [effort.list_size] * effort.list_adds
    messages = enlarge(turns, memories + sum(calls)).partitions[POOLED]
    stored, rest = messages[:memories], iter(messages[memories:])
    keys = {message["id"] for message in stored}
    cases = [case for case in turns.cases if case.gold <= keys]
    data = replace(
        turns,
        name=f"{memories} turns",
        partitions={POOLED: stored},
        cases=tuple(cases[:: -(-len(cases) // effort.timed_questions)]),
    )
    return Task(data, TIMED_TOP_K, [[next(rest) for _ in range(size)] for size in calls])


def tasks(arguments: argparse.Namespace, effort: Effort) -> Iterator[Task]:
    """Yields what is measured: the data sets for recall, then the turns for times."""
    turns = locomo.load(arguments.locomo) if arguments.locomo else None
    data = [
        *([turns] if turns else []),
        *([multihop.load(arguments.multihop, arguments.corpus)] if arguments.multihop else []),
        *(replace(chats.load(path), name=path.name) for path in arguments.chats),
        *([replace(locomo.load(arguments.chinese), name="Chinese chat")] if arguments.chinese else []),
    ]
    for one in data:
        yield Task(shrink(one, effort), max(DEPTHS))
    for memories in (effort.memories if arguments.memories is None else arguments.memories) if turns else ():
        yield timed_task(pooled([turns]), memories, effort)


def usable(names: Sequence[str], folder: Path, qdrant: str | None) -> tuple[list[str], dict[str, str]]:
    """Returns the systems that can be opened here, and why others cannot."""
    encoder, left_out = Encoder(), dict[str, str]()
    for number, name in enumerate(names):
        (place := folder / f"tried-{number}").mkdir()
        try:
            SYSTEMS[name].open(Place(place, encoder, qdrant)).close()
        except Exception as reason:
            # Others' code raises what it likes where it cannot be had; without these two nothing is compared.
            if name in (OWN, FLOOR):
                raise
            left_out[name] = f"{type(reason).__name__}: {reason}"
    return [name for name in names if name not in left_out], left_out


def run(arguments: argparse.Namespace, folder: Path, progress: Progress) -> Iterator[Record]:
    """Yields the circumstances of the run, then its records."""
    effort = SMALL if arguments.small else FULL
    planned = list(tasks(arguments, effort))
    names, left_out = usable(
        [name for name in SYSTEMS if name in {*arguments.systems, FLOOR}], folder, arguments.qdrant
    )
    yield {
        "kind": "run",
        **environment(),
        "small": arguments.small,
        "own": OWN,
        "floor": FLOOR,
        "systems": names,
        "left_out": left_out,
        "used": {name: {"packages": SYSTEMS[name].versions(), "settings": SYSTEMS[name].used} for name in names},
        "timed": [task.data.name for task in planned if task.calls],
        "files": [asdict(source) for task in planned if not task.calls for source in task.data.sources],
    }
    for task in planned:
        yield from measure(task, names, folder, arguments.qdrant, progress)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", type=Path, help="a file in the form of LOCOMO's locomo10.json")
    parser.add_argument("--multihop", type=Path, help="a file in the form of MuSiQue or HotpotQA")
    parser.add_argument("--corpus", type=Path, help="its passages, where they stand in a file of their own")
    parser.add_argument("--chats", type=Path, action="append", default=[], help="a folder of chats; may be repeated")
    parser.add_argument("--chinese", type=Path, help="a file in LOCOMO's form in Chinese")
    parser.add_argument(
        "--memories", type=int, nargs="*", help=f"turns to measure times over (default: {FULL.memories[0]})"
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all")
    parser.add_argument("--qdrant", help="the URL of a Qdrant server, for mem0")
    parser.add_argument("--small", action="store_true", help="little data, few questions")
    parser.add_argument("--home", type=Path, help="where the systems' folders are made for the run (default: TMPDIR)")
    result = parser.add_mutually_exclusive_group(required=True)
    result.add_argument("--out", type=Path, help="OUT.jsonl and OUT.md are written")
    result.add_argument("--report", type=Path, help="write REPORT.md from REPORT.jsonl, and measure nothing")
    arguments = parser.parse_args()
    prefix = arguments.report or arguments.out
    if arguments.out:
        if not any((arguments.locomo, arguments.multihop, arguments.chats, arguments.chinese)):
            parser.error("name data: --locomo, --multihop, --chats or --chinese")
        logging.disable(logging.WARNING)
        with (
            TemporaryDirectory(prefix="compare-", dir=arguments.home) as folder,
            ProgressBar() as bar,
            prefix.with_suffix(".jsonl").open("w", encoding="utf-8") as file,
        ):
            switch_off_telemetry(Path(folder))
            for record in run(arguments, Path(folder), bar.update):
                print(json.dumps(record, ensure_ascii=False), file=file)
    lines = prefix.with_suffix(".jsonl").read_text("utf-8").splitlines()
    circumstances, *records = map(json.loads, lines)
    prefix.with_suffix(".md").write_text("\n".join(report(circumstances, records)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
