"""The configuration: one checked `Settings` with a section for each store and model.

Nothing is opened here and no backend is imported. Error messages never contain a value: it could be a secret.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from graphmem.boundary import validation
from graphmem.boundary.validation import LIMITS, is_encodable
from graphmem.errors import ConfigError, ValidationError
from graphmem.ingest.hooks import BeforeStore, Describe
from graphmem.lifecycle.decay import LifecyclePolicy
from graphmem.lifecycle.importance import ForgettingCurve
from graphmem.lifecycle.nights import Nights
from graphmem.lifecycle.rules import Rules, default_rules, parse_rules
from graphmem.model import EventType
from graphmem.settings.sources import (
    ENVIRONMENT_PREFIX,
    KeyGivenTwice,
    has_path,
    load_json,
    mem0_config_as_dict,
    merge,
    nested_variables,
    read_file,
)
from graphmem.times import zone_of

# Enough for random characters; a sentence of this length could be guessed.
MIN_SECRET_CHARS = 32
# Characters of a key of the service that the configuration gives.
MIN_KEY_CHARS = 16
# Bytes of the key that signs requests to a webhook, as its specification has them.
MIN_WEBHOOK_KEY, MAX_WEBHOOK_KEY = 24, 64
_NAME = re.compile(r"[\w-]{0,80}")
NEVER = "never"
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d")

EmbedFunction = Callable[[list[str]], Any]
"""Texts in, one vector (a sequence of floats) for each out."""


RerankFunction = Callable[[str, list[str]], Any]
"""A query and texts in, one score for each text out."""

# Memories that a reranker orders, and the seconds that it has for them.
RERANK_CANDIDATES, RERANK_SECONDS = 50, 10.0


def _checked_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error:
        raise PydanticCustomError("expression", "is no regular expression of Python's re; correct it") from None
    return value


def _checked_path(value: object) -> object:
    if value == "":
        raise PydanticCustomError("empty_path", "is empty; give a path or leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise PydanticCustomError("nul_in_path", "contains a NUL character, which no path can")
    if isinstance(value, str | Path):
        if not is_encodable(str(value)):
            raise PydanticCustomError("surrogate_in_path", "contains a lone surrogate, which no file name can")
        try:
            return Path(value).expanduser()
        except RuntimeError as error:
            raise PydanticCustomError(
                "no_home", "begins with ~, but that home folder is unknown; write it out"
            ) from error
    return value


def _checked_function(value: object) -> object:
    if not callable(value):  # accepting a name from a file or a variable would let it run any code
        raise PydanticCustomError("no_function", "must be a function; only code can give one")
    return value


def _checked_rate(value: str) -> str:
    try:
        validation.rate(value)
    except ValidationError as error:
        raise _without_name(error) from None
    return value


def _checked_moment(text: str) -> str:
    try:
        validation.moment(text, "since")
    except ValidationError as error:
        raise PydanticCustomError("moment", "{text}", {"text": error.without_value}) from None
    return text


def _checked_time_of_day(text: str) -> str:
    if text != NEVER and not _TIME_OF_DAY.fullmatch(text):
        raise PydanticCustomError("time_of_day", "is no time of day; write hours and minutes, such as 03:00, or never")
    return text


def _checked_zone(value: str) -> str:
    try:
        zone_of(value)
    except ValueError as error:
        raise PydanticCustomError("time_zone", "{text}", {"text": str(error)}) from None
    return value


def _checked_user(value: str) -> str:
    try:
        return validation.identifier(value, "user_id")
    except ValidationError as error:
        raise _without_name(error) from None


def _parsed(value: object, kind: type) -> object:
    """Returns what a text, such as that of a variable, is as JSON if that is of this kind; everything else as it is."""
    try:
        parsed = load_json(value) if isinstance(value, str) else None
    except KeyGivenTwice as error:
        raise PydanticCustomError("key_given_twice", "{text}", {"text": str(error)}) from None
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, kind) else value


def _json_array(value: object) -> object:
    return _parsed(value, list)


def _json_object(value: object) -> object:
    parsed = _parsed(value, dict)
    if isinstance(parsed, str):
        raise PydanticCustomError("no_object", 'must be an object; in a variable JSON, such as {"name": 2}')
    return parsed


def _names(value: object) -> object:
    """Returns the list of names that a text has with commas between them or as a JSON array."""
    listed = _json_array(value)
    if isinstance(listed, str):
        return [name for part in listed.split(",") if (name := part.strip())]
    return listed


def _checked_name(value: str) -> str:
    # A JSON array that was put together with other names would otherwise be names that nothing has.
    if re.search(r"""[\s,"']""", value):
        raise PydanticCustomError("no_name", "contains a blank, a comma or a quotation mark; write one,two or a list")
    return value


def _expressions(value: object) -> object:
    listed = _json_array(value)
    if isinstance(listed, str):
        raise PydanticCustomError("no_list", 'must be a list; in a variable a JSON array, such as ["one", "two"]')
    return listed


def _checked_networks(value: str) -> str:
    """Checks what uvicorn takes for the name of a Unix socket, and so for nobody's, if it is no address."""
    for address in value.split(",") if value.strip() != "*" else ():
        try:
            ip_network(address.strip())
        except ValueError:
            raise PydanticCustomError(
                "no_network", "must have IP addresses or networks such as 10.0.0.0/8 with commas between them, or be *"
            ) from None
    return value.strip()


def _without_name(error: ValidationError) -> PydanticCustomError:
    """Returns a ValidationError as one of pydantic's, whose text neither names the argument nor repeats its value."""
    return PydanticCustomError("unusable", "{text}", {"text": error.without_value.partition(": ")[2]})


