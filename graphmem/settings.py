"""The configuration as data: a dict in mem0's shape, a file, or GRAPHMEM_* variables become one checked `Settings`.

Nothing is opened here and no backend is imported. Values never appear in error texts: any of them could be a secret.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from graphmem.boundary import validation
from graphmem.boundary.validation import LIMITS, is_encodable
from graphmem.errors import ConfigError
from graphmem.ingest.hooks import BeforeStore

ENVIRONMENT_PREFIX = "GRAPHMEM_"
# Variables with our prefix that are not settings: where the test servers live.
_NOT_SETTINGS = frozenset({"GRAPHMEM_SERVERS"})

# Of characters that a machine has chosen; a sentence of so many could be guessed.
LEAST_SECRET = 32
_NAME = re.compile(r"[\w-]{0,80}")

EmbedFunction = Callable[[list[str]], Any]
"""Texts in, one vector (a sequence of floats) for each out."""


def _path(value: object) -> object:
    if value == "":
        raise PydanticCustomError("empty_path", "is empty; give a path or leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise PydanticCustomError("nul_in_path", "holds a NUL character, which no path can")
    if isinstance(value, str | Path):
        if not is_encodable(str(value)):
            raise PydanticCustomError("surrogate_in_path", "holds a lone surrogate, which no name of a file can")
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise PydanticCustomError(
                "no_home", "begins with ~, but that home folder is unknown; write it out"
            ) from error
    return value


def _function(value: object) -> object:
    if not callable(value):  # a name in a file or a variable would be a way to run any code there is
        raise PydanticCustomError("no_function", "must be a function; only code can give one")
    return value


def _long(value: SecretStr) -> SecretStr:
    secret = value.get_secret_value()
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("odd_secret", "holds what is no character; use letters and digits") from None
    if len(secret.strip()) < LEAST_SECRET:
        raise PydanticCustomError(
            "short_secret", f"is shorter than {LEAST_SECRET} characters; make one by: openssl rand -hex 32"
        )
    return value


def _assume(provider: str) -> BeforeValidator:
    """Let a section leave its provider out."""

    def fill(data: object) -> object:
        return {**data, "provider": provider} if isinstance(data, Mapping) and data.get("provider") is None else data

    return BeforeValidator(fill)


# Other names that mem0 has for models, with the OpenAI-compatible address where it is known.
_ADDRESSES: Mapping[str, str | None] = {
    "anthropic": "https://api.anthropic.com/v1/",
    "aws_bedrock": None,
    "azure_openai": "https://RESOURCE.openai.azure.com/openai/v1/",
    "azure_openai_structured": "https://RESOURCE.openai.azure.com/openai/v1/",
    "deepseek": "https://api.deepseek.com",
    "fastembed": None,
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "groq": "https://api.groq.com/openai/v1",
    "huggingface": None,
    "langchain": None,
    "litellm": None,
    "lmstudio": "http://localhost:1234/v1",
    "minimax": None,
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://localhost:11434/v1",
    "openai_structured": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "sarvam": None,
    "together": "https://api.together.xyz/v1",
    "vertexai": None,
    "vllm": "http://localhost:8000/v1",
    "xai": "https://api.x.ai/v1",
}
# Of these there is none for embeddings.
_CHAT_ONLY = frozenset({"anthropic", "deepseek", "groq", "xai"})


def _reach(section: str, *known: str) -> BeforeValidator:
    """Say by which address another provider's model is reached."""

    def check(data: object) -> object:
        name = data.get("provider") if isinstance(data, Mapping) else None
        if name is None or name in known:
            return data
        theirs = name.lower() if isinstance(name, str) else ""
        address = None if section == "embedder" and theirs in _CHAT_ONLY else _ADDRESSES.get(theirs)
        told = {
            "names": " or ".join(f"'{one}'" for one in known),
            "which": f"'{theirs}'" if theirs in _ADDRESSES else "any other",
            "setting": f"{section}.config.openai_base_url",
            "where": "its OpenAI-compatible endpoint, if it has one" if address is None else f"'{address}'",
        }
        text = "must be {names}; {which} is reached with provider 'openai' and {setting} set to {where}"
        raise PydanticCustomError("other_provider", text, told)

    return BeforeValidator(check)


