"""Digests of words that may be erased later; only the ledger's secret key can confirm a guess. Pure functions.

The words of a short message are easy to guess. Whoever could compute its digest from the ledger's file alone could
confirm the guess long after the message was erased. So all stored digests of words go through `Digests.keyed`, whose
secret is kept outside the ledger (`graphmem.stores.ledger.secret_key`).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from graphmem.model import Message, Scope, micros

SECRET_BYTES = 32
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one ledger, which depend on its UUID (`ledger`) and on its secret key (`secret`)."""

    ledger: str
    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Identifies the secret key without revealing it."""
        return blake2b(key=self.secret, digest_size=_DIGEST_BYTES, person=b"graphmem id").hexdigest()

    def keyed(self, *parts: Any) -> str:
        """Returns a digest of JSON-serialisable values, such as words: equal for the same ledger and secret key."""
        digest = self._unkeyed_digest(*parts)
        return blake2b(
            digest.encode(), key=self.secret, digest_size=_DIGEST_BYTES, person=b"graphmem digest"
        ).hexdigest()

    def encrypt(self, digest: str) -> str:
        """Encrypts a digest (hex) that has to be read again; the result differs each time."""
        nonce = secrets.token_bytes(_DIGEST_BYTES)
        return (nonce + self._xor_with_mask(nonce, bytes.fromhex(digest))).hex()

    def decrypt(self, encrypted: str) -> str:
        """Returns the digest (hex) that `encrypt` was given."""
        data = bytes.fromhex(encrypted)
        return self._xor_with_mask(data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]).hex()

    def _xor_with_mask(self, nonce: bytes, digest: bytes) -> bytes:
        mask = blake2b(nonce, key=self.secret, digest_size=len(digest), person=b"graphmem seal").digest()
        return bytes(byte ^ mask_byte for byte, mask_byte in zip(digest, mask, strict=True))

    # --- messages -------------------------------------------------------------------------------------------------

    def key_by_id(self, message_id: str, scope: Scope) -> str:
        """Returns the key that recognises a message by its id."""
        return self.keyed(scope.parts, "id", message_id)

    def key_by_content(self, message: Message, scope: Scope, ordinal: int) -> str:
        """Returns the key that recognises a message by author, words and time.

        `ordinal` counts, from 1, the messages of one call that are equal in these.
        """
        return self.keyed(self.message_fingerprint(message, scope), ordinal)

    def message_fingerprint(self, message: Message, scope: Scope) -> str:
        """Returns a digest of a message's scope, author, words (of one without, what came with it) and time.

        Must not be stored: it does not use the secret key.
        """
        author, at = message.name or message.role, micros(message.at)
        return self._unkeyed_digest(scope.parts, "said", author, message.identity, at)

    def ordinal_of(self, key: str, message: Message, scope: Scope, max_ordinal: int) -> int | None:
        """Returns the ordinal, 1 to `max_ordinal`, with which `key` is this message's key; None if there is none."""
        fingerprint = self.message_fingerprint(message, scope)
        return next((ordinal for ordinal in range(1, max_ordinal + 1) if self.keyed(fingerprint, ordinal) == key), None)

    def content_digest(self, content: str) -> str:
        """Returns the digest that shows whether a message with a known id has other words than before."""
        return self.keyed(content)

    def _unkeyed_digest(self, *parts: Any) -> str:
        content = json.dumps(parts, sort_keys=True).encode()
        return blake2b(content, key=self.ledger.encode(), digest_size=_DIGEST_BYTES).hexdigest()
