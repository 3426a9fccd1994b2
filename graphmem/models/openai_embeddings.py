"""Embeddings from any OpenAI-compatible endpoint: OpenAI, Azure (`…/openai/v1`), TEI, vLLM, Ollama, LM Studio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphmem.errors import EmbeddingError
from graphmem.models.http import Connection, EndpointError, resolve_endpoint, send, strip_surrogates
from graphmem.models.protocols import Matrix
from graphmem.tracing import span

# https://platform.openai.com/docs/guides/embeddings: lengths of the vectors where none is asked for.
KNOWN_DIMS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
# UTF-8 bytes of a window, and what two neighbours share. A token is three bytes or more, but for rare signs: 500 tokens
# at most, which nearly every model reads whole, where many cut off what is longer without a word.
WINDOW = 1500
OVERLAP = 200
# OpenAI takes 2,048 texts and 300,000 tokens at once; others 32 texts (TEI, unless told otherwise).
OPENAI_BATCH, BATCH = 256, 32
_TOKENS = 300_000
_BYTES_OF_A_TOKEN = 2

# Endpoints, by URL and model, that do not take `dimensions`.
_fixed: set[tuple[str, str]] = set()


class OpenaiEmbedder:
    """An Embedder. Nothing is imported or connected before the first text, unless the length of vectors is asked for.

    `dims` is their length; if the model can, it makes them so. None: known of OpenAI's models, else found out at once
    by a request, which raises EmbeddingError if it fails. `batch_size` is the most texts of one request, `timeout` is
    in seconds, of each try. Key and URL are those of `OpenaiChatModel`, and so are the errors about them.
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
        self._connection = Connection(self._endpoint, timeout, EmbeddingError)
        self._wanted = dims
        self.dims = dims or KNOWN_DIMS.get(model) or self._found_out()

    @property
    def model(self) -> str:
        """The name vectors are filed under: shortened ones are others."""
        return f"openai/{self._name}/{self.dims}"

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        parts = [[window for window in _windows(strip_surrogates(text).strip()) if window] or [""] for text in texts]
        windows = [window for part in parts for window in part]
        # What has no words is not sent (endpoints refuse it): it has a direction all the same, as a zero has none.
        rows = np.zeros((len(windows), self.dims), np.float32)
        rows[:, 0] = 1
        told = [index for index, window in enumerate(windows) if window]
        for batch in self._batches(told, windows):
            rows[batch] = self._rows([windows[index] for index in batch])
        ends = np.cumsum([len(part) for part in parts])
        return [rows[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]

    def embed_query(self, text: str) -> Matrix:
        return np.asarray(_unit(self.embed([text])[0].sum(axis=0, keepdims=True))[0])

    def close(self) -> None:
        self._connection.close()

    def _found_out(self) -> int:
        try:
            return len(self._vectors(["length"])[0])
        except EmbeddingError as error:
            self.close()
            raise EmbeddingError(f"{error}; with embedder.config.embedding_dims set, opening asks nothing") from None

    def _batches(self, indices: Sequence[int], windows: Sequence[str]) -> Iterator[list[int]]:
        batch, size = list[int](), 0
        for index in indices:
            tokens = len(windows[index].encode()) // _BYTES_OF_A_TOKEN + 1
            if batch and (len(batch) == self._batch_size or size + tokens > _TOKENS):
                yield batch
                batch, size = [], 0
            batch.append(index)
            size += tokens
        if batch:
            yield batch

    def _rows(self, texts: Sequence[str]) -> Matrix:
        """A unit row for each text."""
        try:
            rows = np.asarray(self._vectors(texts), dtype=np.float32)
        except (ValueError, TypeError, OverflowError):
            rows = np.empty(0, np.float32)
        if rows.ndim != 2 or not np.isfinite(rows).all() or not rows.any(axis=1).all():  # noqa: PLR2004
            raise self._error("answers with something else than a vector of numbers for each text")
        if rows.shape[1] != self.dims:
            remedy = f"set it to {rows.shape[1]}, or leave it out" if self._wanted else f"set it to {rows.shape[1]}"
            raise self._error(
                f"gives vectors of {rows.shape[1]} numbers where {self.dims} are expected; "
                f"embedder.config.embedding_dims: {remedy}"
            )
        return _unit(rows)

    def _vectors(self, texts: Sequence[str]) -> list[Any]:
        """What the endpoint answers for the texts, in their order. Raises EmbeddingError."""
        about = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": self._name, **self._endpoint.attributes}
        with span(f"embeddings {self._name}", client=True, **about) as traced:
            found = self._asked(texts)
            if isinstance(found, EndpointError):
                raise self._error(self._told(found, len(texts)))
            body = found.body if isinstance(found.body, dict) else {}
            usage = body.get("usage")
            traced.set_attributes(
                **{"gen_ai.usage.input_tokens": usage.get("prompt_tokens") if isinstance(usage, dict) else None}
            )
            vectors = _ordered(body.get("data"), len(texts))
            if vectors is None:
                raise self._error(
                    f"does not answer with one vector for each of {len(texts)} texts; check "
                    "embedder.config.openai_base_url (mostly it ends in /v1) and the model"
                )
            return vectors

    def _asked(self, texts: Sequence[str]) -> Any:
        place = self._endpoint.url, self._name
        create = self._connection.client().embeddings.with_raw_response.create
        # Floats: not every server knows base64, which the SDK asks for by itself.
        call = partial(create, model=self._name, input=list(texts), encoding_format="float")
        if self._wanted is None or place in _fixed:
            return send(call)
        found = send(partial(call, dimensions=self._wanted))
        if isinstance(found, EndpointError) and found.mentions_any("dimension", "matryoshka"):
            found = send(call)
            if not isinstance(found, EndpointError):
                _fixed.add(place)
        return found

    def _told(self, refusal: EndpointError, count: int) -> str:
        if refusal.is_too_large or (count > 1 and refusal.mentions_any("batch", "too many inputs", "too large")):
            return f"finds {count} texts too much at once (HTTP {refusal.status}); set embedder.config.batch_size lower"
        return refusal.describe(self._endpoint, self._name)

    def _error(self, told: str) -> EmbeddingError:
        return EmbeddingError(f"the embedding model {told}")


def _ordered(data: Any, count: int) -> list[Any] | None:
    """The vectors by their index; None unless there is one for each."""
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        return None
    found = {one.get("index", place): one.get("embedding") for place, one in enumerate(data)}
    return [found[index] for index in range(count)] if found.keys() == set(range(count)) else None


def _windows(text: str) -> Iterator[str]:
    """A text whole, or in windows that overlap; cut between words where there are any."""
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
