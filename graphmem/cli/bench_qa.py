"""`graphmem bench qa`: has models answer questions from the notes of several systems, and others judge the answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, comma_separated, unscoped_command
from graphmem.errors import ConfigError, LLMError, LLMUnavailable, LLMUnusable, StoreError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphmem.evaluation.qa.run import Plan
    from graphmem.evaluation.qa.systems import FilledMemory
    from graphmem.memory import Memory
    from graphmem.models.openai_chat import Prices
    from graphmem.plugins import LanguageModel, Prompt, Reply
    from graphmem.settings import Settings

Data = Annotated[
    Path | None,
    typer.Argument(metavar="QUESTIONS", help="A file in the format of LOCOMO's locomo10.json or of LongMemEval."),
]
Results = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file of the run, in JSON Lines; one that is there goes on.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Reports on a file of --results, as FILE.md and FILE.svg; asks nothing."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only says how many calls, tokens and how much money it takes; with --results, what is left."
    ),
]
Systems = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="The systems, separated by commas; see benchmarks/qa.", show_default="seven of them"
    ),
]
Categories = Annotated[
    str | None,
    typer.Option(metavar="IDS", help="The ids of categories, separated by commas.", show_default="all but LOCOMO's 5"),
]
LeaveOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Ids of questions with a wrong label, one a line: they are neither asked nor counted."
    ),
]
Most = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Ask at most N questions, each category in its share.", show_default="all"),
]
Parallel = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Requests at a time.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, max=86_400, help="Seconds for one try of a request.")]
NoTemperature = Annotated[bool, typer.Option("--no-temperature", help="Send no temperature, for models that refuse 0.")]

_JUDGES = ("judge", "second-judge")


def _model_option(of: str) -> Any:
    return typer.Option(metavar="NAME", help=f"The model {of}.")


def _url_option(of: str, key: str) -> Any:
    return typer.Option(metavar="URL", help=f"The endpoint {of}, OpenAI-compatible. Its key: {key}.")


def _price_option(of: str) -> Any:
    return typer.Option(metavar="IN,OUT", help=f"Money for a million tokens of requests and of replies {of}.")


AnswerModel = Annotated[str | None, _model_option("that answers")]
AnswerUrl = Annotated[str | None, _url_option("that answers", "ANSWER_API_KEY")]
AnswerPrice = Annotated[str | None, _price_option("to answer")]
JudgeModel = Annotated[str | None, _model_option("that judges; without one nothing is judged")]
JudgeUrl = Annotated[str | None, _url_option("that judges", "JUDGE_API_KEY")]
JudgePrice = Annotated[str | None, _price_option("to judge")]
SecondJudgeModel = Annotated[str | None, _model_option("of a second judge")]
SecondJudgeUrl = Annotated[str | None, _url_option("of the second judge", "SECOND_JUDGE_API_KEY")]
SecondJudgePrice = Annotated[str | None, _price_option("of the second judge")]
MemoryModel = Annotated[str | None, _model_option("that draws facts, for facts-, both- and mem0")]
MemoryUrl = Annotated[str | None, _url_option("that draws facts", "MEMORY_API_KEY")]
MemoryPrice = Annotated[str | None, _price_option("to draw facts")]


@unscoped_command
def qa(
    call: CommandContext,
    path: Data = None,
    results: Results = None,
    report: Report = None,
    dry_run: DryRun = False,  # noqa: FBT002
    systems: Systems = None,
    categories: Categories = None,
    leave_out: LeaveOut = None,
    questions: Most = None,
    answer_model: AnswerModel = None,
    answer_url: AnswerUrl = None,
    answer_price: AnswerPrice = None,
    judge_model: JudgeModel = None,
    judge_url: JudgeUrl = None,
    judge_price: JudgePrice = None,
    second_judge_model: SecondJudgeModel = None,
    second_judge_url: SecondJudgeUrl = None,
    second_judge_price: SecondJudgePrice = None,
    memory_model: MemoryModel = None,
    memory_url: MemoryUrl = None,
    memory_price: MemoryPrice = None,
    parallel: Parallel = 8,
    timeout: Timeout = 60.0,
    no_temperature: NoTemperature = False,  # noqa: FBT002
) -> None:
    """Has models answer questions from notes, and judges.

    A model answers each question from the notes of each system, and others judge the answers, which they see without
    the system. Every answer is a line in the file of --results; a run that was stopped goes on from there. --dry-run
    counts calls, tokens and money from the data alone. --report makes Markdown and a figure of the file; with
    QUESTIONS, of one without the data's texts. Keys of
    endpoints come from the variables that the options name, or OPENAI_API_KEY for OpenAI's own endpoint.
    """
    left_out = [] if leave_out is None else _ids(leave_out)
    if report is not None:
        if dry_run or not {None} >= {results, systems, categories, questions}:
            message = "is about all that its file holds but --leave-out; leave out the options of a run"
            raise typer.BadParameter(message, param_hint="--report")
        _report(call, report, path, left_out)
        return
    if path is None:
        raise typer.BadParameter("needs the file of questions, or --report", param_hint="QUESTIONS")
    named = (
        ("answer", answer_model, answer_url, answer_price),
        ("judge", judge_model, judge_url, judge_price),
        ("second-judge", second_judge_model, second_judge_url, second_judge_price),
        ("memory", memory_model, memory_url, memory_price),
    )
    temperature = None if no_temperature else 0.0
    roles = {one[0]: _Role(*one, timeout=timeout, temperature=temperature) for one in named}
    plan = _plan(path, systems, categories, left_out, questions)
    if dry_run:
        _forecast(call, plan, roles, results)
        return
    if results is None:
        raise typer.BadParameter("names the file of the run; without it only --dry-run", param_hint="--results")
    _run(call, plan, roles, results, parallel, left_out)


class _Role:
    """A model that the command asks, as its options name it. Raises BadParameter for an unusable one."""

    def __init__(
        self,
        name: str,
        model: str | None,
        url: str | None,
        price: str | None,
        *,
        timeout: float,
        temperature: float | None,
    ) -> None:
        from graphmem.models.openai_chat import Prices  # noqa: PLC0415

        self.name, self.model, self._url = name, model, url
        self._timeout, self._temperature = timeout, temperature
        if model is not None and not model.strip():
            message = "is empty; give the name by which the endpoint knows it"
            raise typer.BadParameter(message, param_hint=f"--{name}-model")
        if url is not None and not url.startswith(("http://", "https://")):
            raise typer.BadParameter("must begin with http:// or https://", param_hint=f"--{name}-url")
        try:
            self.prices: Prices | None = None if price is None else Prices(*_two_prices(price))
        except ValueError:
            hint = f"--{name}-price"
            raise typer.BadParameter("must be two numbers from 0, such as 0.15,0.60", param_hint=hint) from None
        if name in _JUDGES and model is None and (url, price) != (None, None):
            message = "is missing, so that nothing would be judged or counted; name the judge's model"
            raise typer.BadParameter(message, param_hint=f"--{name}-model")

    @property
    def _variable(self) -> str:
        return f"{self.name.upper().replace('-', '_')}_API_KEY"

    @property
    def key(self) -> str | None:
        """The key of the endpoint, from the variable of the role, such as JUDGE_API_KEY."""
        return os.environ.get(self._variable)

    @property
    def required_model(self) -> str:
        """The model's name. Raises BadParameter if the options name none."""
        if self.model is None:
            message = "names no model; give the name by which the endpoint knows it"
            raise typer.BadParameter(message, param_hint=f"--{self.name}-model")
        return self.model

    def opened(self, stack: ExitStack) -> LanguageModel:
        """Returns the model, which is closed with the stack. Raises ConfigError for an unusable URL or key."""
        import openai  # noqa: F401, PLC0415  (takes seconds, which would count as those of the first answers)

        from graphmem.models.openai_chat import OpenaiChatModel  # noqa: PLC0415

        try:
            model = OpenaiChatModel(
                self.required_model,
                api_key=self.key,
                base_url=self._url,
                temperature=self._temperature,
                timeout=self._timeout,
                prices=self.prices,
            )
        except ConfigError as error:
            raise ConfigError(self.in_options(str(error))) from None
        return _AskedModel(stack.enter_context(closing(model)), self)

    def in_options(self, message: str) -> str:
        """Returns an error's message with the options of this role in place of the settings of a language model."""
        names = {
            "the language model": f"the model of --{self.name}-model",
            "llm.config.temperature as it is set": "a temperature of 0, which --no-temperature leaves out",
            "llm.config.openai_base_url": f"--{self.name}-url",
            "llm.config.api_key": self._variable,
            "llm.config.model": f"--{self.name}-model",
            "llm.config.timeout": "--timeout",
        }
        for setting, option in names.items():
            message = message.replace(setting, option)
        return message

    def laid_over(self, settings: Settings) -> Settings:
        """Returns the settings with this model as the language model."""
        from graphmem.settings.schema import OpenaiLlm  # noqa: PLC0415

        config = {
            "model": self.required_model,
            "api_key": self.key,
            "openai_base_url": self._url,
            "timeout": self._timeout,
            "temperature": self._temperature,
            "prices": self.prices and {"prompt": self.prices.prompt, "completion": self.prices.completion},
        }
        return settings.model_copy(update={"llm": OpenaiLlm.model_validate({"config": config})})


