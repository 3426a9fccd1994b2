"""Reads what ChatGPT and Claude export, and the session files of Claude Code, as conversations.

Only words of the user and the assistant become messages: not instructions, tool calls and their results, thoughts, or
the texts of documents that came with a message. Of a message that was edited, and of an answer that was given again,
the one that was kept is read, with what follows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.coding_agents.hook import project_id
from graphmem.coding_agents.turns import MAX_CHARS, has_tool_result, message_id, spoken, stored_words, text_of
from graphmem.ingest.chat_deduplication import message_text
from graphmem.model import Attachment, AttachmentKind
from graphmem.transfer.sources.conversations import (
    MAX_NAME,
    ChatMessage,
    Conversation,
    LeftOut,
    attachment,
    has_text,
    storable,
)

TOOLS = "tool calls and their output"
THOUGHTS = "thoughts of the assistant"
HIDDEN = "instructions, commands and inserted texts"
REPLACED = "messages that an edited one or another answer replaced"
SUBAGENTS = "messages of subagents"
DOCUMENTS = "texts of attached documents"
ENDS = f"ends of messages with more than {MAX_CHARS:,} characters"
WORDLESS = "messages without words (images, sounds, or nothing)"

# A citation in an answer of ChatGPT: private characters around the ids of search results.
_CITATION = re.compile("\ue200[^\ue201]*\ue201")
_SPEAKERS = frozenset({"user", "assistant"})


# --- ChatGPT -------------------------------------------------------------------------------------------------------


def of_chatgpt(conversation: Mapping[str, Any], left_out: LeftOut) -> Conversation:
    """Reads a conversation: the messages from the root of its tree to `current_node`, which are those that are shown.

    A message without a time has that of the one before it.
    """
    nodes: dict[str, Any] = conversation["mapping"]
    current = conversation.get("current_node")
    id_ = current if isinstance(current, str) and current in nodes else next(reversed(nodes), None)
    path = dict[str, Mapping[str, Any]]()
    while isinstance(id_, str) and id_ not in path and isinstance(node := nodes.get(id_), dict):
        path[id_] = node
        id_ = node.get("parent")
    for id_, node in nodes.items():
        if id_ not in path and _chatgpt_reason(message := _object(_object(node).get("message"))) is None:
            left_out.add(REPLACED, len(_chatgpt_words(message)))
    at = conversation.get("create_time")
    messages = list[ChatMessage]()
    for id_, node in reversed(path.items()):
        message = _object(node.get("message"))
        if not message:
            continue
        at = message.get("create_time") or at
        words = _chatgpt_words(message)
        if (reason := _chatgpt_reason(message)) is not None:
            left_out.add(reason, len(words) or len(json.dumps(message.get("content"), ensure_ascii=False)))
            continue
        messages += _said(id_, message["author"]["role"], words, at, _chatgpt_attachments(message), left_out)
    return _conversation("chatgpt", conversation, ("conversation_id", "id"), "title", messages)


def _chatgpt_reason(message: Mapping[str, Any]) -> str | None:
    """Returns why a message is left out, None for one that somebody reads."""
    content, metadata = _object(message.get("content")), _object(message.get("metadata"))
    role, type_ = _object(message.get("author")).get("role"), content.get("content_type")
    if role == "tool" or message.get("recipient") not in {None, "all"}:
        return TOOLS
    if role not in {"user", "assistant"} or metadata.get("is_visually_hidden_from_conversation"):
        return HIDDEN
    if type_ in {"text", "multimodal_text"}:
        return None
    if type_ in {"thoughts", "reasoning_recap"}:
        return THOUGHTS
    return HIDDEN if role == "user" else TOOLS


def _chatgpt_words(message: Mapping[str, Any]) -> str:
    """Returns the words of a message: typed, or spoken and transcribed."""
    texts = [part.get("text") if isinstance(part, dict) else part for part in _chatgpt_parts(message)]
    words = "\n".join(text for text in texts if isinstance(text, str) and text)
    return _CITATION.sub("", words).replace("\r\n", "\n").strip()


def _chatgpt_parts(message: Mapping[str, Any]) -> list[Any]:
    parts = _object(message.get("content")).get("parts")
    return parts if isinstance(parts, list) else []


def _chatgpt_attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Returns the files of a message by name; of images and sounds that have none, the ids of their files."""
    named = _named_files(_object(message.get("metadata")).get("attachments"), "name")
    if named:
        return named
    parts = [_object(part) for part in _chatgpt_parts(message)]
    kinds = {"image_asset_pointer": AttachmentKind.IMAGE, "audio_asset_pointer": AttachmentKind.AUDIO}
    return tuple(
        Attachment(kinds[part["content_type"]], part["asset_pointer"])
        for part in parts
        if part.get("content_type") in kinds and isinstance(part.get("asset_pointer"), str) and part["asset_pointer"]
    )


# --- Claude --------------------------------------------------------------------------------------------------------


