"""The jobs that have attachments described by models of images and of speech, for `graphmem.jobs.worker`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from graphmem import prompts
from graphmem.boundary.content_parts import data_of
from graphmem.commands.facts import JobAlreadyDone
from graphmem.commands.messages import extraction_after, held_message, sources_of
from graphmem.commands.types import AddMessage, Command, CompleteJob, Outcome, UpdateMemory
from graphmem.errors import ConfigError, LLMError
from graphmem.ingest.hooks import BeforeStore, apply_before_store, with_words
from graphmem.ingest.model_jobs import CountedModel, JobResult
from graphmem.model import Attachment, AttachmentKind, EmbeddingSpec, MemoryRecord, Scope
from graphmem.observers import Observers
from graphmem.plugins import LanguageModel, Prompt, Transcriber, Usage
from graphmem.stores.ledger import Ledger, ledger_state, memories
from graphmem.stores.ledger.jobs import Job
from graphmem.tracing import span

# The operations in the usage, by the kind of attachment.
DESCRIBE, TRANSCRIBE = "describe", "transcribe"


class DescriptionJobs:
    """Does the jobs that have attachments described: images by `vision`, sounds by `speech` (None: not configured)."""

    def __init__(
        self,
        ledger: Ledger,
        vision: LanguageModel | None,
        speech: Transcriber | None,
        hook: BeforeStore | None,
        spec: EmbeddingSpec,
        commit: Callable[[Sequence[Command]], list[Outcome]],
        observers: Observers,
    ) -> None:
        self._ledger = ledger
        self._vision = vision
        self._speech = speech
        self._hook = hook
        self._spec = spec
        self._commit = commit
        self._observers = observers

    @property
    def kinds(self) -> frozenset[AttachmentKind]:
        """The kinds of attachments that are described."""
        by_model = {AttachmentKind.IMAGE: self._vision, AttachmentKind.AUDIO: self._speech}
        return frozenset(kind for kind, model in by_model.items() if model is not None)

    def run(self, job: Job) -> JobResult:
        """Has the attachments of a message described, and commits what that changes, together with the job's end.

        A message that had no words becomes a memory, a memory gets a longer text; nothing changes if nobody could say
        anything, or `before_store` refuses it. Raises ModelError, StoreError, or ConfigError if the model is not
        configured any more; then the job stays recorded.
        """
        held = held_message(job)
        record = None
        if held is None:
            with self._ledger.read() as connection:
                record = memories.find(connection, job.memories[0])
        before = held.message.attachments if held else () if record is None else record.attachments
        spent: dict[str, Usage] = {}
        described = list(before)
        with span("describe attachments"):
            for position, source in sources_of(job).items():
                if position < len(before) and not before[position].is_described:
                    described[position], operation, used = self._described(before[position], source, job.scope)
                    spent[operation] = spent.get(operation, Usage()) + used
        commands = [] if tuple(described) == before else self._commands(held, record, tuple(described))
        if commands and (extraction := extraction_after(job)) is not None:
            commands.append(extraction)
        outcomes: list[Outcome] = []
        with suppress(JobAlreadyDone):  # erased meanwhile, or another worker was faster
            outcomes = self._commit([CompleteJob(job, self._spec), *commands])
        return JobResult(tuple(outcomes[1:2]), spent)

    def _described(self, attachment: Attachment, source: str, scope: Scope) -> tuple[Attachment, str, Usage]:
        """Returns an attachment with what a model says of it, the operation, and its usage."""
        if attachment.kind is AttachmentKind.AUDIO and self._speech is not None:
            operation, name = TRANSCRIBE, self._speech.name
            words, usage = self._transcript(self._speech, data_of(source) or b"", attachment.mime, scope)
        elif attachment.kind is AttachmentKind.IMAGE and self._vision is not None:
            operation, name = DESCRIBE, self._vision.name
            prompt = Prompt(operation, prompts.load("describe"), "The image:", images=(source,))
            reply = CountedModel(self._vision, self._ledger, scope).answer(prompt)
            words, usage = str(reply.value), reply.usage
        else:
            raise ConfigError("vision and speech: the model that this job waits for is not configured any more; set it")
        described = with_words(attachment, words, name)
        return replace(described, at=datetime.now(UTC)) if described.is_described else attachment, operation, usage

    def _transcript(self, speech: Transcriber, data: bytes, mime: str | None, scope: Scope) -> tuple[str, Usage]:
        """Returns what is said in a sound, and the usage, which it adds to the totals."""
        usage = Usage(calls=1)
        try:
            with self._observers.model_call(TRANSCRIBE) as call:
                transcript = speech.transcribe(data, mime)
                call.usage = usage = transcript.usage
        except LLMError as error:
            usage = error.usage or usage
            raise
        finally:
            with self._ledger.write(of=()) as connection:
                ledger_state.record_usage(connection, TRANSCRIBE, speech.name, scope, usage)
        return transcript.text, usage

    def _commands(
        self, held: AddMessage | None, record: MemoryRecord | None, described: tuple[Attachment, ...]
    ) -> list[Command]:
        """Returns the commands that store the descriptions as `before_store` lets them pass."""
        if held is not None:
            message = replace(held.message, attachments=described)
            allowed = apply_before_store(self._hook, message, held.metadata)
            if allowed is None or not allowed[0].text:
                return []
            return [replace(held, message=allowed[0], metadata=allowed[1], later=None)]
        if record is None:
            return []
        message = replace(record.message(), id=record.message_id, attachments=described)
        allowed = apply_before_store(self._hook, message, record.metadata)
        if allowed is None:
            return []
        passed, left = [], list(allowed[0].attachments)
        for before in record.attachments:
            same = next((one for one in left if (one.kind, one.ref) == (before.kind, before.ref)), before)
            left = [one for one in left if one is not same]
            passed.append(before if before.is_described else same)
        names = {now.described_by or "" for now, then in zip(passed, record.attachments, strict=True) if now != then}
        reason = f"described by {', '.join(sorted(names))}"
        return [UpdateMemory(record.id, attachments=tuple(passed), reason=reason)] if names else []
