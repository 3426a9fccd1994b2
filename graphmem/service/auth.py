"""Who calls the service: the key of a request, its role, and the scope that it reaches."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any

from pydantic import SecretStr
from starlette.datastructures import Headers

from graphmem.boundary import validation
from graphmem.concurrency import Pool
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.model import SCOPE_NAMES
from graphmem.recent import Recent
from graphmem.service import limits
from graphmem.service.calls import calling_user
from graphmem.service.keys import Keys, KeyUses
from graphmem.service.problems import Problem

# Callers without a key of the ledger: the key of the configuration, and everybody of a service without keys.
CONFIGURED_KEY, NO_KEY = "configured", "none"
_SCHEMES = frozenset({"bearer", "token"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    `role` is that of the key (`graphmem.service.keys.ROLES`). A key of the role "user" is bound to `user_id` and, if
    set, to `agent_id`. `default_user` is the user of a request by an admin that names nobody. `rate` replaces the
    service's rate limit.
    """

    key_id: str
    role: str
    user_id: str | None = None
    agent_id: str | None = None
    default_user: str | None = None
    rate: str | None = None

    def scope(self, named: Mapping[str, str | None], *, required: bool = True) -> dict[str, Any]:
        """Returns the scope of a call in which these ids are named (user_id, agent_id, run_id; None: not named).

        Without `required`, for calls by id and over all memories, it can be empty for an admin. Raises Problem: 403 if
        a key is bound to other ids, 400 if an id that this role has to name is missing. The calls of a request by an
        application take the share of the user that it names.
        """
        ids: dict[str, Any] = {
            name: validation.composed(value) for name in SCOPE_NAMES if (value := named.get(name)) is not None
        }
        if self.role == "user":
            for name, bound in (("user_id", self.user_id), ("agent_id", self.agent_id)):
                if bound is not None and ids.setdefault(name, bound) != bound:
                    raise Problem(403, f"{name}: this key is bound to another one; leave it out", "other_scope")
        elif self.role == "app":
            if "user_id" not in ids:
                raise Problem(400, "user_id: is missing; a key of the role app names the user of each request")
            calling_user.set(ids["user_id"])
        elif not ids and self.default_user is not None:
            ids["user_id"] = self.default_user
        elif not ids and required:
            raise Problem(
                400, "user_id, agent_id and run_id are all missing; name whose memories to use, by one at least"
            )
        return ids

    def require(self, *roles: str) -> None:
        """Raises Problem 403 for another role."""
        if self.role not in roles:
            raise Problem(403, f"This takes a key of the role {' or '.join(roles)}.", "other_role")


class Authenticator:
    """Recognises the keys of requests. `admin_key` is the key of the configuration; `is_open`: no key is needed.

    A key of the ledger is read at each request, so that revoking it has effect at once. While the ledger does not
    answer, callers whose keys were read shortly before are still known, so that their chats go on without a memory.
    Keys are read in threads of their own, so that they do not wait behind the calls of the memory.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        admin_key: SecretStr | None,
        is_open: bool = False,
        default_user: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._keys = keys
        self._admin_key = None if admin_key is None else admin_key.get_secret_value().encode()
        self._is_open = is_open
        self._default_user = default_user
        self._clock = clock
        self._uses = KeyUses(keys)
        self._threads = Pool(limits.KEY_THREADS, thread_name_prefix="graphmem-keys")
        # By the digest of a key: the caller and the time of reading, the earliest first.
        self._recent = Recent[bytes, tuple[Caller, float]](limits.MAX_RECENT_KEYS)

    async def find(self, text: str | None) -> Caller | None:
        """Returns the caller with this key (None: without one), or None if the key is missing or not valid.

        Raises StoreError if the ledger cannot be read, and the key was not read in the last `limits.RECENT_SECONDS`.
        """
        if self._is_open:
            return Caller(NO_KEY, "admin", default_user=self._default_user)
        if not text:
            return None
        sent = text.encode("utf-8", "replace")
        if self._admin_key is not None and secrets.compare_digest(sent, self._admin_key):
            return Caller(CONFIGURED_KEY, "admin", default_user=self._default_user)
        digest = sha256(sent).digest()
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._threads, self._keys.find, text)
            key = await asyncio.wait_for(reading, limits.KEY_SECONDS)
        except (TimeoutError, StoreError) as error:
            caller, read_at = self._recent.get(digest, (None, 0.0))
            if caller is not None and self._clock() - read_at <= limits.RECENT_SECONDS:
                return caller
            raise StoreUnavailable("keys cannot be read") from error
        self._recent.pop(digest, None)
        if key is None:
            return None
        default_user = self._default_user if key.role == "admin" else None
        self._uses.note(key)
        caller = Caller(key.id, key.role, key.user_id, key.agent_id, default_user, key.rate)
        self._recent[digest] = caller, self._clock()
        return caller

    def close(self) -> None:
        """Ends the threads that read keys, and the one that records their use, once it has done so."""
        self._threads.shutdown(wait=False)
        self._uses.close()


def sent_key(headers: Headers) -> str | None:
    """Returns the key that a request sends: `X-API-Key: …`, `Authorization: Bearer …` or `Authorization: Token …`."""
    if key := headers.get("x-api-key"):
        return key.strip()
    return _key_of_scheme(headers)


def _key_of_scheme(headers: Headers) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() in _SCHEMES else None


def refuse_two_keys(headers: Headers) -> None:
    """Raises Problem 400 if two headers have different keys: a proxy in front may read another one than we do."""
    if _key_of_scheme(headers) not in {None, sent_key(headers)}:
        raise Problem(400, "X-API-Key and Authorization have different keys; send one of them", "invalid_argument")


def refusal(has_key: Any) -> Problem:
    """Returns the problem of a request without a valid key."""
    detail = (
        "This key is not valid: unknown, revoked or expired."
        if has_key
        else "A key is missing; send it as X-API-Key, or as Authorization: Bearer (`graphmem keys create` makes one)."
    )
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
