"""Training sequences as batches: which answers, in which order, padded how.

Read by distill.py. The order of an epoch depends on the seed and on the shards that lay in the
folder when it began, and on nothing else; those are remembered, so that a stopped run goes on
with the very batch it would have had.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tuner.engine.training.errors import TrainingError
from tuner.engine.training.features import ShardStates, is_current
from tuner.engine.training.shards import Answer, data_digest, read_shard, shard_path, shard_paths
from tuner.engine.training.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences of similar length, padded on the right.

    Attributes:
        tokens: [B, T] int64.
        lengths: [B] int64.
        is_known: [B, T] bool, the target's opinion about the token at this place is known.
        draft_tokens: [B, T] int64, place of each token in the draft vocabulary, -1 outside it.
        top_ids: [B, T, C] int64, the target's likeliest tokens for this place, best first, as
            places in the draft vocabulary, -1 outside it.
        top_logprobs: [B, T, C] float32.
        states: [B, T, 4, H] bfloat16, the target's hidden states at each token; None where the
            head needs none.
    """

    tokens: Tensor
    lengths: Tensor
    is_known: Tensor
    draft_tokens: Tensor
    top_ids: Tensor
    top_logprobs: Tensor
    states: Tensor | None = None

    def target_states(self) -> Tensor:
        """Return the target's hidden states.

        Raises:
            TrainingError: the batch was made without them.
        """
        if self.states is None:
            raise TrainingError("this head needs the target's hidden states: run `features` first")
        return self.states

    def known_places(self) -> tuple[Tensor, Tensor]:
        """Return rows and columns [N] of the tokens whose distribution is known."""
        rows, columns = self.is_known.nonzero(as_tuple=True)
        return rows, columns


def draft_index(draft_vocab: Tensor, vocab: int) -> Tensor:
    """Return [V] int64: a token id's place in draft_vocab, or -1."""
    index = torch.full((vocab,), -1, dtype=torch.int64)
    index[draft_vocab.long()] = torch.arange(len(draft_vocab))
    return index


def make_batch(answers: list[Answer], index: Tensor, states: list[Tensor] | None = None) -> Batch:
    """Pad answers into one batch.

    Args:
        answers: what to train on.
        index: [V], from `draft_index`.
        states: of each answer [T, 4, H]; None where the head needs none.
    """
    pad = torch.nn.utils.rnn.pad_sequence
    tokens = pad([answer.tokens.long() for answer in answers], batch_first=True)
    count = answers[0].top_ids.shape[1]
    top_ids = torch.full((*tokens.shape, count), -1, dtype=torch.int64)
    top_logprobs = torch.full(top_ids.shape, float("-inf"))
    is_known = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, answer in enumerate(answers):
        places = slice(answer.prompt_len, len(answer.tokens))
        top_ids[row, places] = index[answer.top_ids.long()]
        top_logprobs[row, places] = answer.top_logprobs.float()
        is_known[row, places] = True
    return Batch(
        tokens=tokens,
        lengths=torch.tensor([len(answer.tokens) for answer in answers]),
        is_known=is_known,
        draft_tokens=index[tokens],
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        states=None if states is None else pad(states, batch_first=True),
    )


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard in memory; its hidden states stay on disk."""

    answers: list[Answer]
    states: ShardStates | None


class Library:
    """The shards of a folder, read once each; the held-out one is never trained on."""

    def __init__(
        self, folder: Path, target: Target, *, needs_states: bool, held_out: int | None = None
    ) -> None:
        """Look into a folder.

        Args:
            folder: where the shards lie.
            target: the model that generated them.
            needs_states: use only shards with hidden states beside them.
            held_out: number of the shard that only measures; None trains on all.

        Raises:
            TrainingError: nothing to train on lies there.
        """
        self._folder = folder
        self._target = target
        self._needs_states = needs_states
        self._held_out = None if held_out is None else shard_path(folder, held_out).name
        self._shards: dict[str, Shard] = {}
        if not self.names():
            wanted = "answers with hidden states" if needs_states else "generated answers"
            command = "features" if needs_states else "generate"
            raise TrainingError(f"no {wanted} in {folder}: run `{command}` first")

    def names(self) -> list[str]:
        """Return the shards that can be trained on now, in the order of their numbers."""
        return [
            path.name
            for path in shard_paths(self._folder)
            if path.name != self._held_out
            and (not self._needs_states or is_current(path, self._target))
        ]

    def shard(self, name: str) -> Shard:
        """Return a shard by its file name."""
        if name not in self._shards:
            path = self._folder / name
            answers = read_shard(path, self._target.digest)
            states = ShardStates(path, self._target, answers) if self._needs_states else None
            self._shards[name] = Shard(answers, states)
        return self._shards[name]

    def answers(self) -> list[Answer]:
        """Return all answers that can be trained on now."""
        return [answer for name in self.names() for answer in self.shard(name).answers]

    def digest(self, names: list[str]) -> str:
        """Return the sha256 (hex) over the bytes of the named shards in order."""
        return data_digest(self._folder / name for name in names)

    def held_out(self) -> Shard | None:
        """Return the shard that is never trained on; None where there is none."""
        return None if self._held_out is None else self.shard(self._held_out)


class Course:
    """Batches without end: each epoch in a new order, answers of similar length together.

    Attributes:
        epochs: the shards of each epoch begun so far.
    """

    def __init__(
        self,
        library: Library,
        index: Tensor,
        *,
        seed: int,
        batch_tokens: int,
        extra: dict[str, list[Answer]] | None = None,
    ) -> None:
        """Start before the first batch.

        Args:
            library: the shards.
            index: [V], from `draft_index`.
            seed: start of the order.
            batch_tokens: prompt and answer tokens in one batch, padding included, at most.
            extra: more answers by name, a part of every epoch; they have no hidden states.
        """
        self._library = library
        self._index = index
        self._seed = seed
        self._batch_tokens = batch_tokens
        self._extra = extra or {}
        self.epochs: list[list[str]] = []

    def batches(self, num_done: int = 0) -> Iterator[Batch]:
        """Yield batches, the first `num_done` left out without reading their states."""
        epoch = 0
        while True:
            if epoch == len(self.epochs):
                self.epochs.append(self._library.names())
            for group in self._groups(epoch):
                if num_done > 0:
                    num_done -= 1
                else:
                    yield self._load(group)
            epoch += 1

    def _groups(self, epoch: int) -> list[list[tuple[str, int]]]:
        """Return the batches of an epoch as (shard, number of the answer)."""
        rng = random.Random(f"{self._seed}/{epoch}")
        keys = [
            (len(answer.tokens) + rng.random() * 24, len(answer.tokens), (name, number))
            for name in [*self.epochs[epoch], *self._extra]
            for number, answer in enumerate(self._answers(name))
        ]
        groups: list[list[tuple[str, int]]] = [[]]
        longest = 0
        for _, length, place in sorted(keys):
            longest = max(longest, length)
            if groups[-1] and (len(groups[-1]) + 1) * longest > self._batch_tokens:
                groups.append([])
                longest = length
            groups[-1].append(place)
        rng.shuffle(groups)
        return groups

    def _answers(self, name: str) -> list[Answer]:
        return self._extra.get(name) or self._library.shard(name).answers

    def _load(self, group: list[tuple[str, int]]) -> Batch:
        answers = [self._answers(name)[number] for name, number in group]
        states = [
            found[number]
            for name, number in group
            if name not in self._extra and (found := self._library.shard(name).states) is not None
        ]
        return make_batch(answers, self._index, states or None)
