"""`graphmem bench`: how good the search is on public data. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphmem.interfaces.options import Call, command

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
def locomo(call: Call, path: Locomo) -> None:
    """Questions about long conversations, each conversation in a space of its own.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.interfaces.bench import conduct, locomo  # noqa: PLC0415

    conduct.conduct(call, locomo.load(path))


@command
def chats(call: Call, path: Chats) -> None:
    """Questions about chats with an assistant or among friends, each chat in a space of its own.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.interfaces.bench import chats, conduct  # noqa: PLC0415

    conduct.conduct(call, chats.load(path))


@command
def multihop(call: Call, path: Multihop, corpus: Corpus = None) -> None:
    """Questions that need several passages, all passages in one space.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.interfaces.bench import conduct, multihop  # noqa: PLC0415

    conduct.conduct(call, multihop.load(path, corpus))


@command
def pooled(call: Call, locomo_path: Locomo, multihop_path: Multihop, corpus: Corpus = None) -> None:
    """Both, with all conversations and passages in one space.

    The data is put into a folder of its own, gone afterwards; with --home it stays there, to be measured again.
    """
    from graphmem.interfaces.bench import conduct, data, locomo, multihop  # noqa: PLC0415

    conduct.conduct(call, data.pooled([locomo.load(locomo_path), multihop.load(multihop_path, corpus)]))


for _one in (locomo, chats, multihop, pooled):
    bench.command(_one.__name__)(_one)
