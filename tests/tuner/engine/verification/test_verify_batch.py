from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from collectors.records import AcceptanceRule
from tests.tuner.engine.verification.exactness import FALSE_ALARM_RATE
from tests.tuner.engine.verification.reference_sampling import reference_logits, reference_probs
from tuner.engine.request import SamplingParams
from tuner.engine.verification.rows import Block, RowSampler
from tuner.engine.verification.selfcheck import chi_square_p_value
from tuner.engine.verification.shapes import ShapeError
from tuner.engine.verification.verify import Verified
from tuner.engine.verification.verify_batch import Proposal, verify_batch

REJECTION, MATCH = AcceptanceRule.REJECTION, AcceptanceRule.TOKEN_MATCH
TYPICAL = AcceptanceRule.TYPICAL
GREEDY = SamplingParams(temperature=0.0)
VOCAB = 6
EOS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of a batch: its logits, draft, parameters, rule, and what its draft came from."""

    logits: torch.Tensor
    draft: list[int]
    params: SamplingParams
    rule: AcceptanceRule
    draft_probs: torch.Tensor | None
    parents: tuple[int, ...] | None = None


def run(cases: Sequence[Case], vocab: torch.Tensor | None = None) -> Verified:
    rows = [
        RowSampler(case.params, prompt_ids=[1, 3], eos_ids=[EOS], vocab_size=case.logits.shape[1])
        for case in cases
    ]
    drawn = [number for number, case in enumerate(cases) if case.draft_probs is not None]
    probs = [case.draft_probs for case in cases if case.draft_probs is not None]
    proposals = []
    if drawn:
        padded = torch.nn.utils.rnn.pad_sequence(probs, batch_first=True)
        proposals.append(Proposal(rows=tuple(drawn), probs=padded, vocab=vocab))
    return verify_batch(
        torch.cat([case.logits for case in cases]),
        Block.from_drafts([case.draft for case in cases], [case.parents for case in cases]),
        rows,
        rules=[case.rule for case in cases],
        proposals=proposals,
    )


PARAMS = [
    GREEDY,
    SamplingParams(seed=1),
    SamplingParams(seed=2, temperature=0.7, top_p=0.9),
    SamplingParams(seed=3, temperature=1.3, top_k=20, repetition_penalty=1.3),
    SamplingParams(temperature=0.0, frequency_penalty=2.0, min_tokens=4),
    SamplingParams(seed=4, min_p=0.05, presence_penalty=1.0, logit_bias={5: 3.0, 7: -100.0}),
    SamplingParams(seed=5, temperature=3.0, top_p=0.99),
]


def mixed_cases(vocab_size: int, draft_vocab: torch.Tensor, seed: int) -> list[Case]:
    """Chains and trees, drawn and guessed, of all sampling parameters under all rules."""
    generator = torch.Generator().manual_seed(seed)
    cases = []
    for number in range(28):
        is_tree = number % 2 == 1
        k = int(torch.randint(0, 8 if is_tree else 5, (1,), generator=generator))
        logits = torch.randn(k + 1, vocab_size, generator=generator) * 2
        probs = torch.rand(k, len(draft_vocab), generator=generator)
        probs = probs / probs.sum(1, keepdim=True)
        columns = torch.randperm(len(draft_vocab), generator=generator)[:k]
        tree = tuple(int(torch.randint(-1, node, (1,), generator=generator)) for node in range(k))
        # The likeliest token is drafted now and then, so that walks go down.
        for node, parent in enumerate(tree if is_tree else range(-1, k - 1)):
            if node % 3 < 2:
                logits[parent + 1, draft_vocab[columns[node]]] += 6
        cases.append(
            Case(
                logits=logits,
                draft=draft_vocab[columns].tolist(),
                params=PARAMS[number % len(PARAMS)],
                rule=(REJECTION, MATCH, REJECTION, TYPICAL)[number // 2 % 4],
                draft_probs=probs if number % 5 else None,
                parents=tree if is_tree else None,
            )
        )
    return cases


@pytest.mark.parametrize("vocab_size", [40, 2048])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_row_gets_the_same_tokens_alone_and_in_any_batch(vocab_size: int, seed: int) -> None:
    draft_vocab = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(9))[:30]
    cases = mixed_cases(vocab_size, draft_vocab, seed)
    order = list(range(len(cases)))[::-1]
    together = run(cases, draft_vocab)
    backwards = run([cases[number] for number in order], draft_vocab)
    for number, case in enumerate(cases):
        alone = run([case], draft_vocab)
        kept = int(alone.accepted_len[0])
        for verified, place in ((together, number), (backwards, order.index(number))):
            assert verified.accepted_len[place] == kept
            assert verified.next_token[place] == alone.next_token[0]
            assert verified.path[place, :kept].tolist() == alone.path[0, :kept].tolist()
    assert int(together.accepted_len.max()) > 1


def test_a_path_leads_from_parent_to_child_in_every_kind_of_row() -> None:
    cases = mixed_cases(40, torch.arange(40), 5)
    verified = run(cases)
    deepest = 0
    for number, case in enumerate(cases):
        path = verified.path[number, : verified.accepted_len[number]].tolist()
        parents = range(-1, len(case.draft) - 1) if case.parents is None else case.parents
        assert [parents[node] for node in path] == [-1, *path[:-1]][: len(path)]
        deepest = max(deepest, len(path) if case.parents is not None else 0)
    assert deepest > 1


def test_greedy_rows_take_the_most_likely_token_at_each_position() -> None:
    logits = torch.zeros(5, VOCAB)
    for position, token in enumerate([4, 5, 0, 3, 1]):
        logits[position, token] = 1.0
    greedy = [
        Case(logits=logits[:3], draft=[4, 3], params=GREEDY, rule=MATCH, draft_probs=None),
        Case(logits=logits[3:], draft=[3], params=GREEDY, rule=REJECTION, draft_probs=None),
    ]
    verified = run(greedy)
    assert verified.accepted_len.tolist() == [1, 1]
    assert verified.next_token.tolist() == [5, 1]


def test_a_greedy_row_may_stand_in_a_proposal() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, 4] = 1.0
    probs = torch.full((1, VOCAB), 1 / VOCAB)
    case = Case(logits=logits, draft=[4], params=GREEDY, rule=REJECTION, draft_probs=probs)
    assert run([case]).accepted_len.tolist() == [1]


def test_a_row_in_which_everything_is_banned_gets_no_token() -> None:
    bans = dict.fromkeys(range(VOCAB), -100.0)
    cases = [
        Case(
            logits=torch.zeros(1, VOCAB),
            draft=[],
            params=SamplingParams(temperature=temperature, logit_bias=bans),
            rule=rule,
            draft_probs=None,
        )
        for temperature in (0.0, 1.0)
        for rule in (REJECTION, MATCH)
    ]
    fine = Case(
        logits=torch.zeros(1, VOCAB),
        draft=[],
        params=SamplingParams(seed=1),
        rule=REJECTION,
        draft_probs=None,
    )
    assert run([*cases, fine]).next_token.tolist()[:4] == [-1] * 4
    assert run([*cases, fine]).next_token[4] >= 0


def test_logits_of_nan_give_no_token_and_spare_the_other_rows() -> None:
    broken = torch.full((2, VOCAB), math.nan)
    cases = [
        Case(logits=broken, draft=[1], params=params, rule=REJECTION, draft_probs=None)
        for params in (GREEDY, SamplingParams(), SamplingParams(top_p=0.5))
    ]
    fine = Case(logits=torch.zeros(1, VOCAB), draft=[], params=GREEDY, rule=MATCH, draft_probs=None)
    verified = run([*cases, fine])
    assert verified.next_token.tolist() == [-1, -1, -1, 0]
    assert verified.accepted_len.tolist() == [0, 0, 0, 0]


def test_a_row_in_two_proposals_is_refused() -> None:
    row = RowSampler(SamplingParams(), prompt_ids=[1], vocab_size=VOCAB)
    proposal = Proposal(rows=(0,), probs=torch.full((1, 1, VOCAB), 1 / VOCAB))
    with pytest.raises(ShapeError, match="row 0 is in two proposals"):
        verify_batch(
            torch.zeros(2, VOCAB),
            Block.from_drafts([[1]]),
            [row],
            rules=[REJECTION],
            proposals=[proposal, proposal],
        )


def test_as_many_rules_as_rows_are_needed() -> None:
    row = RowSampler(SamplingParams(), prompt_ids=[1], vocab_size=VOCAB)
    with pytest.raises(ShapeError, match="0 rules for 1 rows"):
        verify_batch(torch.zeros(1, VOCAB), Block.from_drafts([[]]), [row], rules=[])


OUTCOME_ROWS = 6000
OUTCOME_LENGTH = 3
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(11)) * 1.2
DRAFT_TABLE = (
    TABLE + torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(12))
).softmax(1)
PROMPT = [1, 3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a draft is laid out.

    Attributes:
        follows: the position that each draft token follows.
        is_chain: True for a draft without parents.
    """

    follows: tuple[int, ...]
    is_chain: bool

    @property
    def parents(self) -> tuple[int, ...] | None:
        return None if self.is_chain else tuple(position - 1 for position in self.follows)


