"""Text to token ids and back, for the server.

Uses the tokenizer's Rust core directly, without ever changing its settings, so that any number of
threads may encode while the engine thread decodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from tuner.engine.errors import InvalidRequest
from tuner.engine.model.codec import HfCodec
from tuner.engine.server.tools import CALL_START, TemplateTools


class PromptReader:
    """Turns prompts and messages into token ids, and single tokens into text."""

    def __init__(self, codec: HfCodec) -> None:
        """Take over the engine's tokenizer, before the engine thread starts.

        Args:
            codec: the tokenizer; cutting and filling up of long and short texts are switched off.
        """
        self._codec = codec
        self._fast: Tokenizer = codec.tokenizer.backend_tokenizer
        self._fast.no_truncation()
        self._fast.no_padding()
        self._texts: dict[int, str] = {}

    @property
    def tokenizer_json(self) -> str:
        """The tokenizer in the form of Hugging Face's tokenizers."""
        return str(self._fast.to_str())

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a plain prompt, after the start token of models that have one."""
        return self._encode(text, add_special_tokens=True)

    def encode_chat(
        self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()
    ) -> tuple[int, ...]:
        """Return the token ids of messages, and of tools, under the model's chat template.

        Raises:
            InvalidRequest: the model has no chat template, or the template refuses the messages.
        """
        return self._encode(self._render(messages, tools), add_special_tokens=False)

    @cached_property
    def template_tools(self) -> TemplateTools:
        """What the chat template knows of tools."""
        template = self._codec.tokenizer.chat_template
        source = template if isinstance(template, str) else json.dumps(template or "")
        hidden = self._codec.tokenizer.all_special_tokens
        return TemplateTools(
            shows_tools=re.search(r"\btools\b", source) is not None,
            shows_calls="tool_calls" in source,
            teaches_calls=CALL_START in source and CALL_START not in hidden,
        )

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included."""
        return self._codec.decode(token_ids)

    def token_text(self, token_id: int) -> str:
        """Return the text of one token; U+FFFD where it is no whole character by itself."""
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = self._codec.decode([token_id])
        return text

    def _encode(self, text: str, add_special_tokens: bool) -> tuple[int, ...]:
        """Encode as a batch of one: unlike `encode`, that lets other threads run meanwhile."""
        [encoding] = self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def _render(
        self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]
    ) -> str:
        tokenizer = self._codec.tokenizer
        if not tokenizer.chat_template:
            raise InvalidRequest(
                "this model has no chat template; send a plain prompt to /v1/completions",
                param="messages",
            )
        # Templates read more than the roles and contents that transformers' types name.
        conversation: list[Any] = [dict(message) for message in messages]
        try:
            rendered = tokenizer.apply_chat_template(
                conversation,
                tools=[dict(tool) for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        except (TemplateError, TypeError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return str(rendered)
