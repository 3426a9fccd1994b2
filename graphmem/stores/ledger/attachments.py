"""Reads and writes the table `attachments`, and attachments as plain values for jobs, events and exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, literal, select

from graphmem.model import Attachment, AttachmentKind, optional_from_micros, optional_micros
from graphmem.stores.ledger.schema import attachments
from graphmem.stores.ledger.sql import in_array, json_objects

# How a reference to a blob begins, and one to data that is kept nowhere: the digest follows.
BLOBS, DIGEST = "blobs/", "sha256:"
_COLUMNS = tuple(column for column in attachments.c if column.name not in {"id", "memory"})
# The attachments of the rows of a statement about one memory, for `decode_all`.
AS_JSON = json_objects(*_COLUMNS)
_USED = select(attachments.c.sha256).where(in_array(attachments.c.sha256, "digests")).distinct()


def encode(attachment: Attachment) -> dict[str, Any]:
    """Returns an attachment as plain values, by the names of the columns."""
    return {
        "kind": attachment.kind.value,
        "mime": attachment.mime,
        "ref": attachment.ref,
        "sha256": attachment.sha256,
        "bytes": attachment.size,
        "caption": attachment.caption,
        "transcript": attachment.transcript,
        "described_by": attachment.described_by,
        "at": optional_micros(attachment.at),
    }


def decode(values: Mapping[str, Any]) -> Attachment:
    """Returns an attachment of such values. Raises ValueError for others."""
    return Attachment(
        AttachmentKind(values["kind"]),
        values["ref"],
        values["mime"],
        values["sha256"],
        values["bytes"],
        values["caption"],
        values["transcript"],
        values["described_by"],
        optional_from_micros(values["at"]),
    )


def decode_all(rows: Iterable[Mapping[str, Any]]) -> tuple[Attachment, ...]:
    """Returns the attachments of one memory, in order."""
    return tuple(decode(row) for row in sorted(rows, key=lambda row: int(row["position"])))


def put(connection: Connection, row_id: int, stored: Sequence[Attachment]) -> None:
    """Stores the attachments of a memory in place of those that it has."""
    connection.execute(attachments.delete().where(attachments.c.memory == row_id))
    if stored:
        rows = [{"memory": row_id, "position": place, **encode(one)} for place, one in enumerate(stored)]
        connection.execute(attachments.insert(), rows)


def used_digests(connection: Connection, digests: Iterable[str]) -> set[str]:
    """Returns those of some digests that attachments have."""
    return set(connection.scalars(_USED, {"digests": list(digests)}))


def memories_with_blobs(connection: Connection) -> dict[str, list[int]]:
    """Returns the rows of the memories whose attachments are in blobs, by the digest of the blob."""
    is_kept = attachments.c.ref == literal(BLOBS).concat(attachments.c.sha256)
    statement = select(attachments.c.sha256, attachments.c.memory).where(is_kept)
    found: dict[str, list[int]] = {}
    for digest, row in connection.execute(statement):
        found.setdefault(digest, []).append(row)
    return found


def forget_blobs(connection: Connection, digests: Iterable[str]) -> None:
    """Makes the attachments whose blobs are lost refer to the digest alone."""
    for digest in digests:
        is_lost = attachments.c.sha256 == digest, attachments.c.ref == f"{BLOBS}{digest}"
        connection.execute(attachments.update().where(*is_lost).values(ref=f"{DIGEST}{digest}"))