CHAINS = [Shape(follows=tuple(range(k)), is_chain=True) for k in range(4)]
TREES = [
    Shape(follows=(), is_chain=False),
    Shape(follows=(0, 0, 1, 1, 2), is_chain=False),
    Shape(follows=(0, 1, 2), is_chain=True),
    Shape(follows=(0, 0, 0, 2, 4, 4), is_chain=False),
]

OUTCOME_PARAMS = {
    "plain": SamplingParams(),
    "filters": SamplingParams(temperature=0.8, top_k=4, top_p=0.9),
    "min_p": SamplingParams(temperature=1.5, min_p=0.2),
    "penalties": SamplingParams(
        repetition_penalty=1.4, frequency_penalty=0.7, presence_penalty=0.4
    ),
    "minimum length and bias": SamplingParams(min_tokens=2, logit_bias={0: -100.0, EOS: 2.0}),
}


@pytest.mark.parametrize("rule", [REJECTION, MATCH])
@pytest.mark.parametrize("name", OUTCOME_PARAMS)
@pytest.mark.parametrize(
    "drafter", ["drawn chains", "certain chains", "drawn trees", "certain trees"]
)
def test_three_token_outcomes_are_distributed_as_one_token_at_a_time(
    rule: AcceptanceRule, name: str, drafter: str
) -> None:
    params = OUTCOME_PARAMS[name]
    shapes = TREES if "trees" in drafter else CHAINS
    outcomes = speculative_outcomes(params, rule, shapes, is_drawn="drawn" in drafter)
    places = VOCAB ** torch.arange(OUTCOME_LENGTH).flip(0)
    counts = torch.bincount((outcomes * places).sum(1), minlength=VOCAB**OUTCOME_LENGTH)
    expected = exact_outcomes(params) * OUTCOME_ROWS
    assert chi_square_p_value(counts, expected) > FALSE_ALARM_RATE


