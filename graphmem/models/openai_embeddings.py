"""The Embedder for any OpenAI-compatible endpoint: OpenAI, Azure (`…/openai/v1`), TEI, vLLM, Ollama, LM Studio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphmem.concurrency import raise_if_stopped
from graphmem.errors import EmbedderUnavailable, EmbeddingError
from graphmem.models.http import EndpointError, resolve_endpoint, sdk_client, send, strip_surrogates
from graphmem.models.vectors import unit_rows
from graphmem.plugins import Matrix
from graphmem.tracing import span

# Default lengths of vectors, from https://platform.openai.com/docs/guides/embeddings
KNOWN_DIMS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
# UTF-8 bytes of a window, and of the overlap of two neighbours. A token has three bytes or more, except for rare signs:
# 500 tokens at most, which nearly every model reads whole. Many models silently cut off longer texts.
WINDOW = 1500
OVERLAP = 200
# OpenAI accepts 2,048 texts and 300,000 tokens in a request; others 32 texts (TEI by default).
OPENAI_BATCH, BATCH = 256, 32
_MAX_TOKENS = 300_000
_MIN_BYTES_PER_TOKEN = 2
_SOURCE = "the embedding model"

# The endpoints, by URL and model, that do not accept `dimensions`.
_fixed_dims: set[tuple[str, str]] = set()


class OpenaiEmbedder:
    """An Embedder at an OpenAI-compatible endpoint. Imports the SDK and connects when it first sends a request.

    `dims` is the length of vectors, requested from models that can choose it. None takes the known length of OpenAI's
    models; for another model the constructor finds it by a request, and raises EmbeddingError if that fails.
    `batch_size` is the maximum number of texts in a request. `timeout` limits each try, in seconds. `api_key` and
    `base_url` are those of `OpenaiChatModel`. Raises ConfigError (see `resolve_endpoint`).
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        dims: int | None = None,
        batch_size: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._name = model
        self._endpoint = resolve_endpoint("embedder.config", api_key, base_url)
        self._batch_size = batch_size or (OPENAI_BATCH if self._endpoint.is_openai else BATCH)
        self._connection = sdk_client(self._endpoint, timeout, EmbeddingError)
        self._configured_dims = dims
        self.dims = dims or KNOWN_DIMS.get(model) or self._measure_dims()

    @property
    def model(self) -> str:
        """The name under which vectors are stored. It includes their length: shortened vectors are different ones."""
        return f"openai/{self._name}/{self.dims}"

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        windows_by_text = [
            [window for window in _windows(strip_surrogates(text).strip()) if window] or [""] for text in texts
        ]
        windows = [window for text_windows in windows_by_text for window in text_windows]
        # Endpoints refuse empty texts: those are not sent and get an arbitrary unit vector, because zeros have no
        # direction.
        rows = np.zeros((len(windows), self.dims), np.float32)
        rows[:, 0] = 1
        nonempty = [index for index, window in enumerate(windows) if window]
        remedy = "embedder.config.embedding_dims: set it to {length}"
        if self._configured_dims:
            remedy += ", or leave it out"
        for batch in self._batches(nonempty, windows):
            raise_if_stopped()
            vectors = self._request_vectors([windows[index] for index in batch])
            rows[batch] = unit_rows(vectors, len(batch), self.dims, source=_SOURCE, remedy=remedy)
        ends = np.cumsum([len(text_windows) for text_windows in windows_by_text])
        return [rows[end - len(text_windows) : end] for text_windows, end in zip(windows_by_text, ends, strict=True)]

    def embed_query(self, text: str) -> Matrix:
        return np.asarray(_unit(self.embed([text])[0].sum(axis=0, keepdims=True))[0])

    def close(self) -> None:
        self._connection.close()

    def _measure_dims(self) -> int:
        try:
            (vector,) = self._request_vectors(["length"])
            if not isinstance(vector, list) or not vector:
                raise self._error("returned something else than a vector of numbers")
            return len(vector)
        except EmbeddingError as error:
            self.close()
            raise EmbeddingError(f"{error}; with embedder.config.embedding_dims set, opening asks nothing") from None

    def _batches(self, indices: Sequence[int], windows: Sequence[str]) -> Iterator[list[int]]:
        batch, size = list[int](), 0
        for index in indices:
            tokens = len(windows[index].encode()) // _MIN_BYTES_PER_TOKEN + 1
            if batch and (len(batch) == self._batch_size or size + tokens > _MAX_TOKENS):
                yield batch
                batch, size = [], 0
            batch.append(index)
            size += tokens
        if batch:
            yield batch

    def _request_vectors(self, texts: Sequence[str]) -> list[Any]:
        """Returns the endpoint's vectors for the texts in order, unchecked. Raises EmbeddingError."""
        attributes = {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.request.model": self._name,
            **self._endpoint.attributes,
        }
        with span(f"embeddings {self._name}", client=True, **attributes) as traced:
            response = self._send_request(texts)
            if isinstance(response, EndpointError):
                error_class = EmbedderUnavailable if response.is_transient else EmbeddingError
                raise error_class(f"{_SOURCE} {self._describe(response, len(texts))}")
            body = response.body if isinstance(response.body, dict) else {}
            usage = body.get("usage")
            traced.set_attributes(
                **{"gen_ai.usage.input_tokens": usage.get("prompt_tokens") if isinstance(usage, dict) else None}
            )
            data = body.get("data")
            vectors = _vectors_by_index(data, len(texts))
            if vectors is None:
                count = len(data) if isinstance(data, list) else "none"
                raise self._error(
                    f"does not answer with one vector for each text (it gave {count} for {len(texts)} texts); check "
                    "embedder.config.openai_base_url (mostly it ends in /v1) and the model"
                )
            return vectors

    def _send_request(self, texts: Sequence[str]) -> Any:
        endpoint_and_model = self._endpoint.url, self._name
        create = self._connection.client().embeddings.with_raw_response.create
        # The SDK's default is base64, which some servers do not support.
        call = partial(create, model=self._name, input=list(texts), encoding_format="float")
        if self._configured_dims is None or endpoint_and_model in _fixed_dims:
            return send(call)
        response = send(partial(call, dimensions=self._configured_dims))
        if isinstance(response, EndpointError) and response.mentions_any("dimension", "matryoshka"):
            response = send(call)
            if not isinstance(response, EndpointError):
                _fixed_dims.add(endpoint_and_model)
        return response

    def _describe(self, error: EndpointError, count: int) -> str:
        if error.is_too_large or (count > 1 and error.mentions_any("batch", "too many inputs", "too large")):
            return f"finds {count} texts too much at once (HTTP {error.status}); set embedder.config.batch_size lower"
        return error.describe(self._endpoint, self._name)

    def _error(self, description: str) -> EmbeddingError:
        return EmbeddingError(f"{_SOURCE} {description}")


def _vectors_by_index(data: Any, count: int) -> list[Any] | None:
    """Returns the vectors in the order of their indices; None unless there is exactly one for each text."""
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        return None
    indices = [item.get("index", position) for position, item in enumerate(data)]
    if not all(isinstance(index, int) for index in indices) or sorted(indices) != list(range(count)):
        return None
    vectors = {index: item.get("embedding") for index, item in zip(indices, data, strict=True)}
    return [vectors[index] for index in range(count)]


def _windows(text: str) -> Iterator[str]:
    """Yields the whole text, or overlapping windows of a long one, cut at spaces if possible."""
    raw = text.encode()
    start = 0
    while len(raw) - start > WINDOW:
        end = start + WINDOW
        blank = raw.rfind(b" ", start + WINDOW // 2, end)
        end = blank if blank > 0 else end
        yield raw[start:end].decode("utf-8", "ignore").strip()
        start = end - OVERLAP
    yield raw[start:].decode("utf-8", "ignore").strip()


def _unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)
