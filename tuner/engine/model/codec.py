"""The tokenizer as the engine uses it: text to ids, ids to text token by token, chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from tuner.engine.text import TokenDecoder


class HfTokenDecoder:
    """Decodes one answer; holds tokens back while they end within a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        """Take one token; return the text it completed, empty while a character is partial."""
        piece = self._stream.step(self._tokenizer, token_id)
        if piece:
            self._held.clear()
            return str(piece)
        self._held.append(token_id)
        return ""

    def flush(self) -> str:
        """Return what is left of a partial character at the end."""
        left = self._tokenizer.decode(self._held, skip_special_tokens=True) if self._held else ""
        self._held.clear()
        return left


class HfCodec:
    """A Hugging Face tokenizer.

    Attributes:
        tokenizer: as loaded by transformers.
        eos_ids: the model's own end tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.eos_ids = tuple(eos_ids)
        self._fast: Tokenizer = tokenizer.backend_tokenizer

    def new_decoder(self) -> TokenDecoder:
        """Return a decoder for one answer."""
        return HfTokenDecoder(self._fast)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens added.

        The batch call lets other threads run meanwhile; the single one does not.
        """
        (encoding,) = self._fast.encode_batch_fast([text], add_special_tokens=False)
        return list(encoding.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return str(self._fast.decode(list(token_ids), skip_special_tokens=False))

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the prompt ids of a conversation, by the model's own chat template.

        Raises:
            ValueError: the tokenizer has no template, or the template refuses the messages.
        """
        prompt = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
        return self.encode(str(prompt))
