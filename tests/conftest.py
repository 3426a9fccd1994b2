"""Fixtures of several test files: memories with fake models, and a clerk that writes to a ledger as the engine does."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support import mem0_fixture  # noqa: F401  (before anything imports mem0, which would write into the home folder)
from support.certificates import share_certificates
from support.databases import POSTGRES, SQLITE, postgres
from support.fakes import DIMS, Clerk, fake_models, hash_texts
from support.log_guard import Censor, Listener, listening
from support.servers import Servers, session
from support.statement_cache import share_compiled_statements

from graphmem import Memory, Settings, wiring
from graphmem.concurrency import Pool
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.postgres import parse_url
from graphmem.testing import HashEmbedder, WordExtractor

SHARED_MEMORY = Path("/dev/shm")

# Settings of whoever runs the tests must not reach them. GRAPHMEM_SERVERS, the test servers' folder, is no setting.
for name in [name for name in os.environ if name.startswith("GRAPHMEM_") and name != "GRAPHMEM_SERVERS"]:
    del os.environ[name]

# A shell that starts a job in the background has it ignore SIGINT, nohup SIGHUP; services of tests would inherit it.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)

# Hundreds of processes import the package. Where the environment forbids bytecode files, as images of containers do,
# each would compile all of it anew, and rewrite the asserts of every test file.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The folders of tests are in memory, where there are four gigabytes of it from which programs may be run: a commit is
# synced, which takes 2 ms on a disk and 10 µs there. PYTEST_DEBUG_TEMPROOT puts them elsewhere.
if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
    flags, free = os.statvfs(SHARED_MEMORY).f_flag, shutil.disk_usage(SHARED_MEMORY).free
    if not flags & os.ST_NOEXEC and free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))

# Times without a UTC offset are local to the machine, which must make no difference.
os.environ["TZ"] = "UTC"
time.tzset()

share_compiled_statements()

# Folders of slow tests: all of theirs are thorough but those marked `quick`.
THOROUGH_FOLDERS = frozenset({"crash", "server"})
# Folders whose tests .ci/run runs on servers as well: the conformance classes.
ON_SERVERS = frozenset({"stores"})


def pytest_configure(config: pytest.Config) -> None:
    """Turns off Hypothesis' time limits for running and for generating an example."""
    from hypothesis import HealthCheck, settings  # not for the processes that take only `fake_models` from here

    settings.register_profile("no-deadline", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("no-deadline")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of slow folders as thorough: see README.md beside this file."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        on_servers = item.get_closest_marker("server") is not None and folder not in ON_SERVERS
        if (folder in THOROUGH_FOLDERS or on_servers) and item.get_closest_marker("quick") is None:
            item.add_marker("thorough")


def pytest_collection_finish() -> None:
    """Leaves what was imported and collected out of garbage collections, and makes these rarer.

    Each visited a million objects that stay until the end: 8 % of the time of the default tests, and 4 % are left.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> None:
    share_certificates()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_put_at_home() -> Iterator[None]:
    """Fails if a test creates memories in the home folder of whoever runs the tests."""
    home = Path.home()
    absent = [place for place in (home / ".graphmem", home / ".mem0") if not place.exists()]
    yield
    assert not [place for place in absent if place.exists()], "a test wrote to the home folder"


@pytest.fixture(scope="session")
def _listener() -> Iterator[tuple[Listener, Censor]]:
    censor = Censor()
    with listening() as listener, censor.noting():
        yield listener, censor


@pytest.fixture(autouse=True)
def _nothing_private_is_logged(_listener: tuple[Listener, Censor]) -> Iterator[None]:
    """No test passes in which a text, an id or a stack was logged."""
    listener, censor = _listener
    yield
    records, listener.records = listener.records, []
    assert not [complaint for record in records if (complaint := censor.complaint(record))]


@pytest.fixture(params=[SQLITE, POSTGRES])
def database(request: pytest.FixtureRequest) -> str:
    """The database of this test's ledgers: SQLite or PostgreSQL."""
    return str(request.param)


@pytest.fixture
def hash_models() -> dict[str, Any]:
    """A configuration whose models are fakes."""
    return fake_models()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The stores that tests use on servers, removed at the end."""
    with session() as servers:
        yield servers


@pytest.fixture
def make_memory(
    database: str, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Memory]]:
    """`make_memory(path=None, **config)`: a Memory with fake models, closed at the end; without a path on no disk.

    With `database` PostgreSQL all stores are on servers; each path has a database of its own, as has each Memory
    without a path.
    """
    memories: list[Memory] = []
    urls: dict[str, str] = {}

    with ExitStack() as stack:

        def make(path: str | Path | None = None, **config: Any) -> Memory:
            place = ":memory:" if path is None else str(path)
            if database != SQLITE:
                place = place if path is not None else str(tmp_path_factory.mktemp("home"))
                config["ledger_url"] = urls.get(place) or urls.setdefault(place, stack.enter_context(postgres()))
                config = servers.with_stores(fake_models(**config))
            memories.append(Memory(place, settings=Settings.from_dict(fake_models(**config))))
            servers.note(memories[-1])
            return memories[-1]

        yield make
        for memory in memories:
            memory.close()


@pytest.fixture
def memory(make_memory: Callable[..., Memory]) -> Memory:
    """A Memory without files."""
    return make_memory()


@pytest.fixture
def make(make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Memory]:
    """`make(path=None, size=64)`: like `make_memory`, with fakes that give tokens, entities and relations, too.

    `size` is the number of dimensions; another one is another embedding model.
    """
    dims = [DIMS]
    monkeypatch.setattr(wiring, "_embedder", lambda _: HashEmbedder(dims[0]))
    monkeypatch.setattr(wiring, "_extractor", lambda _: WordExtractor())

    def open_memory(path: Path | None = None, size: int = DIMS) -> Memory:
        dims[0] = size
        config = {
            "embed": hash_texts,
            "embedding_dims": size,
            "model": f"hash-{size}",
        }  # names the collection on a server
        return make_memory(path, embedder={"provider": "callable", "config": config})

    return open_memory


@pytest.fixture
def clerk(database: str) -> Iterator[Clerk]:
    """A clerk with a ledger in memory, or in a database of its own."""
    with ExitStack() as stack, Pool(2, thread_name_prefix="clerk") as pool:
        ledger = Ledger(None if database == SQLITE else parse_url(stack.enter_context(postgres())))
        stack.callback(ledger.close)
        yield Clerk(ledger, pool)
