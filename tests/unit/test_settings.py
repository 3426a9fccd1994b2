"""Settings from dicts, files and environment variables; errors contain no secrets."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from graphmem import Memory
from graphmem.errors import ConfigError
from graphmem.settings import CallableEmbedder, LedgerGraph, Neo4jConfig, Neo4jGraph, OpenaiEmbedder, Settings
from graphmem.settings.schema import CeleryWorkers

SECRET = "sk-very-secret"  # noqa: S105

FULL: dict[str, Any] = {
    "home": "/data/memory",
    "vector_store": {
        "provider": "qdrant",
        "config": {"host": "h", "port": 6333, "api_key": SECRET, "embedding_model_dims": 384, "on_disk": True},
    },
    "graph_store": {
        "provider": "neo4j",
        "config": {"url": "neo4j://h:7687", "username": "u", "password": SECRET, "database": "d"},
    },
    "embedder": {"provider": "openai", "config": {"model": "m", "api_key": SECRET, "embedding_dims": 256}},
    "extractor": {"provider": "none"},
    "llm": {"provider": "openai", "config": {"model": "m", "api_key": SECRET, "temperature": 0.1, "max_tokens": 9}},
    "ledger_url": f"postgresql://u:{SECRET}@h/db",
    "custom_fact_extraction_prompt": "Find facts.",
    "version": "v1.0",
}


def test_defaults_need_nothing() -> None:
    plain = Settings.from_dict({})
    assert plain == Settings.from_env({}) == Settings()
    assert plain.home is None
    assert plain.llm is None
    assert plain.vector_store.config.collection_name == "graphmem"
    assert (plain.graph_store.provider, plain.embedder.provider, plain.extractor.provider) == (
        "ledger",
        "minilm",
        "spacy",
    )
    assert (plain.version, plain.delivery_wait, plain.session_gap) == ("v1.1", 3.0, 30.0)
    plain.check_available()


def test_everything_of_mem0s_shape() -> None:
    full = Settings.from_dict(MappingProxyType(FULL))
    assert full.home == Path("/data/memory")
    assert full.vector_store.config.is_server
    assert isinstance(full.graph_store, Neo4jGraph)
    assert full.graph_store.config.password.get_secret_value() == SECRET
    assert isinstance(full.embedder, OpenaiEmbedder)
    assert full.embedder.config.embedding_dims == 256
    assert full.llm is not None
    assert full.llm.config.max_tokens == 9
    assert full.version == "v1.0"


def test_secrets_are_not_shown() -> None:
    full = Settings.from_dict(FULL)
    assert SECRET not in repr(full)
    assert SECRET not in str(full)


def test_a_provider_may_be_left_out() -> None:
    assert isinstance(Settings.from_dict({"graph_store": {}}).graph_store, LedgerGraph)
    assert Settings.from_dict({"extractor": {"config": {"model": "m"}}}).extractor.config.model_dump() == {"model": "m"}
    assert Settings.from_dict({"graph_store": None, "llm": None, "vector_store": {"config": None}}) == Settings()
    assert Settings.from_dict({"graph_store": {"provider": None, "config": None}}) == Settings()


def test_the_error_of_a_variable_that_names_another_provider() -> None:
    with pytest.raises(
        ConfigError, match=r"^GRAPHMEM_LLM__PROVIDER: must be 'openai'; 'xai' .*'https://api\.x\.ai/v1'"
    ):
        Settings.from_env({"GRAPHMEM_LLM__PROVIDER": "xai"})


def test_every_provider_of_mem0_is_known() -> None:
    import inspect

    from mem0.embeddings.configs import EmbedderConfig
    from mem0.llms.configs import LlmConfig

    for config, section in ((LlmConfig, "llm"), (EmbedderConfig, "embedder")):
        theirs = set(re.findall(r'"([a-z_]+)",?\n', inspect.getsource(config.validate_config))) - {"openai"}
        assert len(theirs) > 8
        for name in theirs:
            with pytest.raises(ConfigError, match=f"'{name}' is reached with|for '{name}' give a function"):
                Settings.from_dict({section: {"provider": name}})


def test_keys_of_mem0_without_an_effect_are_accepted_with_a_warning() -> None:
    """Their values are dropped too: a model in mem0's graph section has an API key of its own."""
    theirs = {
        "llm": {"provider": "openai", "config": {"api_key": SECRET}},
        "custom_prompt": SECRET,
        "threshold": 0.7,
    }
    llm = {"config": {"top_p": 0.1, "vision_details": "high", "max_tokens": 5, "api_key": "k"}}
    settings = Settings.from_dict({"graph_store": {"provider": "ledger", **theirs}, "llm": llm})
    assert SECRET not in repr(settings.model_dump())
    assert [one.partition(":")[0] for one in settings.without_effect()] == [
        "graph_store.llm, graph_store.custom_prompt, graph_store.threshold",
    ]
    plain = {"config": {"enable_vision": False, "vision_details": "auto"}}
    assert Settings.from_dict({"llm": plain, "graph_store": {"threshold": None}}).without_effect() == []