def _check_key_length(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < MIN_KEY_CHARS:
        raise PydanticCustomError("short_key", f"should have at least {MIN_KEY_CHARS} characters")
    return value


def _check_secret_length(value: SecretStr) -> SecretStr:
    secret = value.get_secret_value()
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("odd_secret", "contains a lone surrogate; use letters and digits") from None
    if len(secret.strip()) < MIN_SECRET_CHARS:
        raise PydanticCustomError(
            "short_secret", f"is shorter than {MIN_SECRET_CHARS} characters; make one by: openssl rand -hex 32"
        )
    return value


def _default_provider(provider: str) -> BeforeValidator:
    """Returns a validator that adds this provider to a section without one."""

    def fill(data: object) -> object:
        return {**data, "provider": provider} if isinstance(data, Mapping) and data.get("provider") is None else data

    return BeforeValidator(fill)


# Further model providers of mem0, each with the address of its OpenAI-compatible endpoint, if known.
_PROVIDER_ADDRESSES: Mapping[str, str | None] = {
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
# Providers whose endpoint has no embeddings.
_CHAT_ONLY = frozenset({"anthropic", "deepseek", "groq", "xai"})


# Those that compute in the process of mem0.
_LOCAL_EMBEDDERS = frozenset({"fastembed", "huggingface", "langchain"})


def _model_remedy(section: str) -> Callable[[str], str]:
    """Returns a function that says how another provider of a model is used: by its OpenAI-compatible endpoint."""

    def remedy(provider: str) -> str:
        if section == "embedder" and provider in _LOCAL_EMBEDDERS:
            return (
                f"for '{provider}' give a function of yours by 'callable', or leave embedder out: a model is built in"
            )
        address = None if section == "embedder" and provider in _CHAT_ONLY else _PROVIDER_ADDRESSES.get(provider)
        which = f"'{provider}'" if provider in _PROVIDER_ADDRESSES else "any other"
        where = "its OpenAI-compatible endpoint, if it has one" if address is None else f"'{address}'"
        return f"{which} is reached with provider 'openai' and {section}.config.openai_base_url set to {where}"

    return remedy


def _refuse_other_providers(*providers: str, remedy: str | Callable[[str], str]) -> BeforeValidator:
    """Returns a validator that refuses every provider of a section but the given ones.

    `remedy` says what to do instead; a function of it takes the refused provider in lower case, "" if that is no text.
    """

    def check(data: object) -> object:
        name = data.get("provider") if isinstance(data, Mapping) else None
        if name is None or name in providers:
            return data
        names = " or ".join(f"'{provider}'" for provider in providers)
        advice = remedy if isinstance(remedy, str) else remedy(name.lower() if isinstance(name, str) else "")
        raise PydanticCustomError("other_provider", "must be {names}; {advice}", {"names": names, "advice": advice})

    return BeforeValidator(check)


# A key of mem0's without a meaning here: any value is accepted, and only its presence is stored, for a warning.
IgnoredKey = Annotated[bool, BeforeValidator(lambda _: True), WithJsonSchema({})]
FilePath = Annotated[Path, BeforeValidator(_checked_path)]
Text = Annotated[str, Field(min_length=1)]
# A URL may hold a password.
SecretUrl = Annotated[SecretStr, Field(min_length=1)]
Dimensions = Annotated[int, Field(ge=1, le=65_536)]
Port = Annotated[int, Field(ge=1, le=65_535)]
# A variable has several names with commas between them, or a JSON array.
NameList = Annotated[tuple[Annotated[Text, AfterValidator(_checked_name)], ...], BeforeValidator(_names)]
RegularExpression = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_checked_expression)]
# A variable has a JSON array: an expression may contain commas.
RegularExpressions = Annotated[tuple[RegularExpression, ...], BeforeValidator(_expressions)]
RateLimit = Annotated[str, AfterValidator(_checked_rate)]
UserId = Annotated[str, Field(min_length=1), AfterValidator(_checked_user)]


class _Section(BaseModel):
    # Sections are built as parts of Settings, and not once more each for itself.
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: object) -> object:
        """Refuses unknown keys, naming the nearest known one; removes keys whose value is None.

        Adds a missing section with required keys as an empty one, so that the errors name these keys.
        """
        if not isinstance(data, Mapping):
            return data
        for key in data:
            if key not in cls.model_fields and data[key] is not None:
                nearest = get_close_matches(str(key), cls.model_fields, 1, 0.5)
                known_keys = ", ".join(cls.model_fields) or "none, leave it out"
                hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {known_keys}"
                # Other keys are not shown: YAML reads "password:x" without a blank as one key.
                is_plausible_name = _NAME.fullmatch(str(key)) is not None
                key_text = repr(str(key)) if is_plausible_name else "that is no name (not shown)"
                context = {"text": f"unknown key {key_text}; {hint}", "key": str(key) if is_plausible_name else None}
                raise PydanticCustomError("unknown_key", "{text}", context)
        required_sections: dict[Any, Any] = {
            name: {}
            for name, field in cls.model_fields.items()
            if field.is_required() and isinstance(field.annotation, type) and issubclass(field.annotation, _Section)
        }
        return required_sections | {key: value for key, value in data.items() if value is not None}

    def keys_with_values(self, *names: str) -> list[str]:
        """Returns those of the named fields whose value is set and true."""
        return [name for name in names if getattr(self, name)]


class _NoConfig(_Section):
    """The configuration of a provider without options."""


# --- vector_store --------------------------------------------------------------------------------------------------


class QdrantConfig(_Section):
    """A Qdrant server (`url`, or `host` and `port`). Without one the ledger itself is searched."""

    url: SecretUrl | None = Field(
        default=None, description="The URL of a Qdrant server, version 1.16 or newer (extra `qdrant`)."
    )
    host: Text | None = Field(default=None, description="The host of a Qdrant server, instead of `url`.")
    port: Port | None = Field(default=None, description="The REST port of `host`; by default 6333.")
    api_key: SecretStr | None = Field(default=None, description="The API key of the server.")
    prefer_grpc: bool | None = Field(
        default=None,
        description="Use gRPC, or REST if false. By default gRPC is used where `grpc_port` answers, else REST.",
    )
    grpc_port: Port = Field(default=6334, description="The gRPC port of the server.")
    path: FilePath | None = Field(
        default=None,
        description="mem0's key for the folder of a local Qdrant. It is not used: without a server, the vectors are in "
        "the ledger.",
    )
    collection_name: Text = Field(
        default="graphmem",
        description="The collection: 1 to 64 letters, digits, `-` and `_`, the first a letter or digit. Ledgers with "
        "the same embedder can share a collection of a server.",
    )
    embedding_model_dims: Dimensions | None = Field(
        default=None,
        description="mem0's key for the length of the vectors. It is compared with the embedder's and not needed.",
    )
    on_disk: bool | None = Field(
        default=None, description="Keep the vectors on the server's disk. Applies when the collection is created."
    )
    quantization: Literal["int8"] | None = Field(
        default=None,
        description="Keep one byte per number of a vector in the server's memory. Applies when the collection is "
        "created.",
    )

    @property
    def is_server(self) -> bool:
        """True for a Qdrant server, False for the embedded index."""
        return self.url is not None or self.host is not None

    @model_validator(mode="after")
    def _one_place(self) -> QdrantConfig:
        if sum(place is not None for place in (self.url, self.host, self.path)) > 1:
            raise PydanticCustomError("conflict", "url, host and path exclude each other; keep one")
        if self.port is not None and self.host is None:
            raise PydanticCustomError("conflict", "port needs host; with url, put the port into the url")
        if self.api_key is not None and not self.is_server:
            raise PydanticCustomError("conflict", "api_key needs url or host; the embedded index has no key")
        if self.quantization is not None and not self.is_server:
            raise PydanticCustomError("conflict", "quantization needs url or host; the embedded index has none")
        return self


class QdrantStore(_Section):
    """The vector index: a Qdrant server (`url`, or `host` and `port`), or else the embedded one, the ledger itself."""

    provider: Literal["qdrant"] = Field(default="qdrant", description="Selects the vector index.")
    config: QdrantConfig = QdrantConfig()


# --- graph_store ---------------------------------------------------------------------------------------------------


