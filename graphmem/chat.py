"""ChatLink joins a chat application to a `Memory`: it stores saved chats and recalls memories for a question.

It neither delays the chat nor raises for a memory that is slow, broken or out of reach: the log gets a warning (without
any text of the chat), and recall returns no memories.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any, Self

from graphmem.boundary import validation
from graphmem.chat_worker import ChatWorker, RecallRequest, checked_prompt
from graphmem.commands.types import UNSET, Unset
from graphmem.errors import GraphmemError
from graphmem.ingest.chat_deduplication import ChatHistory
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import MinRelevance
from graphmem.retrieval import context

logger = logging.getLogger("graphmem")

MAX_ROUNDS, MAX_SECONDS = 100, 600.0


class ChatLink:
    """Connects one chat with a `Memory`: call `saved` after the chat was saved, `recall` before the model is asked.

    `user_name` and `agent_name` are used for messages without a name. `rounds` (1 to 100): how many of the last rounds
    (a user's message with its answers) each saving hands over. `time_limit`: seconds that `recall` and `close` may
    take, above 0 and up to 600. `rewrite=False` never asks the language model; `rewrite_prompt` replaces the built-in
    instructions to it. `recall` takes both for one call as well.

    Safe to use from several threads; make one for each chat. It does not close the memory. Raises ValidationError for
    an unusable argument.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: Any,
        agent_id: Any = None,
        run_id: Any = None,
        user_name: str | None = None,
        agent_name: str | None = None,
        rounds: int = 2,
        time_limit: float = 3.0,
        rewrite: bool = True,
        rewrite_prompt: str | None = None,
    ) -> None:
        self._memory = memory
        self._scope = validation.required_scope(user_id, agent_id, run_id)[0]
        self._names = {"user": user_name, "assistant": agent_name}
        self._rounds = validation.count(rounds, "rounds", 1, MAX_ROUNDS)
        self._rewrite = validation.flag(rewrite, "rewrite")
        self._rewrite_prompt = checked_prompt(rewrite_prompt)
        self._worker = ChatWorker(memory, validation.seconds(time_limit, "time_limit", MAX_SECONDS))
        self._chat_history = ChatHistory(self._worker.keyed)
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def saved(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Stores the last rounds of a saved chat in the background and returns at once; never raises for an unusable
        chat. Of more than 1,000 savings that wait for a slow memory, the oldest is dropped.

        `messages` is the whole chat or the last part of it, as messages for `Memory.add`. Calls are stored in their
        order, each message once however often it is saved. A message is recognised by its "id", or by its words and
        "timestamp"; one with neither, by its words and the two messages before it. That requires the whole chat, or a
        last part whose first message was in an earlier call.
        """
        try:
            with self._lock:
                readable = [message for message in messages if isinstance(message, Mapping)]
                if len(readable) < len(messages):
                    logger.warning("%d messages of a saved chat could not be read", len(messages) - len(readable))
                last_rounds = self._chat_history.with_keys(readable, self._rounds)
                names = [message.get("name") or self._names.get(message.get("role", "")) for message in last_rounds]
                named = [{**one, "name": name} if name else one for one, name in zip(last_rounds, names, strict=True)]
                self._worker.store(self._scope, named)
        # Everything but GraphmemError: `messages` is not a list of messages.
        except (GraphmemError, TypeError, AttributeError, ValueError, RecursionError) as error:
            logger.warning("a saved chat could not be taken (%s)", log_text(error))

    def flush(self) -> dict[str, list[str]]:
        """Waits for all chats given to `saved` and for the memory's background work (facts, summaries, delivery).

        It has no time limit. Returns and raises as `Memory.flush` does.
        """
        self._worker.drain()
        return self._memory.flush()

    def recall(
        self,
        question: str,
        recent: Sequence[Mapping[str, Any]] = (),
        top_k: int = 5,
        max_chars: int = 1200,
        *,
        threshold: float | Unset | None = UNSET,
        min_relevance: MinRelevance | Unset = UNSET,
        reference_date: datetime | str | float | None = None,
        rewrite: bool | None = None,
        rewrite_prompt: str | None = None,
    ) -> str:
        """Returns the prompt block for a question, of at most `top_k` memories and `max_chars` characters; "" for none.

        `recent`: the turns of the conversation, oldest first; the question itself may be the last of them. The block
        repeats none of these texts, so give only those that the model is shown, and has the same text only once. A
        question that finds too little is searched again together with these turns, if it may depend on them ("And when
        is it?"), and then rewritten by the language model, if one is configured (`graphmem.retrieval.fallback`). At the
        time limit, or after an error, the block has the hits of the steps finished before. Without turns, the setting
        `working` has those taken that were said just before under the link's ids. Errors and unusable arguments are
        logged, never raised.

        `min_relevance` and `threshold` work as in `Memory.context`: by default memories that are not relevant enough
        are left out. `reference_date`: the moment from which "last week" and the like are counted, as in
        `Memory.search`. `rewrite` and `rewrite_prompt` override the link's for this call.
        """
        request = RecallRequest(
            self._scope,
            question,
            recent,
            top_k,
            max_chars,
            threshold,
            min_relevance,
            reference_date,
            self._rewrite if rewrite is None else rewrite,
            self._rewrite_prompt if rewrite_prompt is None else rewrite_prompt,
            self._names,
        )
        return self._worker.recall(request)

    def inject(self, messages: Sequence[Mapping[str, Any]], block: str) -> list[dict[str, Any]]:
        """Returns a copy of the messages with the block at the end of the first system message, or of a new one in
        front.

        The given list and its messages stay unchanged; an empty block adds nothing. Raises ValidationError for an
        argument that is no list of messages, or a block that is no text.
        """
        if not isinstance(messages, list | tuple):
            validation.refuse_unseen("messages", messages, 'must be a list of {"role", "content"} dicts')
        for message in messages:
            role = validation.as_object(message, "a message").get("role")
            if not (role is None or isinstance(role, str)):
                validation.refuse_unseen("role", role, "must be a string")
            if not isinstance(content := message.get("content"), str | list | tuple | None):
                validation.refuse_unseen("content", content, "must be a string, None, or a list of content parts")
        return context.inject_block(messages, validation.stored_text(block, "block"))

    def close(self) -> None:
        """Waits for running savings and recalls, at most for the time limit; then ends the session of the chat.

        Unfinished ones go on in the background as long as the memory is open; then it ends as after a silence.
        """
        if self._worker.close_in(self._worker.time_limit):
            with suppress(GraphmemError):  # such as a closed memory: a silence ends the session, too
                self._memory.end_session(**self._scope.parts)
