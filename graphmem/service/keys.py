"""Keys of the service's clients: made once, stored as digests, recognised at each request.

A key is `gm_<id>_<secret>`. Its secret has 256 random bits, so a fast digest of it is enough: nobody can guess it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple, get_args

from graphmem.boundary import validation
from graphmem.concurrency import Pool
from graphmem.errors import NotFoundError, StoreError, StoreUnavailable
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.stores.ledger import service_tables
from graphmem.stores.ledger.service_tables import ApiKey
from graphmem.transfer.records import KeyRole

logger = logging.getLogger("graphmem")

PREFIX = "gm"
ROLES: tuple[str, ...] = get_args(KeyRole)
# Bytes of an id (shown as twice as many hexadecimal digits), of a secret, and of its digest.
ID_BYTES, SECRET_BYTES, HASH_BYTES = 4, 32, 32
# A key that was used shortly before is not recorded as used again.
USE_INTERVAL = timedelta(minutes=1)


class NewKey(NamedTuple):
    """A key that was just made, with the text that its client sends. The text cannot be read again."""

    key: ApiKey
    text: str


class Keys:
    """The keys of a memory's ledger. Safe to use from several threads and processes."""

    def __init__(self, memory: Memory) -> None:
        self._engine = memory.engine
        self._zone = memory.limits.timezone

    def create(
        self,
        role: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        label: str = "",
        expires_at: datetime | str | float | None = None,
        rate: str | None = None,
    ) -> NewKey:
        """Makes a key.

        The role "user" reaches the memories of `user_id`, with `agent_id` only those of that agent; "app" those of the
        user that each request names; "admin" everything; "metrics" no memories. `label` tells keys apart for people.
        `expires_at`: a time, or a date, which counts as its end in the configured time zone. `rate` replaces the
        service's rate limit for this key ("600/minute"). Raises ValidationError.
        """
        self._engine.check_open()
        validation.one_of(role, "role", ROLES)
        if (role == "user") != (user_id is not None):
            remedy = "names the user of a key with the role 'user', and of no other: " + (
                "give it" if user_id is None else "leave it out"
            )
            validation.refuse("user_id", user_id, remedy)
        if agent_id is not None and user_id is None:
            validation.refuse("agent_id", agent_id, "narrows a key of the role 'user'; leave it out")
        scope = None if user_id is None else validation.required_scope(user_id, agent_id)[0]
        now, end = datetime.now(UTC), validation.expiration(expires_at, "expires_at", self._zone)
        if end is not None and end <= now:
            validation.refuse(
                "expires_at", expires_at, "is in the past, so the key would never be valid; give a later time"
            )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        key = ApiKey(
            id=secrets.token_hex(ID_BYTES),
            label=validation.entity_name(label, "label") if label else "",
            role=role,
            user_id=None if scope is None else scope.user_id,
            agent_id=None if scope is None else scope.agent_id,
            created_at=now,
            expires_at=end,
            rate=validation.rate(rate),
        )
        with self._engine.ledger.write() as connection:
            service_tables.insert_key(connection, key, self._hash(secret))
        return NewKey(key, f"{PREFIX}_{key.id}_{secret}")

    def find(self, text: str) -> ApiKey | None:
        """Returns the valid key that a client sends; None for any other text."""
        self._engine.check_open()
        prefix, _, rest = text.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != PREFIX or len(key_id) != 2 * ID_BYTES or not (key_id + secret).isascii():
            return None
        with self._engine.ledger.read() as connection:
            stored = service_tables.find_key(connection, key_id)
        # An unknown id takes as long as a wrong secret.
        key, stored_hash = (None, bytes(HASH_BYTES)) if stored is None else stored
        is_right = secrets.compare_digest(self._hash(secret), stored_hash)
        return key if key is not None and is_right and key.is_valid(datetime.now(UTC)) else None

    def all(self) -> list[ApiKey]:
        """Returns all keys, also revoked and expired ones, oldest first."""
        self._engine.check_open()
        with self._engine.ledger.read() as connection:
            return service_tables.list_keys(connection)

    def revoke(self, key_id: str) -> None:
        """Revokes a key: from now on it is refused, in every process. Raises NotFoundError for an unknown id."""
        self._engine.check_open()
        with self._engine.ledger.write() as connection:
            if not service_tables.revoke_key(connection, validation.memory_id(key_id, "key_id"), datetime.now(UTC)):
                raise NotFoundError("no key with this id; `graphmem keys list` shows those that there are")

    def record_uses(self, key_ids: Sequence[str]) -> None:
        """Records that keys are used now."""
        with self._engine.ledger.write(["keys"]) as connection:
            service_tables.record_key_uses(connection, key_ids, datetime.now(UTC))

    def _hash(self, secret: str) -> bytes:
        ledger = self._engine.ledger.uuid.encode()
        return blake2b(secret.encode(), key=ledger, digest_size=HASH_BYTES, person=b"graphmem api key").digest()


class KeyUses:
    """Records when keys are used: in a thread of its own, those that wait together, each at most once a minute.

    A ledger that fails or hangs delays no request, and costs only the record.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._lock = Lock()
        self._used: set[str] = set()
        self._pool = Pool(1, thread_name_prefix="graphmem-key-uses")

    def note(self, key: ApiKey) -> None:
        """Takes a use of a key, as the ledger has it; returns at once."""
        if key.last_used_at is not None and datetime.now(UTC) - key.last_used_at < USE_INTERVAL:
            return
        with self._lock, suppress(StoreUnavailable):  # closed
            if not self._used:  # else a run that has not begun takes this use too
                self._pool.submit(self._record)
            self._used.add(key.id)

    def _record(self) -> None:
        with self._lock:
            used, self._used = self._used, set()
        try:
            self._keys.record_uses(sorted(used))
        except StoreError as error:
            logger.warning("the use of keys could not be recorded (%s)", log_text(error))

    def close(self) -> None:
        """Records what was taken, and ends the thread."""
        self._pool.shutdown(wait=True)
