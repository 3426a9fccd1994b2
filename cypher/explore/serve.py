"""Lets Neo4j Browser read the guide and the style in this folder; it asks for leave first, which http.server denies.

python cypher/explore/serve.py [PORT], then in the Browser: `:guide http://localhost:8123/guide.html` (not 127.0.0.1)
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 8123


class Handler(SimpleHTTPRequestHandler):
    """Gives the files of a folder to pages from elsewhere, too."""

    def do_OPTIONS(self) -> None:
        """Answers that a page may ask."""
        self.send_response(204)
        self.end_headers()

    def end_headers(self) -> None:
        """Says in each answer who may read it: anybody on this machine."""
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "*")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        super().end_headers()


def serving(port: int) -> ThreadingHTTPServer:
    """A server of this folder, for this machine only."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=Path(__file__).parent))


if __name__ == "__main__":
    with serving(int(sys.argv[1]) if len(sys.argv) > 1 else PORT) as server:
        print(f":guide http://localhost:{server.server_port}/guide.html")
        server.serve_forever()
