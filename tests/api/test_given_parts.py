"""Parts that are given to a `Memory` as objects: used, checked, never closed, and their errors translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import numpy as np
import pytest
from support.contract import added, ids, texts
from support.fake_llm import Scripted, fact
from support.fakes import DIMS, fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import AsyncMemory, Memory, Settings, given
from graphmem.errors import ConfigError, EmbeddingError, LLMUnavailable, StoreUnavailable
from graphmem.given import Given
from graphmem.models.openai_chat import OpenaiChatModel
from graphmem.plugins import Point, Reply, Usage
from graphmem.stores import projection_worker
from graphmem.testing import HashEmbedder, ModelEndpoint
from graphmem.testing.numpy_index import NumpyIndex

ANA: dict[str, Any] = {"user_id": "u1"}


class NotedIndex(NumpyIndex):
    """An index that notes what is done with it, and breaks on request."""

    def __init__(self, place: str = "here") -> None:
        super().__init__()
        self.place = place
        self.upserted: list[str] = []
        self.flushes, self.wipes, self.closed, self.broken = 0, 0, False, False

    def upsert(self, points: Sequence[Point]) -> None:
        if self.broken:
            raise ConnectionError("green tea is quoted")
        self.upserted += [point.record.id for point in points]
        super().upsert(points)

    def dense(self, *args: Any) -> Any:
        if self.broken:
            raise ConnectionError("green tea is quoted")
        return super().dense(*args)

    def flush(self) -> None:
        self.flushes += 1

    def wipe(self) -> None:
        self.wipes += 1
        super().wipe()

    def close(self) -> None:
        self.closed = True


def opened(path: Path | str = ":memory:", **parts: Any) -> Memory:
    return Memory(path, settings=Settings.from_dict(fake_models()), **parts)


# --- vector index ---------------------------------------------------------------------------------------------------


def test_a_given_index_is_used_flushed_and_not_closed() -> None:
    index = NotedIndex()
    with opened(vector_index=index) as memory:
        tea, kettle = added(memory, "green tea"), added(memory, "a red kettle")
        assert index.upserted == [tea, kettle]
        assert index.flushes >= 2
        assert ids(memory.search("green tea", **ANA))[0] == tea
        memory.delete(tea, **ANA)
        assert index.count() == 1
        assert memory.verify()["ok"]
        memory.rebuild("vectors")
        assert (index.count(), index.wipes > 0) == (1, True)
    assert not index.closed
    assert index.count() == 1


def test_what_was_delivered_to_an_index_is_remembered_for_its_place(tmp_path: Path) -> None:
    here, there = NotedIndex("here"), NotedIndex("there")
    with opened(tmp_path, vector_index=here) as memory:
        tea = added(memory, "green tea")
    with opened(tmp_path, vector_index=here) as memory:
        assert ids(memory.search("green tea", **ANA)) == [tea]
    assert here.upserted == [tea]
    with opened(tmp_path, vector_index=there) as memory:
        assert ids(memory.search("green tea", **ANA)) == [tea]
    assert there.upserted == [tea]
    with opened(tmp_path, vector_index=NotedIndex("here")) as memory:  # it lost its contents
        assert ids(memory.search("green tea", **ANA)) == [tea]
        assert memory.verify()["ok"]
    with opened(tmp_path) as memory:
        assert ids(memory.search("green tea", **ANA)) == [tea]
        assert memory.verify()["ok"]


def test_stats_tell_what_an_index_has_and_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NotedIndex()

    def refuse(*_: Any) -> None:
        raise StoreUnavailable("the disk is full")

    with opened(vector_index=index) as memory:
        added(memory, "tea")
        ledger, vectors = memory.stats()["stores"]
        whole = {"name": "vectors", "provider": "given", "available": True, "dead_letters": 0}
        assert vectors == {**whole, "seq": ledger["seq"], "pending": 0, "oldest_pending_at": None}
        begin = datetime.now(UTC)
        monkeypatch.setattr(index, "upsert", refuse)
        added(memory, "cake")
        later, behind = memory.stats()["stores"]
        assert (behind["seq"], behind["pending"]) == (ledger["seq"], 1)
        assert begin <= datetime.fromisoformat(behind["oldest_pending_at"]) <= datetime.now(UTC)
        monkeypatch.undo()
        assert memory.flush() == {"pending": []}
        assert [store["seq"] for store in memory.stats()["stores"]] == [later["seq"]] * 2


def test_an_index_of_another_ledger_is_wiped_first(tmp_path: Path) -> None:
    index = NotedIndex()
    with opened(tmp_path / "one", vector_index=index) as memory:
        added(memory, "green tea")
    with opened(tmp_path / "two", vector_index=index) as memory:
        kettle = added(memory, "a red kettle")
        assert memory.verify()["ok"]
    assert [uid for uid, *_ in index.list_held()] == [kettle]


def test_an_index_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    index = NotedIndex()
    with opened(vector_index=index) as memory:
        index.broken = True
        (one,) = (answer := memory.add("green tea", **ANA))["results"]
        assert answer["pending"] == ["vectors"]
        assert memory.search("green tea", **ANA)["degraded"] == ["vectors"]
        index.broken = False
        memory.flush()
        memory.repair()
        assert index.upserted == [one["id"]]
        assert "degraded" not in memory.search("green tea", **ANA)
    assert "quoted" not in caplog.text


def test_a_receipt_counts_nothing_as_erased_that_an_index_still_has(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NotedIndex()

    def fail(*_: Any) -> int:
        raise ConnectionError

    with opened(vector_index=index) as memory:
        tea, cake = added(memory, "green tea"), added(memory, "a cake")
        monkeypatch.setattr(index, "delete", fail)
        receipt = memory.delete(tea, **ANA)
        assert (receipt["pending"], receipt["erased"]["ledger"], receipt["erased"]["vectors"]) == (["vectors"], 1, 0)
        assert index.count() == 2
        monkeypatch.undo()
        memory.flush()
        assert index.count() == 1
        receipt = memory.delete(cake, **ANA)
        assert ("pending" in receipt, receipt["erased"]["vectors"], index.count()) == (False, 1, 0)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("made", "argument", "name", "lacking"),
    [
        (NotedIndex, "vector_index", "upsert", "vectors"),
        (NotedIndex, "vector_index", "dense", None),
        (HashEmbedder, "embedder", "embed_tokens", "vectors"),
        (HashEmbedder, "embedder", "embed_question", None),
        (lambda: Failing(), "llm", "answer", "facts"),
    ],
)
def test_what_ends_the_thread_of_a_given_part_is_its_failure(
    made: Callable[[], Any], argument: str, name: str, lacking: str | None, error: BaseException
) -> None:
    """Nobody has asked the process to end: signals are handled in the main thread."""
    part = made()

    def end(*_: Any, **__: Any) -> Any:
        raise error

    with opened(**{argument: part}) as memory:
        added(memory, "a cake", infer=False)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(part, name, end)
            if lacking is None:
                assert memory.search("cake", **ANA)["degraded"] == ["vectors"]
            else:
                assert lacking in memory.add("I like tea.", **ANA)["pending"]


def test_a_search_does_not_wait_for_an_index_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its arms nor for its count, and no more threads stay behind than may."""
    index, go_on = NotedIndex(), Event()

    def hang(*_: Any, **__: Any) -> list[Any]:
        assert go_on.wait(TIMEOUT)
        return []

    monkeypatch.setattr(given, "READ_SECONDS", 0.1)
    monkeypatch.setattr(given, "MOST_READS", 3)
    monkeypatch.setattr(projection_worker, "EMBEDDED_CATCH_UP_SECONDS", 0.1)
    with opened(vector_index=index) as memory:
        added(memory, "green tea")
        for name in ("dense", "multilingual", "sparse", "count"):
            monkeypatch.setattr(index, name, hang)
        for _ in range(3):
            assert memory.search("green tea", **ANA)["degraded"] == ["vectors"]
        assert sum(thread.name == "graphmem-given-index" for thread in enumerate_threads()) == 3
        go_on.set()
        monkeypatch.undo()
        wait_until(lambda: "degraded" not in memory.search("green tea", **ANA))


