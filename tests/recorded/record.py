"""Makes the recordings: plays the cases in parallel against a manual endpoint, whose replies somebody writes.

    python tests/recorded/record.py http://127.0.0.1:18080/v1

The endpoint keeps requests and replies in its folder. Recordings that no case uses any more have to be deleted by hand.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from recorded.cases import CASES
from recorded.compositions import COMPOSINGS
from recorded.examples import EXAMPLES
from recorded.player import compose_example, decide_example, play

MAX_PARALLEL = 40


def main(url: str) -> int:
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        example_jobs = [pool.submit(decide_example, example, url) for example in EXAMPLES]
        case_jobs = [pool.submit(play, case, url) for case in CASES]
        composing_jobs = [pool.submit(compose_example, one, url) for one in COMPOSINGS]
        failures = 0
        for one, composing_job in zip(COMPOSINGS, composing_jobs, strict=True):
            text, reason = composing_job.result()
            failures += not one.is_met(text)
            print("ok  " if one.is_met(text) else "FAIL", "composition", one.name, text, reason)
        for example, job in zip(EXAMPLES, example_jobs, strict=True):
            texts, added_texts = job.result()
            good = tuple(texts) == example.expected_texts and tuple(added_texts) == example.added_texts
            failures += not good
            print("ok  " if good else "FAIL", "example", example.name, texts, added_texts)
        for case, job in zip(CASES, case_jobs, strict=True):
            failed_checks = [name for name, good in job.result().items() if not good]
            failures += bool(failed_checks)
            print("FAIL" if failed_checks else "ok  ", case.name, failed_checks)
    return failures


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