def test_prompts_without_a_language_model_give_a_warning(tmp_path: Path) -> None:
    prompts = {"custom_fact_extraction_prompt": "Films only.", "custom_update_memory_prompt": "Be brief."}
    data = {**prompts, "home": str(tmp_path / "m")}
    with pytest.warns(UserWarning) as warnings:
        Memory.from_config(data).close()
    (one,) = warnings
    assert str(one.message).startswith("custom_fact_extraction_prompt, custom_update_memory_prompt: without effect")
    assert "Films" not in str(one.message)
    assert Settings.from_dict({**prompts, "llm": {"config": {"api_key": "k"}}}).without_effect() == []


def test_the_rule_of_conflicts_needs_a_language_model() -> None:
    assert Settings().conflicts == "time"
    assert Settings.from_dict({"conflicts": "time"}).without_effect() == []
    (warning,) = Settings.from_dict({"conflicts": "confidence"}).without_effect()
    assert warning.startswith("conflicts: without effect, for no language model is configured")
    assert Settings.from_dict({"conflicts": "confidence", "llm": {"config": {"api_key": "k"}}}).without_effect() == []
    (warning,) = Settings.from_dict({"extract": "matching"}).without_effect()
    assert warning.startswith("extract: without effect, for no language model is configured")
    with pytest.raises(ConfigError, match="conflicts: "):
        Settings.from_dict({"conflicts": "merge"})


def test_none_means_the_same_as_an_absent_key() -> None:
    """Dumped configurations contain None for absent keys."""
    assert Settings.from_dict({"reranker": None, "vector_store": {"config": {"client": None}}}) == Settings()