class Neo4jConfig(_Section):
    """The address and account of a Neo4j server."""

    url: SecretUrl = Field(description="The URL of a Neo4j server, version 5.26 or newer, such as `neo4j://host:7687`.")
    username: Text = Field(default="neo4j", description="The account's name.")
    password: SecretStr = Field(description="The account's password.")
    database: Text = Field(default="neo4j", description="The database. Several ledgers can share one.")


class _Graph(_Section):
    """A graph store."""

    llm: IgnoredKey = Field(default=False, description="Ignored, with a warning: the model of mem0 1's graph.")
    custom_prompt: IgnoredKey = Field(default=False, description="Ignored, with a warning: the prompt of that model.")
    threshold: IgnoredKey = Field(
        default=False, description="Ignored, with a warning: the similarity at which mem0 1's graph merged nodes."
    )


class Neo4jGraph(_Graph):
    """The graph in Neo4j. Needs the extra `neo4j`."""

    provider: Literal["neo4j"] = Field(description="Selects the graph.")
    config: Neo4jConfig


class LedgerGraph(_Graph):
    """The graph in the ledger's own tables."""

    provider: Literal["ledger"] = Field(default="ledger", description="Selects the graph.")
    config: _NoConfig = _NoConfig()


class NetworkxGraph(_Graph):
    """A copy of the graph in memory, in networkx."""

    provider: Literal["networkx"] = Field(description="Selects the graph.")
    config: _NoConfig = _NoConfig()


# --- models --------------------------------------------------------------------------------------------------------


class MinilmConfig(_Section):
    """Options of the built-in embedding model."""

    tokens: bool = Field(
        default=True,
        description="Store a vector for each token as well, about 5 kB for a message of a chat, and one that sixteen "
        "languages share. Without them search finds less, and texts in English only.",
    )


class MinilmEmbedder(_Section):
    """The embedding models inside the package, offline: 384 dimensions for English, 512 for sixteen languages."""

    provider: Literal["minilm"] = Field(default="minilm", description="Selects the embedding model.")
    config: MinilmConfig = MinilmConfig()


class OpenaiEmbedderConfig(_Section):
    """An OpenAI-compatible embedding endpoint, to which the texts are sent."""

    model: Text = Field(default="text-embedding-3-small", description="The model's name.")
    api_key: SecretStr | None = Field(
        default=None, description="The API key; by default OPENAI_API_KEY, for OpenAI's own endpoint."
    )
    openai_base_url: SecretUrl | None = Field(
        default=None,
        description="The URL of the endpoint; by default OPENAI_BASE_URL or OPENAI_API_BASE, else OpenAI's own.",
    )
    embedding_dims: Dimensions | None = Field(
        default=None,
        description="The length of the vectors, or the shorter one that the model is asked for. By default the "
        "endpoint is asked.",
    )
    batch_size: Annotated[int, Field(ge=1, le=2048)] | None = Field(
        default=None,
        description="Texts per request; by default 256 at OpenAI's own endpoint and 32, the limit of some servers, "
        "elsewhere.",
    )
    timeout: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=60.0, description="Seconds until a request is given up."
    )


class OpenaiEmbedder(_Section):
    """Embeddings from an OpenAI-compatible endpoint, to which the texts are sent."""

    provider: Literal["openai"] = Field(description="Selects the embedding model.")
    config: OpenaiEmbedderConfig = OpenaiEmbedderConfig()


class CallableEmbedderConfig(_Section):
    """A function of the caller's."""

    embed: EmbedFunction = Field(
        description="The function: takes a list of texts, returns one vector (a sequence of floats) for each."
    )
    embedding_dims: Dimensions = Field(description="The length of its vectors.")
    model: Text = Field(description="A name for its vectors. Vectors of different names are never compared.")


class CallableEmbedder(_Section):
    """Embeddings from a function of the caller's."""

    provider: Literal["callable"] = Field(description="Selects the embedding model.")
    config: CallableEmbedderConfig


class SpacyConfig(_Section):
    """The spaCy pipeline that finds entities and relations."""

    model: Text | None = Field(
        default=None,
        description="The name or path of a spaCy pipeline; by default the small English one that is installed with "
        "graphmem.",
    )


class SpacyExtractor(_Section):
    """Entities and relations from spaCy."""

    provider: Literal["spacy"] = Field(default="spacy", description="Selects the extractor.")
    config: SpacyConfig = SpacyConfig()


class NoExtractor(_Section):
    """No extraction of entities and relations, except by the language model."""

    provider: Literal["none"] = Field(description="Selects the extractor.")
    config: _NoConfig = _NoConfig()


class LlmPrices(_Section):
    """Prices per million tokens, from which the cost in `usage` and `stats()` is computed."""

    prompt: Annotated[float, Field(ge=0)] = Field(description="The price of a million prompt tokens.")
    completion: Annotated[float, Field(ge=0)] = Field(description="The price of a million completion tokens.")
    cached: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="The price of a million prompt tokens read from a cache; by default that of `prompt`."
    )


class OpenaiChatConfig(_Section):
    """An OpenAI-compatible chat endpoint."""

    model: Text = Field(default="gpt-4o-mini", description="The model's name.")
    api_key: SecretStr | None = Field(
        default=None, description="The API key; by default OPENAI_API_KEY, for OpenAI's own endpoint."
    )
    openai_base_url: SecretUrl | None = Field(
        default=None,
        description="The URL of the endpoint; by default OPENAI_BASE_URL or OPENAI_API_BASE, else OpenAI's own.",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="The sampling temperature; not sent by default."
    )
    top_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="The share of nucleus sampling; not sent by default."
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The maximum number of tokens of an answer; not sent by default."
    )
    timeout: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=60.0, description="Seconds for each of at most three attempts of a request."
    )
    prices: LlmPrices | None = Field(default=None, description="Prices per million tokens.")


class OpenaiLlmConfig(OpenaiChatConfig):
    """An OpenAI-compatible chat endpoint."""

    enable_vision: bool = Field(
        default=False, description="Whether this model describes images as well, where `vision` names no other."
    )
    vision_details: IgnoredKey = Field(default=False, description="Ignored: mem0's resolution of images.")


class OpenaiLlm(_Section):
    """The language model: an OpenAI-compatible chat endpoint, to which texts are sent. By default none is called."""

    provider: Literal["openai"] = Field(default="openai", description="Selects the language model.")
    config: OpenaiLlmConfig = OpenaiLlmConfig()


class _RerankerConfig(_Section):
    """What the configurations of all rerankers have."""

    candidates: Annotated[int, Field(ge=1, le=LIMITS.max_top_k)] = Field(
        default=RERANK_CANDIDATES, description="How many of the best memories it orders; the others stay behind them."
    )
    timeout: Annotated[float, Field(gt=0, le=600)] = Field(
        default=RERANK_SECONDS, description="Seconds after which a search keeps its own order."
    )


class HttpRerankerConfig(_RerankerConfig):
    """A route that reranks, to which the query and the texts of memories are sent."""

    url: SecretUrl = Field(
        description="The URL of the route, such as `http://localhost:8080/rerank` or `https://api.jina.ai/v1/rerank`."
    )
    model: Text | None = Field(
        default=None,
        description="The model's name, for routes of the shape of Jina and Cohere (`https://api.cohere.com/v2/rerank`, "
        "vLLM, llama.cpp). Without it requests have the shape of text-embeddings-inference.",
    )
    api_key: SecretStr | None = Field(default=None, description="The API key.")


