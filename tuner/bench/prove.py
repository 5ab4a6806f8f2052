"""The proof that speculation leaves the output as it is.

It runs the engine's own verification code on a language in which the probability of every sequence
is known, beside a variant with the classic bug, which has to be caught.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import pi

import torch
from torch import Tensor

from tuner.bench.toy import FIRST_CONTEXT, NUM_TOKENS, ToyLanguage, number_sequences
from tuner.engine.verification.drawing import draw
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.trees import Trees
from tuner.engine.verification.verify import (
    Residual,
    Verified,
    positive_part,
    verify_chain,
    verify_token_match,
)
from tuner.engine.verification.verify_tree import DenseTarget, verify_tree
from tuner.errors import BadRequest

FALSE_ALARM_RATE = 1e-3
"""A correct arm is flagged this often, over all seeds."""

SEQUENCE_LENGTH = 4
DRAFT_LENGTH = 3
FORMULA_LENGTHS = (1, 2, 3, 4, 6, 8)
FORMULA_ROUNDS = 50_000
TREE = (-1, -1, -1, 0, 0, 1, 3)
"""Parents of the drafted tree: three candidates for the next token, the likelier ones going on."""

_CHUNK_ROWS = 50_000
_CHAINS = 2_500
_WARM_UP_ROUNDS = 10

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From contexts [B] to emitted tokens [B, K+1] and how many of them count, [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaRow:
    """Tokens per target pass at one draft length.

    Attributes:
        k: draft length.
        alpha: measured acceptance per tested token.
        measured: measured tokens per pass.
        expected: (1 - alpha^(k+1)) / (1 - alpha).
    """

    k: int
    alpha: float
    measured: float
    expected: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofReport:
    """What the proof found.

    Attributes:
        samples: sequences drawn by each arm.
        seed: of every random number.
        tv: total variation distance of each arm to the exact distribution. Arms are the target
            alone, drafted chains, the same with the classic bug, and drafted trees: drawn without
            replacement under the rejection rule (`tree`), and verified by drawing (`tree_match`).
        tv_noise: the distance a correct sampler has at this number of samples.
        chi2_p: chi-square p-value of each arm.
        flagged: arms whose p-value is below `false_alarm_rate`.
        false_alarm_rate: how often a correct arm is flagged.
        alpha_by_context: exact acceptance of the rejection rule after each context token.
        accepted_by_context: the same, measured with `samples` drafts a context.
        match_by_context: exact acceptance of the token-match rule after each context token.
        matched_by_context: the same, measured.
        formula: tokens per pass against the closed formula.
    """

    samples: int
    seed: int
    tv: dict[str, float]
    tv_noise: float
    chi2_p: dict[str, float]
    flagged: tuple[str, ...]
    false_alarm_rate: float
    alpha_by_context: tuple[float, ...]
    accepted_by_context: tuple[float, ...]
    match_by_context: tuple[float, ...]
    matched_by_context: tuple[float, ...]
    formula: tuple[FormulaRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Return what `spectuner prove --json` writes."""
        return {
            "tv": dict(self.tv),
            "chi2_p": dict(self.chi2_p),
            "alpha_by_context": list(self.alpha_by_context),
            "flagged": list(self.flagged),
            "formula": [
                {"k": row.k, "measured": row.measured, "expected": row.expected}
                for row in self.formula
            ],
        }


def prove(samples: int = 400_000, seed: int = 0) -> ProofReport:
    """Draw sequences with and without speculation and compare them with the exact distribution.

    Args:
        samples: sequences for each arm, at least 1.
        seed: any integer; the same seed gives the same report.

    Raises:
        BadRequest: fewer than one sample.
    """
    if samples < 1:
        raise BadRequest(f"samples is {samples}; give at least 1, better 100000")
    language = ToyLanguage.build()
    generator = torch.Generator().manual_seed(seed % 2**64)
    exact = language.sequence_probs(SEQUENCE_LENGTH)
    tree_generator = torch.Generator().manual_seed((seed + 1) % 2**64)
    steps = arms(language, generator) | tree_arms(language, tree_generator)
    counts = {name: count_sequences(step, samples) for name, step in steps.items()}
    chi2_p = {name: chi_square_p_value(count, samples * exact) for name, count in counts.items()}
    return ProofReport(
        samples=samples,
        seed=seed,
        tv={name: _distance(count / samples, exact) for name, count in counts.items()},
        tv_noise=_distance_of_correct(exact, samples),
        chi2_p=chi2_p,
        flagged=tuple(name for name, p_value in chi2_p.items() if p_value < FALSE_ALARM_RATE),
        false_alarm_rate=FALSE_ALARM_RATE,
        alpha_by_context=language.alpha_by_context,
        accepted_by_context=_accepted_by_context(language, samples, generator),
        match_by_context=language.match_by_context,
        matched_by_context=_matched_by_context(language, samples, generator),
        formula=tuple(_formula_row(language, k, generator) for k in FORMULA_LENGTHS),
    )


