"""From a data set to an answer: a memory that holds nothing else, a run, a report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphmem.cli.options import CommandContext
from graphmem.cli.render import ProgressBar
from graphmem.evaluation.configurations import COMPARED_PAIRS, SEARCH_FUNCTIONS
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.report import report, show
from graphmem.evaluation.runner import run
from graphmem.memory import Memory
from graphmem.settings import Settings


def run_benchmark(call: CommandContext, dataset: Dataset) -> None:
    """Measures and prints: in the folder that `--home` names, which is kept, else in one that is gone afterwards."""
    call.warn_scope_ignored()
    settings = _elsewhere(call.settings())
    with _memory(call.home, settings) as memory, ProgressBar() as bar:
        outcome = run(memory, dataset, SEARCH_FUNCTIONS, bar.update)
        models = {"embedder": str(memory.stats()["embedder"]), "extractor": settings.extractor.provider}
    told = report(dataset, outcome, COMPARED_PAIRS, models)
    call.print_answer(told, lambda screen: show(screen, told))


def _elsewhere(settings: Settings) -> Settings:
    """The configuration without its places: a benchmark must not write into somebody's ledger.

    Servers for vectors and graph stay: there, a ledger of its own never meets another's.
    """
    vectors = settings.vector_store
    vectors = vectors.model_copy(update={"config": vectors.config.model_copy(update={"path": None})})
    return settings.model_copy(update={"history_db_path": None, "ledger_url": None, "vector_store": vectors})


@contextmanager
def _memory(home: Path | None, settings: Settings) -> Iterator[Memory]:
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(home or folder, settings=settings) as memory:
        try:
            yield memory
        finally:
            if home is None:  # nothing may be left on a server
                memory.reset()
                memory.flush()
