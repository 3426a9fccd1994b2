"""The ledger's secret key: loads, creates and checks it, and renews the message keys when it is replaced.

The key is configured, or in a file: beside an SQLite ledger, or in the home folder for a ledger on a server. The ledger
contains only its id. Without the key nobody can recognise an erased message, graphmem included.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from graphmem import atomic_files
from graphmem.digests import SECRET_BYTES, Digests
from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.stores.ledger import events, memories
from graphmem.stores.ledger.outbox import IS_OF_PROJECTION
from graphmem.stores.ledger.schema import cursors, ledger, messages
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sql import upsert
from graphmem.stores.ledger.sqlite import KEY_FILE, private_folder

logger = logging.getLogger("graphmem")
CONFIGURED, IN_FILE = "configured", "file"
_FILE_PREFIX = "graphmem-secret-1:"
_BATCH = 1000
_UUID_AND_KEY = select(ledger.c.uuid, ledger.c.secret)
_CONSEQUENCE = "messages that were erased before will then not be recognised when they come again"


@dataclass(frozen=True, slots=True)
class SecretKeySource:
    """Where a ledger's secret key comes from: the configuration, else a file.

    A ledger without a key gets a new one, stored in the file; without a file it lives in this process only.

    `may_replace`: the key from here may replace one that is lost. `is_local`: the ledger is used on this machine only,
    so no other machine can have the key's file.
    """

    configured: str | None = field(default=None, repr=False)
    file: Path | None = None
    may_replace: bool = False
    is_local: bool = True

    @property
    def source(self) -> str:
        """Where the key comes from, as the ledger records it: `CONFIGURED` or `IN_FILE`."""
        return IN_FILE if self.configured is None else CONFIGURED

    def load(self) -> bytes | None:
        """Returns the key, or None without one.

        Raises ConfigError for a file without a key in it, StoreUnavailable for one that cannot be read.
        """
        if self.configured is not None:
            key = _parse_key(self.configured)
            return blake2b(self.configured.encode(), digest_size=SECRET_BYTES).digest() if key is None else key
        if self.file is None:
            return None
        if self.file.exists() and not self.file.is_file():
            raise StoreUnavailable(f"cannot read {str(self.file)!r}: it is no file; put the ledger's key there")
        try:
            content = self.file.read_text("ascii", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"cannot read {str(self.file)!r}: {error.strerror}; check its rights") from error
        secret = _parse_key(content)
        if secret is None:
            raise ConfigError(
                f"secret_key: {str(self.file)!r} is no key file of graphmem; put the right file there, or move this "
                f"one away for a new one to be made ({_CONSEQUENCE})"
            )
        return secret

    def create(self) -> bytes:
        """Creates a key and stores it in the file, if any.

        Returns it, or the key that another process stored meanwhile.

        Raises StoreUnavailable if the file cannot be written.
        """
        new_key = secrets.token_bytes(SECRET_BYTES)
        if self.file is None:
            return new_key
        private_folder(self.file.parent)
        try:
            atomic_files.create_file(self.file, f"{_FILE_PREFIX}{new_key.hex()}\n".encode())
        except FileExistsError:
            return self.load() or new_key
        except OSError as error:
            raise StoreUnavailable(
                f"cannot write {str(self.file)!r}: {error.strerror}; check the folder, or configure secret_key"
            ) from error
        return new_key


def _parse_key(text: str) -> bytes | None:
    """Returns the key from a key file's text; None for any other text."""
    before_prefix, _, digits = text.strip().partition(_FILE_PREFIX)
    try:
        secret = bytes.fromhex(digits)
    except ValueError:
        return None
    return secret if not before_prefix and len(secret) == SECRET_BYTES else None


def existing_digests(connection: Connection, key_source: SecretKeySource) -> Digests | None:
    """Returns the `Digests` of the ledger, with the secret key from `key_source`.

    Returns None if the ledger records no key, or not the key and the source of `key_source`: see `ensure_digests`.
    """
    uuid, recorded_key = connection.execute(_UUID_AND_KEY).one()
    secret = None if recorded_key is None else key_source.load()
    digests = None if secret is None else Digests(uuid, secret)
    # A key that is recorded as configured may also come from a file. A key that is recorded as from a file, and is
    # configured now, is left to `ensure_digests`, which records the change.
    accepted = () if digests is None else (f"{key_source.source}:{digests.id}", f"{CONFIGURED}:{digests.id}")
    return digests if recorded_key in accepted else None


