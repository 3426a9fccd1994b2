"""The ledger's secret: where it is kept, and what becomes of the ledger's digests when there is a new one.

It is configured, or in a file beside the ledger (of a ledger on a server: in the home folder). The ledger knows it by
its id only. Without it nobody can recognise an erased message, neither the curious nor graphmem.
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
from graphmem.model import Message
from graphmem.stores.ledger import events, memories
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import cursors, ledger, messages
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sqlite import private_folder

logger = logging.getLogger("graphmem")
KEY_FILE = "secret.key"
CONFIGURED, IN_FILE = "configured", "file"
_BEGINNING = "graphmem-secret-1:"
_PAGE = 1000
_KNOWN = select(ledger.c.uuid, ledger.c.secret)
_VOID = "messages that were erased before will then not be recognised when they come again"


@dataclass(frozen=True, slots=True)
class SecretKeySource:
    """Where a ledger's secret is looked for: in the configuration, else in a file; without either there is a new one.

    `may_replace`: what is found counts instead of a secret that is lost. `is_local`: nobody elsewhere can have the
    file.
    """

    configured: str | None = field(default=None, repr=False)
    file: Path | None = None
    may_replace: bool = False
    is_local: bool = True

    @property
    def source(self) -> str:
        """Where it is from."""
        return IN_FILE if self.configured is None else CONFIGURED

    def load(self) -> bytes | None:
        """The secret, if there is one. Raises ConfigError for a file that holds none, StoreUnavailable."""
        if self.configured is not None:
            told = _told(self.configured)
            return blake2b(self.configured.encode(), digest_size=SECRET_BYTES).digest() if told is None else told
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
        found = _told(content)
        if found is None:
            raise ConfigError(
                f"secret_key: {str(self.file)!r} is no key of a ledger's; put the right file there, or move this one "
                f"away for a new one to be made ({_VOID})"
            )
        return found

    def create(self) -> bytes:
        """A new secret, in the file if there is to be one; or what another process has just put there."""
        new = secrets.token_bytes(SECRET_BYTES)
        if self.file is None:
            return new
        private_folder(self.file.parent)
        try:
            atomic_files.create_file(self.file, f"{_BEGINNING}{new.hex()}\n".encode())
        except FileExistsError:
            return self.load() or new
        except OSError as error:
            raise StoreUnavailable(
                f"cannot write {str(self.file)!r}: {error.strerror}; check the folder, or configure secret_key"
            ) from error
        return new


def _told(text: str) -> bytes | None:
    """The secret that a key file's text says; None for any other text."""
    begins, _, digits = text.strip().partition(_BEGINNING)
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        return None
    return found if not begins and len(found) == SECRET_BYTES else None


def existing_digests(connection: Connection, keyring: SecretKeySource) -> Digests | None:
    """The ledger's digests; None if it has none yet, or its secret is not there."""
    uuid, known_as = connection.execute(_KNOWN).one()
    held = None if known_as is None else keyring.load()
    digests = None if held is None else Digests(uuid, held)
    # One that is configured by now may still be known as a file's; that it is found in either is enough.
    fitting = () if digests is None else (f"{keyring.source}:{digests.id}", f"{CONFIGURED}:{digests.id}")
    return digests if known_as in fitting else None


def ensure_digests(connection: Connection, keyring: SecretKeySource) -> Digests:
    """The same, in a transaction that writes; a ledger without a secret gets one, and so does one whose file is lost.

    Raises ConfigError where another secret is there, or the right one may be elsewhere.
    """
    found = existing_digests(connection, keyring)
    if found is not None:  # another process was faster
        return found
    uuid, known_as = connection.execute(_KNOWN).one()
    held = keyring.load()
    fits = held is not None and known_as == f"{IN_FILE}:{Digests(uuid, held).id}"
    if known_as is not None and not fits and not keyring.may_replace:
        _check_lost(known_as, held, keyring)
    digests = Digests(uuid, held or keyring.create())
    if known_as is not None and not fits:
        _begin_anew(connection, digests)
        logger.warning(
            "the ledger's secret key is lost and there is a new one: messages that were erased before are not "
            "recognised when they come again"
        )
    connection.execute(ledger.update().values(secret=f"{keyring.source}:{digests.id}"))
    return digests


