"""Loads the built-in models: files of installed packages, checked by their SHA-256; once for each process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import Generic, TypeVar

from graphmem.concurrency import start_thread
from graphmem.errors import EmbeddingError, StoreUnavailable

T = TypeVar("T")


def read_checked(package: str, name: str, expected_sha256: str, remedy: str) -> bytes:
    """Reads a file of a top-level package without importing the package; raises EmbeddingError as `checked_path`."""
    return checked_path(package, name, expected_sha256, remedy).read_bytes()


def checked_path(package: str, name: str, expected_sha256: str, remedy: str) -> Path:
    """Returns the path of a file of a top-level package, for weights that are not to be in memory twice.

    Raises EmbeddingError, which ends with `remedy`, if the file is missing or altered.
    """
    try:
        spec = find_spec(package)
        folder = next(iter((spec and spec.submodule_search_locations) or ()))
        path = Path(folder, name)
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except (StopIteration, OSError, ImportError, ValueError) as error:
        raise EmbeddingError(f"the embedding model's file {package}/{name} cannot be read; {remedy}") from error
    if digest != expected_sha256:
        raise EmbeddingError(f"{package}/{name} is not the file this version was made for (SHA-256); {remedy}")
    return path


class PerProcess(Generic[T]):
    """A value that is made on first use, once for each process. Thread-safe.

    After a fork the threads of a model exist in the parent only, and one of its locks may have been held there: a child
    makes a value of its own.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._value: T | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_to_parent)

    def get(self) -> T:
        """Returns this process's value. Raises what making it raises, and then tries again next time."""
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def load_beside(self) -> None:
        """Begins to make the value in a thread, for a caller that is about to need it. `get` tries again what fails."""
        with suppress(StoreUnavailable):  # no thread can be started
            start_thread(Thread(target=self._load_quietly, name="graphmem-loading"))

    def _load_quietly(self) -> None:
        with suppress(EmbeddingError):
            self.get()

    def _leave_to_parent(self) -> None:
        self._lock = Lock()  # the thread that may have held it is not in this process
        if self._value is not None:
            # Not freed, at the end of the process neither: an onnxruntime session would wait for its threads for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._value))
            self._value = None
