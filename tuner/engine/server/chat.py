"""OpenAI's chat completion objects."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.engine.request import Delta, TokenLogprob
from tuner.engine.server.answer import finite_logprob
from tuner.engine.server.prompts import PromptReader

_UNDECODED = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatShape:
    """The objects of one chat completion.

    Attributes:
        request_id: id of the answer.
        created: Unix seconds.
        model: model id as served.
        fingerprint: system fingerprint.
        prompts: gives each token its text.
        with_token_ids: token ids go into the choices too.
    """

    request_id: str
    created: int
    model: str
    fingerprint: str
    prompts: PromptReader
    with_token_ids: bool

    def opening(self) -> dict[str, object] | None:
        """Return the chunk that announces the role."""
        choice: dict[str, object] = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._object("chat.completion.chunk", [choice])

    def chunk(self, delta: Delta) -> dict[str, object]:
        """Return the chunk of one delta."""
        return self._object(
            "chat.completion.chunk", [self._choice(delta, "delta", {"content": delta.text})]
        )

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""
        return self._object("chat.completion.chunk", [])

    def body(self, whole: Delta) -> dict[str, object]:
        """Return the body of an answer that is not streamed."""
        message: dict[str, object] = {"role": "assistant", "content": whole.text, "refusal": None}
        return self._object("chat.completion", [self._choice(whole, "message", message)])

    def _object(self, kind: str, choices: list[object]) -> dict[str, object]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _choice(self, delta: Delta, key: str, content: dict[str, object]) -> dict[str, object]:
        entries = [self._logprob(entry) for entry in delta.logprobs]
        choice: dict[str, object] = {
            "index": 0,
            key: content,
            "logprobs": {"content": entries, "refusal": None} if entries else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.with_token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice

    def _logprob(self, entry: TokenLogprob) -> dict[str, object]:
        top = [self._token(token, value) for token, value in entry.top]
        return {**self._token(entry.token_id, entry.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, object]:
        """Return a token with its bytes; null for one that is no whole character by itself."""
        text = self.prompts.token_text(token_id)
        token: dict[str, object] = {
            "token": text,
            "logprob": finite_logprob(logprob),
            "bytes": None if _UNDECODED in text else list(text.encode()),
        }
        if self.with_token_ids:
            token["token_id"] = token_id
        return token
