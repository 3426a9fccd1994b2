"""Working memory in Redis, for several processes and machines with one ledger.

Of each scope there is a list, and of each partition the set of the keys of its lists. Both expire when nothing is added
for a session's longest pause. Keys have digests of ids, values are messages as JSON.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from graphmem.errors import ConfigError
from graphmem.logs import log_text
from graphmem.model import SaidMessage, Scope, from_micros, micros
from graphmem.stores.redis_options import redis_options

logger = logging.getLogger("graphmem")
T = TypeVar("T")

# Seconds for which a server that failed is not asked again.
RETRY_SECONDS = 5.0
# Partitions whose lists are dropped once the server is back; of more all lists are.
MAX_UNDROPPED = 1_000
# Keys that one command deletes.
KEY_BATCH = 500
_TYPES: dict[str, Any] = {
    "id": str, "row": int, "version": int, "session": str, "at": int, "text": str, "tokens": int, "role": str | None,
    "speaker": str | None,
}  # fmt: skip


class RedisWorkingMemory:
    """The lists of a ledger in Redis; see `WorkingMemory`. One that nothing is added to for `seconds` leaves.

    A server that fails has no lists for `RETRY_SECONDS`; the log says so once, until it answers again. What had to be
    dropped meanwhile is dropped then, before anything else.
    """

    def __init__(self, url: str, ledger: str, seconds: float, most: int) -> None:
        """`ledger` is the ledger's UUID. Raises ConfigError for an unusable URL. Connects at the first use."""
        try:
            self._redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), **redis_options("working.config.url"))
            self._redis.connection_pool.make_connection()  # does not connect; refuses options that there are not
        except (ValueError, TypeError, AttributeError, RedisError):
            raise ConfigError(
                "working.config.url: is no URL of a Redis server, or has options after ? that the client does not "
                "know; write redis://host:6379/0"
            ) from None
        self.most = most
        self._prefix = f"graphmem:{ledger}:"
        self._milliseconds = max(1, round(seconds * 1000))
        self._lock = Lock()
        self._away_until: float | None = None
        self._undropped: set[str] = set()
        self._is_all_undropped = False

    @property
    def is_away(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return self._away_until is not None

    def recent(self, scope: Scope) -> list[SaidMessage] | None:
        """Returns the list of a scope, None if there is none that can be read."""
        values = self._ask(lambda redis: redis.lrange(self._list_key(scope), 0, -1))
        try:
            return [_decoded(value) for value in values] if values else None
        except ValueError:
            self.clear(scope)
            return None

    def push(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Adds messages to a scope's list, if there is one."""
        key, index = self._list_key(scope), self._index_key(scope.partition)

        def push(redis: Redis) -> None:
            with redis.pipeline() as steps:
                steps.rpushx(key, *map(_encoded, messages))
                steps.ltrim(key, -self.most, -1)
                steps.pexpire(key, self._milliseconds)
                steps.pexpire(index, self._milliseconds)
                steps.execute()

        self._ask(push)

    def replace(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Begins a scope's list anew."""
        key, index = self._list_key(scope), self._index_key(scope.partition)

        def replace(redis: Redis) -> None:
            with redis.pipeline() as steps:
                steps.delete(key)
                steps.rpush(key, *map(_encoded, messages[-self.most :]))
                steps.pexpire(key, self._milliseconds)
                steps.sadd(index, key)
                steps.pexpire(index, self._milliseconds)
                steps.execute()

        self._ask(replace)

    def clear(self, scope: Scope) -> None:
        """Drops the list of a scope."""
        self._ask(lambda redis: redis.delete(self._list_key(scope)))

    def drop(self, partition: str) -> None:
        """Drops the lists of a partition."""
        with self._lock:
            self._undropped.add(partition)
            if len(self._undropped) > MAX_UNDROPPED:
                self._undropped, self._is_all_undropped = set(), True
        self._ask(lambda _: None)

    def drop_all(self) -> None:
        """Drops all lists of this ledger."""
        with self._lock:
            self._is_all_undropped = True
        self._ask(lambda _: None)

    def close(self) -> None:
        """Closes the connections."""
        self._redis.close()

    def _ask(self, ask: Callable[[Redis], T]) -> T | None:
        """Returns what the server answers, None if it does not; drops first what is to be dropped."""
        if self._away_until is not None and monotonic() < self._away_until:
            return None
        with self._lock:
            partitions, everything = self._undropped, self._is_all_undropped
            self._undropped, self._is_all_undropped = set(), False
        try:
            self._drop_now(partitions, everything=everything)
            partitions, everything = set(), False
            answer = ask(self._redis)
        except RedisError as error:
            with self._lock:
                self._undropped |= partitions
                self._is_all_undropped |= everything
                was_away, self._away_until = self.is_away, monotonic() + RETRY_SECONDS
            if not was_away:
                logger.warning(
                    "the Redis of working memory fails (%s); the ledger answers in its place", log_text(error)
                )
            return None
        self._away_until = None
        return answer

    def _drop_now(self, partitions: Iterable[str], *, everything: bool) -> None:
        if everything:
            batch: list[bytes] = []
            for key in self._redis.scan_iter(match=f"{self._prefix}*", count=KEY_BATCH):
                batch.append(key)
                if len(batch) == KEY_BATCH:
                    self._redis.delete(*batch)
                    batch = []
            if batch:
                self._redis.delete(*batch)
        for index in map(self._index_key, partitions):
            if keys := self._redis.smembers(index):
                with self._redis.pipeline() as steps:
                    steps.delete(*keys)
                    steps.srem(index, *keys)  # not the set: another process may be adding a list to it
                    steps.execute()

    def _list_key(self, scope: Scope) -> str:
        return f"{self._prefix}{_digest([scope.user_id, scope.agent_id, scope.run_id])}"

    def _index_key(self, partition: str) -> str:
        return f"{self._prefix}partition:{_digest(partition)}"


def _digest(value: object) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def _encoded(message: SaidMessage) -> str:
    return json.dumps({**asdict(message), "at": micros(message.at)}, ensure_ascii=False)


def _decoded(value: bytes | str) -> SaidMessage:
    """Returns a message from its JSON. Raises ValueError for anything else: others may write to the server, too."""
    try:
        fields = json.loads(value)
    except RecursionError:
        raise ValueError("no message") from None
    if not isinstance(fields, dict) or fields.keys() != _TYPES.keys():
        raise ValueError("no message")
    if not all(isinstance(fields[name], type_) for name, type_ in _TYPES.items()):
        raise ValueError("no message")
    try:
        return SaidMessage(**{**fields, "at": from_micros(fields["at"])})
    except OverflowError:
        raise ValueError("no message") from None
