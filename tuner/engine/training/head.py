"""What all trainable drafting heads share: frozen parts of the target, one contract, one file form.

A head drafts after a root, the last token that is known for certain. At depth 0 it predicts the
token after the root, at depth 1 the one after that, and so on, always given that its earlier
guesses were right. The token embedding and the output rows are the target's own, frozen, and never
written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Protocol, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tuner.engine.training.batching import Batch
from tuner.engine.training.errors import DraftFormatError
from tuner.engine.training.target import Target

WEIGHTS_NAME = "model.safetensors"
VOCAB_NAME = "draft_vocab"


class Score(Protocol):
    """Takes what a head predicts, and says which drafts go on."""

    def __call__(self, depth: int, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Take the predictions of one depth.

        Args:
            depth: 0 for the token after the root.
            hidden: [N, H], to be multiplied with the output rows.
            rows: [N] int64, sequence of each prediction.
            columns: [N] int64, place of the predicted token.

        Returns:
            [N] bool, drafts worth the next depth.
        """


class DraftHead(nn.Module, ABC):
    """A trainable head between the target's states or tokens and some of its output rows.

    Attributes:
        method: its name on the command line and in the engine.
        title: what it is, with an article.
        max_depth: longest draft; None where the head is applied again and again.
        trained_depths: depths that training scores.
        needs_states: reads the target's hidden states.
    """

    method: ClassVar[str]
    title: ClassVar[str]
    max_depth: ClassVar[int | None] = None
    trained_depths: ClassVar[int]
    needs_states: ClassVar[bool] = True
    embedding: Tensor
    output_rows: Tensor
    draft_vocab: Tensor

    def __init__(self, target: Target, draft_vocab: Tensor) -> None:
        """Take over the target's frozen parts.

        Args:
            target: gives sizes, embedding and output rows.
            draft_vocab: [D] int32, ascending token ids the head may propose.
        """
        super().__init__()
        self.shape = target.shape
        embedding = target.weights["embed_tokens.weight"]
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("output_rows", embedding[draft_vocab.long()].clone(), persistent=False)
        self.register_buffer("draft_vocab", draft_vocab, persistent=False)

    @abstractmethod
    def forward(self, batch: Batch, score: Score, depths: int) -> None:
        """Predict every known token of a batch at each depth and hand the states to `score`."""

    def name_prefixes(self) -> tuple[str, str]:
        """Return the leading part of parameter names, here and in the public layout."""
        return "", ""

    def vocab_tensors(self) -> dict[str, Tensor]:
        """Return how the file tells which token ids the output rows belong to."""
        return {VOCAB_NAME: self.draft_vocab.to(torch.int32)}

    @classmethod
    def vocab_of(cls, tensors: dict[str, Tensor]) -> Tensor | None:
        """Take the vocabulary out of a file's tensors; None where there is none."""
        return tensors.pop(VOCAB_NAME, None)

    @classmethod
    def sized(cls, target: Target, draft_vocab: Tensor, tensors: dict[str, Tensor]) -> Self:
        """Build a head as large as a file's tensors ask for."""
        del tensors
        return cls(target, draft_vocab)

    def start_from(self, target: Target, path: Path) -> None:
        """Take over the weights of a trained head of this method; its vocabulary may be another.

        Args:
            target: the model that head drafts for.
            path: its weights.

        Raises:
            DraftFormatError: the file is damaged or does not fit this head.
        """
        self._take_over(type(self).load(target, path), path)

    def _take_over(self, trained: DraftHead, path: Path, *, is_whole: bool = True) -> None:
        try:
            self.load_state_dict(trained.state_dict(), strict=is_whole)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise DraftFormatError(f"{path} does not fit this head: {reason}") from error

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the target's embedding [..., H] of tokens [...]."""
        return F.embedding(tokens, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return scores [..., D] over the draft vocabulary for hidden states [..., H]."""
        return F.linear(hidden, self.output_rows.to(hidden.dtype))

    def save(self, path: Path) -> None:
        """Write the trained tensors in bfloat16 and the vocabulary; the file appears whole."""
        ours, theirs = self.name_prefixes()
        tensors = {
            theirs + name.removeprefix(ours): tensor.detach().to(torch.bfloat16).contiguous()
            for name, tensor in self.state_dict().items()
        }
        partial = path.with_suffix(".partial")
        save_file({**tensors, **self.vocab_tensors()}, partial, metadata={"format": "pt"})
        partial.replace(path)

    @classmethod
    def load(cls, target: Target, path: Path) -> Self:
        """Read a head written by `save`, in float32.

        Raises:
            DraftFormatError: the file is damaged or does not fit the target.
        """
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise DraftFormatError(f"cannot read the head {path}: train it again") from error
        vocab = cls.vocab_of(tensors)
        if vocab is None or not is_ascending(vocab) or int(vocab[-1]) >= target.shape.vocab:
            raise DraftFormatError(
                f"{path} has no ascending vocabulary within the target's: train it again"
            )
        head = cls.sized(target, vocab, tensors)
        ours, theirs = head.name_prefixes()
        state = {ours + name.removeprefix(theirs): value.float() for name, value in tensors.items()}
        try:
            head.load_state_dict(state)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise DraftFormatError(f"{path} does not fit the target: {reason}") from error
        return head


def is_ascending(vocab: Tensor) -> bool:
    """Tell whether token ids [D] rise strictly."""
    return bool((vocab[1:] > vocab[:-1]).all())


def tensor_names(path: Path) -> frozenset[str]:
    """Return the names of the tensors in a weights file.

    Raises:
        DraftFormatError: the file cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return frozenset(file.keys())
    except (OSError, SafetensorError) as error:
        raise DraftFormatError(f"cannot read the head {path}: train it again") from error
