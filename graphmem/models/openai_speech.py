"""Transcription at any OpenAI-compatible endpoint: OpenAI, Azure (`…/openai/v1`), whisper.cpp, vLLM, speaches, Groq."""

from __future__ import annotations

from functools import partial
from mimetypes import guess_extension
from time import monotonic

from graphmem.errors import LLMRejected, LLMUnavailable, LLMUnusable
from graphmem.models.http import EndpointError, resolve_endpoint, sdk_client, send
from graphmem.plugins import Transcript, Usage
from graphmem.tracing import span

# Endings that endpoints know a sound by, where Python has another or none.
_ENDINGS = {"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/wave": ".wav", "audio/mp3": ".mp3", "audio/mpeg": ".mp3",
            "audio/mp4": ".m4a", "audio/m4a": ".m4a", "audio/webm": ".webm", "audio/ogg": ".ogg",
            "audio/flac": ".flac"}  # fmt: skip


class OpenaiTranscriber:
    """A Transcriber at an OpenAI-compatible endpoint. Imports the SDK and connects at the first sound.

    `language` (ISO 639-1) is that of all sounds, None if the model is to find out. `timeout` limits each of at most
    three tries, in seconds. `api_key` and `base_url` are those of `OpenaiChatModel`. Raises ConfigError.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        language: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.name = model
        self._endpoint = resolve_endpoint("speech.config", api_key, base_url)
        self._language = language
        self._connection = sdk_client(self._endpoint, timeout, LLMUnavailable)

    def transcribe(self, data: bytes, mime: str | None) -> Transcript:
        begin = monotonic()
        kind = (mime or "audio/wav").partition(";")[0].strip().lower()
        file = (f"sound{_ENDINGS.get(kind) or guess_extension(kind) or '.wav'}", data, kind)
        options = {} if self._language is None else {"language": self._language}
        attributes = {"gen_ai.operation.name": "transcription", "gen_ai.request.model": self.name}
        with span(f"transcription {self.name}", client=True, **attributes, **self._endpoint.attributes):
            create = self._connection.client().audio.transcriptions.with_raw_response.create
            response = send(partial(create, model=self.name, file=file, response_format="json", **options))
        if isinstance(response, EndpointError):
            error_class = LLMUnavailable if response.is_transient else LLMRejected
            message = f"the speech model {response.describe(self._endpoint, self.name)}"
            raise error_class(message, Usage(calls=response.tries))
        usage = Usage(calls=response.tries, seconds=monotonic() - begin)
        text = response.body.get("text") if isinstance(response.body, dict) else None
        if not isinstance(text, str):
            raise LLMUnusable(
                "the speech model's answer has no text; check that speech.config.openai_base_url is that of an "
                "OpenAI-compatible endpoint (mostly it ends in /v1), and that the model transcribes",
                usage,
            )
        return Transcript(text, usage)

    def close(self) -> None:
        self._connection.close()