class _AskedModel:
    """The model of a role. Its failures name the role's options, and what is no model's reply ends the run."""

    def __init__(self, model: LanguageModel, role: _Role) -> None:
        self.name = model.name
        self._model, self._role = model, role

    def answer(self, prompt: Prompt) -> Reply:
        """Raises what the model raises, and LLMUnavailable for a reply that has no text and counts no tokens.

        Such a reply is a page of another server, or a broken one: counted as a wrong answer, it would stay in the
        results file, and hardly be noticed.
        """
        try:
            return self._model.answer(prompt)
        except LLMUnusable as error:
            if error.usage is None or not error.usage.prompt_tokens:
                role = self._role.name
                message = f"--{role}-url: a reply is none of a language model, it has no text and counts no tokens; "
                remedy = "give the URL of an OpenAI-compatible endpoint (mostly it ends in /v1)"
                raise LLMUnavailable(message + remedy, error.usage) from None
            raise
        except LLMError as error:
            error.args = (self._role.in_options(str(error)),)
            raise

    def close(self) -> None:
        """Closes nothing: the model is closed with the stack."""


def _two_prices(text: str) -> tuple[float, float]:
    """Returns two prices. Raises ValueError for anything else."""
    first, second = (float(word) for word in text.split(","))
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise ValueError
    return first, second