# --- embedder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", [None, [("id",)], ["id"], [("id", "0.5")], [(1, 0.5)], [("id", float("nan"))], {"id": 0.5}, [("id", 1, 2)]]
)
@pytest.mark.parametrize("arm", ["dense", "sparse"])
def test_an_index_that_returns_something_else_is_left_out(
    odd: Any, arm: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = NotedIndex()
    with opened(vector_index=index) as memory:
        added(memory, "green tea")
        monkeypatch.setattr(index, arm, lambda *_: odd)
        found = memory.search("green tea", **ANA)
        assert (found["degraded"], [hit["memory"] for hit in found["results"]]) == (["vectors"], ["green tea"])
    assert [one.getMessage() for one in caplog.records if "something else than ids" in one.getMessage()]


@pytest.mark.parametrize("odd", [[("id",)], ["id"], [("id", 1, "1")], [(1, 1, 1)], None])
def test_an_index_that_lists_something_else_cannot_be_compared(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = NotedIndex()
    with opened(vector_index=index) as memory:
        added(memory, "green tea")
        monkeypatch.setattr(index, "list_held", lambda *_: odd)
        report = memory.verify()
        assert not report["ok"]
        (reason,) = report["projections"]["vectors"]["unreachable"]
        assert reason.startswith("vector_index: the given object ")


def test_an_embedder_that_fails_at_a_query_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HashEmbedder):
        def embed_question(self, text: str) -> Any:
            raise RuntimeError("green tea is quoted")

        embed_query = embed_question

    with opened(embedder=Broken()) as memory:
        added(memory, "green tea")
        assert memory.search("green tea", **ANA)["degraded"] == ["vectors"]
    (line,) = [one.getMessage() for one in caplog.records if "embedder failed" in one.getMessage()]
    assert "quoted" not in line


def test_an_embedder_gives_the_ledger_its_name(tmp_path: Path) -> None:
    with Memory(tmp_path, config=None, settings=Settings.from_dict(fake_models()), embedder=HashEmbedder(32)) as memory:
        added(memory, "green tea")
        stats = memory.stats()
        assert (stats["embedder"], stats["embedder_dims"]) == ("hash-32", 32)
        assert texts(memory.search("tea", **ANA)) == ["green tea"]
    with opened(tmp_path, embedder=HashEmbedder(48)) as memory:
        with pytest.raises(ConfigError, match="rebuild"):
            memory.search("tea", **ANA)
        memory.rebuild()
        assert texts(memory.search("tea", **ANA)) == ["green tea"]
        assert memory.stats()["embedder"] == "hash-48"


class Odd:
    """An embedder whose vectors are what `odd` makes of those of a HashEmbedder."""

    model, dims = "odd", DIMS

    def __init__(self, odd: Any) -> None:
        self.odd, self.closed = odd, False

    def embed(self, texts: Sequence[str]) -> list[Any]:
        return [self.odd(rows) for rows in HashEmbedder(DIMS).embed(texts)]

    def embed_query(self, text: str) -> Any:
        return HashEmbedder(DIMS).embed_query(text) * 3

    def close(self) -> None:
        self.closed = True


def test_vectors_of_an_embedder_are_scaled_to_length_one() -> None:
    embedder = Odd(lambda rows: (rows * 7).tolist())
    with opened(embedder=embedder) as memory:
        added(memory, "green tea")
        assert memory.search("green tea", **ANA)["results"][0]["similarity"] == pytest.approx(1)
    assert not embedder.closed


@pytest.mark.parametrize(
    "odd", [lambda rows: rows[:, 1:], lambda rows: rows * np.nan, lambda rows: None, lambda rows: 1 / 0]
)
def test_unusable_vectors_of_an_embedder_leave_the_words_stored(odd: Any) -> None:
    with opened(embedder=Odd(odd)) as memory:
        assert "vectors" in memory.add("green tea", **ANA)["pending"]
        assert texts(memory.get_all(**ANA)) == ["green tea"]


class OddTokens(HashEmbedder):
    """A TokenEmbedder whose results are what `odd` makes of those of a HashEmbedder."""

    def __init__(self, odd: Any) -> None:
        super().__init__(DIMS)
        self.odd = odd

    def embed_tokens(self, texts: Sequence[str]) -> Any:
        return self.odd(super().embed_tokens(texts))

    def embed_question(self, text: str) -> Any:
        return self.odd([super().embed_question(text)])[0]


class TwoSpaces(OddTokens):
    """A MultilingualEmbedder that reads English alone in the first space."""

    multilingual_form, multilingual_dims = "both-3", 3

    def embed_tokens(self, texts: Sequence[str]) -> Any:
        read = [
            one if text.isascii() else replace(one, vectors=one.vectors[:0], tokens=())
            for text, one in zip(texts, HashEmbedder.embed_tokens(self, texts), strict=True)
        ]
        return self.odd([replace(one, multilingual=np.array([0, 3, 4])) for one in read])


def each(**changed: Any) -> Any:
    """Returns what replaces fields of each result by what functions make of them."""
    return lambda results: [
        replace(one, **{name: change(getattr(one, name)) for name, change in changed.items()}) for one in results
    ]


@pytest.mark.parametrize(
    ("odd", "phrase"),
    [
        (lambda results: None, "an object of the type NoneType where a list is expected"),
        (lambda results: results[1:], "1 results for 2 texts"),
        (
            lambda results: [one.vectors for one in results],
            "an object of the type ndarray from embed_tokens; return an",
        ),
        (each(vectors=lambda rows: rows * np.nan), "1 of 1 vectors with numbers that are not finite"),
        (each(vectors=lambda rows: rows[:, 1:]), f"vectors of {DIMS - 1} numbers .* its dims: set it to {DIMS - 1}"),
        (each(vectors=lambda rows: rows[:0]), "no vector for a text"),
        (each(vectors=lambda rows: None), "an object of the type NoneType where a text's vectors are expected"),
        (each(tokens=lambda tokens: ()), "0 token matrices for 1 vectors"),
        (each(tokens=lambda tokens: tokens * 2), "2 token matrices for 1 vectors"),
        (each(tokens=lambda tokens: (tokens[0][:, 1:],)), rf"int8 in the shape \(2, {DIMS - 1}\)"),
        (each(tokens=lambda tokens: (tokens[0] / 127,)), "float64 .* int8 in the shape"),
        (each(tokens=lambda tokens: (np.int8(3),)), r"int8 in the shape \(\)"),
    ],
)
def test_unusable_token_matrices_are_refused_before_they_are_stored(odd: Any, phrase: str) -> None:
    embedder: Any = Given(embedder=OddTokens(odd)).guarded_embedder
    with pytest.raises(EmbeddingError, match=phrase) as caught:
        embedder.embed_tokens(["green tea", "red kettle"])
    assert str(caught.value).startswith("embedder: the given object returned ")


@pytest.mark.parametrize(
    ("odd", "phrase"),
    [
        (lambda results: [None], "an object of the type NoneType from embed_question; return an EmbeddedQuestion"),
        (each(vector=lambda vector: np.full_like(vector, np.inf)), "not finite"),
        (each(vector=lambda vector: vector[1:]), f"vectors of {DIMS - 1} numbers"),
        (each(vector=lambda vector: None), "something else than a vector of numbers"),
        (each(tokens=lambda tokens: tokens[:, 1:]), r"in the shape \(tokens, "),
        (each(tokens=lambda tokens: tokens * np.nan), "not finite"),
        (each(words=lambda words: words[1:]), "1 words for 2 tokens"),
    ],
)
def test_an_unusable_question_is_refused(odd: Any, phrase: str) -> None:
    embedder: Any = Given(embedder=OddTokens(odd)).guarded_embedder
    with pytest.raises(EmbeddingError, match=phrase):
        embedder.embed_question("green tea")


@pytest.mark.parametrize("odd", [None, 3, [0, 6], [["tea"]], [[None]], [[-1]], [[10]], "tea"])
def test_unusable_places_of_tokens_are_refused(odd: Any) -> None:
    class Placing(HashEmbedder):
        def token_places(self, text: str) -> Any:
            return odd

    embedder: Any = Given(embedder=Placing()).guarded_embedder
    with pytest.raises(EmbeddingError, match="^embedder: the given object returned something else than offsets"):
        embedder.token_places("green tea")


def test_an_embedder_with_a_second_space_is_checked_in_both() -> None:
    embedder: Any = Given(embedder=TwoSpaces(list)).guarded_embedder
    read, unread = embedder.embed_tokens(["green tea", "чай"])
    assert (read.vectors.shape, len(read.tokens)) == ((1, DIMS), 1)
    assert (unread.vectors.shape, unread.tokens) == ((0, DIMS), ())
    assert read.multilingual == pytest.approx([0, 0.6, 0.8])
    for odd in (lambda vector: None, lambda vector: vector[1:], lambda vector: vector * np.nan):
        broken: Any = Given(embedder=TwoSpaces(each(multilingual=odd))).guarded_embedder
        with pytest.raises(EmbeddingError):
            broken.embed_tokens(["green tea"])


def test_vectors_that_are_no_numbers_are_not_stored() -> None:
    embedder = OddTokens(each(vectors=lambda rows: rows * np.nan))
    embedder.embed_question = HashEmbedder(DIMS).embed_question  # type: ignore[method-assign]
    with opened(embedder=embedder) as memory:
        assert "vectors" in memory.add("green tea", **ANA)["pending"]
        embedder.odd = each(vectors=lambda rows: rows * 7)
        assert memory.flush() == {"pending": []}
        assert memory.search("green tea", **ANA)["results"][0]["similarity"] == pytest.approx(1)


# --- language model -------------------------------------------------------------------------------------------------


def test_a_language_model_draws_facts_and_is_not_closed() -> None:
    script = Scripted({"I drink tea.": [fact("Drinks tea")]})
    with ModelEndpoint(default=script) as endpoint:
        model = OpenaiChatModel("mine", api_key="k", base_url=endpoint.url)
        for _ in range(2):
            with opened(llm=model) as memory:
                assert texts(memory.add("I drink tea.", **ANA)) == ["Drinks tea"]
        model.close()


class Failing:
    """A language model that raises what graphmem does not know."""

    name = "failing"

    def answer(self, prompt: Any) -> Any:
        raise KeyError(prompt.user)


def test_a_language_model_that_raises_leaves_the_words_stored() -> None:
    with opened(llm=Failing()) as memory:
        answer = memory.add("I drink tea.", **ANA)
        assert answer["pending"] == ["facts"]
        assert answer["failed"] == {"facts": "LLMUnavailable"}
        assert answer["causes"] == {"facts": "llm: the given object failed in answer with KeyError"}


@pytest.mark.parametrize(
    ("reply", "phrase"),
    [
        (None, "an object of the type NoneType from answer; return a graphmem.plugins.Reply"),
        ({"facts": []}, "an object of the type dict from answer"),
        (Reply({"facts": []}, None), "an object of the type Reply from answer"),  # type: ignore[arg-type]
        (Reply({"facts": []}, Usage(calls=-1)), "a Usage with something else than numbers from 0 on"),
        (Reply({"facts": []}, Usage(prompt_tokens=10**30)), "a Usage with"),
        (Reply({"facts": []}, Usage(cost=float("nan"))), "a Usage with"),
        (Reply({"facts": []}, Usage(seconds="1")), "a Usage with"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_of_the_wrong_type_is_a_failure_with_its_remedy(reply: Any, phrase: str) -> None:
    class Answering:
        name = "odd"

        def answer(self, _: Any) -> Any:
            return reply

    model: Any = Given(llm=Answering()).guarded_llm
    with pytest.raises(LLMUnavailable, match=f"^llm: the given object returned {phrase}"):
        model.answer(None)


# --- shapes ---------------------------------------------------------------------------------------------------------


class Nameless(HashEmbedder):
    model = " "


class Lengthless(HashEmbedder):
    dims = 0


class FormlessTokens(HashEmbedder):
    token_form = ""


class LengthlessTokens(HashEmbedder):
    token_dims = "3"  # type: ignore[assignment]


class LengthlessSpace(TwoSpaces):
    multilingual_dims = 0


class Awaited:
    """A part whose main method is asynchronous, as those of an asynchronous client are."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        if name not in {"upsert", "embed", "answer"}:
            return getattr(self._part, name)

        async def call(*args: Any) -> Any:
            return getattr(self._part, name)(*args)

        return call


async def awaited_scores(_: str, asked: list[str]) -> list[float]:
    return [1.0] * len(asked)


class AwaitedReranker:
    async def __call__(self, _: str, asked: list[str]) -> list[float]:
        return [1.0] * len(asked)


@pytest.mark.parametrize(
    ("parts", "phrase"),
    [
        (
            {"vector_index": object()},
            "vector_index: object has no method close; it needs all of graphmem.plugins.Vector",
        ),
        ({"vector_index": HashEmbedder(4)}, "vector_index: HashEmbedder has no method close"),
        ({"embedder": len}, "embedder: builtin_function_or_method has no attribute dims"),
        ({"embedder": HashEmbedder}, "embedder: is the class HashEmbedder; give an object of it"),
        ({"embedder": Nameless()}, "embedder: its model must be a name, not ' '"),
        ({"embedder": Lengthless()}, "embedder: its dims must be the length of its vectors, not 0"),
        ({"embedder": FormlessTokens()}, "embedder: its token_form must be a name, not ''"),
        ({"embedder": LengthlessTokens()}, "embedder: its token_dims must be the length of its vectors, not '3'"),
        (
            {"embedder": LengthlessSpace(list)},
            "embedder: its multilingual_dims must be the length of its vectors, not 0",
        ),
        ({"llm": HashEmbedder(4)}, "llm: HashEmbedder has no method answer"),
        ({"reranker": "http://host/rerank"}, "reranker: str has no method __call__"),
        ({"vector_index": Awaited(NumpyIndex())}, "vector_index: upsert of Awaited is asynchronous"),
        ({"embedder": Awaited(HashEmbedder(4))}, "embedder: embed of Awaited is asynchronous"),
        ({"llm": Awaited(Failing())}, "llm: answer of Awaited is asynchronous"),
        ({"reranker": awaited_scores}, "reranker: __call__ of function is asynchronous"),
        ({"reranker": AwaitedReranker()}, "reranker: __call__ of AwaitedReranker is asynchronous"),
    ],
)
def test_an_object_of_the_wrong_shape_is_refused(parts: dict[str, Any], phrase: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(**parts)
    assert str(caught.value).startswith(phrase)
    with pytest.raises(ConfigError):
        Memory.from_config(fake_models(), **parts)


async def test_an_async_memory_takes_parts_with_a_configuration(tmp_path: Path) -> None:
    index = NotedIndex()
    config = {**fake_models(), "home": str(tmp_path)}
    async with AsyncMemory.from_config(config, vector_index=index, embedder=HashEmbedder(16)) as memory:
        await memory.add("green tea", **ANA)
        assert texts(await memory.search("green tea", **ANA)) == ["green tea"]
    assert len(index.upserted) == 1
    assert not (tmp_path / "vectors").exists()
    with pytest.raises(StoreUnavailable):
        memory.sync.search("green tea", **ANA)