class HttpReranker(_Section):
    """A reranker at an HTTP endpoint, to which the query and the texts of memories are sent. By default there is none.

    A search uses it with `rerank=True`.
    """

    provider: Literal["http"] = Field(default="http", description="Selects the reranker.")
    config: HttpRerankerConfig


class CallableRerankerConfig(_RerankerConfig):
    """A function of the caller's."""

    rerank: RerankFunction = Field(
        description="The function: takes the query and a list of texts, returns one score for each."
    )


class CallableReranker(_Section):
    """Scores from a function of the caller's. `Memory(reranker=…)` gives one in code, with the default numbers."""

    provider: Literal["callable"] = Field(description="Selects the reranker.")
    config: CallableRerankerConfig


class OpenaiVision(_Section):
    """The model that describes images: an OpenAI-compatible chat endpoint, to which images and their URLs are sent.

    By default none is called.
    """

    provider: Literal["openai"] = Field(default="openai", description="Selects the model.")
    config: OpenaiChatConfig = OpenaiChatConfig()


class OpenaiSpeechConfig(_Section):
    """An OpenAI-compatible endpoint with `/audio/transcriptions`."""

    model: Text = Field(default="whisper-1", description="The model's name.")
    api_key: SecretStr | None = Field(
        default=None, description="The API key; by default OPENAI_API_KEY, for OpenAI's own endpoint."
    )
    openai_base_url: SecretUrl | None = Field(
        default=None,
        description="The URL of the endpoint; by default OPENAI_BASE_URL or OPENAI_API_BASE, else OpenAI's own.",
    )
    language: Text | None = Field(
        default=None, description="The language of all sounds, such as `de`; by default the model finds it out."
    )
    timeout: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=60.0, description="Seconds for each of at most three attempts of a request."
    )


class OpenaiSpeech(_Section):
    """The model that writes down what is said in sounds, which are sent to it. By default none is called."""

    provider: Literal["openai"] = Field(default="openai", description="Selects the model.")
    config: OpenaiSpeechConfig = OpenaiSpeechConfig()


class AttachmentSettings(_Section):
    """What is kept of the data that comes with messages, such as images. URLs are kept as they are, never fetched."""

    store: Literal["reference", "folder"] = Field(
        default="reference",
        description="`reference`: its digest, size and beginning; `folder`: the data as well, in a file in `blobs` in "
        "`home`, until the last memory with it is erased.",
    )


class LimitSettings(_Section):
    """The largest input that one call accepts. Limits can be lowered; all parts of graphmem are built for the defaults.

    `import_` and `graphmem migrate` apply the defaults, whatever is configured.
    """

    max_message_chars: Annotated[int, Field(ge=1, le=LIMITS.max_message_chars)] = Field(
        default=LIMITS.max_message_chars, description="Characters of a message, or of the new text of an update."
    )
    max_messages: Annotated[int, Field(ge=1, le=LIMITS.max_messages)] = Field(
        default=LIMITS.max_messages, description="Messages of one call."
    )
    max_metadata_bytes: Annotated[int, Field(ge=2, le=LIMITS.max_metadata_bytes)] = Field(
        default=LIMITS.max_metadata_bytes,
        description="Bytes, as JSON, of the metadata of a call, and of the metadata of a message.",
    )
    max_attachment_bytes: Annotated[int, Field(ge=0, le=LIMITS.max_attachment_bytes)] = Field(
        default=LIMITS.max_attachment_bytes,
        description="Bytes of the data that comes with a message, such as images, together.",
    )
    max_filter_depth: Annotated[int, Field(ge=0, le=LIMITS.max_filter_depth)] = Field(
        default=LIMITS.max_filter_depth, description="Levels of AND, OR and NOT in a filter."
    )
    max_filter_conditions: Annotated[int, Field(ge=1, le=LIMITS.max_filter_conditions)] = Field(
        default=LIMITS.max_filter_conditions,
        description="Conditions of a filter. A list of values for `in` is one condition.",
    )
    max_top_k: Annotated[int, Field(ge=50, le=LIMITS.max_top_k)] = Field(
        default=LIMITS.max_top_k, description='Hits of a search. `top_k="auto"` returns up to 50.'
    )


MemoryTypeName = Literal["episodic", "semantic", "preference", "fact"]


# Their numbers are the defaults.
_CURVE, _POLICY = ForgettingCurve(), LifecyclePolicy()


class WorkingConfig(_Section):
    """How much of what was said just before working memory gives."""

    rounds: Annotated[int, Field(ge=1, le=100)] = Field(
        default=10, description="The most rounds: one or more user messages each, with the answers."
    )
    tokens: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=4000, description="The most tokens of these messages; the last one is always among them."
    )


class RedisWorkingConfig(WorkingConfig):
    """A Redis server, and how much of what was said just before working memory gives."""

    url: SecretUrl = Field(description="The URL of the Redis server, such as `redis://host:6379/0`.")


class ProcessWorking(_Section):
    """Working memory in each process: at most 1,000 scopes, those used last. Without this section there is none."""

    provider: Literal["memory"] = Field(default="memory", description="Selects the working memory.")
    config: WorkingConfig = WorkingConfig()


class RedisWorking(_Section):
    """Working memory in Redis, for several processes and machines. Needs the extra `redis`."""

    provider: Literal["redis"] = Field(description="Selects the working memory.")
    config: RedisWorkingConfig


class CeleryConfig(_Section):
    """The broker of Celery, and the queue in it."""

    broker_url: SecretUrl = Field(description="The URL of the broker, such as `redis://host:6379/1`.")
    queue: Text = Field(default="graphmem", description="The queue; ledgers that share a broker need one each.")
    transport_options: Annotated[dict[str, Any], BeforeValidator(_json_object)] = Field(
        default={}, repr=False, description="Further options of the broker, as Celery's `broker_transport_options`."
    )


class ThreadWorkers(_Section):
    """Background work is done by threads of each process that has the memory open."""

    provider: Literal["threads"] = Field(default="threads", description="Selects who does background work.")
    config: _NoConfig = _NoConfig()


class ProcessWorkers(_Section):
    """Background work is left to `graphmem worker`, a process of its own."""

    provider: Literal["process"] = Field(description="Selects who does background work.")
    config: _NoConfig = _NoConfig()


class CeleryWorkers(_Section):
    """Background work is left to workers of Celery, on any number of machines. Needs the extra `celery`."""

    provider: Literal["celery"] = Field(description="Selects who does background work.")
    config: CeleryConfig