def _ids(path: Path) -> list[str]:
    """Reads ids of questions, one a line; empty lines and comments (#) do not count. Raises ValidationError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValidationError(f"{path}: cannot be read as text; give a file with an id in each line") from None
    return [word for line in lines if (word := line.partition("#")[0].strip())]


def _plan(path: Path, systems: str | None, categories: str | None, left_out: list[str], questions: int | None) -> Plan:
    from graphmem.evaluation.qa.run import load, planned  # noqa: PLC0415
    from graphmem.evaluation.qa.systems import (  # noqa: PLC0415
        MEM0,
        chosen_systems,
        has_mem0,
    )

    chosen = chosen_systems(comma_separated(systems))
    if MEM0 in chosen and not has_mem0():
        typer.echo(
            "graphmem: mem0 is left out: it is not installed in version 2 (pip install 'mem0ai>=2,<3')", err=True
        )
        if len(chosen) == 1:
            raise typer.BadParameter("names nothing else; name a system that is installed", param_hint="--systems")
        del chosen[MEM0]
    ids = comma_separated(categories)
    if ids is not None and not all(ids):
        message = "has an empty id; give the ids of categories, separated by commas"
        raise typer.BadParameter(message, param_hint="--categories")
    return planned(load(path), chosen, categories=ids, leave_out=left_out, questions=questions)


def _judges(roles: Mapping[str, _Role]) -> list[_Role]:
    return [roles[name] for name in _JUDGES if roles[name].model is not None]


def _forecast(call: CommandContext, plan: Plan, roles: Mapping[str, _Role], results: Path | None) -> None:
    """Prints what the run takes; if the results file is there, what it takes to go on with it."""
    from graphmem.cli.bench_table import print_forecast  # noqa: PLC0415
    from graphmem.evaluation.qa.results import read  # noqa: PLC0415
    from graphmem.evaluation.qa.run import forecast  # noqa: PLC0415

    asked = [roles["answer"], *_judges(roles), roles["memory"]]
    done = read(results).answers if results is not None and results.exists() else {}
    outlook = forecast(plan, {role.name: role.prices for role in asked}, done)
    call.print_answer(outlook, lambda renderer: print_forecast(renderer, outlook))


def _print(call: CommandContext, report: Mapping[str, Any]) -> None:
    from graphmem.cli.bench_table import print_qa  # noqa: PLC0415

    call.print_answer(report, lambda renderer: print_qa(renderer, report))


def _run(
    call: CommandContext, plan: Plan, roles: Mapping[str, _Role], results: Path, parallel: int, left_out: Sequence[str]
) -> None:
    """Runs the plan, and prints the report of what the results file then holds, but for the questions left out."""
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415
    from graphmem.evaluation.qa.report import build_report  # noqa: PLC0415
    from graphmem.evaluation.qa.results import ResultsFile  # noqa: PLC0415
    from graphmem.evaluation.qa.run import Asker, run, run_record  # noqa: PLC0415
    from graphmem.evaluation.qa.systems import BOTH, MEM0, WORDS, FactsMemory, Mem0Memory, WordsMemory  # noqa: PLC0415  # noqa: PLC0415

    needed = ["answer", *(["memory"] if plan.memories & {BOTH, MEM0} else [])]
    named = {name: roles[name].required_model for name in needed}
    settings = without_locations(call.settings()).model_copy(update={"llm": None})

    def folder(name: str) -> Path | None:
        return None if call.home is None else call.home / name

    with ExitStack() as stack:
        words = stack.enter_context(benchmark_memory(folder(WORDS), settings))
        embedder = words.engine.search_deps.embedder
        memories: dict[str, FilledMemory] = {WORDS: WordsMemory(words, plan.dataset)}
        if BOTH in plan.memories:
            with_model = roles["memory"].laid_over(settings)
            memories[BOTH] = FactsMemory(stack.enter_context(benchmark_memory(folder(BOTH), with_model)))
        if MEM0 in plan.memories:
            place = folder(MEM0) or Path(stack.enter_context(TemporaryDirectory(prefix="graphmem-")))
            mem0 = Mem0Memory(place, embedder, roles["memory"].opened(stack))
            memories[MEM0] = stack.enter_context(closing(mem0))
        judges = _judges(roles)
        models = {
            "answer": named["answer"],
            "judges": [role.model for role in judges],
            "memory": roles["memory"].model,
            "embedder": str(words.stats()["embedder"]),
            "extractor": settings.extractor.provider,
        }
        file = stack.enter_context(ResultsFile(results, run_record(plan, models)))
        answerer, judging = roles["answer"].opened(stack), [role.opened(stack) for role in judges]
        asker = Asker(memories, embedder, answerer, judging, parallel, keeps=call.home is not None)
        with ProgressBar(delay=0) as bar:
            run(plan, asker, file, bar.update)
        report = build_report(file.recorded, left_out)
    _print(call, report)


def _report(call: CommandContext, results: Path, questions: Path | None, left_out: Sequence[str]) -> None:
    """Writes the report of a results file beside it, and prints it. Raises StoreError if it cannot be written.

    `questions` is the file of the data for results that were published without its texts.
    """
    from graphmem.evaluation.qa.report import (  # noqa: PLC0415
        build_report,
        markdown,
        svg,
    )
    from graphmem.evaluation.qa.results import read  # noqa: PLC0415
    from graphmem.evaluation.qa.run import load, with_texts  # noqa: PLC0415

    recorded = read(results)
    report = build_report(recorded if questions is None else with_texts(recorded, load(questions)), left_out)
    page, figure = results.with_suffix(".md"), results.with_suffix(".svg")
    if results in (page, figure):
        raise typer.BadParameter("ends as a file of the report does; rename it", param_hint="--report")
    for path, text in ((page, markdown(report, figure.name)), (figure, svg(report))):
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); copy the results elsewhere") from None
    _print(call, report)


def without_locations(settings: Settings) -> Settings:
    """Returns the settings without paths and ledger URL: a benchmark must not write into somebody's ledger.

    Servers for vectors and graph stay: data of different ledgers is kept apart there.
    """
    vectors = settings.vector_store
    vectors = vectors.model_copy(update={"config": vectors.config.model_copy(update={"path": None})})
    return settings.model_copy(update={"history_db_path": None, "ledger_url": None, "vector_store": vectors})


@contextmanager
def benchmark_memory(home: Path | None, settings: Settings) -> Iterator[Memory]:
    """Opens a memory in `home`, or in a temporary folder; the latter is erased afterwards, from servers as well."""
    from graphmem.memory import Memory  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(home or folder, settings=settings) as memory:
        try:
            yield memory
        finally:
            if home is None:
                memory.reset()
                memory.flush()
