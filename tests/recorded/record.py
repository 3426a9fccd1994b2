"""Makes the recordings: plays every case against a desk (an endpoint whose replies somebody writes), several at once.

    python tests/recorded/record.py http://127.0.0.1:18080/v1

The desk keeps what it is given in its folder; what is not used any more is for the caller to take away.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from recorded.cases import CASES
from recorded.examples import EXAMPLES
from recorded.playing import decided, play

AT_ONCE = 40


def main(url: str) -> int:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        examples = [pool.submit(decided, example, url) for example in EXAMPLES]
        played = [pool.submit(play, case, Path(folder) / str(n), url) for n, case in enumerate(CASES)]
        failed = 0
        for example, job in zip(EXAMPLES, examples, strict=True):
            texts, added = job.result()
            good = tuple(texts) == example.becomes and tuple(added) == example.added
            failed += not good
            print("ok  " if good else "FAIL", "example", example.name, texts, added)
        for case, job in zip(CASES, played, strict=True):
            wrong = [name for name, good in job.result().items() if not good]
            failed += bool(wrong)
            print("FAIL" if wrong else "ok  ", case.name, wrong)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
