"""`python two_workers.py HOME`: serves a folder from two processes, without keys, and prints the port.

Two processes on one folder answer from an index of their own each; `graphmem serve` refuses that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from graphmem import Settings
from graphmem.service.server import Start, listen, run
from support.fakes import fake_models

if __name__ == "__main__":
    settings = Settings.from_dict(fake_models(serve={"workers": 2, "port": 0}))
    start = Start(settings.model_copy(update={"home": Path(sys.argv[1])}), needs_key=False)
    with listen(settings.serve) as listener:
        print(listener.getsockname()[1], flush=True)
        run(start, listener)
