"""OpenAI's text completion objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.engine.request import Delta, TokenLogprob
from tuner.engine.server.answer import finite_logprob
from tuner.engine.server.prompts import PromptReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """A prompt that stands before its answers.

    Attributes:
        text: the prompt as it was sent, or the text of its token ids.
        token_ids: its tokens.
    """

    text: str
    token_ids: tuple[int, ...]


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
        echoes: the prompt of each choice where it is to stand before the answer; empty otherwise.
        with_logprobs: each token has its log probability.
    """

    request_id: str
    created: int
    model: str
    fingerprint: str
    prompts: PromptReader
    with_token_ids: bool
    echoes: tuple[Echo, ...] = ()
    with_logprobs: bool = False
    _offsets: dict[int, int] = field(default_factory=dict, init=False)

    def opening(self, index: int) -> dict[str, object] | None:
        """Return None: a text completion has no role to announce."""
        return None

    def chunk(self, index: int, delta: Delta) -> dict[str, object]:
        """Return the chunk of one delta of a choice."""
        return self._object([self._choice(index, delta)])

    def usage_chunk(self) -> dict[str, object]:
        """Return a chunk without choices, to carry the usage."""
        return self._object([])

    def body(self, answers: Sequence[Delta]) -> dict[str, object]:
        """Return the body of a request that is not streamed, one choice an answer."""
        return self._object([self._choice(index, whole) for index, whole in enumerate(answers)])

    def _object(self, choices: Sequence[object]) -> dict[str, object]:
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _choice(self, index: int, delta: Delta) -> dict[str, object]:
        echo = self.echoes[index] if self.echoes and index not in self._offsets else None
        entries: list[TokenLogprob | int] = list(delta.logprobs)
        if echo is not None and self.with_logprobs:
            entries = [echo.token_ids[0], *delta.prompt_logprobs, *delta.logprobs]
        self._offsets.setdefault(index, 0)
        choice: dict[str, object] = {
            "index": index,
            "text": delta.text if echo is None else echo.text + delta.text,
            "logprobs": self._logprobs(index, entries) if entries else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.with_token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice

    def _logprobs(self, index: int, entries: Sequence[TokenLogprob | int]) -> dict[str, object]:
        """Return OpenAI's object; a bare token id is a prompt's first token, which has none."""
        scored = [None if isinstance(entry, int) else entry for entry in entries]
        ids = [entry if isinstance(entry, int) else entry.token_id for entry in entries]
        tokens = [self.prompts.token_text(token) for token in ids]
        logprobs: dict[str, object] = {
            "tokens": tokens,
            "token_logprobs": [entry and finite_logprob(entry.logprob) for entry in scored],
            "top_logprobs": [entry and self._alternatives(entry) for entry in scored],
            "text_offset": [self._next_offset(index, token) for token in tokens],
        }
        if self.with_token_ids:
            tops = [() if entry is None else entry.top for entry in scored]
            logprobs["token_ids"] = ids
            logprobs["top_token_ids"] = [[token for token, _ in top] for top in tops]
            logprobs["top_token_logprobs"] = [
                [finite_logprob(value) for _, value in top] for top in tops
            ]
        return logprobs

    def _alternatives(self, entry: TokenLogprob) -> dict[str, float]:
        """Key alternatives by text; one whose text is taken by a better one, by its id."""
        named: dict[str, float] = {}
        for token, value in entry.top:
            text = self.prompts.token_text(token)
            named[f"token_id:{token}" if text in named else text] = finite_logprob(value)
        return named

    def _next_offset(self, index: int, token: str) -> int:
        offset = self._offsets[index]
        self._offsets[index] += len(token)
        return offset
