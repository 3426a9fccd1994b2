"""The exact public surface: adding or removing a name needs a change here and in CHANGELOG.md."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any

import graphmem
import graphmem.plugins
import graphmem.testing.conformance
from graphmem import AsyncMemory, ChatLink, Memory, errors

METHODS = {
    Memory: """
        abstract add alias close context count_by_day dead_letters delete delete_all drop_dead_letter
        end_session entities entity explain export flush forget forget_subscriber from_config from_file get
        get_all graph history import_ judge judgements lifecycle_status on pending_deletion pin profile purge rebuild
        rename_entity repair reset retry_dead_letter retry_failed search stats tend unalias undo undo_cycle
        unpin update verify why_not
    """,
    ChatLink: "close flush inject recall saved",
}
PLUGINS = """
    Closeable Embedded EmbeddedQuestion Embedder EmbeddingSpec Entity EntityState EntityType Graph GraphBounds
    GraphIndex Kind LanguageModel LocatingEmbedder Matrix MemoryRecord MemoryState MentionEdge MentionKind
    MultilingualEmbedder Point Prompt Relation RelationState Reply Reranker Scope Seeds StoreLost Subgraph Support
    TokenEmbedder Transcriber Transcript Tokens Usage VectorIndex VectorSearch View embedding_spec_of
"""
PARAMETERS = Path(__file__).parent.parent / "data" / "public_parameters.txt"
ERRORS = """
    ConfigError EmbedderUnavailable EmbeddingError GraphmemError LLMError LLMRefused LLMRejected LLMTruncated
    LLMUnavailable LLMUnusable ModelError NotFoundError PartialWrite StoreError StoreLocked StoreUnavailable
    ValidationError
"""


def public(namespace: object) -> set[str]:
    return {name for name in vars(namespace) if not name.startswith("_")}


def test_the_package_exports_these_names() -> None:
    assert set(graphmem.__all__) == {
        "AsyncMemory",
        "ChatLink",
        "Memory",
        "MemoryEvent",
        "Settings",
        "__version__",
        "errors",
    }
    assert all(getattr(graphmem, name) for name in graphmem.__all__)
    assert set(graphmem.plugins.__all__) == set(PLUGINS.split())
    assert set(graphmem.testing.conformance.__all__) == {
        "EmbedderContract", "GraphIndexContract", "LanguageModelContract", "RerankerContract", "VectorIndexContract",
        "check_ranks_like_the_exact_index",
    }  # fmt: skip
    assert set(graphmem.testing.__all__) == {
        "Behaviour", "HashEmbedder", "ModelEndpoint", "NumpyIndex", "Request", "WordExtractor", "behaviours",
    }  # fmt: skip


def test_classes_have_these_methods() -> None:
    for cls, names in METHODS.items():
        assert public(cls) == set(names.split())
    assert public(AsyncMemory) == public(Memory)


def test_methods_have_these_parameters() -> None:
    """A changed parameter needs the new file, `python tests/api/test_public_surface.py`, and a line in CHANGELOG.md."""
    assert parameters() == PARAMETERS.read_text("utf-8")


def parameters() -> str:
    """Returns the parameters of all public methods with their defaults, one method to a line."""
    owners: list[Any] = [*METHODS, AsyncMemory, graphmem.testing.HashEmbedder, graphmem.testing.ModelEndpoint]
    lines = [
        f"{owner.__name__}.{name}{_without_types(method)}"
        for owner in owners
        for name in sorted({"__init__", *public(owner)})
        if callable(method := getattr(owner, name))
    ]
    return "\n".join(lines) + "\n"


def _without_types(method: Any) -> str:
    signature = inspect.signature(method)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def test_errors_are_these() -> None:
    own = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert set(own) == set(ERRORS.split())
    assert all(issubclass(error, errors.GraphmemError) for error in own.values())


def test_ids_of_a_scope_are_given_by_name_only() -> None:
    for name in public(Memory):
        method = inspect.unwrap(getattr(Memory, name))
        if not isinstance(method, types.FunctionType):
            continue
        parameters = inspect.signature(method).parameters
        for scope in {"user_id", "agent_id", "run_id"} & set(parameters):
            assert parameters[scope].kind is inspect.Parameter.KEYWORD_ONLY, (name, scope)


if __name__ == "__main__":
    PARAMETERS.write_text(parameters(), "utf-8")
