"""The folder `blobs`: data that came with messages, each in one file named by its SHA-256, whoever sent it.

A file is written in the transaction that stores an attachment, before its end, and erased in another one after that
which erased the last attachment with its data: writers of a ledger take turns, so none is erased that is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from graphmem.atomic_files import create_file
from graphmem.errors import StoreUnavailable
from graphmem.stores.ledger import attachments
from graphmem.stores.ledger.sqlite import private_folder

if TYPE_CHECKING:
    from graphmem.stores.ledger import Ledger

_DIGEST = re.compile("[0-9a-f]{64}")


class BlobFolder:
    """A folder of blobs, created with the first one; only its owner can read it.

    Without `keeps_new` no data is added, as this process is configured, but what others have kept is erased with its
    last memory, exported and checked all the same.
    """

    def __init__(self, path: Path, *, keeps_new: bool) -> None:
        self._path = path
        self.keeps_new = keeps_new

    @property
    def is_expected(self) -> bool:
        """Whether blobs that attachments refer to should be here: not on a machine that shares the ledger alone."""
        return self.keeps_new or self._path.is_dir()

    def write(self, digest: str, data: bytes) -> None:
        """Writes a blob as a whole, unless it is there. Raises StoreUnavailable."""
        private_folder(self._path)
        try:
            with suppress(FileExistsError):
                create_file(self._path / digest, data)
        except OSError as error:
            raise StoreUnavailable(f"cannot write an attachment: {error.strerror}; nothing of it was stored") from error

    def read(self, digest: str) -> bytes | None:
        """Returns the data of a blob; None without one."""
        try:
            return (self._path / digest).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"cannot read an attachment: {error.strerror}") from error

    def digests(self) -> set[str]:
        """Returns the digests of all blobs."""
        if not self._path.is_dir():
            return set()
        return {file.name for file in self._path.iterdir() if _DIGEST.fullmatch(file.name)}

    def erase(self, digests: Collection[str]) -> None:
        """Erases blobs; those that are gone already are no error. Raises StoreUnavailable."""
        try:
            for digest in digests:
                (self._path / digest).unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"cannot erase an attachment: {error.strerror}; repair() tries again") from error


def erase_unused(ledger: Ledger, digests: Collection[str] | None = None) -> None:
    """Erases those of some blobs (None: of all) that no attachment uses any more."""
    folder = ledger.blobs
    candidates = set() if folder is None else folder.digests() if digests is None else set(digests)
    if folder is None or not candidates:
        return
    with ledger.write() as connection:
        folder.erase(candidates - attachments.used_digests(connection, candidates))


def missing_and_unused(ledger: Ledger) -> tuple[set[str], set[str]]:
    """Returns the digests of blobs that attachments refer to and that are lost, and of those that none uses."""
    if ledger.blobs is None or not ledger.blobs.is_expected:
        return set(), set()
    with ledger.read() as connection:
        used = set(attachments.memories_with_blobs(connection))
    stored = ledger.blobs.digests()
    return used - stored, stored - used
