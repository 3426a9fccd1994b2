"""The result of a job, apart from what runs it: a memory without a language model imports nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphmem.commands.types import Outcome
from graphmem.plugins import Usage

# Reasons by which a rule leaves out a part of a language model's answer: no decision of the model is lost by them.
_LEFT_OUT_BY_RULE = frozenset(
    {"no relation", "unknown message", "from nobody's message", "of others", "no contradiction"}
)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job.

    `usage` is by operation, `dropped` the number of unusable parts of the answers by reason, `repeated_decisions` how
    often the decision was repeated, and `chunks` the number of parts, one request each, into which the messages were
    split.
    """

    outcomes: tuple[Outcome, ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    repeated_decisions: int = 0
    chunks: int = 0

    @property
    def unusable(self) -> dict[str, int]:
        """The number of unusable parts of the answers by reason, without those that a rule leaves out."""
        return {reason: count for reason, count in sorted(self.dropped.items()) if reason not in _LEFT_OUT_BY_RULE}
