"""Checks of exactness that take the function under test, so that mutants can be put to them too.

Each returns a p-value against the known distribution, or raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.tuner.engine.verification.reference_sampling import reference_logits
from tuner.engine.request import SamplingParams
from tuner.engine.verification.penalties import PenaltyState
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.verify import Verified

FALSE_ALARM_RATE = 1e-4
"""A right implementation falls below this p-value once in so many seeds; seeds are fixed."""

VOCAB = 5
LENGTH = 2
ROWS = 40_000
REDUCED = torch.tensor([3, 0, 4])

VerifyChain = Callable[..., Verified]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Many rows with the same distributions and their own drafts and uniforms.

    Attributes:
        target: [K+1, V] target distribution of each position, all different.
        draft_tokens: [B, K]; every third row drafts one token, every fifth none.
        draft_probs: [B, K, V or Vd]; None for a deterministic drafter.
        draft_vocab: [Vd] or None.
        uniforms: [B, K+1].
    """

    target: Tensor
    draft_tokens: Tensor
    draft_probs: Tensor | None
    draft_vocab: Tensor | None
    uniforms: Tensor

    @property
    def target_probs(self) -> Tensor:
        """Target distributions of all rows, [B, K+1, V]."""
        return self.target.expand(len(self.draft_tokens), -1, -1)

    def p_value(self, verified: Verified, seed: int) -> float:
        """Return the p-value of the whole outcomes, rows filled up from the target itself.

        A row that ends with no token at all is impossible: p-value 0.
        """
        generator = torch.Generator().manual_seed(seed + 1)
        outcome = torch.stack(
            [
                torch.multinomial(
                    row, len(self.draft_tokens), replacement=True, generator=generator
                )
                for row in self.target
            ],
            dim=1,
        )
        offsets = torch.arange(LENGTH + 1)
        drafted = torch.cat([self.draft_tokens, torch.zeros(len(outcome), 1).long()], dim=1)
        outcome = torch.where(offsets < verified.accepted_len.unsqueeze(1), drafted, outcome)
        outcome.scatter_(1, verified.accepted_len.unsqueeze(1), verified.next_token.unsqueeze(1))
        if bool((outcome < 0).any()):
            return 0.0
        number = (outcome * VOCAB ** offsets.flip(0)).sum(1)
        expected = torch.cartesian_prod(*self.target).prod(1) * len(outcome)
        return chi_square_p_value(torch.bincount(number, minlength=len(expected)), expected)


def full_trial(seed: int) -> Trial:
    """A drafter that covers the whole vocabulary."""
    generator, target = _start(seed)
    draft = random_rows(LENGTH, VOCAB, generator)
    return _trial(target, draft, None, generator)


def reduced_trial(seed: int) -> Trial:
    """A drafter that covers three tokens, not in ascending order."""
    generator, target = _start(seed)
    draft = random_rows(LENGTH, len(REDUCED), generator)
    return _trial(target, draft, REDUCED, generator)


def certain_trial(seed: int) -> Trial:
    """A drafter that always drafts the same tokens."""
    generator, target = _start(seed)
    tokens = _shortened(torch.tensor([[1, 2]]).repeat(ROWS, 1))
    uniforms = torch.rand(ROWS, LENGTH + 1, generator=generator, dtype=torch.float64)
    return Trial(
        target=target,
        draft_tokens=tokens,
        draft_probs=None,
        draft_vocab=None,
        uniforms=uniforms,
    )


def chain_p_value(verify_chain: VerifyChain, trial: Trial, seed: int) -> float:
    """Return the p-value of the rejection rule's outcomes."""
    verified = verify_chain(
        trial.draft_tokens,
        trial.draft_probs,
        trial.target_probs,
        trial.uniforms,
        draft_vocab=trial.draft_vocab,
    )
    return trial.p_value(verified, seed)


def match_p_value(verify_token_match: VerifyChain, trial: Trial, seed: int) -> float:
    """Return the p-value of the token-match rule's outcomes."""
    verified = verify_token_match(trial.draft_tokens, trial.target_probs, trial.uniforms)
    return trial.p_value(verified, seed)


def assert_prefixes_counted(prefix_lengths: Callable[[Tensor], Tensor]) -> None:
    """Verdicts 1,0,1 / 1,1,1 / 0,1,0 keep 1, 3 and 0 tokens."""
    verdicts = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 1, 0]]).bool()
    lengths = prefix_lengths(verdicts)
    assert lengths.tolist() == [1, 3, 0]
    assert (lengths.sum() + len(lengths)).item() == 7


def assert_impossible_token_rejected(verify_chain: VerifyChain) -> None:
    """A coin of exactly 0 does not accept a token that the target cannot produce."""
    verified = verify_chain(
        torch.tensor([[0]]),
        torch.tensor([[[1.0, 0.0]]]),
        torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]),
        torch.zeros(1, 2, dtype=torch.float64),
    )
    assert verified.accepted_len.tolist() == [0]
    assert verified.next_token.tolist() == [1]


def assert_penalties_grow_within_a_block(state_of: Callable[..., PenaltyState]) -> None:
    """Each position of a block counts the drafted tokens before it."""
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5, presence_penalty=0.25)
    drafted = [7, 7, 9, 1]
    block = state_of(params, [1, 2]).block(drafted, range(-1, len(drafted) - 1))
    raw = torch.linspace(-2, 2, 12)
    for position in range(len(drafted) + 1):
        logits = raw.clone()
        ids = torch.from_numpy(block.token_ids)
        divisor = torch.from_numpy(block.divisors[position])
        values = logits[ids]
        logits[ids] = torch.where(values > 0, values / divisor, values * divisor)
        logits[ids] -= torch.from_numpy(block.deductions[position])
        wanted = reference_logits(raw.tolist(), params, prompt=[1, 2], output=drafted[:position])
        torch.testing.assert_close(logits, torch.tensor(wanted))


def _start(seed: int) -> tuple[torch.Generator, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return generator, random_rows(LENGTH + 1, VOCAB, generator)


def random_rows(count: int, width: int, generator: torch.Generator) -> Tensor:
    weights = torch.rand(count, width, generator=generator) ** 2 + 0.05
    return weights / weights.sum(1, keepdim=True)


def _trial(
    target: Tensor, draft: Tensor, vocab: Tensor | None, generator: torch.Generator
) -> Trial:
    columns = torch.stack(
        [torch.multinomial(row, ROWS, replacement=True, generator=generator) for row in draft],
        dim=1,
    )
    return Trial(
        target=target,
        draft_tokens=_shortened(columns if vocab is None else vocab[columns]),
        draft_probs=draft.expand(ROWS, -1, -1),
        draft_vocab=vocab,
        uniforms=torch.rand(ROWS, LENGTH + 1, generator=generator, dtype=torch.float64),
    )


def _shortened(tokens: Tensor) -> Tensor:
    tokens = tokens.clone()
    tokens[::3, 1:] = -1
    tokens[::5] = -1
    return tokens
