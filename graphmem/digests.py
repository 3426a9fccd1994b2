"""What is kept of words that may be erased: digests that only the ledger's own secret can confirm. Pure.

The words of a short message are guessed soon: whoever could compute its digest from the ledger's file would know when a
guess is right, long after it was erased. So everything of that kind goes through `Digests.keyed`, whose secret lies
outside the ledger (`stores.ledger.secret_key`).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from graphmem.model import Message, Scope, micros

SECRET_BYTES = 32
_SIZE = 16


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one ledger: by its UUID, and by a secret that is not in it."""

    ledger: str
    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """What tells this secret from others, and nothing of it."""
        return blake2b(key=self.secret, digest_size=_SIZE, person=b"graphmem id").hexdigest()

    def keyed(self, *parts: Any) -> str:
        """A digest of anything JSON can hold, such as words: the same for the same ledger and secret."""
        digest = self._plain(*parts)
        return blake2b(digest.encode(), key=self.secret, digest_size=_SIZE, person=b"graphmem digest").hexdigest()

    def encrypt(self, digest: str) -> str:
        """A digest that has to be read again, in a form that tells nothing without the secret; each time another."""
        once = secrets.token_bytes(_SIZE)
        return (once + self._masked(once, bytes.fromhex(digest))).hex()

    def decrypt(self, sealed: str) -> str:
        """The digest that was sealed."""
        found = bytes.fromhex(sealed)
        return self._masked(found[:_SIZE], found[_SIZE:]).hex()

    def _masked(self, once: bytes, digest: bytes) -> bytes:
        mask = blake2b(once, key=self.secret, digest_size=len(digest), person=b"graphmem seal").digest()
        return bytes(one ^ other for one, other in zip(digest, mask, strict=True))

    # --- messages -------------------------------------------------------------------------------------------------

    def key_by_id(self, message_id: str, scope: Scope) -> str:
        """What recognises a message that has an id."""
        return self.keyed(scope.parts, "id", message_id)

    def key_by_content(self, message: Message, scope: Scope, ordinal: int) -> str:
        """What recognises a message by who said what when, as the `ordinal`-th of its equals in one call."""
        return self.keyed(self.message_fingerprint(message, scope), ordinal)

    def message_fingerprint(self, message: Message, scope: Scope) -> str:
        """What a message has in common with its equals. Not to be kept: no secret is in it."""
        who, at = message.name or message.role, micros(message.at)
        return self._plain(scope.parts, "said", who, message.content, at)

    def ordinal_of(self, key: str, message: Message, scope: Scope, most: int) -> int | None:
        """The ordinal by which a key recognises a message; None if it does not."""
        said = self.message_fingerprint(message, scope)
        return next((ordinal for ordinal in range(1, most + 1) if self.keyed(said, ordinal) == key), None)

    def content_digest(self, content: str) -> str:
        """What tells whether a message that comes again has other words."""
        return self.keyed(content)

    def _plain(self, *parts: Any) -> str:
        content = json.dumps(parts, sort_keys=True).encode()
        return blake2b(content, key=self.ledger.encode(), digest_size=_SIZE).hexdigest()