# What is only taken note of, for it has no meaning here. Its value is not kept.
IgnoredKey = Annotated[bool, BeforeValidator(lambda _: True)]
FilePath = Annotated[Path, BeforeValidator(_path)]
Text = Annotated[str, Field(min_length=1)]
# A URL may hold a password.
SecretUrl = Annotated[SecretStr, Field(min_length=1)]
Dimensions = Annotated[int, Field(ge=1, le=65_536)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: object) -> object:
        """Refuse unknown keys with the nearest known one; None means the same as leaving a key out."""
        if not isinstance(data, Mapping):
            return data
        for key in data:
            if key not in cls.model_fields and data[key] is not None:
                near = get_close_matches(str(key), cls.model_fields, 1, 0.5)
                known = ", ".join(cls.model_fields) or "none, leave it out"
                hint = f"did you mean '{near[0]}'?" if near else f"known: {known}"
                # Not any: YAML takes "password:x" without a blank for one key.
                is_name = _NAME.fullmatch(str(key)) is not None
                shown = repr(str(key)) if is_name else "that is no name (not shown)"
                told = {"text": f"unknown key {shown}; {hint}", "key": str(key) if is_name else None}
                raise PydanticCustomError("unknown_key", "{text}", told)
        return {key: value for key, value in data.items() if value is not None}

    def given(self, *names: str) -> list[str]:
        """Which of these fields were set to something."""
        return [name for name in names if getattr(self, name)]


class _NoConfig(_Section):
    """For providers that have nothing to set."""


# --- vector_store --------------------------------------------------------------------------------------------------


class QdrantConfig(_Section):
    """A server (`url`, or `host` and `port`), or the embedded engine in `path` (by default inside `home`).

    `prefer_grpc`: by default gRPC where `grpc_port` answers, else REST. `on_disk` and `quantization` count when a
    server's collection is made. `embedding_model_dims` is mem0's and checked against the embedder.
    """

    url: SecretUrl | None = None
    host: Text | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    api_key: SecretStr | None = None
    prefer_grpc: bool | None = None
    grpc_port: Annotated[int, Field(ge=1, le=65_535)] = 6334
    path: FilePath | None = None
    collection_name: Text = "graphmem"
    embedding_model_dims: Dimensions | None = None
    on_disk: bool | None = None
    quantization: Literal["int8"] | None = None

    @property
    def is_server(self) -> bool:
        """Whether a Qdrant server is meant, not the embedded engine."""
        return self.url is not None or self.host is not None

    @model_validator(mode="after")
    def _one_place(self) -> QdrantConfig:
        if sum(place is not None for place in (self.url, self.host, self.path)) > 1:
            raise PydanticCustomError("conflict", "url, host and path exclude each other; keep one")
        if self.port is not None and self.host is None:
            raise PydanticCustomError("conflict", "port needs host; with url, put the port into the url")
        if self.api_key is not None and not self.is_server:
            raise PydanticCustomError("conflict", "api_key needs url or host; the embedded engine has no key")
        if self.quantization is not None and not self.is_server:
            raise PydanticCustomError("conflict", "quantization needs url or host; the embedded engine has none")
        return self


class QdrantStore(_Section):
    """The only vector store."""

    provider: Literal["qdrant"] = "qdrant"
    config: QdrantConfig = QdrantConfig()


# --- graph_store ---------------------------------------------------------------------------------------------------


class Neo4jConfig(_Section):
    """A Neo4j server."""

    url: SecretUrl
    username: Text = "neo4j"
    password: SecretStr
    database: Text = "neo4j"


class _Graph(_Section):
    """A graph store. `llm`, `custom_prompt` and `threshold` are mem0 1's, for what a model of the graph's own was."""

    llm: IgnoredKey = False
    custom_prompt: IgnoredKey = False
    threshold: IgnoredKey = False


class Neo4jGraph(_Graph):
    """The graph in Neo4j."""

    provider: Literal["neo4j"]
    config: Neo4jConfig


class LedgerGraph(_Graph):
    """The graph in the ledger's own tables."""

    provider: Literal["ledger"] = "ledger"
    config: _NoConfig = _NoConfig()


class NetworkxGraph(_Graph):
    """The graph in memory."""

    provider: Literal["networkx"]
    config: _NoConfig = _NoConfig()


# --- models --------------------------------------------------------------------------------------------------------


class MinilmConfig(_Section):
    """`tokens`: keep a vector for each token too (about 5 kB for a chat turn); without them less is found."""

    tokens: bool = True


class MinilmEmbedder(_Section):
    """The model that comes along: offline, 384 dimensions."""

    provider: Literal["minilm"] = "minilm"
    config: MinilmConfig = MinilmConfig()