class LifecycleSettings(_Section):
    """When memories are forgotten and which are kept; off by default. See "Let a memory ripen" in the documentation.

    A memory's retention falls as `e^(-days / strength)`. Its strength is `(base_strength + importance x
    importance_multiplier + accesses x access_bonus) x factor of its type`, at most `max_strength`.
    """

    enabled: bool = Field(default=False, description="Whether memories may be forgotten: each night, and by `tend`.")
    daily_at: Annotated[str, AfterValidator(_checked_time_of_day)] = Field(
        default="03:00",
        description="When a cycle runs each night, in `timezone` (by default in UTC), in a program that has the memory "
        "open, or in a worker (`workers`); nights that were missed are made up for when it is opened next. `never`: "
        "only `tend` runs cycles.",
    )
    since: Annotated[str, AfterValidator(_checked_moment)] | None = Field(
        default=None,
        description="Nothing fades before this time (ISO 8601); by default that at which the lifecycle was enabled.",
    )
    documents: bool = Field(default=False, description="Whether passages and imported documents take part.")
    rules: FilePath | None = Field(
        default=None, description="A TOML file of rules of importance, in place of those of graphmem."
    )
    base_strength: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=_CURVE.base_strength, description="The strength to begin with."
    )
    importance_multiplier: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=_CURVE.importance_multiplier, description="What an importance of 1 adds to it."
    )
    access_bonus: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=_CURVE.access_bonus, description="What each search that finds the memory adds to it."
    )
    type_factors: Annotated[
        dict[MemoryTypeName, Annotated[float, Field(gt=0, le=1000)]], BeforeValidator(_json_object)
    ] = Field(
        default={"preference": 1.5, "fact": 1.3},
        description="Factors by type of memory; 1 for types that are not named.",
    )
    max_strength: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=_CURVE.max_strength, description="The highest strength."
    )
    min_retention: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=_CURVE.min_retention, description="A memory whose retention is lower is forgotten."
    )
    promote_after_days: Annotated[int, Field(ge=0, le=3650)] = Field(
        default=_POLICY.promote_after.days, description="Days after which an important memory is kept for good."
    )
    short_term_capacity: Annotated[int, Field(ge=1)] = Field(
        default=_POLICY.short_term_capacity,
        description="Memories of a user that fade; beyond it the least important are forgotten.",
    )
    long_term_capacity: Annotated[int, Field(ge=1)] = Field(
        default=_POLICY.long_term_capacity,
        description="Memories of a user that are kept; beyond it those that are worth least are forgotten.",
    )
    merged_similarity: Annotated[float, Field(gt=0, le=1)] = Field(
        default=_POLICY.merged_similarity,
        description="Memories with a higher cosine are alike; one that says what the others say stands for them.",
    )
    smallest_cluster: Annotated[int, Field(ge=2)] = Field(
        default=_POLICY.smallest_cluster, description="The fewest like memories of which one stands for the others."
    )
    summarized_memories: Annotated[int, Field(ge=1)] = Field(
        default=_POLICY.summarised_memories,
        description="More events than this that fade are summarised by the language model, if there is one.",
    )
    brake_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=_POLICY.brake_share,
        description="A cycle that would forget a larger share, and more than `brake_memories`, does nothing.",
    )
    brake_memories: Annotated[int, Field(ge=0)] = Field(
        default=_POLICY.brake_memories, description="See `brake_share`."
    )
    purge_after_days: Annotated[int, Field(ge=1, le=36_500)] | None = Field(
        default=None,
        description="What has been forgotten for longer than so many days, by a cycle or by `forget`, is erased for "
        "good by the next cycle, as by `purge`. By default nothing is.",
    )

    @property
    def purge_after(self) -> timedelta | None:
        """How long after it was forgotten a memory is erased by a cycle, None if it never is."""
        return None if self.purge_after_days is None else timedelta(days=self.purge_after_days)

    def policy(self, since: datetime | None) -> LifecyclePolicy:
        """Returns the numbers of a cycle; nothing fades before `since`, unless the setting says otherwise."""
        curve = ForgettingCurve(
            self.base_strength,
            self.importance_multiplier,
            self.access_bonus,
            {str(name): factor for name, factor in self.type_factors.items()},
            self.max_strength,
            self.min_retention,
        )
        return LifecyclePolicy(
            curve,
            since if self.since is None else validation.moment(self.since, "since"),
            timedelta(days=self.promote_after_days),
            self.short_term_capacity,
            self.long_term_capacity,
            self.merged_similarity,
            self.smallest_cluster,
            self.summarized_memories,
            self.brake_share,
            self.brake_memories,
            self.purge_after,
        )

    def nights(self, zone: tzinfo | None) -> Nights | None:
        """Returns when cycles run by themselves, None if they do not; `zone` is that of the settings."""
        if not self.enabled or self.daily_at == NEVER:
            return None
        return Nights(time.fromisoformat(self.daily_at), zone or UTC)

    def read_rules(self) -> Rules:
        """Returns the rules of importance. Raises ConfigError for a file that is not usable."""
        return default_rules() if self.rules is None else parse_rules(read_file(self.rules), str(self.rules))


# --- all of it -----------------------------------------------------------------------------------------------------


class McpSettings(_Section):
    """The MCP server `graphmem mcp`. Its options override these."""

    user_id: Text | None = Field(default=None, description="The user whose memories a client reads and writes.")
    agent_id: Text | None = Field(default=None, description="Only the memories of this agent.")
    run_id: Text | None = Field(default=None, description="Only the memories of this run.")
    tools: Literal["core", "read", "full", "chatgpt"] = Field(
        default="full", description="The tools that a client is offered."
    )
    names: Literal["plain", "dotted"] = Field(
        default="plain", description="The names of the core tools: `add_memory` or `memory.add`."
    )
    instructions: Text | None = Field(
        default=None, description="Instructions for the client's model, appended to the server's own."
    )


class ProxySettings(_Section):
    """The proxy of the service, `POST /v1/chat/completions`: where it sends chats, and what it adds and stores."""

    upstream_url: SecretUrl | None = Field(
        default=None,
        description="The URL of the OpenAI-compatible endpoint that answers, such as `https://api.openai.com/v1`; by "
        "default that of `llm`.",
    )
    upstream_key: SecretStr | None = Field(
        default=None,
        description="The API key of that endpoint; by default OPENAI_API_KEY, for OpenAI's own. Without `upstream_url` "
        "that of `llm`.",
    )
    forward_authorization: bool = Field(
        default=False,
        description="Send the header `Authorization` of a request to the endpoint in place of that key. Clients then "
        "send the service's key as `X-API-Key`.",
    )
    inject: Literal["system", "user"] = Field(
        default="system",
        description="Where memories stand: at the end of the first system message, or in front of the last user "
        "message, which keeps the beginning of a prompt the same for a provider's cache.",
    )
    top_k: Annotated[int, Field(ge=1, le=LIMITS.max_top_k)] = Field(
        default=5, description="The most memories of a prompt."
    )
    max_chars: Annotated[int, Field(ge=1, le=20_000)] = Field(
        default=1200, description="The most characters of the memories of a prompt."
    )
    time_limit: Annotated[float, Field(gt=0, le=60)] = Field(
        default=3.0, description="Seconds that a request waits for memories; then it is sent without."
    )
    save: bool = Field(default=True, description="Store the last rounds of chats.")
    settle_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=600.0,
        description="Seconds after which the last answer of a chat is stored, if no other answer to the same question "
        "replaced it. Earlier it is stored when the client sends it back as part of the chat.",
    )
    user_headers: NameList = Field(
        default=("X-OpenWebUI-User-Id",),
        description="Headers that name the user of a request, after `X-Graphmem-User`; for keys that are not bound to "
        "a user.",
    )
    session_headers: NameList = Field(
        default=("X-OpenWebUI-Chat-Id",), description="Headers that name the chat, after `X-Graphmem-Session`."
    )
    skip: RegularExpressions = Field(
        default=(
            r"\A### Task:",
            r"\AAnalyze this conversation and provide:",
            r"(?is)\A.{0,200}\b(concise|short|brief)\b.{0,60}\btitle\b.{0,40}\bconversation\b",
        ),
        description="Regular expressions; a request whose last user message one of them matches has no memory. The "
        "default ones match requests for titles and tags by Open WebUI and LibreChat.",
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=32 * 1024 * 1024, description="The most bytes of a chat, which may contain images."
    )


