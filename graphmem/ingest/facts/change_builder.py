"""Builds the commands that store the decisions about new facts, for `graphmem.ingest.facts.pipeline`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from graphmem.commands.types import AddFact, Command, ReaffirmFact, RetireMemory, StoreEnrichment, UpdateMemory
from graphmem.ingest.facts.contradiction import correction_of
from graphmem.ingest.facts.decision import Action, DecisionType, FactDraft, KnownMemory
from graphmem.lifecycle.conflicts import REFINED
from graphmem.model import EntityType, MemoryRecord, Mention, MentionKind, Statement
from graphmem.text import normalise_key


class ChangeBuilder:
    """Collects `commands` for the decided actions; a memory that several requests would change is changed once.

    `enrichments` belong to `drafts`, in order; the sources of a fact are numbers among `messages`, and the memory of an
    action is a number among `memories`. `importance` (0..1) is the caller's for new facts. `enrich` computes the
    enrichment of texts that are not stored yet. `dropped` counts the unusable actions by reason.
    """

    def __init__(
        self,
        enrich: Callable[[Sequence[MemoryRecord]], list[StoreEnrichment]],
        drafts: Sequence[FactDraft],
        enrichments: Sequence[StoreEnrichment],
        messages: Sequence[MemoryRecord],
        memories: Sequence[KnownMemory],
        importance: float | None,
    ) -> None:
        self._enrich = enrich
        self._drafts = drafts
        self._enrichments = enrichments
        self._messages = messages
        self._memories = memories
        self._importance = importance
        self._changed: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self.commands: list[Command] = []

    def reaffirm(self, record: MemoryRecord, fact: int) -> None:
        """Adds the sources and scope of a new fact (a number) to the memory that holds it already."""
        self.commands.append(ReaffirmFact(record.id, self._drafts[fact].record.scope, self._sources(fact)))

    def add_actions(self, actions: Sequence[Action]) -> None:
        """Builds the commands for all actions about one fact: retirements last, after the memory that replaces them."""
        retirements = [action for action in actions if action.type is DecisionType.DELETE and self._is_first(action)]
        successor: str | None = None
        for action in actions:
            if action.type is DecisionType.UPDATE and not self._is_first(action):
                action = replace(action, type=DecisionType.ADD, memory=None)  # noqa: PLW2901
            if action.type is DecisionType.ADD:
                successor = self._add(action)
            elif action.type is DecisionType.UPDATE:
                successor = self._update(action)
            elif action.type is DecisionType.NONE and action.memory is not None:
                self.reaffirm(self._memories[action.memory].record, action.fact)
        for action in retirements:
            # What only denies a memory is no fact: its last message takes the memory's place.
            replacement = successor or self._sources(action.fact)[-1]
            self._retire(self._memories[action.memory or 0].record.id, action, replacement)

    def _is_first(self, action: Action) -> bool:
        """Returns True for the first change of a memory; counts any further one as dropped."""
        if action.memory is None or action.memory in self._changed:
            self.dropped["repeated id"] += 1
            return False
        self._changed.add(action.memory)
        return True

    def _sources(self, fact: int) -> tuple[str, ...]:
        return tuple(self._messages[n].id for n in self._drafts[fact].fact.sources)

    def _add(self, action: Action) -> str:
        """Adds a fact. One that has ended is retired at once, replaced by the memory that contradicts it."""
        draft, enrichment = self._drafts[action.fact], self._enrichments[action.fact]
        record = replace(draft.record, text=action.text or draft.record.text)
        if record.text != draft.record.text:
            enrichment = add_to_extraction(self._enrich([record])[0], draft.fact.mentions, draft.fact.statements)
        self.commands += [AddFact(record, self._sources(action.fact), self._importance), enrichment]
        if action.memory is not None:
            self._retire(record.id, action, self._memories[action.memory].record.id)
        return record.id

    def _update(self, action: Action) -> str:
        old, fact, new = (
            self._memories[action.memory or 0],
            self._drafts[action.fact].fact,
            self._drafts[action.fact].record,
        )
        found = self._enrich([old.record])[0].extraction.statements if old.statements else ()
        triples = {(one.subject, one.predicate, one.object) for one in found}
        if all((one.subject, one.predicate, one.object) in triples for one in old.statements):
            # The extractor alone finds every stored relation: none came from the language model.
            old = KnownMemory(old.record)
        record = replace(old.record, text=action.text, version=old.record.version + 1)
        enrichment = self._enrich([record])[0]
        stated = fact.statements or ()
        kept = [one for one in old.statements if not (action.resolution and correction_of(one, stated))]
        # What the new messages state begins when they were said, not with the memory.
        dated = (one if one.is_past else replace(one, valid_at=one.valid_at or new.at) for one in stated)
        statements = [replace(one, fact=action.text) for one in dict.fromkeys((*kept, *dated))]
        is_later = new.at > old.record.at
        reason = REFINED if action.resolution is None else action.resolution.reason
        update = UpdateMemory(
            record.id, text=action.text, reason=reason, corrects=action.resolution is not None,
            sources=self._sources(action.fact), scope=new.scope, at=new.at if is_later else None,
            utc_offset=new.utc_offset,
        )  # fmt: skip
        given = None if fact.statements is None and not statements else statements
        self.commands += [update, add_to_extraction(enrichment, (*old.mentions, *fact.mentions), given)]
        return record.id

    def _retire(self, uid: str, action: Action, successor: str) -> None:
        """Retires a memory that does not count beside the one that replaces it; nothing for an action without both."""
        resolution, sources = action.resolution, self._sources(action.fact)
        if resolution is not None:
            self.commands.append(RetireMemory(uid, resolution.at, resolution.reason, successor, sources))


def add_to_extraction(
    enrichment: StoreEnrichment, mentions: Iterable[Mention], given: Iterable[Statement] | None
) -> StoreEnrichment:
    """Adds a language model's mentions and relations to an enrichment.

    The model's mentions win over the extractor's of the same key or words, and their types over those of earlier texts.
    Its relations (`given`; None: it gave no list) replace the extractor's, together with the nouns
    (`MentionKind.COMMON_NOUN`) that only these mention.
    """
    extraction = enrichment.extraction
    decided = {mention.key: mention for mention in mentions}
    keys = {normalise_key(mention.name): mention.key for mention in decided.values()}
    renamed = {mention.key: keys.get(normalise_key(mention.name), mention.key) for mention in extraction.mentions}
    own_mentions = [
        mention
        for mention in extraction.mentions
        if renamed[mention.key] == mention.key and (given is None or mention.kind is not MentionKind.COMMON_NOUN)
    ]
    own_statements = (
        replace(one, subject=renamed.get(one.subject, one.subject), object=renamed.get(one.object, one.object))
        for one in extraction.statements
    )
    merged = replace(
        extraction,
        mentions=tuple(({mention.key: mention for mention in own_mentions} | decided).values()),
        statements=tuple(own_statements if given is None else given),
        decided_types=frozenset(key for key, mention in decided.items() if mention.type is not EntityType.OTHER),
    )
    return replace(enrichment, extraction=merged)
