"""`graphmem bench`: measures search and context on benchmark files. Heavy imports wait until a command runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.bench_qa import benchmark_memory, qa, without_locations
from graphmem.cli.options import CommandContext, PathOption, comma_separated, command, unscoped_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphmem.cli.render import Renderer
    from graphmem.evaluation.datasets import Dataset
    from graphmem.evaluation.runner import Measurement, ProgressCallback
    from graphmem.memory import Memory

Locomo = Annotated[Path, typer.Argument(metavar="LOCOMO", help="A file in the format of LOCOMO's locomo10.json.")]
Multihop = Annotated[Path, typer.Argument(metavar="QUESTIONS", help="A file in the format of MuSiQue or HotpotQA.")]
Corpus = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="All passages, as [{title, text}]; by default those in the questions' file."),
]

Chats = Annotated[Path, typer.Argument(metavar="CHATS", help="A file of chats, or a folder of them: benchmarks/chats.")]
ParallelFiles = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A folder with a file for each language: benchmarks/languages.")
]
Languages = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGES", help="The languages to compare with English, separated by commas: zh,de."),
]
Limit = Annotated[int | None, typer.Option(metavar="N", help="Ask the first N questions only, in each language.")]

Answers = Annotated[
    Path, typer.Argument(metavar="ANSWERS", help="A folder with cases.json and noise.json: benchmarks/answers.")
]
MaxChars = Annotated[
    int | None, typer.Option(metavar="N", help="The most characters of a block.", show_default="that of context()")
]
Threshold = Annotated[
    float | None,
    typer.Option(metavar="COSINE", help="The least similarity of a memory.", show_default="context()'s own rule"),
]
Year = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A folder with texts for each language: benchmarks/lifecycle.")
]
YearLanguages = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGES", help="The languages, separated by commas: en,zh.", show_default="all"),
]
Personas = Annotated[int, typer.Option(metavar="N", help="Persons of each language, each with a year of their own.")]
Days = Annotated[int, typer.Option(metavar="N", help="Days of the year that are lived.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="The number from which the years are made.")]
Quoting = Annotated[bool, typer.Option("--quoting-model", help="Count what a language model would be asked.")]
NoPromotion = Annotated[bool, typer.Option("--no-promotion", help="No memory is kept for its importance.")]
Cases = Annotated[bool, typer.Option("--cases", help="Also what came of each case, with --json.")]
Examples = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Also N questions that context alone answers, and N that search alone does."),
]

Compare = Annotated[
    Path | None, PathOption(metavar="FILE", help="What an earlier run with --json printed.", show_default=False)
]

bench = typer.Typer(
    help="Measures the quality of search, context and answers. Data: graphmem's own chats, everyday "
    "questions, parallel sentences and simulated years; LOCOMO, LongMemEval, MuSiQue and HotpotQA files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@unscoped_command
def locomo(call: CommandContext, path: Locomo) -> None:
    """Asks questions about long conversations.

    Each conversation is a partition of its own. The data is stored in a temporary folder, or in the folder
    given with --home, which is kept and can be measured again.
    """
    from graphmem.evaluation import locomo  # noqa: PLC0415

    _run_benchmark(call, locomo.load(path))


@unscoped_command
def chats(call: CommandContext, path: Chats) -> None:
    """Asks questions about chats, with an assistant or among friends.

    Each chat is a partition of its own. The data is stored in a temporary folder, or in the folder
    given with --home, which is kept and can be measured again.
    """
    from graphmem.evaluation import chats  # noqa: PLC0415

    _run_benchmark(call, chats.load(path))


@unscoped_command
def multihop(call: CommandContext, path: Multihop, corpus: Corpus = None) -> None:
    """Asks questions that need several passages.

    All passages are in one partition. The data is stored in a temporary folder, or in the folder
    given with --home, which is kept and can be measured again.
    """
    from graphmem.evaluation import multihop  # noqa: PLC0415

    _run_benchmark(call, multihop.load(path, corpus))


@unscoped_command
def pooled(call: CommandContext, locomo_path: Locomo, multihop_path: Multihop, corpus: Corpus = None) -> None:
    """Asks the questions of locomo and multihop together.

    All conversations and passages are in one partition. The data is stored in a temporary folder, or in the folder
    given with --home, which is kept and can be measured again.
    """
    from graphmem.evaluation import datasets, locomo, multihop  # noqa: PLC0415

    _run_benchmark(call, datasets.pooled([locomo.load(locomo_path), multihop.load(multihop_path, corpus)]))


@unscoped_command
def answers(
    call: CommandContext,
    path: Answers,
    max_chars: MaxChars = None,
    threshold: Threshold = None,
    cases: Cases = False,  # noqa: FBT002
    examples: Examples = 0,
) -> None:
    """Asks everyday questions, and judges the context.

    It is judged by what has to be in it, and what must not be. The data is stored in a temporary folder, or in the
    folder given with --home, which is kept and can be measured again.
    """
    from graphmem.boundary import validation  # noqa: PLC0415
    from graphmem.cli.bench_table import print_answers  # noqa: PLC0415
    from graphmem.evaluation.answers import build_report, load, run  # noqa: PLC0415

    options: dict[str, Any] = {}
    if max_chars is not None:
        options["max_chars"] = validation.count(max_chars, "max_chars", 1, validation.MAX_CONTEXT_CHARS)
    if threshold is not None:
        options["threshold"] = validation.threshold(threshold)
    everyday = load(path)
    with _measured(call) as (memory, update, models):
        results = run(memory, everyday, options, update)
    report = build_report(everyday, results, options, models, with_cases=cases, examples=examples)
    call.print_answer(report, lambda renderer: print_answers(renderer, report))


@unscoped_command
def languages(call: CommandContext, path: ParallelFiles, languages: Languages = None, limit: Limit = None) -> None:
    """Asks the same questions in several languages.

    Each language is compared with English, and so is asking in one of them over sentences in the other. The data is
    stored in a temporary folder, or in the folder given with --home, which is kept and can be measured again.
    """
    from graphmem.cli.bench_table import print_languages  # noqa: PLC0415
    from graphmem.evaluation.languages import MEASUREMENT, load  # noqa: PLC0415

    _run_benchmark(call, load(path, comma_separated(languages), limit), MEASUREMENT, print_languages)


@unscoped_command
def lifecycle(
    call: CommandContext,
    path: Year,
    languages: YearLanguages = None,
    personas: Personas = 5,
    days: Days = 365,
    seed: Seed = 1,
    no_promotion: NoPromotion = False,  # noqa: FBT002
    quoting_model: Quoting = False,  # noqa: FBT002
) -> None:
    """Lives simulated years, and asks what is still found.

    Each is lived with the lifecycle on and off. The memories are stored in temporary folders. With --home what was
    measured of each person is kept in that folder, and a later run with the same arguments goes on from there. The
    settings of the lifecycle that the configuration names count; a language model that it names merges and summarises.
    With --quoting-model a script that quotes memories stands in for one, and requests and tokens of each month are
    counted.
    """
    from graphmem.cli.bench_table import print_lifecycle  # noqa: PLC0415
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415
    from graphmem.evaluation.lifecycle import Arguments, model_name, run  # noqa: PLC0415
    from graphmem.evaluation.lifecycle_report import build_report  # noqa: PLC0415
    from graphmem.evaluation.year import load  # noqa: PLC0415

    texts = load(path, comma_separated(languages))
    settings = without_locations(call.settings())
    arguments = Arguments(days, personas, seed, promotion=not no_promotion, quoting=quoting_model)
    with ProgressBar(delay=0) as bar:
        outcomes = run(texts, settings, arguments, call.home, bar.update)
    models = {
        "embedder": settings.embedder.provider,
        "extractor": settings.extractor.provider,
        "llm": model_name(settings, arguments) or "none",
    }
    report = build_report(texts, outcomes, arguments, models)
    call.print_answer(report, lambda renderer: print_lifecycle(renderer, report))


@command
def mine(call: CommandContext, compare: Compare = None) -> None:
    """Asks the questions again that somebody judged.

    Found, missed and wrong are told by the verdicts of judge, of all scopes that carry the given ids. Nothing is
    stored. With --compare, the questions that went better and worse since an earlier run are told: with other settings,
    for example.
    """
    from graphmem.cli.bench_table import print_mine  # noqa: PLC0415
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415
    from graphmem.evaluation import mine  # noqa: PLC0415

    before = None if compare is None else _earlier_report(compare)
    with call.memory(embeds=True) as memory, ProgressBar() as bar:
        report = mine.build_report(
            mine.run(memory, call.scope, bar.update), {"embedder": str(memory.stats()["embedder"])}
        )
    if before is not None:
        report["compared"] = mine.compare(before, report)
    call.print_answer(report, lambda renderer: print_mine(renderer, report))


def _earlier_report(path: Path) -> dict[str, Any]:
    """Reads the file that --json of an earlier run was written to."""
    from graphmem.evaluation.mine import is_report  # noqa: PLC0415

    try:
        report = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot be read ({type(error).__name__})", param_hint="--compare") from None
    if not is_report(report):
        raise typer.BadParameter("is no answer of `graphmem bench mine --json`", param_hint="--compare")
    return dict(report)


for _command in (locomo, chats, multihop, pooled, languages, answers, qa, lifecycle, mine):
    bench.command(_command.__name__)(_command)


def _run_benchmark(
    call: CommandContext,
    dataset: Dataset,
    measurement: Measurement | None = None,
    show: Callable[[Renderer, Mapping[str, Any]], None] | None = None,
) -> None:
    """Stores the data set, asks its questions in every search of the measurement, and prints the report by `show`.

    By default these are all configurations, and `print_report`.
    """
    from graphmem.cli.bench_table import print_report  # noqa: PLC0415
    from graphmem.evaluation.runner import EVERYTHING, build_report, run  # noqa: PLC0415

    measurement, show = measurement or EVERYTHING, show or print_report
    with _measured(call) as (memory, update, models):
        outcome = run(memory, dataset, measurement, update)
    report = build_report(dataset, outcome, measurement, models)
    call.print_answer(report, lambda renderer: show(renderer, report))


@contextmanager
def _measured(call: CommandContext) -> Iterator[tuple[Memory, ProgressCallback, dict[str, str]]]:
    """Opens the memory to measure with the configured models; yields it, the progress bar's update, and their names."""
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    settings = without_locations(call.settings())
    with benchmark_memory(call.home, settings) as memory, ProgressBar(delay=0) as bar:
        models = {"embedder": str(memory.stats()["embedder"]), "extractor": settings.extractor.provider}
        yield memory, bar.update, models
