"""Writes those of LOCOMO's ten conversations that were there to develop with, and that the published figures are of.

Use it so: python benchmarks/locomo_development.py locomo10.json > locomo-dev.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from graphmem.evaluation.locomo import DEVELOPMENT


def main() -> None:
    """Writes the conversations to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", type=Path, help="the public locomo10.json")
    conversations = json.loads(parser.parse_args().locomo.read_bytes())
    chosen = [one for one in conversations if one["sample_id"] in DEVELOPMENT]
    if len(chosen) != len(DEVELOPMENT):
        parser.error(f"locomo: it must have {', '.join(DEVELOPMENT)}; give the public locomo10.json")
    sys.stdout.buffer.write(json.dumps(chosen, ensure_ascii=False).encode())


if __name__ == "__main__":
    main()