class ServeSettings(_Section):
    """The service `graphmem serve`. Its options override these."""

    host: Text = Field(
        default="127.0.0.1",
        description="The address to listen on. Any but a loopback one needs a key (`graphmem keys`).",
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(default=8700, description="The port; 0 takes a free one.")
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Processes. More than one needs a ledger on PostgreSQL.",
    )
    default_user: UserId | None = Field(
        default=None, description="The user of requests that name none, for a service with a single user."
    )
    admin_api_key: Annotated[SecretStr, AfterValidator(_check_key_length)] | None = Field(
        default=None,
        description="A key of the role `admin` that is not in the ledger. Its variable is also GRAPHMEM_ADMIN_API_KEY.",
    )
    allowed_hosts: NameList = Field(
        default=(),
        description="Values of the header `Host`, without port, under which the service may be reached, beside `host` "
        "and the names of loopback.",
    )
    cors_origins: NameList = Field(
        default=(), description="Origins of web pages that may call the service, such as `https://chat.example.org`."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=4 * 1024 * 1024, description="The most bytes of a request's body, except of an import."
    )
    rate: RateLimit = Field(default="600/minute", description="The most requests of one key.")
    add_rate: RateLimit = Field(default="120/minute", description="The most requests of one key that add memories.")
    infer_needs_llm: bool = Field(
        default=True,
        description="Whether `infer: true` is refused without a language model. `false` stores the words as spoken "
        "and names `infer` in the header `X-Graphmem-Ignored`.",
    )
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        default=8, description="Calls of the memory that run at the same time, in each process."
    )
    queue: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=64, description="Calls that may wait for a thread; the next one is answered with status 503."
    )
    forwarded_allow_ips: Annotated[Text, AfterValidator(_checked_networks)] | None = Field(
        default=None,
        description="Addresses or networks of reverse proxies, separated by commas, whose `X-Forwarded-For` is "
        "believed; by default none. `*` believes everybody, so that any client can name any address.",
    )
    redis_url: SecretUrl | None = Field(
        default=None,
        description="A Redis server that counts requests for all processes (extra `redis`). By default each process "
        "counts its own.",
    )

    metrics: bool = Field(default=True, description="Whether `GET /metrics` answers with metrics for Prometheus.")
    ui: bool = Field(default=True, description="Whether the page is served at `/ui/`.")
    proxy: ProxySettings = ProxySettings()

    def with_values(self, **values: Any) -> ServeSettings:
        """Returns these settings with other values. Raises `ConfigError` for an unusable one."""
        return _checked({"serve": {**self.model_dump(), **values}}, "serve").serve


# --- webhooks ------------------------------------------------------------------------------------------------------


