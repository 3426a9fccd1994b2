"""The log guard that surrounds every test reports private texts, ids and stack traces in log records."""

from __future__ import annotations

import ast
import logging
import sys

import pytest
from support.log_guard import Censor, calls, listening, sentences

from graphmem.boundary import validation

TEXT = "Anna told me a secret"


@pytest.fixture
def censor():
    guard = Censor()
    with guard.noting():
        validation.content(TEXT, "data")
        validation.scope(user_id="vectors-of-anna")
    return guard


def record(message, *args, name="graphmem", **more):
    return logging.LogRecord(name, logging.INFO, "file", 1, message, args, more.get("exc_info"))


def test_log_messages_are_collected_from_the_source():
    assert "background work failed (%s) and stays recorded" in sentences()
    assert len(sentences()) > 8


@pytest.mark.parametrize(
    "source", ["logger.exception('x')", "logger.info(f'{x}')", "logger.info('x', exc_info=True)", "logger.log(9, 'x')"]
)
def test_forbidden_forms_of_log_calls(source):
    (call,) = calls(source)
    literal = isinstance(call.args[0], ast.Constant)
    assert not literal or call.keywords or call.func.attr not in {"debug", "info", "warning", "error", "critical"}


@pytest.mark.parametrize(
    ("message", "args"),
    [
        (f"stored {TEXT}", ()),
        ("an unknown sentence", ()),
        ("background work failed (%s) and stays recorded", (TEXT,)),
        ("background work failed (%s) and stays recorded", ("Bergen",)),
        ("background work failed (%s) and stays recorded", (ValueError("x"),)),
    ],
)
def test_private_texts_in_our_logs_are_reported(censor, message, args):
    assert censor.complaint(record(message, *args))


def test_private_texts_and_stack_traces_in_other_logs_are_reported(censor):
    assert censor.complaint(record("HTTP Request: %s", f"/?q={TEXT}", name="httpx"))
    assert censor.complaint(record("for vectors-of-anna", name="httpx"))
    try:
        raise ValueError
    except ValueError:
        assert censor.complaint(record("it failed", name="other", exc_info=sys.exc_info()))
    assert not censor.complaint(record("HTTP Request: %s", "/collections", name="httpx"))


def test_class_names_and_projection_names_may_be_logged(censor):
    assert not censor.complaint(record("background work failed (%s) and stays recorded", "StoreUnavailable"))
    assert not censor.complaint(record("%s is back after %.0f s and up to date", "vectors", 1.5))


def test_every_logger_is_listened_to():
    with listening() as listener:
        logging.getLogger("graphmem.any").debug("%s does not answer; closed without waiting for it", "vectors")
        logging.getLogger("other").info("a")
        logging.getLogger("other").debug("b")
        assert listener.lines == ["vectors does not answer; closed without waiting for it", "a"]
