"""The default Embedder: all-MiniLM-L6-v2 in int8, from this package's own files, by onnxruntime. No network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from hashlib import shake_256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from graphmem.concurrency import OrderedLock, raise_if_stopped, single_blas_thread
from graphmem.errors import EmbeddingError
from graphmem.folding import without_strokes
from graphmem.models.loading import PerProcess, checked_path, read_checked
from graphmem.models.word_pieces import WordPieces
from graphmem.plugins import Embedded, EmbeddedQuestion

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

DIMS = 384
# weights/make_minilm.py makes them.
MODEL_FILE = ("graphmem", "models/weights/minilm-l6-v2.ort")
MODEL_SHA256 = "6da15e8b7a9f61b6289fdeb2840c2a5b354c5369eed08f10a0606bbc00ecf085"
TOKENIZER_FILE = ("graphmem", "models/weights/minilm-l6-v2.tokenizer.json")
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
REMEDY = "install graphmem anew (pip install --force-reinstall --no-deps)"

# The longest text, in word pieces without [CLS] and [SEP], that is one window: the limit the model is published with.
MAX_UNSPLIT_TOKENS = 254
# Word pieces in each window of a longer text: the length the model was trained on. Measured on documents of 800 word
# pieces: recall in the first ten is 61 % with such windows, 52 % with windows of 254. Passages of about 100 are found
# better in one piece (69.5 % against 67 %), hence the two limits.
WINDOW = 126
# Word pieces that two neighbouring windows share, so that a sentence cut by one is whole in the other.
OVERLAP = 32
MAX_THREADS = 4
# Length of a stored token vector: a third of the model's own. Measured: the full length finds 1.6 points more by tokens
# alone, and nothing more together with the other arms; half of this length costs much.
TOKEN_DIMS = 128
TOKEN_FORM = f"tokens-{TOKEN_DIMS}"

T = TypeVar("T")
_WORD = re.compile(r"\w+(?:['’]\w+)*")


class MiniLM:
    """The default Embedder. Loads its model on first use, once for the process. Thread-safe."""

    model, dims = "minilm-l6-v2-int8", DIMS

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Returns one matrix (windows x 384, float32, unit rows) for each text, in order. Raises EmbeddingError."""
        if not texts:
            return []
        model = _model()
        windows_by_text = [list(_windows(model.word_pieces(text))) for text in texts]
        rows = iter(model.run_in_turns([window for windows in windows_by_text for window in windows], _mean))
        return [np.stack([next(rows) for _ in windows]) for windows in windows_by_text]

    def embed_query(self, text: str) -> Matrix:
        """Returns one unit vector (384,): for a long question, its windows' mean direction. Raises EmbeddingError."""
        model = _model()
        rows = model.run(list(_windows(model.word_pieces(text))), _mean)
        return _normalize(np.stack(rows).sum(axis=0))

    def count_pieces(self, text: str) -> int:
        """Returns into how many word pieces a text is divided. Raises EmbeddingError."""
        return len(_model().word_pieces(text))