def of_claude(conversation: Mapping[str, Any], left_out: LeftOut) -> Conversation:
    """Reads a conversation. If its messages name their parents, only those of the last branch are read."""
    all_messages = [one for one in conversation["chat_messages"] if isinstance(one, dict)]
    replaced = _replaced_in_claude(conversation, all_messages)
    messages = list[ChatMessage]()
    for number, message in enumerate(all_messages):
        # "text" also names blocks that are not shown, so the blocks come first.
        words = message_text(message) or message_text({"content": message.get("text")})
        if message.get("uuid") in replaced:
            left_out.add(REPLACED, len(words))
            continue
        blocks = message.get("content")
        for block in map(_object, blocks if isinstance(blocks, list) else []):
            _count_block(block, left_out)
        attached = message.get("attachments")
        for document in map(_object, attached if isinstance(attached, list) else []):
            if isinstance(document.get("extracted_content"), str) and document["extracted_content"]:
                left_out.add(DOCUMENTS, len(document["extracted_content"]))
        files = {
            one.ref: one for name in ("attachments", "files") for one in _named_files(message.get(name), "file_name")
        }
        role = {"human": "user", "user": "user", "assistant": "assistant"}.get(str(message.get("sender")))
        if role is None:
            left_out.add(HIDDEN, len(words))
            continue
        at = message.get("created_at") or conversation.get("created_at")
        id_ = message.get("uuid") if isinstance(message.get("uuid"), str) else f"#{number}"
        messages += _said(str(id_), role, words, at, tuple(files.values()), left_out)
    return _conversation("claude", conversation, ("uuid",), "name", messages)


