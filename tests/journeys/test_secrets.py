"""Passwords and keys go to their servers only: no error, log or result shows them, whatever goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url
from support.databases import postgres
from support.exception_text import full_error_text
from support.fakes import fake_models
from support.log_guard import listening
from support.servers import NEO4J, PASSWORD, QDRANT, graph_config
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import ConfigError, GraphmemError, StoreError
from graphmem.stores.ledger.postgres import parse_url

SECRET = "hunter2-Zq7"
PARTS = ("hunter", "Zq7")
NOWHERE = "127.0.0.1:9"
FULL: dict[str, Any] = {
    "vector_store": {"provider": "qdrant", "config": {"url": f"https://u:{SECRET}@h:1", "api_key": SECRET}},
    "graph_store": {
        "provider": "neo4j",
        "config": {"url": f"neo4j://u:{SECRET}@h", "username": "u", "password": SECRET, "database": "d"},
    },
    "embedder": {"provider": "openai", "config": {"api_key": SECRET, "openai_base_url": f"https://u:{SECRET}@h"}},
    "llm": {"provider": "openai", "config": {"api_key": SECRET, "openai_base_url": f"https://u:{SECRET}@h"}},
    "working": {"provider": "redis", "config": {"url": f"redis://u:{SECRET}@h"}},
    "ledger_url": f"postgresql://u:{SECRET}@h/db",
}
runner = CliRunner()


def assert_no_secret(*texts: object) -> None:
    for text in texts:
        assert not [part for part in PARTS if part in str(text)], text


def expect_refusal(config: Any, **more: Any) -> None:
    """Opens a memory, which must fail with an error that shows no secret."""
    with pytest.raises(GraphmemError) as error:
        Memory(settings=Settings.from_dict(config)).close()
    assert_no_secret(full_error_text(error.value))


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_show_no_secret():
    full = Settings.from_dict(FULL)
    assert_no_secret(repr(full), str(full), f"{full}", full.model_dump(), full.model_dump_json(), vars(full))
    for section in (full.vector_store, full.graph_store, full.embedder, full.llm, full.working):
        assert_no_secret(repr(section), section.model_dump(), section.config.model_dump_json())


def spoil(value: Any) -> Iterator[Any]:
    """Yields copies of a configuration with one mistake each, at every place and of many kinds."""
    if isinstance(value, dict):
        for key, inner in value.items():
            rest = {name: one for name, one in value.items() if name != key}
            yield {**rest, f"{key}x": inner}
            yield {**rest, f"{key}:{SECRET}": inner}
            yield {**value, SECRET + " ": 1}
            for bad in spoil(inner):
                yield {**value, key: bad}
    for bad in (SECRET, [SECRET], {SECRET + "!": SECRET}, 5, b"hunter2-Zq7", object(), {"provider": SECRET}):
        yield bad


def test_errors_of_configurations_show_no_secret():
    refusals = 0
    for config in spoil(FULL):
        try:
            Settings.from_dict(config).check_available()
        except ConfigError as error:
            assert_no_secret(full_error_text(error))
            refusals += 1
    assert refusals > 150


FILES = {
    "toml": (
        f'ledger_url = "postgresql://u:{SECRET}@h/db"\n[graph_store]\nprovider = "neo4j"\n'
        f'[graph_store.config]\nurl = "neo4j://h"\npassword = "{SECRET}"\n'
    ),
    "json": json.dumps(FULL, indent=1),
    "yaml": f"ledger_url: postgresql://u:{SECRET}@h/db\ngraph_store:\n  provider: neo4j\n"
    f"  config:\n    url: neo4j://h\n    password: {SECRET}\n",
}
ODD = "\"'{}[]:=#,\n\t -\\&*!|>%@`?\x00\x01\udc80é\u2028"


@pytest.mark.thorough
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), form=st.sampled_from(sorted(FILES)))
def test_errors_of_damaged_configuration_files_show_no_secret(data, form, tmp_path_factory):
    text = FILES[form]
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(ODD, max_size=2)) + text[at + data.draw(st.integers(0, 3)) :]
    file = tmp_path_factory.getbasetemp() / f"c.{form}"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with suppress(GraphmemError):
        try:
            Settings.from_file(file)
        except ConfigError as error:
            assert_no_secret(full_error_text(error))
            result = runner.invoke(app, ["stats", "--config", str(file)])
            assert result.exit_code == 2
            assert_no_secret(result.stdout, result.stderr, repr(result.exception))
            raise


def test_errors_of_environment_variables_show_no_secret():
    for name in ("LEDGER_URL", "LLM", "GRAPH_STORE", "VECTOR_STORE__CONFIG", "GRAPH_STORE__CONFIG__PASSWORD__X", "X"):
        for environ in ({f"GRAPHMEM_{name}": SECRET}, {f"GRAPHMEM_{name}__": SECRET}):
            try:
                Settings.from_env(environ).check_available()
            except ConfigError as error:
                assert_no_secret(full_error_text(error))


# --- URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@{SECRET}@h/db",  # an @ that was not escaped: half of it would be the host's name
        f"postgresql://u:x@{SECRET}@h/db",
        f"postgresql://u:x@y/{SECRET}@h/db",
        f"postgresql://u:x@h/db?options=a@{SECRET}",
        f"postgresql://u:x@{NOWHERE}?{SECRET}=y@h/db",
        f"postgresql://u@{NOWHERE}/db?password=x@{SECRET}",
        f"postgresql://{NOWHERE}/db?password=x@{SECRET}",
        f"postgresql://u@{NOWHERE}/db?connect_timeout=x@{SECRET}",
        f"postgresql://u:{SECRET}@h:port/db",
        f"mysql://u:{SECRET}@h/db",
        f"postgresql+asyncpg://u:{SECRET}@h/db",
        f"postgresql://u:{SECRET}@h/db?shoesize={SECRET}",
    ],
)
def test_errors_of_ledger_urls_show_no_secret(url):
    expect_refusal(fake_models(ledger_url=url))


@pytest.mark.parametrize(
    "url",
    [f"http://u:{SECRET}@h:1", f"http://u:1/{SECRET}@h", f"http://u:{SECRET}", f"u:{SECRET}@h", f"ftp://{SECRET}"],
)
def test_errors_of_qdrant_urls_show_no_secret(url, tmp_path):
    pytest.importorskip("qdrant_client")
    expect_refusal(fake_models(home=str(tmp_path), vector_store={"config": {"url": url}}))


@pytest.mark.parametrize("url", [f"neo4j://u:{SECRET}@h", f"http://u:{SECRET}@h", f"bolt://h:{SECRET}", SECRET])
def test_errors_of_neo4j_urls_show_no_secret(url, tmp_path):
    pytest.importorskip("neo4j")
    graph = {"provider": "neo4j", "config": {"url": url, "password": SECRET}}
    expect_refusal(fake_models(home=str(tmp_path), graph_store=graph))


def test_an_escaped_password_is_accepted():
    assert parse_url("postgresql://u:a%40b%2Fc@h/db").password == "a@b/c"


# --- servers that do not answer or refuse ---------------------------------------------------------------------------


def test_an_unreachable_ledger_shows_no_secret(tmp_path):
    expect_refusal(fake_models(home=str(tmp_path), ledger_url=f"postgresql://u:{SECRET}@{NOWHERE}/db"))


def use_failing_servers(config: dict[str, Any]) -> None:
    """Calls a memory whose servers fail: no result, report, error or log shows a secret."""
    with listening() as logs, Memory(settings=Settings.from_dict({**config, "delivery_wait": 0.1})) as memory:
        results = [memory.add("Anna moved.", user_id="u"), memory.search("Anna", user_id="u"), memory.stats()]
        results += [memory.verify(), memory.flush()]
        assert_no_secret(results, repr(memory), repr(memory.engine), repr(memory.engine.backends))
        for attempt in (memory.repair, lambda: memory.rebuild("vectors"), lambda: memory.rebuild("graph")):
            try:
                assert_no_secret(attempt())
            except GraphmemError as error:
                assert_no_secret(full_error_text(error))
    assert_no_secret(*logs.lines)


@pytest.mark.parametrize("url", [f"http://u:{SECRET}@h", f"redis://h:{SECRET}", SECRET])
def test_errors_of_redis_urls_show_no_secret(url, tmp_path):
    pytest.importorskip("redis")
    expect_refusal(fake_models(home=str(tmp_path), working={"provider": "redis", "config": {"url": url}}))


def test_an_unreachable_redis_shows_no_secret(tmp_path):
    pytest.importorskip("redis")
    working = {"provider": "redis", "config": {"url": f"redis://u:{SECRET}@{NOWHERE}"}}
    use_failing_servers(fake_models(home=str(tmp_path), working=working))


@pytest.mark.filterwarnings("ignore:vector_store. the api key goes over plain http")
def test_unreachable_vectors_and_graph_show_no_secret(tmp_path):
    pytest.importorskip("qdrant_client")
    pytest.importorskip("neo4j")
    vectors = {"config": {"url": f"http://{NOWHERE}", "api_key": SECRET}}
    graph = {"provider": "neo4j", "config": {"url": f"bolt://{NOWHERE}", "password": SECRET}}
    use_failing_servers(fake_models(home=str(tmp_path), vector_store=vectors, graph_store=graph))


class QuotingHandler(BaseHTTPRequestHandler):
    """A server that refuses every request and quotes its headers."""

    status = 403

    def answer(self) -> None:
        body = json.dumps({"status": {"error": f"no: {self.headers}"}, "time": 0}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(params=[401, 403, 404, 418, 500])
def quoting_server(request) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), type("Answering", (QuotingHandler,), {"status": request.param}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_server_that_quotes_the_key_is_not_quoted(quoting_server, tmp_path):
    pytest.importorskip("qdrant_client")
    config = fake_models(home=str(tmp_path), vector_store={"config": {"url": quoting_server, "api_key": SECRET}})
    with listening() as logs:
        try:
            use_failing_servers(config)
        except GraphmemError as error:
            assert_no_secret(error, repr(error), error.args)  # not its cause: the client's own error quotes the reply
    assert_no_secret(*logs.lines)


@pytest.mark.server
def test_a_refused_password_is_not_shown(tmp_path, servers):
    with postgres() as url:
        wrong = make_url(url).set(password=SECRET).render_as_string(hide_password=False)
        try:
            expect_refusal(fake_models(home=str(tmp_path), ledger_url=wrong))
        except pytest.fail.Exception:  # a server that trusts this machine asks for no password
            expect_refusal(fake_models(home=str(tmp_path), ledger_url=wrong.replace("//graphmem:", "//nobody:")))
        if NEO4J and QDRANT:
            config = graph_config()
            config["config"] = {**config["config"], "password": SECRET}
            expect_refusal(
                {**servers.with_stores(fake_models(home=str(tmp_path), ledger_url=url)), "graph_store": config}
            )
            with pytest.raises((ConfigError, StoreError)) as error:
                config["config"] = {**config["config"], "password": PASSWORD, "database": SECRET.lower()}
                Memory(settings=Settings.from_dict(fake_models(home=str(tmp_path), graph_store=config)))
            assert "database" in str(error.value)
