"""`graphmem bench`: how good the search is on public data. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmem.cli.options import CommandContext, command

Locomo = Annotated[Path, typer.Argument(metavar="LOCOMO", help="A file in the form of LOCOMO's locomo10.json.")]
Multihop = Annotated[Path, typer.Argument(metavar="QUESTIONS", help="A file in the form of MuSiQue or HotpotQA.")]
Corpus = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="All passages, as [{title, text}]; else those of the questions together."),
]

Chats = Annotated[Path, typer.Argument(metavar="CHATS", help="A file of chats, or a folder of them: benchmarks/chats.")]

bench = typer.Typer(
    help="Measures how good the search is, on chats of ours and on LOCOMO, MuSiQue or HotpotQA files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command
def locomo(call: CommandContext, path: Locomo) -> None:
    """Questions about long conversations, each conversation in a partition of its own.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.cli import bench_session  # noqa: PLC0415
    from graphmem.evaluation import locomo  # noqa: PLC0415

    bench_session.run_benchmark(call, locomo.load(path))


@command
def chats(call: CommandContext, path: Chats) -> None:
    """Questions about chats with an assistant or among friends, each chat in a partition of its own.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.cli import bench_session  # noqa: PLC0415
    from graphmem.evaluation import chats  # noqa: PLC0415

    bench_session.run_benchmark(call, chats.load(path))


@command
def multihop(call: CommandContext, path: Multihop, corpus: Corpus = None) -> None:
    """Questions that need several passages, all passages in one partition.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.cli import bench_session  # noqa: PLC0415
    from graphmem.evaluation import multihop  # noqa: PLC0415

    bench_session.run_benchmark(call, multihop.load(path, corpus))


@command
def pooled(call: CommandContext, locomo_path: Locomo, multihop_path: Multihop, corpus: Corpus = None) -> None:
    """Both, with all conversations and passages in one partition.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.cli import bench_session  # noqa: PLC0415
    from graphmem.evaluation import datasets, locomo, multihop  # noqa: PLC0415

    bench_session.run_benchmark(call, datasets.pooled([locomo.load(locomo_path), multihop.load(multihop_path, corpus)]))


for _one in (locomo, chats, multihop, pooled):
    bench.command(_one.__name__)(_one)
