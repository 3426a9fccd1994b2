"""The reranker at an HTTP endpoint, in the shapes of text-embeddings-inference (TEI), Jina and Cohere.

Jina's and Cohere's shape is that of vLLM, llama.cpp and Infinity as well: `{"model", "query", "documents"}`, answered
by `{"results": [{"index", "relevance_score"}]}`. TEI serves one model: `{"query", "texts"}`, answered by
`[{"index", "score"}]`.
"""

from __future__ import annotations

from typing import Any

from graphmem.errors import ConfigError, ModelError
from graphmem.models.http import (
    NO_KEY,
    Endpoint,
    LazyClient,
    mute_request_logs,
    open_client,
    parse_url,
    strip_surrogates,
)
from graphmem.tracing import span

# Characters of a text that are sent. Rerankers read some hundred tokens of it, Cohere's at most 4,096.
MAX_CHARS = 8_000
_OK = 200


class EndpointReranker:
    """A Reranker at an endpoint. Connects when it first sends a request; asks once, as a search waits for it.

    `url` is the address of the route, such as "http://localhost:8080/rerank"; a user and password in it are sent as
    a header in place of the key. With a `model` requests have Jina's and Cohere's shape, without one TEI's. `timeout`
    limits each wait for data, in seconds. Raises ConfigError for an invalid URL or key; a call raises ModelError.
    """

    def __init__(
        self, url: str, *, model: str | None = None, api_key: str | None = None, timeout: float = 10.0
    ) -> None:
        address, headers = parse_url("reranker.config.url", url, like="https://host/v1/rerank")
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("reranker.config.api_key: holds characters that no key has; copy it anew (not shown)")
        if key and not headers:
            headers = {"Authorization": f"Bearer {key}"}
        self._endpoint = Endpoint("reranker.config", address, key or NO_KEY, headers)
        self._model = model
        self._timeout = timeout
        self._connection = LazyClient[Any](self._open_client, ModelError)

    def __call__(self, query: str, texts: list[str], /) -> list[float]:
        """Returns the endpoint's score of each text, in their order. Raises ModelError."""
        cut = [strip_surrogates(text[:MAX_CHARS]) for text in texts]
        body: dict[str, Any] = {"query": strip_surrogates(query)}
        if self._model is None:
            body |= {"texts": cut, "truncate": True}
        else:
            body |= {"model": self._model, "documents": cut, "top_n": len(cut)}
        attributes = {"gen_ai.operation.name": "rerank", **self._endpoint.attributes, "gen_ai.provider.name": None}
        name = "the reranker's endpoint"
        with span("rerank", client=True, **attributes):
            client = self._connection.client()
            try:
                with mute_request_logs():
                    response = client.post(self._endpoint.url, json=body, headers=dict(self._endpoint.headers))
            except Exception as error:  # noqa: BLE001  (the transport's; their text may quote the request)
                raise ModelError(
                    f"{name} gave no answer ({type(error).__name__}); check reranker.config.url and "
                    "reranker.config.timeout"
                ) from None
            if response.status_code != _OK:
                raise ModelError(
                    f"{name} refuses the request (HTTP {response.status_code}); check reranker.config.url, which is "
                    "that of the route, api_key and model"
                )
            try:
                answer = response.json()
            except (ValueError, RecursionError):
                raise ModelError(f"{name} answers with something else than JSON; check reranker.config.url") from None
            return self._scores(answer, len(texts))

    @staticmethod
    def _scores(answer: Any, count: int) -> list[float]:
        """Returns the scores of an answer in the order of the texts."""
        items = answer.get("results") if isinstance(answer, dict) else answer
        scores: dict[Any, float] = {}
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                score = item.get("relevance_score", item.get("score"))
                if type(item.get("index")) is int and isinstance(score, int | float):
                    scores[item["index"]] = score
        if scores.keys() != set(range(count)):
            raise ModelError(
                f"the reranker's endpoint does not answer with one score for each of {count} texts; check "
                "reranker.config.model: set for Jina's and Cohere's routes, left out for TEI's"
            )
        return [scores[index] for index in range(count)]

    def _open_client(self) -> Any:
        try:
            return open_client(self._timeout)
        except Exception as error:  # noqa: BLE001  (an unusable proxy, unreadable certificates)
            raise ModelError(
                f"no connection can be set up ({type(error).__name__}); check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            ) from None

    def close(self) -> None:
        """Closes the connections. A second call does nothing; a later call of the reranker raises ModelError."""
        self._connection.close()