def _replaced_in_claude(conversation: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Returns the ids of messages on a branch that leaves the path to the last message."""
    parents = {one["uuid"]: one.get("parent_message_uuid") for one in messages if isinstance(one.get("uuid"), str)}
    leaf = conversation.get("current_leaf_message_uuid")
    if not isinstance(leaf, str) or leaf not in parents:
        leaf = next(reversed(parents), None)
    path = dict.fromkeys(_ancestors(leaf, parents))
    return {id_ for id_ in parents if id_ not in path and any(one in path for one in _ancestors(id_, parents))}


def _ancestors(id_: Any, parents: Mapping[str, Any]) -> Iterator[str]:
    """Yields an id, its parent's, and so on; the last one may be of a root that is not in the file."""
    seen = set[str]()
    while isinstance(id_, str) and id_ not in seen:
        seen.add(id_)
        yield id_
        id_ = parents.get(id_)


# --- Claude Code ---------------------------------------------------------------------------------------------------


def of_claude_code(lines: Sequence[Mapping[str, Any]], name: str, left_out: LeftOut) -> list[Conversation]:
    """Reads the lines of a session file called `name`, as a conversation for each session that they are of.

    Words are those that the hooks of Claude Code store: without what it inserts, without secrets, and not too long.
    Of several prompts at the same place of a conversation, to which its user went back, the last one was kept.
    """
    by_id = {line["uuid"]: line for line in lines if isinstance(line.get("uuid"), str)}
    replaced = _replaced_prompts(by_id)
    sessions = dict[str, _Session]()
    is_on_replaced = dict[str, bool]()
    for number, line in enumerate(lines):
        if line.get("type") not in _SPEAKERS:
            continue
        content = _object(line.get("message")).get("content")
        words = text_of(content).strip()
        id_ = line["uuid"] if isinstance(line.get("uuid"), str) else f"#{number}"
        if line.get("isSidechain"):
            left_out.add(SUBAGENTS, len(words))
            continue
        blocks = [_object(block) for block in content] if isinstance(content, list) else []
        for block in blocks:
            _count_block(block, left_out)
        is_tool_only = not words and any(block.get("type") not in {"image", "text"} for block in blocks)
        if is_tool_only:
            continue
        said = spoken(words)
        if _is_of_program(line) or (words and not said):
            left_out.add(HIDDEN, len(words))
        elif _leads_to(id_, replaced, by_id, is_on_replaced):
            left_out.add(REPLACED, len(words))
        else:
            session_id = line["sessionId"] if isinstance(line.get("sessionId"), str) else name
            sessions.setdefault(session_id, _Session()).add(id_, line, said, left_out)
    return [session.conversation(session_id) for session_id, session in sessions.items()]


class _Session:
    """A session of Claude Code while its lines are read: its messages are those that the hooks store, and more.

    Of each turn, hooks store the prompt and the last answer; here are the answers between as well. What both store has
    the same words and the same id, so that it is stored once.
    """

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self._folder: str | None = None
        # The id of the prompt that began the turn, if hooks store the turn.
        self._turn: str | None = None
        self._stored_ids = set[str]()

    def add(self, id_: str, line: Mapping[str, Any], said: str, left_out: LeftOut) -> None:
        """Adds the words of a line, without secrets."""
        words, role = stored_words(said), line["type"]
        if len(said) > MAX_CHARS:
            left_out.add(ENDS, len(said) - MAX_CHARS)
        if role == "user" and not has_tool_result(line["message"]):
            self._turn = line.get("uuid") if words else None
        stored_id = message_id("claude-code", self._turn, role, words) if isinstance(self._turn, str) else None
        if stored_id in self._stored_ids:  # the same answer again in a turn: hooks store one of them
            stored_id = None
        for message in _said(id_, role, words, line.get("timestamp"), (), left_out):
            self.messages.append(replace(message, stored_id=stored_id))
            if stored_id is not None:
                self._stored_ids.add(stored_id)
        if self._folder is None and isinstance(line.get("cwd"), str) and line["cwd"]:
            self._folder = line["cwd"]

    def conversation(self, id_: str) -> Conversation:
        """Returns the session as a conversation of its project."""
        metadata = {"client": "claude-code", "session": id_[:MAX_NAME]}
        if self._folder is None:
            return Conversation("claude-code", id_, self.messages, metadata)
        # A folder of another system, such as C:\code, is in no repository here.
        project = project_id(self._folder) if Path(self._folder).is_absolute() else storable(self._folder)[-MAX_NAME:]
        return Conversation("claude-code", id_, self.messages, {**metadata, "project": project}, project)


def _is_of_program(line: Mapping[str, Any]) -> bool:
    """Whether Claude Code wrote a line for itself: instructions, a summary, or an error in place of an answer."""
    return bool(line.get("isMeta") or line.get("isCompactSummary") or line.get("isApiErrorMessage"))


def _replaced_prompts(by_id: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Returns the ids of prompts after which another one follows at the same place: behind the same message."""
    last = dict[str | None, str]()
    replaced = set[str]()
    for id_, line in by_id.items():
        words = spoken(text_of(_object(line.get("message")).get("content")))
        if line.get("type") != "user" or line.get("isSidechain") or not words or _is_of_program(line):
            continue
        place = _parent(line)
        seen = set[str]()
        while place is not None and place in by_id and by_id[place].get("type") not in _SPEAKERS and place not in seen:
            seen.add(place)
            place = _parent(by_id[place])
        if place is None and "parentUuid" not in line:
            continue
        if place in last:
            replaced.add(last[place])
        last[place] = id_
    return replaced


def _leads_to(id_: str, ids: set[str], by_id: Mapping[str, Mapping[str, Any]], known: dict[str, bool]) -> bool:
    """Whether a line or one before it in its chain is among `ids`; `known` keeps the answers."""
    chain = dict[str, None]()
    at: str | None = id_
    while at is not None and at in by_id and not (at in known or at in ids or at in chain):
        chain[at] = None
        at = _parent(by_id[at])
    answer = at is not None and (at in ids or known.get(at, False))
    known.update(dict.fromkeys(chain, answer))
    return answer


def _parent(line: Mapping[str, Any]) -> str | None:
    """Returns the id of the line before; a summary of a long session names the one that it follows apart."""
    parent = line.get("parentUuid") or line.get("logicalParentUuid")
    return parent if isinstance(parent, str) else None


# --- all -----------------------------------------------------------------------------------------------------------


def _said(
    id_: str, role: str, words: str, at: Any, attachments: tuple[Attachment, ...], left_out: LeftOut
) -> Iterable[ChatMessage]:
    """Returns the message, in a list; nothing for one without text."""
    if has_text(words, attachments):
        return [ChatMessage(id_, role, words, at, attachments=attachments)]
    left_out.add(WORDLESS)
    return []


def _conversation(
    program: str, value: Mapping[str, Any], id_names: Sequence[str], title_name: str, messages: list[ChatMessage]
) -> Conversation:
    title = value.get(title_name)
    metadata = {"title": storable(title.strip())} if isinstance(title, str) and title.strip() else {}
    id_ = next((value[name] for name in id_names if isinstance(value.get(name), str) and value[name].strip()), None)
    if id_ is None:
        id_ = str(uuid5(NAMESPACE_OID, json.dumps([title, value.get("create_time"), value.get("created_at")])))
    return Conversation(program, id_, messages, metadata)


def _named_files(value: Any, key: str) -> tuple[Attachment, ...]:
    """Returns the attachments of a list of objects that have a file's name under `key`."""
    files = [_object(one) for one in value] if isinstance(value, list) else []
    found = list[Attachment]()
    for one in files:
        name, mime = one.get(key), one.get("mimeType") or one.get("mime_type")
        if isinstance(name, str) and (cleaned := " ".join(storable(name).split())):
            found.append(attachment(cleaned, mime if isinstance(mime, str) and "/" in mime else None))
    return tuple(found)


def _count_block(block: Mapping[str, Any], left_out: LeftOut) -> None:
    """Counts a block of a message of Claude that holds no words of a conversation."""
    type_ = block.get("type")
    if type_ in {"thinking", "redacted_thinking"}:
        left_out.add(THOUGHTS, len(str(block.get("thinking") or "")))
    elif isinstance(type_, str) and ("tool_use" in type_ or "tool_result" in type_):
        content = block.get("input") if "tool_use" in type_ else block.get("content")
        left_out.add(TOOLS, len(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