def test_a_function_as_embedder() -> None:
    config = {"embed": lambda texts: [[0.0] for _ in texts], "embedding_dims": 1, "model": "zero"}
    settings = Settings.from_dict({"embedder": {"provider": "callable", "config": config}})
    assert isinstance(settings.embedder, CallableEmbedder)
    assert settings.embedder.config.embed(["a"]) == [[0.0]]
    settings.check_available()


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert Settings.from_dict({"home": "~/m"}).home == Path("/home/ada/m")
    assert Settings.from_dict({"home": Path("m")}).home == Path("m")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be a dict of settings, not list"),
        (None, "not NoneType"),
        ({"vector_stor": {}}, "unknown key 'vector_stor'; did you mean 'vector_store'?"),
        ({"zzz": 1}, "unknown key 'zzz'; known: home, vector_store"),
        ({1: 2}, "unknown key '1'"),
        ({"vector_store": {"confg": {}}}, "vector_store: unknown key 'confg'; did you mean 'config'?"),
        (
            {"vector_store": {"config": {"colection_name": "x"}}},
            "vector_store.config: unknown key 'colection_name'; did you",
        ),
        (
            {"graph_store": {"provider": "neo4j", "config": {"ulr": "x"}}},
            "graph_store.config: unknown key 'ulr'; did you",
        ),
        (
            {"graph_store": {"config": {"url": "x"}}},
            "configuration: graph_store.config: 'url' needs the graph_store.provider 'neo4j'; set that too",
        ),
        ({"graph_store": {"config": {"zzz": "x"}}}, "graph_store.config: unknown key 'zzz'; known: none"),
        (
            {"embedder": {"provider": "minilm", "config": {"model": "x"}}},
            "'model' needs the embedder.provider 'openai' or 'callable'",
        ),
        (
            {"llm": {"provider": "ollama", "config": {"ollama_base_url": SECRET}}},
            "'ollama' is reached with provider 'openai' and llm.config.openai_base_url set to 'http://localhost:11434/v1'",
        ),
        ({"llm": {"provider": "LMStudio"}}, "set to 'http://localhost:1234/v1'"),
        ({"llm": {"provider": "vllm"}}, "set to 'http://localhost:8000/v1'"),
        ({"llm": {"provider": "azure_openai"}}, "set to 'https://RESOURCE.openai.azure.com/openai/v1/'"),
        ({"llm": {"provider": "deepseek"}}, "set to 'https://api.deepseek.com'"),
        ({"llm": {"provider": "groq"}}, "set to 'https://api.groq.com/openai/v1'"),
        ({"llm": {"provider": "together"}}, "set to 'https://api.together.xyz/v1'"),
        (
            {"llm": {"provider": "litellm"}},
            "'litellm' is reached with provider 'openai' and llm.config.openai_base_url",
        ),
        ({"llm": {"provider": SECRET}}, "llm.provider: must be 'openai'; any other is reached with provider 'openai'"),
        ({"llm": {"provider": [SECRET]}}, "llm.provider: must be 'openai'; any other"),
        (
            {"embedder": {"provider": "ollama", "config": {"model": SECRET}}},
            "embedder.provider: must be 'minilm' or 'openai' or 'callable'; 'ollama' is reached with provider 'openai'",
        ),
        ({"embedder": {"provider": "groq"}}, "openai_base_url set to its OpenAI-compatible endpoint, if it has one"),
        ({"llm": {"config": {"top_p": 2}}}, "llm.config.top_p: "),
        ({"llm": {"config": {"modl": "x"}}}, "llm.config: unknown key 'modl'; did you mean 'model'?"),
        (
            {"embedder": {"provider": "huggingface", "config": {"model": SECRET}}},
            "for 'huggingface' give a function of yours by 'callable', or leave embedder out: a model is built in",
        ),
        (
            {"vector_store": {"provider": "pgvector", "config": {"password": SECRET, "user": SECRET}}},
            "vector_store.provider: must be 'qdrant'; in place of any other leave vector_store out",
        ),
        ({"vector_store": {"provider": [SECRET]}}, "vector_store.provider: must be 'qdrant'; "),
        (
            {"graph_store": {"provider": SECRET}},
            "graph_store.provider: must be 'ledger' or 'neo4j' or 'networkx'; in place of any other leave",
        ),
        ({"graph_store": {"provider": [SECRET]}}, "graph_store.provider: must be 'ledger' or"),
        (
            {"reranker": {"provider": "cohere", "config": {"api_key": SECRET}}},
            "reranker.provider: must be 'http' or 'callable'; 'http' takes the url of a service's route",
        ),
        ({"graph_store": {"provider": "neo4j", "config": {"url": "x"}}}, "graph_store.config.password: is missing"),
        ({"graph_store": {"provider": "neo4j", "config": None}}, "graph_store.config.password: is missing; set it"),
        ({"graph_store": SECRET}, "graph_store: "),
        ({"vector_store": SECRET}, "vector_store: "),
        ({"llm": {"config": SECRET}}, "llm.config: "),
        ({"vector_store": {"config": {"host": "h", "port": SECRET}}}, "vector_store.config.port: "),
        ({"vector_store": {"config": {"host": "h", "port": 0}}}, "vector_store.config.port: "),
        ({"vector_store": {"config": {"url": "u", "api_key": [SECRET]}}}, "vector_store.config.api_key: "),
        ({"vector_store": {"config": {"url": "u", "path": "p"}}}, "url, host and path exclude each other"),
        ({"vector_store": {"config": {"port": 1}}}, "port needs host"),
        ({"vector_store": {"config": {"api_key": SECRET}}}, "api_key needs url or host"),
        ({"vector_store": {"config": {"quantization": "int8"}}}, "quantization needs url or host"),
        ({"vector_store": {"config": {"url": "u", "quantization": "int4"}}}, "vector_store.config.quantization: "),
        (
            {"embedder": {"provider": "callable", "config": {"embed": SECRET, "embedding_dims": 1, "model": "m"}}},
            "callable",
        ),
        ({"embedder": {"provider": "openai", "config": {"embedding_dims": 0}}}, "embedder.config.embedding_dims: "),
        ({"llm": {"config": {"timeout": float("inf")}}}, "llm.config.timeout: "),
        ({"llm": {"config": {"timeout": 1e15}}}, "llm.config.timeout: "),
        ({"llm": {"config": {"model": ""}}}, "llm.config.model: "),
        ({"version": "v2"}, "version: Input should be 'v1.0' or 'v1.1'"),
        ({"home": ""}, "home: is empty"),
        ({"home": 3}, "home: must be a path"),
        ({"home": "~no-such-user/x"}, "home: begins with ~"),
        ({"history_db_path": "x.db", "ledger_url": f"sqlite:///{SECRET}"}, "both name the ledger"),
        ({"delivery_wait": -1}, "delivery_wait: "),
        ({"session_gap": 0}, "session_gap: "),
        ({"session_gap": "soon"}, "session_gap: "),
        ({"session_gap": 1e300}, "session_gap: Input should be less than or equal to 525600"),
        ({"delivery_wait": 1e300}, "delivery_wait: Input should be less than or equal to 86400"),
        ({"summary_messages": 10**20}, "summary_messages: Input should be less than or equal to 100000"),
        (
            {"embedder": {"provider": "openai", "config": {"timeout": 1e300}}},
            "embedder.config.timeout: Input should be less than or equal to 86400",
        ),
    ],
)
def test_errors_contain_no_secrets(data: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_dict(data)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_one_error_names_every_problem() -> None:
    with pytest.raises(ConfigError, match=r"version: .*; configuration: delivery_wait: "):
        Settings.from_dict({"version": 1, "delivery_wait": "x"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", '[graph_store]\nprovider = "networkx"\n[vector_store.config]\npath = "/v"\n'),
        ("a.json", '{"graph_store": {"provider": "networkx"}, "vector_store": {"config": {"path": "/v"}}}'),
        ("a.yaml", "graph_store:\n  provider: networkx\nvector_store:\n  config: {path: /v}\n"),
        ("A.YML", "\ufeffgraph_store: {provider: networkx}\nvector_store: {config: {path: /v}}\n"),
    ],
)
def test_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    settings = Settings.from_file(tmp_path / name)
    assert settings == Settings.from_file(str(tmp_path / name))
    assert settings.graph_store.provider == "networkx"
    assert settings.vector_store.config.path == Path("/v")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ini", "", "ends in .toml, .json, .yaml, .yml"),
        ("a.toml", f"api_key = {SECRET}", "is not valid TOML"),
        ("a.json", f'{{"api_key": {SECRET}}}', "is not valid JSON"),
        ("a.json", "[" * 100_000, "is not valid JSON"),
        ("a.yaml", f"a: [1\nb: {SECRET}", "is not valid YAML: see line 2"),
        ("a.yaml", f"!!python/object:os.{SECRET} {{}}", "is not valid YAML"),
        ("a.json", "[]", "must be a dict"),
        ("a.yaml", "", "must be a dict"),
        (
            "a.yaml",
            f"llm: {{provider: openai, provider: {SECRET}}}",
            "is not valid YAML: the key 'provider' is given twice by line 1; keep one",
        ),
        ("a.yaml", f"home: {SECRET}\n'home': x\n", "the key 'home' is given twice by line 2"),
        (
            "a.json",
            f'{{"home": "{SECRET}", "home": "x"}}',
            "is not valid JSON: the key 'home' is given twice; keep one",
        ),
        ("a.toml", f'home = "{SECRET}"\nhome = "x"', "is not valid TOML: "),
        ("a.toml", "hom = 'x'", "a.toml: unknown key 'hom'; did you mean 'home'?"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        Settings.from_file(tmp_path / name)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_variables_supply_the_keys_that_a_file_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password can be left out of the file; a key in the file wins over its variable."""
    file = tmp_path / "graphmem.toml"
    file.write_text('[graph_store]\nprovider = "neo4j"\n[graph_store.config]\nurl = "bolt://h:1"\nusername = "ana"\n')
    monkeypatch.setenv("GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD", "Xanthippe")
    monkeypatch.setenv("GRAPHMEM_GRAPH_STORE__CONFIG__USERNAME", "bert")
    config = Settings.from_file(file).graph_store.config
    assert isinstance(config, Neo4jConfig)
    assert (config.url.get_secret_value(), config.username, config.password.get_secret_value()) == (
        "bolt://h:1",
        "ana",
        "Xanthippe",
    )


def test_an_error_names_the_variable_or_the_file_it_is_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    monkeypatch.setenv("GRAPHMEM_LIMITS__MAX_TOP_K", "7")
    file.write_text('{"limits": {"max_messages": 5}}')
    with pytest.raises(ConfigError, match="^GRAPHMEM_LIMITS__MAX_TOP_K: Input"):
        Settings.from_file(file)
    file.write_text('{"limits": {"max_top_k": 8}}')
    with pytest.raises(ConfigError, match=r"c\.json: limits\.max_top_k: Input"):
        Settings.from_file(file)
    with pytest.raises(ConfigError, match=r"^configuration: limits\.max_top_k: Input"):
        Settings.from_dict({"limits": {"max_top_k": 8}})


def test_a_key_that_a_file_lacks_may_be_set_by_a_variable_too(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"graph_store": {"provider": "neo4j", "config": {"url": "bolt://h"}}}')
    message = r"c\.json: graph_store\.config\.password: is missing; set it, or GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD$"
    with pytest.raises(ConfigError, match=message):
        Settings.from_file(file)


@pytest.mark.parametrize("name", ["GRAPHMEM_LEDGER_URL", "GRAPHMEM_HISTORY_DB_PATH"])
def test_a_named_folder_refuses_variables_that_put_the_ledger_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """reset() in a scratch folder must not empty the server that some variable names."""
    monkeypatch.setenv(name, f"sqlite:///{tmp_path}/elsewhere.sqlite")
    with pytest.raises(ConfigError, match=name):
        Memory(tmp_path / "scratch")
    Memory(":memory:").close()


@pytest.mark.parametrize(
    "data",
    [
        {"home": ":memory:"},
        {"history_db_path": ":memory:"},
        {"ledger_url": "sqlite://"},
        {"ledger_url": "sqlite:///:memory:"},
    ],
)
def test_a_ledger_in_memory_is_no_file_of_that_name(data: dict[str, Any]) -> None:
    """Such a configuration means a ledger in memory; a file or a folder named ":memory:" would be a mistake."""
    variables = {f"GRAPHMEM_{key.upper()}": value for key, value in data.items()}
    for read in (partial(Settings.from_dict, data), partial(Settings.from_env, variables)):
        with pytest.raises(ConfigError, match=r"Memory\(':memory:'\)"):
            read()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings.from_file(tmp_path / "none.toml")


def test_yaml_may_take_over_the_keys_of_another_object(tmp_path: Path) -> None:
    """A key beside `<<` stands in place of the one that is taken over: it is not given twice."""
    config = "&one {provider: openai, config: &two {model: a, timeout: 5}}"
    text = f"llm: {config}\nvision: {{<<: *one, config: {{<<: *two, model: b}}}}\n"
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    vision = Settings.from_file(tmp_path / "a.yaml").vision
    assert vision is not None
    assert (vision.config.model, vision.config.timeout) == ("b", 5)


def test_yaml_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("home: x", "utf-8")
    with pytest.raises(ConfigError, match=r"pip install '\.\[yaml\]'"):
        Settings.from_file(tmp_path / "a.yaml")


def test_variables() -> None:
    settings = Settings.from_env(
        {
            "GRAPHMEM_HOME": "/m",
            "GRAPHMEM_VECTOR_STORE__CONFIG__HOST": "h",
            "GRAPHMEM_VECTOR_STORE__CONFIG__PORT": "6333",
            "GRAPHMEM_VECTOR_STORE__CONFIG__PREFER_GRPC": "true",
            "GRAPHMEM_GRAPH_STORE__PROVIDER": "networkx",
            "GRAPHMEM_DELIVERY_WAIT": "0.5",
            "GRAPHMEM_LEDGER_URL": "",
            "GRAPHMEM_SERVERS": "/not/ours",
            "HOME": "/root",
        }
    )
    assert settings.home == Path("/m")
    assert (settings.vector_store.config.port, settings.vector_store.config.prefer_grpc) == (6333, True)
    assert (settings.graph_store.provider, settings.delivery_wait, settings.ledger_url) == ("networkx", 0.5, None)


@pytest.mark.parametrize("text", ["a.org,[::1]", " a.org , [::1] ,", '["a.org", "[::1]"]'])
def test_a_variable_has_names_with_commas_between_them_or_as_a_json_array(text: str) -> None:
    assert Settings.from_env({"GRAPHMEM_SERVE__ALLOWED_HOSTS": text}).serve.allowed_hosts == ("a.org", "[::1]")


def test_a_variable_has_an_object_as_json_or_a_key_of_it() -> None:
    of_celery = {
        "GRAPHMEM_WORKERS__PROVIDER": "celery",
        "GRAPHMEM_WORKERS__CONFIG__BROKER_URL": "redis://localhost:6379/1",
    }
    whole = '{"visibility_timeout": 3600, "sentinel_kwargs": {"password": null}}'
    workers = Settings.from_env({**of_celery, "GRAPHMEM_WORKERS__CONFIG__TRANSPORT_OPTIONS": whole}).workers
    assert isinstance(workers, CeleryWorkers)
    assert workers.config.transport_options == {"visibility_timeout": 3600, "sentinel_kwargs": {"password": None}}
    variable = "GRAPHMEM_LIFECYCLE__TYPE_FACTORS"
    for environ in ({variable: '{"preference": 2}'}, {f"{variable}__PREFERENCE": "2"}):
        assert Settings.from_env(environ).lifecycle.type_factors == {"preference": 2}
    with pytest.raises(ConfigError, match=rf"^{variable}: the key 'fact' is given twice; keep one$"):
        Settings.from_env({variable: '{"fact": 1, "fact": 2}'})
    for text in ("2", "preference", '{"preference": 2', '["preference"]', "[" * 100_000):
        with pytest.raises(ConfigError, match=rf"^{variable}: must be an object; in a variable JSON"):
            Settings.from_env({variable: text})


def test_a_variable_has_regular_expressions_as_a_json_array() -> None:
    skip = Settings.from_env({"GRAPHMEM_SERVE__PROXY__SKIP": r'["\\A#{1,3} Task", "[T]itle"]'}).serve.proxy.skip
    assert skip == (r"\A#{1,3} Task", "[T]itle")


@pytest.mark.parametrize("text", ["*", "127.0.0.1, 172.16.0.0/12", "fd00::/8,::1"])
def test_forwarded_addresses_are_believed_from_addresses_and_networks(text: str) -> None:
    assert Settings.from_env({"GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS": text}).serve.forwarded_allow_ips == text


def test_the_process_variables_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEM_SESSION_GAP", "5")
    assert Settings.from_env().session_gap == 5
    assert Settings.from_dict({}).session_gap == 30


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"GRAPHMEM_HOEM": "x"}, "^GRAPHMEM_HOEM: unknown key 'hoem'; did you mean 'home'"),
        ({"GRAPHMEM_VECTOR_STORE__CONFIG__PAHT": "x"}, "^GRAPHMEM_VECTOR_STORE__CONFIG__PAHT: unknown key 'paht'; did"),
        (
            {"GRAPHMEM_LIMITS__MAX_TOP_K": "7"},
            "^GRAPHMEM_LIMITS__MAX_TOP_K: Input should be greater than",
        ),
        ({"GRAPHMEM_GRAPH_STORE__PROVIDER": "x"}, "^GRAPHMEM_GRAPH_STORE__PROVIDER: must be 'ledger' or"),
        (
            {"GRAPHMEM_GRAPH_STORE__PROVIDER": "neo4j", "GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD": ""},
            "^GRAPHMEM_GRAPH_STORE__CONFIG__URL: is missing; .*; GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD: is missing",
        ),
        (
            {"GRAPHMEM_GRAPH_STORE__PROVIDER": "neo4j", "GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD": "x"},
            "^GRAPHMEM_GRAPH_STORE__CONFIG__URL: is missing; set it$",
        ),
        (
            {"GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD": "x"},
            "^GRAPHMEM_GRAPH_STORE__CONFIG__PASSWORD: needs .* set GRAPHMEM_GRAPH_STORE__PROVIDER=neo4j too",
        ),
        (
            {"GRAPHMEM_EMBEDDER__CONFIG__API_KEY": "x"},
            "^GRAPHMEM_EMBEDDER__CONFIG__API_KEY: needs .* set GRAPHMEM_EMBEDDER__PROVIDER=openai too",
        ),
        (
            {"GRAPHMEM_EXTRACTOR__PROVIDER": "none", "GRAPHMEM_EXTRACTOR__CONFIG__MODEL": "x"},
            "^GRAPHMEM_EXTRACTOR__CONFIG__MODEL: needs .* set GRAPHMEM_EXTRACTOR__PROVIDER=spacy too",
        ),
        (
            {"GRAPHMEM_VECTOR_STORE__CONFIG__HOST": "h", "GRAPHMEM_VECTOR_STORE__CONFIG__PATH": "p"},
            r"^GRAPHMEM_VECTOR_STORE__CONFIG__\*: url, host and path exclude each other",
        ),
        (
            {"GRAPHMEM_HISTORY_DB_PATH": "h", "GRAPHMEM_LEDGER_URL": "p"},
            r"^GRAPHMEM_\* variables: history_db_path and ledger_url both name the ledger",
        ),
        ({"GRAPHMEM_LLM": "x", "GRAPHMEM_LLM__PROVIDER": "openai"}, "llm is set to a plain value"),
        ({"GRAPHMEM_LLM__": "x"}, "unknown key ''"),
        # The compose file puts its own names in front.
        ({"GRAPHMEM_SERVE__ALLOWED_HOSTS": 'serve,["a"]'}, "^GRAPHMEM_SERVE__ALLOWED_HOSTS: contains a blank, a comma"),
        ({"GRAPHMEM_SERVE__CORS_ORIGINS": "https://a https://b"}, "^GRAPHMEM_SERVE__CORS_ORIGINS: contains a blank"),
        ({"GRAPHMEM_SERVE__PROXY__SKIP": r"\Aone, two"}, "^GRAPHMEM_SERVE__PROXY__SKIP: must be a list; in a variable"),
        ({"GRAPHMEM_SERVE__PROXY__SKIP": '["("]'}, "^GRAPHMEM_SERVE__PROXY__SKIP: is no regular expression"),
        ({"GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS": "caddy"}, "^GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS: must have IP addr"),
        ({"GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS": "10.0.0.1/8"}, "^GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS: must have IP"),
        ({"GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS": "::1,*"}, "^GRAPHMEM_SERVE__FORWARDED_ALLOW_IPS: must have IP addr"),
    ],
)
def test_bad_variables(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.from_env(environ)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ledger_url": f"mysql://u:{SECRET}@h/db"}, "ledger_url: this release cannot open such a URL"),
        ({"ledger_url": f"postgresql+asyncpg://u:{SECRET}@h/db"}, "use 'sqlite:///…' or 'postgresql://…'"),
    ],
)
def test_urls_that_this_release_cannot_open_are_refused(data: dict[str, Any], message: str) -> None:
    settings = Settings.from_dict(data)
    with pytest.raises(ConfigError) as caught:
        settings.check_available()
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        {"ledger_url": "sqlite:///x.db"},
        {"ledger_url": "sqlite+pysqlite:///x.db"},
        {"ledger_url": FULL["ledger_url"]},
        {"ledger_url": "postgres://h/db"},
        {"ledger_url": "postgresql+psycopg://h/db"},
        {"history_db_path": "x.db"},
        {"vector_store": {"config": {"path": "p"}}},
        {"vector_store": {"config": {"url": "http://h", "grpc_port": 7, "quantization": "int8", "on_disk": True}}},
        {"graph_store": {"provider": "networkx"}},
        {"graph_store": FULL["graph_store"]},
        {"extractor": {"provider": "none"}},
    ],
)
def test_these_settings_are_available_in_this_release(data: dict[str, Any]) -> None:
    Settings.from_dict(data).check_available()


@pytest.mark.parametrize("secret", ["a\ud800" * 30, " " * 40, "\udcff" * 40])
def test_a_secret_that_cannot_be_used_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError, match="secret_key") as caught:
        Settings.from_dict({"secret_key": secret})
    assert secret not in str(caught.value)