def _check_webhook_url(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.fragment
        is_usable = is_usable and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise PydanticCustomError(
            "webhook_url", "must be like https://host/path, without '#', user and password: requests are signed"
        )
    return value


def _check_webhook_secret(value: SecretStr) -> SecretStr:
    prefix, _, encoded = value.get_secret_value().partition("_")
    try:
        key = b64decode(encoded, validate=True) if prefix == "whsec" else b""
    except ValueError:
        key = b""
    if not MIN_WEBHOOK_KEY <= len(key) <= MAX_WEBHOOK_KEY:
        raise PydanticCustomError(
            "webhook_secret",
            "must be whsec_ and the base64 of 24 to 64 bytes; make one by: echo whsec_$(openssl rand -base64 32)",
        )
    return value


def _check_webhook_name(value: str) -> str:
    try:
        return validation.subscriber_name(value)
    except ValidationError as error:
        raise _without_name(error) from None


def _event_type(value: object) -> EventType:
    try:
        return validation.event_type(value, "events")
    except ValidationError as error:
        raise _without_name(error) from None


class WebhookSettings(_Section):
    """An address that events are posted to, as JSON that is signed by the Standard Webhooks specification."""

    name: Annotated[str, AfterValidator(_check_webhook_name)] = Field(
        description="Its name, by which the ledger keeps what it has got: letters, digits, `.`, `_` and `-`."
    )
    url: Annotated[SecretUrl, AfterValidator(_check_webhook_url)] = Field(description="The URL to post to.")
    events: Annotated[tuple[Annotated[EventType, BeforeValidator(_event_type)], ...], Field(min_length=1)] = Field(
        description="What it is told; `Memory.on` says when."
    )
    secret: Annotated[SecretStr, AfterValidator(_check_webhook_secret)] = Field(
        description="The key of the signatures: `whsec_` and the base64 of 24 to 64 random bytes."
    )


def _check_webhook_names(webhooks: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
    names = [one.name for one in webhooks]
    if len(set(names)) < len(names):
        raise PydanticCustomError("same_name", "has two webhooks of one name; give each its own")
    return webhooks


class Settings(_Section):
    """The whole configuration; every key has a default that needs no server, key or network."""

    home: FilePath | None = Field(
        default=None, description="The folder of the ledger's file and key; by default `~/.graphmem`."
    )
    vector_store: Annotated[
        QdrantStore,
        _refuse_other_providers(
            "qdrant", remedy="in place of any other leave vector_store out: the ledger has the vectors"
        ),
    ] = QdrantStore()
    graph_store: Annotated[
        Neo4jGraph | LedgerGraph | NetworkxGraph,
        Field(discriminator="provider"),
        _default_provider("ledger"),
        _refuse_other_providers(
            "ledger",
            "neo4j",
            "networkx",
            remedy="in place of any other leave graph_store out: the ledger has the graph",
        ),
    ] = LedgerGraph()
    embedder: Annotated[
        MinilmEmbedder | OpenaiEmbedder | CallableEmbedder,
        Field(discriminator="provider"),
        _default_provider("minilm"),
        _refuse_other_providers("minilm", "openai", "callable", remedy=_model_remedy("embedder")),
    ] = MinilmEmbedder()
    extractor: Annotated[SpacyExtractor | NoExtractor, Field(discriminator="provider"), _default_provider("spacy")] = (
        SpacyExtractor()
    )
    llm: Annotated[OpenaiLlm | None, _refuse_other_providers("openai", remedy=_model_remedy("llm"))] = None
    reranker: Annotated[
        HttpReranker | CallableReranker | None,
        Field(discriminator="provider"),
        _default_provider("http"),
        _refuse_other_providers(
            "http", "callable", remedy="'http' takes the url of a service's route, 'callable' a function of yours"
        ),
    ] = None
    vision: Annotated[OpenaiVision | None, _refuse_other_providers("openai", remedy=_model_remedy("vision"))] = None
    speech: Annotated[OpenaiSpeech | None, _refuse_other_providers("openai", remedy=_model_remedy("speech"))] = None
    attachments: AttachmentSettings = AttachmentSettings()
    history_db_path: FilePath | None = Field(
        default=None, description="The SQLite file of the ledger; by default `ledger.sqlite` in `home`."
    )
    ledger_url: SecretUrl | None = Field(
        default=None,
        description="The URL of the ledger, instead of `history_db_path`: `sqlite:///…`, or "
        "`postgresql://user:password@host:port/database` for PostgreSQL 14 or newer with the encoding UTF8 (extra "
        "`postgres`).",
    )
    secret_key: Annotated[SecretStr, AfterValidator(_check_secret_length)] | None = Field(
        default=None,
        description=f"The secret key, {MIN_SECRET_CHARS} characters or more: the key of the digests by which erased "
        "messages are recognised. Every machine that uses a ledger needs the same. By default it is read from the file "
        "`secret.key` beside the ledger's file, or in `home` for a ledger on PostgreSQL.",
    )
    replace_secret_key: bool = Field(
        default=False,
        description="Accept a new secret key in place of one that is lost. Messages that were erased before are "
        "then stored again when they are added again.",
    )
    custom_fact_extraction_prompt: Text | None = Field(
        default=None,
        description="Replaces the instructions by which the language model draws facts, not the form of its answer.",
    )
    custom_instructions: Text | None = Field(
        default=None, description="mem0 2's name of `custom_fact_extraction_prompt`, which counts if both are set."
    )
    custom_update_memory_prompt: Text | None = Field(
        default=None,
        description="Replaces the instructions by which the language model decides how new facts change stored ones, "
        "not the form of its answer.",
    )
    extract: Literal["all", "matching", "session"] = Field(
        default="all",
        description="Of which messages the language model draws facts: `all`; or `matching`, those of a call of which "
        "at least one matches a rule of an importance of 0.5 or more (`lifecycle.rules`): small talk costs no request; "
        "or `session`, all of a session at once when it has ended: fewer requests, facts later.",
    )
    conflicts: Literal["time", "confidence"] = Field(
        default="time",
        description="Which of two facts counts that contradict each other: `time`, the one that was said later; "
        "`confidence`, the other one if the language model is surer of it by more than 0.2.",
    )
    before_store: Annotated[BeforeStore, BeforeValidator(_checked_function)] | None = Field(
        default=None,
        description="A function that gets each message before any other processing, and returns it as it may be "
        "stored, or None if it may not be stored.",
    )
    describe: Annotated[Describe, BeforeValidator(_checked_function)] | None = Field(
        default=None,
        description="A function that gets each attachment that comes without a caption or transcript, and returns what "
        "it shows or what is said in it, or None.",
    )
    version: Literal["v1.0", "v1.1"] = Field(
        default="v1.1", description="The form of results: `v1.0` returns bare lists, as mem0 did."
    )
    limits: LimitSettings = LimitSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    working: Annotated[
        ProcessWorking | RedisWorking | None, Field(discriminator="provider"), _default_provider("memory")
    ] = None
    workers: Annotated[
        ThreadWorkers | ProcessWorkers | CeleryWorkers, Field(discriminator="provider"), _default_provider("threads")
    ] = ThreadWorkers()
    mcp: McpSettings = McpSettings()
    serve: ServeSettings = ServeSettings()
    webhooks: Annotated[
        tuple[WebhookSettings, ...], BeforeValidator(_json_array), AfterValidator(_check_webhook_names)
    ] = Field(
        default=(),
        description="Addresses that events are posted to, each with `name`, `url`, `events` (of `session.end`, "
        "`memory.added`, `memory.accessed`, `schedule.daily`) and `secret`; in a variable a JSON array of objects.",
    )
    delivery_wait: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=3.0, description="Seconds that a write waits for the projections before it reports them as pending."
    )
    session_gap: Annotated[float, Field(gt=0, le=525_600)] = Field(
        default=30.0, description="Minutes without a message after which a new session begins."
    )
    timezone: Annotated[str, AfterValidator(_checked_zone)] | None = Field(
        default=None,
        description="The time zone of your users, by its IANA name, such as `Europe/Berlin`. Times without a UTC "
        "offset are local to it (by default to the machine's zone), and days are shown in it (by default in UTC). A "
        "machine without a time zone database, such as a slim image, needs `pip install tzdata`.",
    )
    search_cache_mb: Annotated[int, Field(ge=0)] = Field(
        default=512,
        description="The most megabytes of memory for what searches read of the partitions that were searched last: "
        "about 4.3 kB a memory with its vectors, more with tokens. Partitions for which there is no room are read from "
        "the ledger at each search. 0: all are.",
    )
    summary_messages: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=20,
        description="The language model summarises a session once a new sitting begins, and whenever so many of its "
        "messages are in no summary; 0: never.",
    )

    @property
    def zone(self) -> tzinfo | None:
        """The configured time zone; None if there is none."""
        return None if self.timezone is None else zone_of(self.timezone)

    @model_validator(mode="after")
    def _one_ledger(self) -> Settings:
        if self.history_db_path is not None and self.ledger_url is not None:
            raise PydanticCustomError("conflict", "history_db_path and ledger_url both name the ledger; keep one")
        location = str(self.history_db_path or "") if self.ledger_url is None else self.ledger_url.get_secret_value()
        in_memory = location.startswith("sqlite") and location.endswith(("://", "///", ":memory:"))
        if in_memory or ":memory:" in {location, str(self.home)}:
            # A file or a folder of that name would be made, where the words stay.
            raise PydanticCustomError("no_file", "the ledger is a file; for one in memory open Memory(':memory:')")
        return self

    @property
    def vision_config(self) -> tuple[str, OpenaiChatConfig] | None:
        """The name of the section of the model that describes images, and its settings; None without one."""
        if self.vision is not None:
            return "vision.config", self.vision.config
        if self.llm is not None and self.llm.config.enable_vision:
            return "llm.config", self.llm.config
        return None

    def without_effect(self, *, has_llm: bool = False) -> list[str]:
        """Returns one sentence for each reason why configured keys have no effect, with the keys.

        `has_llm`: whether there is a language model beside the configured one.
        """
        of_facts = self.keys_with_values(
            "custom_fact_extraction_prompt", "custom_instructions", "custom_update_memory_prompt"
        )
        if self.extract != "all":
            of_facts.append("extract")
        if self.conflicts != "time":
            of_facts.append("conflicts")
        graphs = [
            f"graph_store.{name}" for name in self.graph_store.keys_with_values("llm", "custom_prompt", "threshold")
        ]
        keys_by_reason = {
            "for no language model is configured to use it; set llm, or leave it out": (
                of_facts if self.llm is None and not has_llm else []
            ),
            "for relations come from the extractor and from what llm finds; leave it out": graphs,
        }
        return [f"{', '.join(keys)}: without effect, {reason}" for reason, keys in keys_by_reason.items() if keys]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | BaseModel) -> Settings:
        """Builds settings from a dict in mem0's shape, or from the keys that were set in a `MemoryConfig` of mem0.

        Raises `ConfigError` naming each unusable key.
        """
        return _checked(mem0_config_as_dict(data) if isinstance(data, BaseModel) else data, "configuration")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Settings:
        """Builds settings from a .toml, .yaml, .yml or .json file. Raises `ConfigError`.

        Environment variables (see `from_env`) add the keys that the file leaves out, so that secrets can stay out of
        it.
        """
        file_values, variables = read_file(Path(validation.folder(path))), nested_variables(os.environ)
        if not isinstance(file_values, Mapping):
            return _checked(file_values, str(path))
        return _checked(
            merge(variables, file_values),
            str(path),
            lambda key_path: has_path(variables, key_path) and not has_path(file_values, key_path),
        )

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, home: str | os.PathLike[str] | None = None
    ) -> Settings:
        """Builds settings from variables such as GRAPHMEM_HOME and GRAPHMEM_VECTOR_STORE__CONFIG__PATH; empty ones are
        unset.

        `environ` is by default the environment of the process. `home` is a folder that the caller names: variables that
        put the ledger elsewhere are then refused, so that no call meant for the folder changes another ledger. Raises
        `ConfigError`.
        """
        variables = nested_variables(os.environ if environ is None else environ)
        settings = _checked(variables, f"{ENVIRONMENT_PREFIX}* variables", lambda _: True)
        if home is None:
            return settings
        if settings.ledger_url is not None or settings.history_db_path is not None:
            message = (
                f"home: a folder was named, but {ENVIRONMENT_PREFIX}LEDGER_URL or {ENVIRONMENT_PREFIX}HISTORY_DB_PATH "
                "puts the ledger elsewhere; unset it, or do not name a folder"
            )
            raise ConfigError(message)
        return settings.model_copy(update={"home": validation.home(home, "home")})

    def check_available(self) -> None:
        """Raises `ConfigError` for a configured feature that this release does not have."""
        prefixes = ("sqlite:", "sqlite+", "postgres:", "postgresql:", "postgresql+psycopg:")
        if self.ledger_url is not None and not self.ledger_url.get_secret_value().startswith(prefixes):
            message = "ledger_url: this release cannot open such a URL; use 'sqlite:///…' or 'postgresql://…'"
            raise ConfigError(message)


