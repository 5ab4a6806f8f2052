"""PARD's draft models: decoders that read mask tokens.

Ours has a learned state for the mask, under a token id beyond the vocabulary; public checkpoints
are whole models whose config.json names a token of the vocabulary, `pard_token`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tuner.engine.errors import ModelCorrupt
from tuner.engine.model.heads.head_file import MANIFEST
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Pass
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.model.weights import (
    LoadedDraft,
    LoadedModel,
    load_head_draft,
    load_separate_draft,
    read_config,
)

_MASK = "mask_embedding"


class MaskedDecoder:
    """A Llama decoder with a mask token that has no row in the embedding.

    Source: arXiv:2504.18583, section 3.1.

    Attributes:
        shape: its sizes.
        mask_kind: device, dtype and attention window.
        num_weights: weights that one pass reads, the embedding table left out.
        mask_id: id of the mask token.
    """

    def __init__(self, decoder: LlamaDecoder, mask_embedding: Tensor) -> None:
        """Take over a decoder.

        Args:
            decoder: reads tokens and masks.
            mask_embedding: [H], the state that the first layer reads for a mask.
        """
        self._decoder = decoder
        self._mask_state = mask_embedding.to(decoder.mask_kind.device, decoder.mask_kind.dtype)
        self.shape = decoder.shape
        self.mask_kind = decoder.mask_kind
        self.num_weights = decoder.num_weights
        self.mask_id = decoder.shape.vocab_size

    def new_slots(self, num_slots: int, max_context_tokens: int) -> KvSlots:
        """Allocate KV for this decoder."""
        return self._decoder.new_slots(num_slots, max_context_tokens)

    def forward(self, batch: Pass, slots: KvSlots, features: FeatureSlots | None = None) -> Tensor:
        """Run the layers over a pass; see `LlamaDecoder.forward`."""
        is_mask = batch.token_ids == self.mask_id
        hidden = self._decoder.embed(batch.token_ids.masked_fill(is_mask, 0))
        hidden[is_mask] = self._mask_state
        return self._decoder.forward_from(hidden, batch, slots, features)

    def logits(self, states: Tensor) -> Tensor:
        """Return logits [n, V or reduced V] of states [n, H]."""
        return self._decoder.logits(states)


def load_pard(path: Path, target: LoadedModel, dtype: torch.dtype) -> tuple[LoadedDraft, int]:
    """Read a PARD draft model and the id of its mask token.

    Args:
        path: directory of a head of ours, or of a public checkpoint.
        target: the model it drafts for.
        dtype: of a head of ours, which shares the target's embedding.

    Raises:
        ModelCorrupt: the files are not whole, or name no mask.
        StartupError: it does not fit the target.
    """
    if not (path / MANIFEST).exists():
        mask_id = getattr(read_config(path), "pard_token", None)
        vocab_size = target.decoder.shape.vocab_size
        if type(mask_id) is not int or not 0 <= mask_id < vocab_size:
            raise ModelCorrupt(
                f"head {str(path)!r} must name a pard_token from 0 to {vocab_size - 1} in its "
                f"config.json, not {mask_id!r}"
            )
        return load_separate_draft(path, target), mask_id
    draft = load_head_draft(path, target, dtype)
    try:
        with safe_open(path / "model.safetensors", framework="pt") as file:
            mask_embedding = file.get_tensor(_MASK)
    except (OSError, SafetensorError) as error:
        raise ModelCorrupt(f"head {str(path)!r} lacks {_MASK!r}; train it again") from error
    if not isinstance(draft.decoder, LlamaDecoder):
        raise ModelCorrupt(f"head {str(path)!r} is no decoder of the Llama family")
    decoder = MaskedDecoder(draft.decoder, mask_embedding)
    return replace(draft, decoder=decoder), decoder.mask_id