def arms(language: ToyLanguage, generator: torch.Generator) -> dict[str, Step]:
    """Return how each arm takes a step."""
    speculate = partial(_speculate, language, generator)
    return {
        "target": partial(speculate, 0, positive_part),
        "speculative": partial(speculate, DRAFT_LENGTH, positive_part),
        "biased": partial(speculate, DRAFT_LENGTH, _plain_target),
    }


def tree_arms(language: ToyLanguage, generator: torch.Generator) -> dict[str, Step]:
    """Return how each arm with trees takes a step."""
    return {
        "tree": partial(_speculate_tree, language, generator, keeps_probs=True),
        "tree_match": partial(_speculate_tree, language, generator, keeps_probs=False),
    }


def _plain_target(target: Tensor, draft: Tensor) -> Tensor:
    """Replace a rejected token from the plain target: the classic bug."""
    del draft
    return target


def _draft(
    language: ToyLanguage, generator: torch.Generator, k: int, contexts: Tensor
) -> tuple[Tensor, Tensor]:
    """Draft k tokens after each context.

    Returns:
        Tokens [B, k] and the contexts of the k+1 positions, [B, k+1].
    """
    chain = [contexts]
    for _ in range(k):
        uniforms = _uniforms(generator, len(contexts), 1).squeeze(1)
        chain.append(draw(language.draft[chain[-1]], uniforms))
    along = torch.stack(chain, dim=1)
    return along[:, 1:], along


