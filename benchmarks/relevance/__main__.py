"""Fits the model of relevance (`graphmem.retrieval.relevance`) and measures how well it is calibrated.

    python benchmarks/relevance collect evidence.pickle locomo10.json   # asks every question: an hour
    python benchmarks/relevance fit evidence.pickle                     # writes the files of the package
    python benchmarks/relevance report evidence.pickle                  # as tables; with --json for results/

`collect` stores the sets and searches for each question; what the search tells the model of the question and of each of
its first twenty memories is kept, with which of these answer. So the features are computed in one place only.

`report` fits anew, without the coefficients that are set by hand. `by case`: the rows of each fifth of the cases (in
conversations: of the conversations) by a model fitted to the others. `by set`: the rows of each set by a model fitted
to the other sets. `shipped`: all rows by the files of the package, as a search does it, entities joined; it was fitted
to these very rows. Of each: the area under the curve (the chance that a memory that answers has a higher relevance than
one that does not), the Brier score (mean squared error of the relevance), and by tenths of the relevance its mean, the
share of memories that answer, and their number.
"""

from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import asdict
from pathlib import Path

import evidence
import figures
import fitting

from graphmem.concurrency import single_blas_thread
from graphmem.evaluation.environment import environment


def main() -> None:
    """Collects, fits or reports, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("collect", "fit", "report"))
    parser.add_argument("evidence", type=Path, help="the file that `collect` writes and the others read")
    parser.add_argument("locomo", type=Path, nargs="?", help="for `collect`: a file in LOCOMO's form")
    parser.add_argument("--json", action="store_true", help="for `report`: print JSON")
    options = parser.parse_args()
    if options.task == "collect":
        if options.locomo is None:
            parser.error("name LOCOMO's file as well")
        options.evidence.write_bytes(pickle.dumps(evidence.collect(options.locomo)))
        return
    found, sources = pickle.loads(options.evidence.read_bytes())  # noqa: S301  (this program's own file)
    with single_blas_thread():
        if options.task == "fit":
            fitting.write_prototypes()
            fitting.write_heads()
            fitting.write_model(found)
            return
        measured = figures.measure(found)
    if not options.json:
        figures.print_tables(measured)
        return
    result = {
        "benchmark": "relevance",
        **environment(),
        "data": {"files": [asdict(source) for source in sources], "questions": len(found)},
        "figures": measured,
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