class OpenaiEmbedderConfig(_Section):
    """An OpenAI-compatible embedding endpoint.

    `embedding_dims`: how long its vectors are, or are to be if the model can shorten them; without it, it is found out.
    `batch_size`: texts of one request, by default 256 at OpenAI's own endpoint and 32 elsewhere, which is as much as
    some servers take. `timeout` in seconds.
    """

    model: Text = "text-embedding-3-small"
    api_key: SecretStr | None = None
    openai_base_url: SecretUrl | None = None
    embedding_dims: Dimensions | None = None
    batch_size: Annotated[int, Field(ge=1, le=2048)] | None = None
    timeout: Annotated[float, Field(gt=0)] = 60.0


class OpenaiEmbedder(_Section):
    """Embeddings over HTTP."""

    provider: Literal["openai"]
    config: OpenaiEmbedderConfig = OpenaiEmbedderConfig()


class CallableEmbedderConfig(_Section):
    """A function of yours. `model` names it: vectors of one name are never mixed with those of another."""

    embed: EmbedFunction
    embedding_dims: Dimensions
    model: Text


class CallableEmbedder(_Section):
    """Embeddings from a function."""

    provider: Literal["callable"]
    config: CallableEmbedderConfig


class SpacyConfig(_Section):
    """`model` is the name or path of a spaCy pipeline; by default the small English one that comes along."""

    model: Text | None = None


class SpacyExtractor(_Section):
    """Entities and relations from spaCy."""

    provider: Literal["spacy"] = "spacy"
    config: SpacyConfig = SpacyConfig()


class NoExtractor(_Section):
    """No entities and relations without a model."""

    provider: Literal["none"]
    config: _NoConfig = _NoConfig()


class LlmPrices(_Section):
    """Money for a million tokens, for what `stats()` says about cost. `cached`: of the prompt, read before."""

    prompt: Annotated[float, Field(ge=0)]
    completion: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None


class OpenaiLlmConfig(_Section):
    """An OpenAI-compatible chat endpoint. `timeout` in seconds, of each of at most three tries.

    `enable_vision` and `vision_details` are mem0's: images are not read yet.
    """

    model: Text = "gpt-4o-mini"
    api_key: SecretStr | None = None
    openai_base_url: SecretUrl | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    enable_vision: bool = False
    vision_details: IgnoredKey = False
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    prices: LlmPrices | None = None


class OpenaiLlm(_Section):
    """The language model; without one, none is ever called."""

    provider: Literal["openai"] = "openai"
    config: OpenaiLlmConfig = OpenaiLlmConfig()


class LimitSettings(_Section):
    """What one call may bring along: no more than the defaults, which are what all parts of graphmem are made for.

    `max_top_k` is at least the 50 that `top_k="auto"` may find.
    """

    max_message_chars: Annotated[int, Field(ge=1, le=LIMITS.max_message_chars)] = LIMITS.max_message_chars
    max_messages: Annotated[int, Field(ge=1, le=LIMITS.max_messages)] = LIMITS.max_messages
    max_metadata_bytes: Annotated[int, Field(ge=2, le=LIMITS.max_metadata_bytes)] = LIMITS.max_metadata_bytes
    max_filter_depth: Annotated[int, Field(ge=0, le=LIMITS.max_filter_depth)] = LIMITS.max_filter_depth
    max_filter_conditions: Annotated[int, Field(ge=1, le=LIMITS.max_filter_conditions)] = LIMITS.max_filter_conditions
    max_top_k: Annotated[int, Field(ge=50, le=LIMITS.max_top_k)] = LIMITS.max_top_k


# --- all of it -----------------------------------------------------------------------------------------------------


