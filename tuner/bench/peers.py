"""The peer of the engine's benchmark: transformers, with the same weights, draft and prompts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import BoolTensor, FloatTensor, LongTensor, Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    LlamaForCausalLM,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.utils import logging

_LOGIT_OF_ABSENT = -1e9
_PAD = 0
"""Fills short rows on the left, where the mask hides it. Named to transformers only where rows are
filled: its assistant would take this token for padding anywhere in a prompt and hide it.
"""


class ReducedHead(nn.Module):
    """Output layer over a reduced vocabulary, so that the peer's draft is as cheap as ours."""

    def __init__(self, rows: Tensor, vocab: Tensor, vocab_size: int) -> None:
        super().__init__()
        self._rows = rows
        self._vocab = vocab
        self._vocab_size = vocab_size

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits [..., V] of hidden states [..., H]; absent tokens are impossible."""
        logits = hidden.new_full((*hidden.shape[:-1], self._vocab_size), _LOGIT_OF_ABSENT)
        logits[..., self._vocab] = functional.linear(hidden, self._rows)
        return logits


@dataclass(slots=True, kw_only=True)
class PeerCounts:
    """What a peer did.

    Attributes:
        num_tokens: tokens generated, over all sequences.
        num_passes: target passes, the one with the prompt among them, over all sequences.
        decode_tokens: tokens of all passes but the one with the prompt.
        decode_s: seconds of those passes, each batch counted once.
    """

    num_tokens: int = 0
    num_passes: int = 0
    decode_tokens: int = 0
    decode_s: float = 0.0


class TransformersPeer:
    """`transformers` generation: plain, batched, assisted, prompt lookup.

    It has no end token, so that answers are as long as ours without a processor of logits that
    would slow every step of it.

    It drafts for the pass with the prompt already, and its assistant reads the prompt then.

    Attributes:
        counts: since the last restart.
    """

    def __init__(self, model: Path, draft: Path | None) -> None:
        """Load the target and, from a draft directory, the same draft as an assistant."""
        logging.set_verbosity_error()
        self._model = AutoModelForCausalLM.from_pretrained(model, local_files_only=True).eval()
        self._model.generation_config.eos_token_id = None
        self._assistant = None if draft is None else _assistant(self._model, draft)
        self.counts = PeerCounts()

    def restart(self) -> PeerCounts:
        """Count anew from here on; return where."""
        self.counts = PeerCounts()
        return self.counts

    def plain(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> None:
        """Generate greedily, all prompts in one left-padded batch."""
        self._generate(prompts, num_tokens)

    def assisted(self, prompts: Sequence[Sequence[int]], num_tokens: int, k: int) -> None:
        """Assisted generation with k draft tokens, constant schedule, no confidence cut."""
        if self._assistant is None:
            raise ValueError("assisted generation needs a draft directory")
        config = self._assistant.generation_config
        config.num_assistant_tokens = k
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        for prompt in prompts:
            self._generate([prompt], num_tokens, assistant_model=self._assistant)

    def lookup(self, prompts: Sequence[Sequence[int]], num_tokens: int, k: int) -> None:
        """Prompt lookup with k draft tokens after the earliest match, n-grams of 1 to 3 tokens."""
        for prompt in prompts:
            self._generate(
                [prompt], num_tokens, prompt_lookup_num_tokens=k, max_matching_ngram_size=3
            )

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[Sequence[int]], num_tokens: int, **options: object
    ) -> None:
        width = max(len(prompt) for prompt in prompts)
        rows = [[_PAD] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        passes = _Passes(width)
        self._model.generate(
            torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            do_sample=False,
            max_new_tokens=num_tokens,
            pad_token_id=_PAD if len(prompts) > 1 else None,
            stopping_criteria=StoppingCriteriaList([passes]),
            **options,
        )
        self.counts.num_tokens += len(prompts) * passes.num_tokens
        self.counts.num_passes += len(prompts) * passes.num_passes
        self.counts.decode_tokens += len(prompts) * passes.decode_tokens
        self.counts.decode_s += passes.decode_s


class _Passes(StoppingCriteria):
    """Never stops; is asked after each target pass."""

    def __init__(self, prompt_width: int) -> None:
        self._widths = [prompt_width]
        self._times_s: list[float] = []

    @property
    def num_passes(self) -> int:
        return len(self._times_s)

    @property
    def num_tokens(self) -> int:
        return self._widths[-1] - self._widths[0]

    @property
    def decode_tokens(self) -> int:
        return self._widths[-1] - self._widths[1]

    @property
    def decode_s(self) -> float:
        return self._times_s[-1] - self._times_s[0]

    def __call__(self, input_ids: LongTensor, scores: FloatTensor, **_: object) -> BoolTensor:
        self._times_s.append(time.perf_counter())
        self._widths.append(input_ids.shape[1])
        return torch.zeros(len(input_ids), dtype=torch.bool)  # type: ignore[return-value]


def _assistant(target: LlamaForCausalLM, draft: Path) -> LlamaForCausalLM:
    """Load a model of its own, or rebuild a shipped draft over the target's embedding."""
    if not (draft / "manifest.json").exists():
        separate: LlamaForCausalLM = AutoModelForCausalLM.from_pretrained(
            draft, local_files_only=True
        ).eval()
        separate.generation_config.eos_token_id = None
        return separate
    weights = load_file(draft / "model.safetensors")
    vocab = weights.pop("draft_vocab").long()
    config = type(target.config)(**target.config.to_dict())
    config.num_hidden_layers = 1 + max(
        int(name.split(".")[1]) for name in weights if name.startswith("layers.")
    )
    assistant: LlamaForCausalLM = LlamaForCausalLM(config).eval()
    state = {f"model.{name}": value.float() for name, value in weights.items()}
    shared = target.state_dict()
    state["model.embed_tokens.weight"] = shared["model.embed_tokens.weight"]
    assistant.load_state_dict(state, strict=False)
    assistant.lm_head = ReducedHead(shared["lm_head.weight"][vocab], vocab, config.vocab_size)
    assistant.generation_config.eos_token_id = None
    return assistant
