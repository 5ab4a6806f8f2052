"""OpenAI's text completion objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.engine.request import Delta, TokenLogprob
from tuner.engine.server.answer import finite_logprob
from tuner.engine.server.prompts import PromptReader


@dataclass(slots=True, kw_only=True)
class CompletionShape:
    """The objects of one text completion.

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
    _offset: int = field(default=0, init=False)

    def opening(self) -> dict[str, object] | None:
        """Return None: a text completion has no role to announce."""
        return None

    def chunk(self, delta: Delta) -> dict[str, object]:
        """Return the chunk of one delta."""
        return self._object([self._choice(delta)])

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""
        return self._object([])

    def body(self, whole: Delta) -> dict[str, object]:
        """Return the body of an answer that is not streamed."""
        return self._object([self._choice(whole)])

    def _object(self, choices: list[object]) -> dict[str, object]:
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _choice(self, delta: Delta) -> dict[str, object]:
        choice: dict[str, object] = {
            "index": 0,
            "text": delta.text,
            "logprobs": self._logprobs(delta.logprobs) if delta.logprobs else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.with_token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice

    def _logprobs(self, entries: tuple[TokenLogprob, ...]) -> dict[str, object]:
        tokens = [self.prompts.token_text(entry.token_id) for entry in entries]
        logprobs: dict[str, object] = {
            "tokens": tokens,
            "token_logprobs": [finite_logprob(entry.logprob) for entry in entries],
            "top_logprobs": [self._alternatives(entry) for entry in entries],
            "text_offset": [self._next_offset(token) for token in tokens],
        }
        if self.with_token_ids:
            logprobs["token_ids"] = [entry.token_id for entry in entries]
            logprobs["top_token_ids"] = [[token for token, _ in entry.top] for entry in entries]
            logprobs["top_token_logprobs"] = [
                [finite_logprob(value) for _, value in entry.top] for entry in entries
            ]
        return logprobs

    def _alternatives(self, entry: TokenLogprob) -> dict[str, float]:
        """Key alternatives by text; one whose text is taken by a better one, by its id."""
        named: dict[str, float] = {}
        for token, value in entry.top:
            text = self.prompts.token_text(token)
            named[f"token_id:{token}" if text in named else text] = finite_logprob(value)
        return named

    def _next_offset(self, token: str) -> int:
        offset = self._offset
        self._offset += len(token)
        return offset
