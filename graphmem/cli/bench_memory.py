"""The memories that benchmarks fill: in folders of their own, apart from everybody's data."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphmem.memory import Memory
    from graphmem.settings import Settings


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