class Settings(_Section):
    """The whole configuration, as in API.md §3; every key has a default that needs no server, key or network.

    `before_store` is asked about each message before anything is done with it. `delivery_wait` is how long a write
    waits for a store, in seconds; `session_gap` how long a silence may last within one session, in minutes. A session
    is summarised by the language model after each `summary_messages` messages (0: never). `secret_key` is by default a
    file beside the ledger; `replace_secret_key`: it counts instead of one that is lost.
    """

    home: FilePath | None = None
    vector_store: QdrantStore = QdrantStore()
    graph_store: Annotated[
        Neo4jGraph | LedgerGraph | NetworkxGraph, Field(discriminator="provider"), _assume("ledger")
    ] = LedgerGraph()
    embedder: Annotated[
        MinilmEmbedder | OpenaiEmbedder | CallableEmbedder,
        Field(discriminator="provider"),
        _assume("minilm"),
        _reach("embedder", "minilm", "openai", "callable"),
    ] = MinilmEmbedder()
    extractor: Annotated[SpacyExtractor | NoExtractor, Field(discriminator="provider"), _assume("spacy")] = (
        SpacyExtractor()
    )
    llm: Annotated[OpenaiLlm | None, _reach("llm", "openai")] = None
    history_db_path: FilePath | None = None
    ledger_url: SecretUrl | None = None
    secret_key: Annotated[SecretStr, AfterValidator(_long)] | None = None
    replace_secret_key: bool = False
    custom_fact_extraction_prompt: Text | None = None
    custom_instructions: Text | None = None  # what mem0 2 calls it
    custom_update_memory_prompt: Text | None = None
    before_store: Annotated[BeforeStore, BeforeValidator(_function)] | None = None
    version: Literal["v1.0", "v1.1"] = "v1.1"
    limits: LimitSettings = LimitSettings()
    delivery_wait: Annotated[float, Field(ge=0)] = 3.0
    session_gap: Annotated[float, Field(gt=0)] = 30.0
    summary_messages: Annotated[int, Field(ge=0)] = 20

    @model_validator(mode="after")
    def _one_ledger(self) -> Settings:
        if self.history_db_path is not None and self.ledger_url is not None:
            raise PydanticCustomError("conflict", "history_db_path and ledger_url both name the ledger; keep one")
        named = str(self.history_db_path or "") if self.ledger_url is None else self.ledger_url.get_secret_value()
        if named == ":memory:" or (named.startswith("sqlite") and named.endswith(("://", "///", ":memory:"))):
            # It would be a file of that name, where the words stay.
            raise PydanticCustomError("no_file", "the ledger is a file; for one in memory open Memory(':memory:')")
        return self

    @property
    def without_effect(self) -> list[str]:
        """What is configured and has no effect, a sentence for each with its keys."""
        prompts = self.given("custom_fact_extraction_prompt", "custom_instructions", "custom_update_memory_prompt")
        graphs = [f"graph_store.{name}" for name in self.graph_store.given("llm", "custom_prompt", "threshold")]
        images = [] if self.llm is None else self.llm.config.given("enable_vision")
        found = {
            "for no language model is configured that could be asked by it; set llm, or leave it out": (
                prompts if self.llm is None else []
            ),
            "for relations come from the extractor and from what llm finds; leave it out": graphs,
            "for images are not read yet; leave it out": [f"llm.config.{name}" for name in images],
        }
        return [f"{', '.join(keys)}: without effect, {why}" for why, keys in found.items() if keys]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | BaseModel) -> Settings:
        """Settings from a dict in mem0's shape, or from a `MemoryConfig` of mem0's, of which only what was set counts.

        Raises `ConfigError` naming each key that cannot be used.
        """
        return _checked(_dumped(data) if isinstance(data, BaseModel) else data, "configuration")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Settings:
        """Settings from a .toml, .yaml, .yml or .json file. Raises `ConfigError`.

        Variables (see `from_env`) fill in what it leaves out: secrets need not stand in it.
        """
        read, variables = _read(Path(validation.folder(path))), _nested(os.environ)
        if not isinstance(read, Mapping):
            return _checked(read, str(path))
        return _checked(_over(variables, read), str(path), lambda steps: _is_in(variables, steps, but_not_in=read))

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, home: str | os.PathLike[str] | None = None
    ) -> Settings:
        """Settings from variables such as GRAPHMEM_HOME and GRAPHMEM_VECTOR_STORE__CONFIG__PATH; empty ones are unset.

        `environ` is the process's own by default. `home` is a folder that the caller named: what is asked of it must
        not happen to a ledger elsewhere. Raises `ConfigError`.
        """
        variables = _nested(os.environ if environ is None else environ)
        found = _checked(variables, f"{ENVIRONMENT_PREFIX}* variables", lambda _: True)
        if home is None:
            return found
        if found.ledger_url is not None or found.history_db_path is not None:
            message = (
                f"home: a folder was named, but {ENVIRONMENT_PREFIX}LEDGER_URL or {ENVIRONMENT_PREFIX}HISTORY_DB_PATH "
                "puts the ledger elsewhere; unset it, or do not name a folder"
            )
            raise ConfigError(message)
        return found.model_copy(update={"home": validation.home(home, "home")})

    def check_available(self) -> None:
        """Raise `ConfigError` for what is asked that this release does not have."""
        if not self._has_known_ledger():
            message = (
                "ledger_url: what this URL begins with is not part of this release yet; "
                "use 'sqlite:///…' or 'postgresql://…'"
            )
            raise ConfigError(message)

    def _has_known_ledger(self) -> bool:
        known = ("sqlite:", "sqlite+", "postgres:", "postgresql:", "postgresql+psycopg:")
        return self.ledger_url is None or self.ledger_url.get_secret_value().startswith(known)