def exact_outcomes(params: SamplingParams) -> torch.Tensor:
    """Return the probability of every three-token outcome, from the reference."""
    probs = torch.zeros(VOCAB**OUTCOME_LENGTH, dtype=torch.float64)

    def walk(output: list[int], prob: float, number: int) -> None:
        if len(output) == OUTCOME_LENGTH:
            probs[number] = prob
            return
        raw = TABLE[(PROMPT + output)[-1]].tolist()
        logits = reference_logits(raw, params, prompt=PROMPT, output=output, end_ids=[EOS])
        for token, share in enumerate(reference_probs(logits, params)):
            if share > 0:
                walk([*output, token], prob * share, number * VOCAB + token)

    walk([], 1.0, 0)
    return probs


def speculative_outcomes(
    params: SamplingParams, rule: AcceptanceRule, shapes: Sequence[Shape], *, is_drawn: bool
) -> torch.Tensor:
    """Draw outcomes through `verify_batch`, row b drafting in shape b % 4, [B, 3]."""
    generator = torch.Generator().manual_seed(3)
    outputs: list[list[int]] = [[] for _ in range(OUTCOME_ROWS)]
    rows = [RowSampler(params, prompt_ids=PROMPT, eos_ids=[EOS], vocab_size=VOCAB) for _ in outputs]
    for number, row in enumerate(rows):
        row.generator.manual_seed(number)
    while active := [row for row, output in enumerate(outputs) if len(output) < OUTCOME_LENGTH]:
        chosen = [shapes[row % len(shapes)] for row in active]
        drafts = [
            drafted((PROMPT + outputs[row])[-1], shape, generator, is_drawn=is_drawn)
            for row, shape in zip(active, chosen, strict=True)
        ]
        # What stands before each position of a row is its last token, then its draft.
        contexts = [
            [(PROMPT + outputs[row])[-1], *draft] for row, draft in zip(active, drafts, strict=True)
        ]
        verified = verify_batch(
            TABLE[[token for context in contexts for token in context]],
            Block.from_drafts(drafts, [shape.parents for shape in chosen]),
            [rows[row] for row in active],
            rules=[rule] * len(active),
            proposals=proposals_of(contexts, chosen) if is_drawn else (),
        )
        results = zip(
            active,
            drafts,
            verified.accepted_len.tolist(),
            verified.path.tolist(),
            verified.next_token.tolist(),
            strict=True,
        )
        for number, draft, accepted, path, following in results:
            tokens = [*(draft[node] for node in path[:accepted]), following]
            outputs[number] += tokens
            rows[number].commit(tokens)
    return torch.tensor([output[:OUTCOME_LENGTH] for output in outputs])


def drafted(context: int, shape: Shape, generator: torch.Generator, *, is_drawn: bool) -> list[int]:
    contexts = [context, *[0] * len(shape.follows)]
    for position in sorted(set(shape.follows)):
        probs = DRAFT_TABLE[contexts[position]]
        children = [node for node, at in enumerate(shape.follows) if at == position]
        tokens = (
            torch.multinomial(probs, len(children), generator=generator)
            if is_drawn
            else probs.topk(len(children)).indices
        )
        for node, token in zip(children, tokens.tolist(), strict=True):
            contexts[node + 1] = token
    return contexts[1:]


def proposals_of(contexts: Sequence[Sequence[int]], shapes: Sequence[Shape]) -> list[Proposal]:
    """Row i of a row's probs is what the children of its position i were drawn from."""
    probs = [
        DRAFT_TABLE[list(context[: len(shape.follows)])]
        for context, shape in zip(contexts, shapes, strict=True)
    ]
    padded = torch.nn.utils.rnn.pad_sequence(probs, batch_first=True)
    return [Proposal(rows=tuple(range(len(contexts))), probs=padded)]
