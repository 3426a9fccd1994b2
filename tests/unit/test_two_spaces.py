"""Texts in two spaces: what is embedded, stored, completed, and converted from one space to the other."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from support.columns import reader_of
from support.fakes import DIMS, HashEncoder, fake_models, two_space_embedder

from graphmem import Memory, Settings, wiring
from graphmem.commands.types import DeleteMemory, ReindexMemory, UpdateMemory
from graphmem.concurrency import Pool
from graphmem.errors import EmbeddingError
from graphmem.model import VECTOR, SpaceVector
from graphmem.models import use_multilingual
from graphmem.models.loading import PerProcess
from graphmem.plugins import Matrix
from graphmem.retrieval.features import MIN_MEMORIES, SpaceEstimates
from graphmem.stores.ledger import change_feed, embeddings, outbox
from graphmem.stores.ledger.ledger_state import check_embedder, record_embedder, recorded_spaces
from graphmem.stores.ledger.schema import embeddings as embeddings_table
from graphmem.stores.ledger.schema import memories as rows
from graphmem.testing import HashEmbedder

ENGLISH, CHINESE = "Anna paints", "安娜画画"
MULTILINGUAL = HashEncoder.model
TOKENS = f"tokens-{DIMS}"


def forms_of(clerk: Any, text: str) -> list[str]:
    embedded = embeddings_table.c.hash == rows.c.embedding
    statement = select(embeddings_table.c.form).distinct().join(rows, embedded).where(rows.c.text == text)
    return sorted(form for (form,) in clerk.rows(statement))


def point_of(clerk: Any, text: str) -> Any:
    with clerk.ledger.read() as connection:
        record = next(
            record
            for record in change_feed.since(
                connection, clerk.ledger.digests, 0, outbox.cursor_state(connection, "none"), 100
            ).records
            if record.text == text
        )
        (point,) = change_feed.points(connection, clerk.spec, [record])
    return point


@pytest.fixture
def two_spaces(clerk: Any) -> Any:
    clerk.use(two_space_embedder())
    return clerk


# --- what is embedded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_thread", [True, False])
def test_a_question_has_the_vectors_of_both_models_with_a_thread_and_without(
    monkeypatch: pytest.MonkeyPatch, has_thread: bool
) -> None:
    def start(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    embedder = two_space_embedder()
    if not has_thread:
        monkeypatch.setattr("graphmem.models.two_spaces._readers", PerProcess(lambda: Pool(1, "reader")))
        monkeypatch.setattr(Thread, "start", start)
    question = embedder.embed_question(ENGLISH)
    assert question.vector is not None
    assert np.array_equal(question.vector, embedder.embed_query(ENGLISH))
    assert np.array_equal(question.multilingual, embedder.embed_tokens([ENGLISH])[0].multilingual)


def test_an_error_of_the_multilingual_model_reaches_who_asks() -> None:
    class Broken(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Matrix:
            raise EmbeddingError("broken")

    with pytest.raises(EmbeddingError, match="broken"):
        two_space_embedder(Broken()).embed_question(ENGLISH)


def test_a_text_that_the_first_model_reads_is_in_both_spaces() -> None:
    english, chinese = two_space_embedder().embed_tokens([ENGLISH, CHINESE])
    assert (english.vectors.shape, len(english.tokens), english.windows) == ((1, DIMS), 1, 1)
    assert (chinese.vectors.shape, chinese.tokens, chinese.windows) == ((0, DIMS), (), 1)
    assert english.multilingual is not None and chinese.multilingual is not None
    assert english.multilingual @ chinese.multilingual == pytest.approx(1)


def test_a_question_that_the_first_model_does_not_read_has_the_multilingual_vector_alone() -> None:
    read, unread = map(two_space_embedder().embed_question, ("Who paints?", "安娜?"))
    assert read.vector is not None and len(read.words) == len(read.tokens) > 0
    assert (unread.vector, len(unread.tokens), unread.words) == (None, 0, ())
    assert read.multilingual is not None and unread.multilingual is not None


def test_nothing_is_embedded_of_no_texts() -> None:
    assert two_space_embedder().embed_tokens([]) == []


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_each_text_has_the_forms_of_its_spaces(two_spaces: Any) -> None:
    two_spaces.say(ENGLISH), two_spaces.say(CHINESE)
    assert forms_of(two_spaces, ENGLISH) == sorted([VECTOR, TOKENS, MULTILINGUAL])
    assert forms_of(two_spaces, CHINESE) == [MULTILINGUAL]
    english, chinese = point_of(two_spaces, ENGLISH), point_of(two_spaces, CHINESE)
    assert (english.vectors.shape, chinese.vectors.shape, chinese.windows) == ((1, DIMS), (0, DIMS), 1)
    assert english.multilingual @ chinese.multilingual == pytest.approx(1, abs=1e-3)
    with two_spaces.ledger.read() as connection:
        assert embeddings.total_windows(connection) == 2
        assert embeddings.rows_without_embeddings(connection, two_spaces.spec) == []
        assert recorded_spaces(connection)[1] == MULTILINGUAL


def test_a_stored_vector_is_the_computed_one_up_to_a_byte_a_number() -> None:
    vector = HashEncoder().encode(["Anna paints a mountain"])[0]
    data = embeddings.encode_multilingual(vector)
    assert len(data) == len(vector)
    (decoded,) = embeddings.decode_multilingual([data])
    assert decoded @ vector > 0.9999
    assert embeddings.encode_multilingual(decoded) == data
    assert embeddings.decode_multilingual([]).size == 0


def test_an_erased_text_leaves_no_vector_in_either_space(two_spaces: Any) -> None:
    ids = [two_spaces.say(text).id for text in (ENGLISH, CHINESE)]
    two_spaces.commit(*map(DeleteMemory, ids))
    assert two_spaces.rows(select(embeddings_table)) == []


def test_a_text_that_changes_its_language_changes_its_forms(two_spaces: Any) -> None:
    record = two_spaces.say(CHINESE)
    two_spaces.commit(UpdateMemory(record.id, text=ENGLISH))
    two_spaces.enrich()
    assert forms_of(two_spaces, ENGLISH) == sorted([VECTOR, TOKENS, MULTILINGUAL])
    assert two_spaces.find_damage() == []


def test_a_text_said_twice_is_embedded_once(two_spaces: Any) -> None:
    two_spaces.say(CHINESE), two_spaces.say(CHINESE, at=60 * 24)
    assert [uses for (uses,) in two_spaces.rows(select(embeddings_table.c.uses))] == [2]


# --- a ledger of one space --------------------------------------------------------------------------------------------


def test_embedding_anew_completes_a_ledger_of_one_space(clerk: Any, caplog: pytest.LogCaptureFixture) -> None:
    own = clerk.embedder
    ids = {text: clerk.say(text).id for text in (ENGLISH, CHINESE)}
    clerk.use(two_space_embedder())
    assert (clerk.spec.model, clerk.spec.dims) == (own.model, own.dims)
    for _ in range(2):
        check_embedder(clerk.ledger, clerk.spec)
    assert [record.levelname for record in caplog.records if "rebuild" in record.getMessage()] == ["WARNING"]
    with clerk.ledger.read() as connection:
        assert recorded_spaces(connection)[1] is None
        lacking = embeddings.rows_without_embeddings(connection, clerk.spec)
    assert len(lacking) == 2
    clerk.commit(*map(ReindexMemory, ids.values()))
    record_embedder(clerk.ledger, clerk.spec)
    clerk.enrich()
    assert forms_of(clerk, ENGLISH) == sorted([VECTOR, TOKENS, MULTILINGUAL])
    assert forms_of(clerk, CHINESE) == [MULTILINGUAL]
    with clerk.ledger.read() as connection:
        assert embeddings.rows_without_embeddings(connection, clerk.spec) == []
        assert recorded_spaces(connection)[1] == MULTILINGUAL
    assert clerk.find_damage() == []


def test_a_ledger_of_one_space_takes_texts_in_both(clerk: Any) -> None:
    clerk.say(ENGLISH)
    clerk.use(two_space_embedder())
    clerk.say(CHINESE)
    assert forms_of(clerk, ENGLISH) == sorted([VECTOR, TOKENS])
    assert forms_of(clerk, CHINESE) == [MULTILINGUAL]
    # The same text, said again, is completed.
    clerk.say(ENGLISH, at=60 * 24)
    assert forms_of(clerk, ENGLISH) == sorted([VECTOR, TOKENS, MULTILINGUAL])


def test_one_space_has_no_multilingual_vectors(clerk: Any) -> None:
    record = clerk.say(ENGLISH)
    assert isinstance(clerk.embedder, HashEmbedder)
    with clerk.ledger.read() as connection:
        assert reader_of(clerk).multilingual(connection, [record.row])[0] == []
        assert embeddings.first_vectors(connection, clerk.spec, [record.id]) == {}


# --- comparing --------------------------------------------------------------------------------------------------------


def test_vectors_of_different_spaces_are_not_near() -> None:
    one = np.array([1.0, 0.0], np.float32)
    assert SpaceVector(VECTOR, one).cosine(SpaceVector(VECTOR, one)) == 1
    assert SpaceVector(VECTOR, one).cosine(SpaceVector(MULTILINGUAL, np.ones(3, np.float32))) == -1


def test_the_first_vector_of_a_text_is_that_of_its_first_space(two_spaces: Any) -> None:
    two_spaces.say(ENGLISH), two_spaces.say(CHINESE)
    hashes = [text_hash for (text_hash,) in two_spaces.rows(select(rows.c.embedding).order_by(rows.c.id))]
    with two_spaces.ledger.read() as connection:
        vectors = embeddings.first_vectors(connection, two_spaces.spec, hashes)
    assert [vectors[text_hash].space for text_hash in hashes] == [VECTOR, MULTILINGUAL]


@pytest.mark.parametrize("question", ["安娜?", "Anna?"])
def test_memories_of_the_multilingual_space_are_ranked_by_the_ranking_vector(
    monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    class Opposite(HashEncoder):
        dims = use_multilingual.DIMS  # relevance reads vectors of this length

        def ranking_vector(self, vector: Matrix) -> Matrix:
            return -vector

    monkeypatch.setattr(wiring, "_embedder", lambda _: two_space_embedder(Opposite()))
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
        memory.add("安娜", user_id="u-1", infer=False)
        memory.flush()
        (hit,) = memory.search(question, user_id="u-1", min_relevance=0)["results"]
    expected = Opposite().encode(["安娜"])[0] @ -Opposite().encode([question])[0]
    assert hit["similarity"] == pytest.approx(expected, abs=0.01)
    assert expected < -0.5


def test_cosines_are_converted_by_mean_and_deviation() -> None:
    cosines = {str(n): 0.1 + 0.02 * n for n in range(MIN_MEMORIES)}
    values = {uid: 0.3 + 2 * cosine for uid, cosine in cosines.items()}
    estimates = SpaceEstimates(values, cosines).convert({"other": 0.4, "far": 0.0})
    assert estimates == pytest.approx({"other": 1.1, "far": 0.3})


def test_small_differences_of_cosines_are_not_stretched() -> None:
    cosines = {str(n): 0.2 + 0.001 * n for n in range(MIN_MEMORIES)}
    values = {uid: 0.1 * n for n, uid in enumerate(cosines)}
    low, high = SpaceEstimates(values, cosines).convert({"low": 0.2, "high": 0.23}).values()
    assert high - low == pytest.approx(np.std(list(values.values())))


def test_too_few_memories_convert_nothing() -> None:
    cosines = {str(n): 0.1 * n for n in range(MIN_MEMORIES - 1)}
    assert SpaceEstimates(dict.fromkeys(cosines, 0.9), cosines).convert({"other": 0.4}) == {"other": 0.4}
