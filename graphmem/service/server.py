"""Runs the service in one process or several, until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from threading import Thread
from time import sleep
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from graphmem.administration import needs_rebuild
from graphmem.errors import ConfigError
from graphmem.memory import Memory
from graphmem.service import limits
from graphmem.service.app import service_app
from graphmem.service.connections import Connection, log_loop_error, raise_descriptor_limit
from graphmem.service.keys import Keys
from graphmem.service.metrics import FOLDER_VARIABLE
from graphmem.service.process import begin_log, end_in_time
from graphmem.settings import Settings
from graphmem.settings.schema import ServeSettings

logger = logging.getLogger("graphmem")


class Start(NamedTuple):
    """What `serve` is told: the configuration, and whether requests need a key."""

    settings: Settings
    needs_key: bool = True


def is_loopback(host: str) -> bool:
    """Tells whether only this machine reaches an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def prepare(start: Start) -> str | None:
    """Checks that the service can start, and makes its first key; returns the key's text, None if there is one.

    Raises ConfigError: on an address that others reach without any key, and for several processes on stores that only
    one can use.
    """
    settings, serve = start.settings, start.settings.serve
    if not start.needs_key and not is_loopback(serve.host):
        raise ConfigError("--no-auth: others can reach this host; leave it out, or serve on 127.0.0.1")
    if serve.workers > 1:
        _check_shared_ledger(settings)
    memory = Memory(settings.home, settings=settings)
    try:
        if needs_rebuild(memory.engine):
            logger.warning(
                "the ledger's vectors are of another embedder than the configured one: nothing is added and found "
                "before `graphmem rebuild`, or before the former embedder is configured again"
            )
        keys, now = Keys(memory), datetime.now(UTC)
        if not start.needs_key or serve.admin_api_key is not None or any(key.is_valid(now) for key in keys.all()):
            return None
        if not is_loopback(serve.host):
            raise ConfigError(
                "no key can be used yet, and others can reach this host; make one: graphmem keys create --role admin"
            )
        return keys.create("admin", label="made at the first start").text
    finally:
        memory.close(wait=False)  # what an earlier process has left over is for the service


def _check_shared_ledger(settings: Settings) -> None:
    url = "" if settings.ledger_url is None else settings.ledger_url.get_secret_value()
    if not url.startswith("postgres"):
        raise ConfigError(
            "serve.workers: more than one process needs ledger_url with PostgreSQL; in a file only one of them could "
            "write at a time"
        )


def listen(serve: ServeSettings) -> socket.socket:
    """Returns a socket that listens on the service's address. Raises ConfigError if that is not possible."""
    family = socket.AF_INET6 if ":" in serve.host else socket.AF_INET
    # The event loop turns Nagle's algorithm off only for sockets that name the protocol; with it an answer takes 44 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((serve.host.strip("[]"), serve.port))
        listener.listen(limits.BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"serve.host, serve.port: cannot be listened on ({error.strerror}); choose others") from None
    listener.set_inheritable(True)
    return listener


def run(start: Start, listener: socket.socket) -> None:
    """Answers requests until SIGINT or SIGTERM."""
    serve = start.settings.serve
    config = server_config(partial(_worker_app, start), serve, factory=True)
    if serve.workers == 1:
        uvicorn.Server(config).run([listener])
    else:  # processes are spawned, never forked, and each makes its application
        with TemporaryDirectory(prefix="graphmem-metrics-") as folder:
            os.environ[FOLDER_VARIABLE] = folder  # read by prometheus_client when a process imports it
            _Workers(config, [listener]).run()


def server_config(app: Any, serve: ServeSettings, **options: Any) -> uvicorn.Config:
    """Returns the configuration of the server for an application; `options` are further ones of uvicorn."""
    return uvicorn.Config(
        app,
        workers=serve.workers,
        log_config=None,
        access_log=False,  # its lines hold query strings, which name users
        proxy_headers=serve.forwarded_allow_ips is not None,
        forwarded_allow_ips=serve.forwarded_allow_ips,
        server_header=False,
        timeout_graceful_shutdown=limits.GRACE_SECONDS,
        timeout_worker_healthcheck=limits.WORKER_ANSWER_SECONDS,
        http=Connection,
        backlog=limits.BACKLOG,
        h11_max_incomplete_event_size=limits.MAX_HEAD_BYTES,
        ws="none",
        **options,
    )


class _Workers(Multiprocess):
    """The processes of the service. A second signal ends them at once."""

    def join_all(self) -> None:
        while any(worker.process.is_alive() for worker in self.processes):
            if self.signal_queue:
                for worker in self.processes:
                    worker.process.kill()
            sleep(0.1)


def _worker_app(start: Start) -> ASGIApp:
    """Opens the memory of one process and returns its application, which closes it at the end."""
    end_in_time(signal.getsignal(signal.SIGTERM))
    raise_descriptor_limit()
    asyncio.get_running_loop().set_exception_handler(log_loop_error)
    begin_log()
    logging.getLogger("graphmem.requests").setLevel(logging.INFO)
    if (parent := multiprocessing.parent_process()) is not None:
        Thread(target=_end_after, args=(parent,), name="graphmem-parent", daemon=True).start()
    memory = Memory(start.settings.home, settings=start.settings)
    return service_app(memory, start.settings.serve, needs_key=start.needs_key, close_memory=True)


def _end_after(parent: BaseProcess) -> None:
    """Ends this process, as a signal does, after its parent was killed: it would go on and keep the port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