def _speculate(
    language: ToyLanguage,
    generator: torch.Generator,
    k: int,
    residual: Residual,
    contexts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Draft and verify once for each row; see `Step`."""
    drafted, along = _draft(language, generator, k, contexts)
    verified = verify_chain(
        drafted,
        language.draft[along[:, :-1]],
        language.target[along],
        _uniforms(generator, len(contexts), k + 1),
        residual=residual,
    )
    return _emitted(drafted, verified), verified.accepted_len + 1


def _speculate_tree(
    language: ToyLanguage, generator: torch.Generator, contexts: Tensor, *, keeps_probs: bool
) -> tuple[Tensor, Tensor]:
    """Draft a tree for each row and verify it; see `Step`."""
    before = torch.empty(len(contexts), len(TREE) + 1, dtype=torch.int64)
    before[:, 0] = contexts
    for position in sorted({parent + 1 for parent in TREE}):
        children = [node + 1 for node, parent in enumerate(TREE) if parent == position - 1]
        probs = language.draft[before[:, position]]
        before[:, children] = torch.multinomial(probs, len(children), generator=generator)
    drafted = before[:, 1:]
    verified = verify_tree(
        Trees.alike(drafted, TREE),
        DenseTarget(language.target[before]),
        _uniforms(generator, len(contexts), len(TREE) + 1),
        draft_probs=language.draft[before[:, :-1]] if keeps_probs else None,
    )
    kept = drafted.gather(1, verified.path.clamp_min(0))
    return _emitted(kept, verified), verified.accepted_len + 1


def _emitted(drafted: Tensor, verified: Verified) -> Tensor:
    """Return the kept tokens and the one after them, [B, K+1]; what follows means nothing.

    Args:
        drafted: [B, K], the row's draft tokens in the order in which they are kept.
        verified: of these rows.
    """
    emitted = torch.cat([drafted, verified.next_token.unsqueeze(1)], dim=1)
    return emitted.scatter(1, verified.accepted_len.unsqueeze(1), verified.next_token.unsqueeze(1))


def count_sequences(step: Step, samples: int) -> Tensor:
    """Draw sequences and count each, [4**length] float64."""
    counts = torch.zeros(NUM_TOKENS**SEQUENCE_LENGTH, dtype=torch.float64)
    for first in range(0, samples, _CHUNK_ROWS):
        numbers = number_sequences(_sequences(step, min(_CHUNK_ROWS, samples - first)))
        counts += torch.bincount(numbers, minlength=len(counts))
    return counts


def _sequences(step: Step, num_rows: int) -> Tensor:
    """Draw sequences step by step, [B, length]; what a step emits beyond the length is cut."""
    sequences = torch.zeros(num_rows, SEQUENCE_LENGTH, dtype=torch.int64)
    lengths = torch.zeros(num_rows, dtype=torch.int64)
    contexts = torch.full((num_rows,), FIRST_CONTEXT)
    active = torch.arange(num_rows)
    while len(active):
        emitted, num_emitted = step(contexts[active])
        offsets = torch.arange(emitted.shape[1])
        places = lengths[active].unsqueeze(1) + offsets
        is_wanted = (offsets < num_emitted.unsqueeze(1)) & (places < SEQUENCE_LENGTH)
        rows = active.unsqueeze(1).expand_as(places)
        sequences[rows[is_wanted], places[is_wanted]] = emitted[is_wanted]
        lengths[active] += num_emitted
        contexts[active] = _last_tokens(emitted, num_emitted)
        active = active[lengths[active] < SEQUENCE_LENGTH]
    return sequences


def _last_tokens(emitted: Tensor, num_emitted: Tensor) -> Tensor:
    return emitted.gather(1, num_emitted.unsqueeze(1) - 1).squeeze(1)


def _accepted_by_context(
    language: ToyLanguage, samples: int, generator: torch.Generator
) -> tuple[float, ...]:
    """Measure the rejection rule's acceptance after each context token."""
    rates = []
    for context in range(NUM_TOKENS):
        contexts = torch.full((samples,), context)
        _, num_emitted = _speculate(language, generator, 1, positive_part, contexts)
        rates.append(float((num_emitted - 1).double().mean()))
    return tuple(rates)


def _matched_by_context(
    language: ToyLanguage, samples: int, generator: torch.Generator
) -> tuple[float, ...]:
    """Measure the token-match rule's acceptance after each context token."""
    rates = []
    for context in range(NUM_TOKENS):
        drafted, along = _draft(language, generator, 1, torch.full((samples,), context))
        uniforms = _uniforms(generator, samples, 2)
        verified = verify_token_match(drafted, language.target[along], uniforms)
        rates.append(float(verified.accepted_len.double().mean()))
    return tuple(rates)


def _formula_row(language: ToyLanguage, k: int, generator: torch.Generator) -> FormulaRow:
    """Measure tokens per pass over long texts, each round going on where the last one ended."""
    contexts = torch.full((_CHAINS,), FIRST_CONTEXT)
    rounds = FORMULA_ROUNDS // _CHAINS
    emitted_total = rejected = 0
    for round_number in range(_WARM_UP_ROUNDS + rounds):
        emitted, num_emitted = _speculate(language, generator, k, positive_part, contexts)
        contexts = _last_tokens(emitted, num_emitted)
        if round_number >= _WARM_UP_ROUNDS:
            emitted_total += int(num_emitted.sum())
            rejected += int((num_emitted <= k).sum())
    num_rounds = rounds * _CHAINS
    accepted = emitted_total - num_rounds
    alpha = accepted / (accepted + rejected)
    return FormulaRow(
        k=k,
        alpha=alpha,
        measured=emitted_total / num_rounds,
        expected=(1 - alpha ** (k + 1)) / (1 - alpha),
    )


def _distance(frequencies: Tensor, exact: Tensor) -> float:
    return float((frequencies - exact).abs().sum() / 2)


def _distance_of_correct(exact: Tensor, samples: int) -> float:
    """Return about how far draws from `exact` itself are from it (normal approximation)."""
    return float((2 * exact * (1 - exact) / (pi * samples)).sqrt().sum() / 2)


def _uniforms(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.rand(num_rows, width, generator=generator, dtype=torch.float64)