class TokenMiniLM(MiniLM):
    """MiniLM as a TokenEmbedder: projects the outputs for single tokens to 128 dimensions and stores them as int8."""

    token_form, token_dims = TOKEN_FORM, TOKEN_DIMS

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """Returns each text's vectors and token matrices, in order. Raises EmbeddingError."""
        if not texts:
            return []
        model = _model()
        windows_by_text = [list(_windows(model.word_pieces(text))) for text in texts]
        outputs = iter(
            model.run_in_turns([window for windows in windows_by_text for window in windows], _mean_and_tokens)
        )
        outputs_by_text = [[next(outputs) for _ in windows] for windows in windows_by_text]
        return [
            Embedded(
                np.stack([vector for vector, _ in pairs]),
                tuple(np.asarray(np.rint(tokens * 127), dtype=np.int8) for _, tokens in pairs),
            )
            for pairs in outputs_by_text
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """Returns a question's vector and the tokens of its first window, with their words. Raises EmbeddingError."""
        model = _model()
        pieces, offsets = model.tokenize(text)
        outputs = model.run(list(_windows(pieces)), _mean_and_tokens)
        vector = _normalize(np.stack([row for row, _ in outputs]).sum(axis=0))
        tokens, spans = outputs[0][1], [match.span() for match in _WORD.finditer(text)]
        words = (  # around each token's offset, "" for an offset between words
            next((text[start:end] for start, end in spans if start <= offset < end), "")
            for offset in offsets[: len(tokens)]
        )
        return EmbeddedQuestion(vector, tokens, tuple(words))

    def token_places(self, text: str) -> list[Sequence[int]]:
        """Returns, for each window of `embed_tokens`, the character offset of each token. Raises EmbeddingError."""
        return list(_windows(_model().tokenize(text)[1]))


@dataclass(frozen=True, slots=True)
class _Model:
    """The onnxruntime session and the vocabulary; `cls_id` and `sep_id` frame each window."""

    session: Any
    vocabulary: WordPieces
    cls_id: int
    sep_id: int
    turns: OrderedLock = field(default_factory=OrderedLock)

    def word_pieces(self, text: str) -> list[int]:
        return self.tokenize(text)[0]

    def tokenize(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text's word pieces, and their character offsets."""
        # JSON may contain lone surrogates.
        clean = without_strokes(text).encode("utf-8", "replace").decode("utf-8")
        return self.vocabulary.encode(clean)

    def run_in_turns(self, windows: Sequence[Sequence[int]], pool: Callable[[Matrix], T]) -> list[T]:
        """Returns the same as `run`, for texts: several threads take turns at the windows, beside which questions run.

        So a question shares the cores with one window, however many threads embed texts, and no text waits for all of
        another thread.
        """
        return self._run(windows, pool, self.turns.turn)

    def run(self, windows: Sequence[Sequence[int]], pool: Callable[[Matrix], T]) -> list[T]:
        """Returns one result for each window, in order.

        `pool` makes it of the model's output for the window (pieces with [CLS] and [SEP] x 384). Raises EmbeddingError.
        """
        return self._run(windows, pool, nullcontext)

    def _run(
        self,
        windows: Sequence[Sequence[int]],
        pool: Callable[[Matrix], T],
        turn: Callable[[], AbstractContextManager[None]],
    ) -> list[T]:
        results = []
        # One window in each run: the int8 products scale their input by the largest number of the whole run, so beside
        # other windows a text would get another vector (cosine .988 at the least). It costs a tenth of the time.
        for window in windows:
            raise_if_stopped()
            ids = np.array([[self.cls_id, *window, self.sep_id]], dtype=np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            with turn():
                try:
                    ((hidden,),) = self.session.run(["last_hidden_state"], inputs)
                except Exception as error:
                    raise EmbeddingError(f"onnxruntime could not run the embedding model: {error}") from error
                results.append(pool(cast("Matrix", hidden)))
        return results


def _mean(hidden: Matrix) -> Matrix:
    # There is no padding: the attention mask is all ones, so the published pooling is a plain mean.
    return _normalize(hidden.mean(axis=0))


def _mean_and_tokens(hidden: Matrix) -> tuple[Matrix, Matrix]:
    with single_blas_thread():
        tokens = hidden[1:-1] @ _projection()
    return _mean(hidden), _normalize(tokens)


@cache
def _projection() -> Matrix:
    """Returns random orthonormal directions (384 x 128), equal on every machine: they nearly preserve cosines."""
    bits = np.frombuffer(shake_256(b"graphmem tokens").digest(DIMS * TOKEN_DIMS // 8), np.uint8)
    signs = np.unpackbits(bits).reshape(DIMS, TOKEN_DIMS) * 2.0 - 1.0
    directions, triangle = np.linalg.qr(signs)
    # The signs of the directions depend on the LAPACK library; stored tokens have to remain valid with another one.
    return np.asarray(directions * np.sign(np.diag(triangle)), dtype=np.float32)


def _normalize(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _windows(pieces: Sequence[int]) -> Iterator[Sequence[int]]:
    if len(pieces) <= MAX_UNSPLIT_TOKENS:
        yield pieces
        return
    for start in range(0, len(pieces) - OVERLAP, WINDOW - OVERLAP):
        yield pieces[start : start + WINDOW]


def _model() -> _Model:
    return _models.get()


def load_beside() -> None:
    """Begins to load the model in a thread, for a process that is about to embed."""
    _models.load_beside()


def _load() -> _Model:
    weights = checked_path(*MODEL_FILE, MODEL_SHA256, REMEDY)
    tokenizer_json = read_checked(*TOKENIZER_FILE, TOKENIZER_SHA256, REMEDY)
    try:
        vocabulary = json.loads(tokenizer_json)["model"]["vocab"]
        return _Model(_create_session(weights), WordPieces(vocabulary), vocabulary["[CLS]"], vocabulary["[SEP]"])
    except Exception as error:
        raise EmbeddingError(f"the embedding model cannot be loaded ({error}); {REMEDY}") from error


def _create_session(weights: Path) -> Any:
    # From 1.29 on, onnxruntime sends telemetry unless this is set before its first import, which otherwise also writes
    # an identifier to the disk. If other code imports it before us, the process keeps that code's choice.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(os.cpu_count() or 1, MAX_THREADS)
    options.inter_op_num_threads = 1
    # Spinning threads would occupy the cores on which the parser runs at the same time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Processors without VNNI add pairs of int8 products in 16 bits, which saturate: there, a text would get another
    # vector (cosine .984 to .994). With this they multiply in 16 bits, which is slower and gives the same vectors.
    options.add_session_config_entry("session.x64quantprecision", "1")
    # The weights stay in the file, of which processes share the pages. An onnxruntime that cannot do so copies them.
    options.add_session_config_entry("session.use_memory_mapped_ort_model", "1")
    options.add_session_config_entry("session.use_ort_model_bytes_for_initializers", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


_models = PerProcess(lambda: _load())  # noqa: PLW0108  (tests replace the function)