def _check_lost(known_as: str, held: bytes | None, keyring: SecretKeySource) -> None:
    """Raises ConfigError unless the secret was in a file beside the ledger and is not there any more."""
    if keyring.configured is None and known_as.startswith(CONFIGURED):
        raise ConfigError(
            "secret_key: this ledger belongs to a secret that was configured, and none is; configure it, or, if it is "
            f"lost, set replace_secret_key once ({_VOID})"
        )
    if keyring.configured is not None:
        raise ConfigError(
            "secret_key: is not the secret that this ledger belongs to; configure that one (of a key file: its text), "
            f"or, if it is lost, set replace_secret_key once ({_VOID})"
        )
    if held is not None and keyring.is_local:
        raise ConfigError(
            f"secret_key: {str(keyring.file)!r} is not the key that this ledger belongs to; put that one there, or "
            f"move this one away for a new one to be made ({_VOID})"
        )
    if not keyring.is_local:
        raise ConfigError(
            f"secret_key: this ledger belongs to a key in the home folder of another machine or account, a file "
            f"{KEY_FILE!r}; configure its text as secret_key on all of them, or, if it is lost, set replace_secret_key "
            f"once ({_VOID})"
        )


# --- a lost secret
# ------------------------------------------------------------------------------------------------------


def _begin_anew(connection: Connection, digests: Digests) -> None:
    """Makes anew what follows from words that are still there; nobody can recognise the others any more."""
    gone = connection.scalar(select(func.count()).select_from(messages).where(messages.c.content_digest.is_(None))) or 0
    there = (
        select(messages.c.memory).where(messages.c.content_digest.is_not(None)).distinct().order_by(messages.c.memory)
    )
    uids = list(connection.scalars(there))
    connection.execute(messages.delete())
    ordinals: Counter[str] = Counter()
    for start in range(0, len(uids), _PAGE):
        rows = _recognised(connection, uids[start : start + _PAGE], digests, ordinals)
        if rows:
            connection.execute(upsert(connection, messages).on_conflict_do_nothing(), rows)
    _forget_entities(connection)
    connection.execute(ledger.update().values(unguarded=ledger.c.unguarded + gone))


def _recognised(
    connection: Connection, uids: list[str], digests: Digests, ordinals: Counter[str]
) -> list[dict[str, Any]]:
    firsts: dict[str, str | None] = {}
    for event in events.history_of_all(connection, uids):
        firsts.setdefault(event.memory_id, event.new_text if event.event == "ADD" else None)
    rows = []
    for uid, record in memories.records(connection, uids).items():
        first = firsts.get(uid)
        said = Message(record.role or "user", record.text if first is None else first, record.at, record.actor_id)
        if record.message_id is not None:
            key = digests.key_by_id(record.message_id, record.scope)
        else:
            alike = digests.message_fingerprint(said, record.scope)
            ordinals[alike] += 1
            key = digests.key_by_content(said, record.scope, ordinals[alike])
        rows.append({"key": key, "memory": uid, "content_digest": digests.content_digest(said.content)})
    return rows


def _forget_entities(connection: Connection) -> None:
    """Takes away entities' tombstones that cannot be read; a projection that has not had them is filled anew."""
    last = connection.scalar(select(func.max(tombstones_table.c.seq)).where(tombstones_table.c.kind == "entity"))
    if last is not None:
        connection.execute(cursors.delete().where(cursors.c.seq < last))
        connection.execute(tombstones_table.delete().where(tombstones_table.c.kind == "entity"))
