"""Memories that are older than the test that stored them."""

from __future__ import annotations

from graphmem import Memory
from graphmem.stores.ledger.schema import memories

MICROS_PER_DAY = 86_400_000_000


def make_older(memory: Memory, days: int) -> None:
    """Makes all memories so many days older for the lifecycle, which counts from when they were stored or forgotten."""
    times = (memories.c.created_at, memories.c.forgotten_at)
    with memory.engine.ledger.write() as connection:
        connection.execute(memories.update().values({time: time - days * MICROS_PER_DAY for time in times}))