def _dumped(config: BaseModel) -> dict[str, Any]:
    """What was set of mem0's configuration as the dict it was made from."""
    found = config.model_dump(exclude_unset=True, warnings=False)
    for name in found.keys() & {"llm", "embedder", "vector_store"}:
        section = found[name]
        if isinstance(section, dict):
            section.setdefault("provider", getattr(getattr(config, name), "provider", None))
            # It puts that in itself where no path is given.
            store = section.get("config")
            if isinstance(store, dict) and store.get("path") == f"/tmp/{section['provider']}":  # noqa: S108
                del store["path"]
    return found


def _checked(data: object, source: str, is_variable: Callable[[Sequence[str]], bool] = lambda _: False) -> Settings:
    """`is_variable` tells of a path of keys whether a variable sets it, so that an error names the one to mend."""
    if not isinstance(data, Mapping):
        message = f"{source}: must be a dict of settings, not {type(data).__name__}"
        raise ConfigError(message)
    try:
        return Settings.model_validate(dict(data))
    except pydantic.ValidationError as error:
        # Not `from error`: it would hold the input, secrets and all.
        raise ConfigError("; ".join(_told(error, source, is_variable))) from None


def _told(error: pydantic.ValidationError, source: str, is_variable: Callable[[Sequence[str]], bool]) -> list[str]:
    """Each problem as "source: key.path: what is wrong", or with the variable's name in place of both.

    From where it is and what is expected, never from the value.
    """
    lines = []
    for one in error.errors(include_url=False, include_input=False):
        steps = [str(step) for step in one["loc"]]
        if len(steps) > 1 and Settings.model_fields[steps[0]].discriminator is not None:
            del steps[1]  # pydantic's name of the provider, no key of the dict
        message = one["msg"]
        if one["type"] == "other_provider":
            steps.append("provider")
        if one["type"].startswith("union_tag"):
            steps.append("provider")
            message = f"must be one of {one['ctx']['expected_tags']}"
        at = _where(one["type"], steps, one.get("ctx", {}))
        if at and is_variable(at):
            lines.append(f"{ENVIRONMENT_PREFIX}{'__'.join(at).upper()}: {message}")
        else:
            lines.append(": ".join([source, ".".join(steps), message] if steps else [source, message]))
    return lines


def _where(kind: str, steps: Sequence[str], told: Mapping[str, Any]) -> Sequence[str]:
    """The path of keys that names a variable: with the unknown key, or with a star for several of a section."""
    if kind == "unknown_key" and told["key"] is not None:
        return [*steps, told["key"]]
    return [*steps, "*"] if steps and kind == "conflict" else steps


def _is_in(there: object, steps: Sequence[str], *, but_not_in: object) -> bool:
    """Whether a path of keys leads somewhere in one nested dict, and nowhere in another."""
    return _leads(there, steps) and not _leads(but_not_in, steps)


def _leads(nested: object, steps: Sequence[str]) -> bool:
    for step in steps:
        if not isinstance(nested, Mapping) or step not in nested:
            return False
        nested = nested[step]
    return True


def _read(path: Path) -> Any:
    loaders: Mapping[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": json.loads,
        ".yaml": _load_yaml,
        ".yml": _load_yaml,
    }
    suffix = path.suffix.lower()
    if suffix not in loaders:
        message = f"{path}: a configuration file ends in {', '.join(loaders)}; rename or convert it"
        raise ConfigError(message)
    try:
        return loaders[suffix](path.read_text("utf-8-sig"))
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        raise ConfigError(message) from error
    except (ValueError, RecursionError) as error:  # TOML, JSON and UTF-8 errors tell the place, not the words
        message = f"{path}: is not valid {suffix[1:].upper()}: {error}"
        raise ConfigError(message) from None


def _load_yaml(text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        message = "YAML configuration needs PyYAML: pip install 'graphmem[yaml]', or use TOML or JSON"
        raise ConfigError(message) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        # Its own text quotes the file, which may hold secrets.
        raise ValueError(f"see line {mark.line + 1}" if mark else "unreadable") from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One nested dict laid over another."""
    both = {name: _over(below[name], above[name]) for name in below.keys() & above.keys()
            if isinstance(below[name], Mapping) and isinstance(above[name], Mapping)}  # fmt: skip
    return {**below, **above, **both}


def _nested(environ: Mapping[str, str]) -> dict[str, Any]:
    """Variables as nested dicts: GRAPHMEM_A__B=c is {"a": {"b": "c"}}."""
    found: dict[str, Any] = {}
    for name, value in sorted(environ.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_SETTINGS or not value:
            continue
        *above, last = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        inner = found
        for step in above:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                message = f"{name}: {step} is set to a plain value by another variable; keep one of the two"
                raise ConfigError(message)
        inner[last] = value
    return found