def _checked(data: object, source: str, is_variable: Callable[[Sequence[str]], bool] | None = None) -> Settings:
    """Validates a nested dict.

    `is_variable` returns True for a path of keys whose value comes from an environment variable: an error then names
    the variable. It is None if no variables are read.
    """
    if not isinstance(data, Mapping):
        message = f"{source}: must be a dict of settings, not {type(data).__name__}"
        raise ConfigError(message)
    try:
        return Settings.model_validate(dict(data))
    except pydantic.ValidationError as error:
        # Not `from error`, whose input contains secrets.
        raise ConfigError("; ".join(_error_lines(error, source, is_variable))) from None


def _error_lines(
    validation_error: pydantic.ValidationError, source: str, is_variable: Callable[[Sequence[str]], bool] | None
) -> list[str]:
    """Formats each problem as "source: key.path: message", or as "GRAPHMEM_VARIABLE: message" if a variable is wrong.

    The text uses the place and the expected type, never the value.
    """
    lines = []
    for error_details in validation_error.errors(include_url=False, include_input=False):
        key_path = [str(step) for step in error_details["loc"]]
        if len(key_path) > 1 and Settings.model_fields[key_path[0]].discriminator is not None:
            del key_path[1]  # pydantic's name of the provider is no key of the dict
        message = error_details["msg"]
        if error_details["type"] == "path_type":
            message = "must be a path"
        if error_details["type"] == "other_provider":
            key_path.append("provider")
        if error_details["type"].startswith("union_tag"):
            key_path.append("provider")
            message = f"must be one of {error_details['ctx']['expected_tags']}"
        context = error_details.get("ctx", {})
        variable_path = _variable_path(error_details["type"], key_path, context)
        is_set_by_variable = bool(variable_path) and is_variable is not None and is_variable(variable_path)
        if error_details["type"] == "missing":
            is_alternative = is_variable is not None and not is_set_by_variable
            message = f"is missing; set it{f', or {_variable_name(variable_path)}' if is_alternative else ''}"
        elif error_details["type"] == "unknown_key" and (providers := _providers_with(key_path, context["key"])):
            message = f"needs the {key_path[0]}.provider {' or '.join(map(repr, providers))}; "
            if is_set_by_variable:
                message += f"set {_variable_name([key_path[0], 'provider'])}={providers[0]} too, or unset this variable"
            else:
                message = f"{context['key']!r} {message}set that too, or leave the key out"
        if is_set_by_variable:
            lines.append(f"{_variable_name(variable_path)}: {message}")
        else:
            lines.append(": ".join([source, ".".join(key_path), message] if key_path else [source, message]))
    return lines


def _providers_with(key_path: Sequence[str], key: str | None) -> list[str]:
    """Returns the providers whose configuration has a key, if the path is that of a section with several providers."""
    section, *rest = key_path or [""]
    field = Settings.model_fields.get(section)
    if field is None or field.discriminator is None or rest != ["config"]:
        return []
    return [
        provider
        for alternative in get_args(field.annotation)
        if alternative is not type(None)
        for provider in get_args(alternative.model_fields["provider"].annotation)
        if key in alternative.model_fields["config"].annotation.model_fields
    ]


def _variable_name(key_path: Sequence[str]) -> str:
    return f"{ENVIRONMENT_PREFIX}{'__'.join(key_path).upper()}"


def _variable_path(kind: str, key_path: Sequence[str], context: Mapping[str, Any]) -> Sequence[str]:
    """Returns the path of keys of the environment variable to name in an error about `key_path`.

    `kind` and `context` are the type and the context of pydantic's error. For an unknown key, `key_path` leads to its
    section, and the key is appended. For keys that exclude each other, "*" is appended, which stands for all of them:
    "GRAPHMEM_VECTOR_STORE__CONFIG__*". The number of an element is left out: one variable has the whole list.
    """
    if key_path and key_path[-1].isdecimal():
        return key_path[:-1]
    if kind == "unknown_key" and context["key"] is not None:
        return [*key_path, context["key"]]
    return [*key_path, "*"] if key_path and kind == "conflict" else key_path
