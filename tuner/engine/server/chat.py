"""OpenAI's chat completion objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.records import FinishReason
from tuner.engine.request import Delta, TokenLogprob
from tuner.engine.server.answer import finite_logprob
from tuner.engine.server.prompts import PromptReader
from tuner.engine.server.tools import CallReader, ParsedCall

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
        reads_calls: the model was shown tools, so its answer may call them.
    """

    request_id: str
    created: int
    model: str
    fingerprint: str
    prompts: PromptReader
    with_token_ids: bool
    reads_calls: bool = False
    _readers: dict[int, CallReader] = field(default_factory=dict, init=False)

    def opening(self, index: int) -> dict[str, object] | None:
        """Return the chunk that announces the role."""
        choice: dict[str, object] = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._object("chat.completion.chunk", [choice])

    def chunk(self, index: int, delta: Delta) -> dict[str, object] | None:
        """Return the chunk of one delta of a choice; None while it may still be a call."""
        text, calls = self._read(index, delta)
        content: dict[str, object] = {"content": text}
        if calls:
            first = self._readers[index].num_calls - len(calls)
            entries = [{"index": first + n, **call.to_dict()} for n, call in enumerate(calls)]
            content = {"content": text or None, "tool_calls": entries}
        elif not text and delta.text and delta.finish_reason is None and not delta.logprobs:
            return None
        return self._object("chat.completion.chunk", [self._choice(index, delta, "delta", content)])

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""
        return self._object("chat.completion.chunk", [])

    def body(self, answers: Sequence[Delta]) -> dict[str, object]:
        """Return the body of a request that is not streamed, one choice an answer."""
        choices: list[object] = [
            self._choice(index, whole, "message", self._message(index, whole))
            for index, whole in enumerate(answers)
        ]
        return self._object("chat.completion", choices)

    def _message(self, index: int, whole: Delta) -> dict[str, object]:
        text, calls = self._read(index, whole)
        message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            called = [call.to_dict() for call in calls]
            message |= {"content": text or None, "tool_calls": called}
        return message

    def _read(self, index: int, delta: Delta) -> tuple[str, list[ParsedCall]]:
        if not self.reads_calls:
            return delta.text, []
        reader = self._readers.setdefault(index, CallReader())
        return reader.push(delta.text, is_last=delta.finish_reason is not None)

    def _finish_reason(self, index: int, delta: Delta) -> str | None:
        reader = self._readers.get(index)
        if reader is not None and reader.num_calls and delta.finish_reason is FinishReason.STOP:
            return "tool_calls"
        return delta.finish_reason

    def _object(self, kind: str, choices: list[object]) -> dict[str, object]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _choice(
        self, index: int, delta: Delta, key: str, content: dict[str, object]
    ) -> dict[str, object]:
        entries = [self._logprob(entry) for entry in delta.logprobs]
        choice: dict[str, object] = {
            "index": index,
            key: content,
            "logprobs": {"content": entries, "refusal": None} if entries else None,
            "finish_reason": self._finish_reason(index, delta),
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
