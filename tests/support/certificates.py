"""Reads the certificates of authorities once per test process.

Each client of HTTP reads all of the machine's, some 30 ms of processor time, and most tests of the service, of the
proxy and of language models open one.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any


def share_certificates() -> None:
    """Gives clients of HTTP in this process that read the same certificates one TLS context."""
    import httpx
    import httpx2

    for client in (httpx, httpx2):
        transport: Any = client._transports.default  # type: ignore[attr-defined]
        transport.create_ssl_context = _sharing(transport.create_ssl_context)


def _sharing(create: Any) -> Any:
    @cache
    def create_for(_: tuple[str | None, ...], **options: Any) -> Any:
        return create(**options)

    return lambda **options: create_for(tuple(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))), **options)