def ensure_digests(connection: Connection, key_source: SecretKeySource) -> Digests:
    """Returns the `Digests` of the ledger. Records the key's id in a ledger without one; needs a write transaction.

    Replaces a lost key. Raises ConfigError if the source has another key than the ledger's, or if the ledger's key
    may be on another machine.
    """
    digests = existing_digests(connection, key_source)
    if digests is not None:  # another process was faster
        return digests
    uuid, recorded_key = connection.execute(_UUID_AND_KEY).one()
    secret = key_source.load()
    is_same_key = secret is not None and recorded_key == f"{IN_FILE}:{Digests(uuid, secret).id}"
    if recorded_key is not None and not is_same_key and not key_source.may_replace:
        _check_lost(recorded_key, secret, key_source)
    digests = Digests(uuid, secret or key_source.create())
    if recorded_key is not None and not is_same_key:
        _replace_key(connection, digests)
        logger.warning(
            "the ledger's secret key is lost and there is a new one: messages that were erased before are not "
            "recognised when they come again"
        )
    connection.execute(ledger.update().values(secret=f"{key_source.source}:{digests.id}"))
    return digests


def _check_lost(recorded_key: str, secret: bytes | None, key_source: SecretKeySource) -> None:
    """Raises ConfigError unless the recorded key was in a file beside the ledger and that file is gone."""
    if key_source.configured is None and recorded_key.startswith(CONFIGURED):
        raise ConfigError(
            "secret_key: this ledger belongs to a secret key that was configured, and none is; configure it, or, if it "
            f"is lost, set replace_secret_key once ({_CONSEQUENCE})"
        )
    if key_source.configured is not None:
        raise ConfigError(
            "secret_key: is not the secret key that this ledger belongs to; configure that one (for a key file, its "
            f"text), or, if it is lost, set replace_secret_key once ({_CONSEQUENCE})"
        )
    if secret is not None and key_source.is_local:
        raise ConfigError(
            f"secret_key: {str(key_source.file)!r} is not the key that this ledger belongs to; put that one there, or "
            f"move this one away for a new one to be made ({_CONSEQUENCE})"
        )
    if not key_source.is_local:
        raise ConfigError(
            f"secret_key: this ledger belongs to a key in the home folder of another machine or account, a file "
            f"{KEY_FILE!r}; configure its text as secret_key on all of them, or, if it is lost, set replace_secret_key "
            f"once ({_CONSEQUENCE})"
        )


# --- replacing a lost key -------------------------------------------------------------------------------------------


def _replace_key(connection: Connection, digests: Digests) -> None:
    """Computes the message keys of stored memories with the new secret key.

    Those of erased messages cannot be computed: their number is added to `ledger.unguarded`. Deletes the tombstones of
    entities, which the new key cannot decrypt; a projection that has not received all of them is filled again.
    """
    count_erased = select(func.count()).select_from(messages).where(messages.c.content_digest.is_(None))
    erased = connection.scalar(count_erased) or 0
    stored = (
        select(messages.c.memory).where(messages.c.content_digest.is_not(None)).distinct().order_by(messages.c.memory)
    )
    uids = list(connection.scalars(stored))
    connection.execute(messages.delete())
    ordinals: Counter[str] = Counter()
    for start in range(0, len(uids), _BATCH):
        rows = _message_rows(connection, uids[start : start + _BATCH], digests, ordinals)
        if rows:
            connection.execute(upsert(connection, messages).on_conflict_do_nothing(), rows)
    of_entities = tombstones_table.c.kind == "entity"
    last_seq = connection.scalar(select(func.max(tombstones_table.c.seq)).where(of_entities))
    if last_seq is not None:
        connection.execute(cursors.delete().where(IS_OF_PROJECTION, cursors.c.seq < last_seq))
        connection.execute(tombstones_table.delete().where(of_entities))
    connection.execute(ledger.update().values(unguarded=ledger.c.unguarded + erased))


def _message_rows(
    connection: Connection, uids: list[str], digests: Digests, ordinals: Counter[str]
) -> list[dict[str, Any]]:
    """Computes the rows of the table `messages` for these memories again; each key is that of the text first added.

    All calls for one ledger share `ordinals`, the number of equal messages so far by fingerprint.
    """
    first_texts: dict[str, str | None] = {}
    for event in events.history_of_all(connection, uids):
        first_texts.setdefault(event.memory_id, event.new_text if event.event == "ADD" else None)
    rows = []
    for uid, record in memories.records(connection, uids).items():
        first_text = first_texts.get(uid)
        message = record.message(first_text)
        if record.message_id is not None:
            key = digests.key_by_id(record.message_id, record.scope)
        else:
            fingerprint = digests.message_fingerprint(message, record.scope)
            ordinals[fingerprint] += 1
            key = digests.key_by_content(message, record.scope, ordinals[fingerprint])
        rows.append({"key": key, "memory": uid, "content_digest": digests.content_digest(message.identity)})
    return rows
