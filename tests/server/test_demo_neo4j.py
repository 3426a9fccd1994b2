"""The demo, run as a program, into a real Neo4j."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from support.neo4j_servers import Server
from support.waiting import SERVER_TIMEOUT

from graphmem import Memory, Settings
from graphmem.cli.demo import USER

pytestmark = pytest.mark.server


# The pause before each part of the server's answers, in seconds.
PAUSE = 0.2


@contextmanager
def slow(server: Server) -> Iterator[str]:
    """The address of a proxy that passes the server's answers on after a pause."""
    address = urlsplit(server.uri)

    class Proxy(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((str(address.hostname), int(address.port or 7687))) as upstream:
                Thread(target=self.copy, args=(self.request, upstream, 0), daemon=True).start()
                self.copy(upstream, self.request, PAUSE)

        @staticmethod
        def copy(source: socket.socket, target: socket.socket, pause: float) -> None:
            with suppress(OSError):
                while part := source.recv(65_536):
                    time.sleep(pause)
                    target.sendall(part)
            for one in (source, target):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    with ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"bolt://127.0.0.1:{proxy.server_address[1]}"
        proxy.shutdown()


def test_the_demo_ends_once_a_slow_server_has_its_graph(tmp_path: Path) -> None:
    server, config, home = Server.at("NEO4J_URI"), tmp_path / "neo4j.json", tmp_path / "home"
    with slow(server) as url:
        neo4j = {"url": url, "username": server.username, "password": server.password}
        # The calls wait for no delivery.
        config.write_text(json.dumps({"delivery_wait": 0, "graph_store": {"provider": "neo4j", "config": neo4j}}))
        command = [sys.executable, "-m", "graphmem", "demo", "--config", str(config), "--home", str(home)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=SERVER_TIMEOUT, check=False)
        assert process.returncode == 0, process.stderr
    # Without the server's address nothing delivers to it any more.
    with Memory(home, settings=Settings()) as memory:
        ledger, stored = memory.engine.ledger.uuid, memory.get_all(user_id=USER, limit=1)["total"]
    try:
        with server.driver() as driver:
            query = "MATCH (m:Memory {ledger: $ledger}) WHERE m.valid_to IS NULL RETURN count(m.text) AS memories"
            (row,) = driver.execute_query(query, {"ledger": ledger}).records
            assert row["memories"] == stored > 0
    finally:
        server.remove(ledger)
