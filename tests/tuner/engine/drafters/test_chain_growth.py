"""When chains end, and what they keep of the distributions they were drawn from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from collectors.records import Method, Setting
from tests.tuner.engine.drafters.asks import ask
from tests.tuner.engine.harness import (
    CONTEXT,
    plain_logits,
    prompts,
    random_decoder,
    request,
    small_engine,
    tokens_of,
)
from tuner.engine.adaptive import Adaptive, Outlook
from tuner.engine.chances import Kind
from tuner.engine.drafters.base import DraftAsk
from tuner.engine.drafters.chain_growth import Chain, ChainGrowth
from tuner.engine.drafters.draft_model import DraftModelDrafter
from tuner.engine.drafters.draft_schedule import DraftSchedule, ScheduleKind
from tuner.engine.drafting import Drafting
from tuner.engine.limits import EngineLimits
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.verification.selfcheck import chi_square_p_value

SETTING = Setting(method=Method.DRAFT_MODEL, k=6)
SURE, UNSURE = [0.9, 0.05, 0.05], [0.4, 0.3, 0.3]


def grown(growth: ChainGrowth, steps: Sequence[Sequence[float]], **parts: object) -> Chain:
    """Grow one chain whose draft gives these probabilities, step by step."""
    chain = Chain(ask=ask([1], SETTING, **parts), length=len(steps))  # type: ignore[arg-type]
    logits = iter(torch.tensor([step]).log() for step in steps)

    def advance(chains: Sequence[Chain]) -> Tensor:
        return next(logits)

    growth.grow([chain], next(logits), advance)
    return chain


def test_a_doubtful_token_is_the_last_of_its_draft_and_stays_in_it() -> None:
    growth = ChainGrowth(min_confidence=0.5)
    assert len(grown(growth, [SURE, UNSURE, SURE]).token_ids) == 2
    assert len(grown(growth, [SURE, SURE, SURE]).token_ids) == 3
    assert len(grown(ChainGrowth(), [UNSURE, UNSURE, UNSURE]).token_ids) == 3


def test_confidence_is_measured_at_the_temperature_of_a_sampled_row() -> None:
    growth = ChainGrowth(min_confidence=0.5)
    cold = grown(growth, [UNSURE, UNSURE], temperature=0.02)
    hot = grown(growth, [UNSURE, UNSURE], temperature=1.0)
    assert [len(cold.token_ids), len(hot.token_ids)] == [2, 1]


def adaptive(*, seed: int | None = 7) -> DraftAsk:
    """An ask at temperature 1 whose drafts end where less than 0.4 of them would be kept."""
    market = Adaptive().market(Method.DRAFT_MODEL, rows=1, positions=1)
    kind = Kind(Method.DRAFT_MODEL, is_greedy=False)
    outlook = Outlook(market=market, route="chat", kind=kind, is_seeded=seed is not None, longest=3)
    return replace(ask([1], SETTING, temperature=1.0), outlook=outlook)


def test_a_position_that_does_not_pay_is_not_drawn_and_uses_no_random_number() -> None:
    one, alone = adaptive(), ask([1], SETTING, temperature=1.0)
    chain = Chain(ask=one, length=3)
    logits = iter(torch.tensor([step]).log() for step in (SURE, UNSURE))
    ChainGrowth().grow([chain], next(logits), lambda chains: next(logits))
    assert len(chain.token_ids) == 1
    torch.rand(1, generator=alone.generator, dtype=torch.float64)
    assert torch.equal(one.generator.get_state(), alone.generator.get_state())
    assert (one.depth, one.outlook and one.outlook.confidences) == (2, [pytest.approx(0.9)])


def test_no_draft_pass_is_made_once_every_row_has_ended() -> None:
    chains = [Chain(ask=adaptive(), length=6) for _ in range(2)]
    passes = []

    def advance(growing: Sequence[Chain]) -> Tensor:
        passes.append(len(growing))
        return torch.tensor([UNSURE] * len(growing)).log()

    ChainGrowth().grow(chains, torch.tensor([SURE, [0.6, 0.2, 0.2]]).log(), advance)
    assert passes == [2]
    assert [len(chain.token_ids) for chain in chains] == [1, 1]


def test_a_row_with_an_outlook_is_not_ended_by_the_least_confidence_too() -> None:
    chain = Chain(ask=adaptive(seed=None), length=2)
    steps = iter(torch.tensor([step]).log() for step in (UNSURE, UNSURE))
    ChainGrowth(min_confidence=0.5).grow([chain], next(steps), lambda chains: next(steps))
    assert len(chain.token_ids) == 2


def test_a_drawn_chain_keeps_what_each_token_was_drawn_from() -> None:
    chain = grown(ChainGrowth(vocab=[7, 8, 9]), [SURE, UNSURE], temperature=1.0)
    torch.testing.assert_close(chain.draft().probs, torch.tensor([SURE, UNSURE]))
    assert set(chain.token_ids) <= {7, 8, 9}


def test_a_chain_that_may_not_draw_takes_the_likeliest_tokens_of_a_sampled_row() -> None:
    chain = grown(ChainGrowth(can_draw=False), [SURE, UNSURE], temperature=2.0)
    assert chain.draft().probs is None
    assert chain.token_ids == [0, 0]


def test_stopping_at_doubtful_tokens_leaves_answers_distributed_as_the_target_alone() -> None:
    """Chi-square over all two-token answers; false-alarm rate 1e-4. Half of the drafts stop."""
    vocab, prompt, samples = 6, [1, 2, 1], 3000
    limits = EngineLimits(max_rows=32, max_context_tokens=CONTEXT, queue_limit=samples)
    engine = small_engine(
        vocab_size=vocab, seed=3, scale=0.3, drafters=["draft_model"], limits=limits
    )
    drafter = draft_model(random_decoder(8, vocab, scale=0.4), 32, min_confidence=0.35)
    drafting = Drafting({Method.DRAFT_MODEL: drafter}, max_context_tokens=CONTEXT)
    engine.core._drafting = drafting
    asked = [
        request(str(n), prompt, setting=SETTING, max_tokens=4, temperature=1.0, seed=n)
        for n in range(samples)
    ]
    drawn = Counter(tuple(tokens_of(each)[1:3]) for each in engine.run(asked).values())
    exact = pair_probs(engine.target, prompt, vocab)
    observed = torch.tensor([drawn[pair] for pair in exact])
    expected = torch.tensor([prob * samples for prob in exact.values()])
    assert chi_square_p_value(observed, expected) > 1e-4
    traces = engine.traces().values()
    assert 1.1 < sum(t.drafted for t in traces) / samples < 2.9


def pair_probs(target: LlamaDecoder, prompt: list[int], vocab: int) -> dict[tuple[int, int], float]:
    """Probabilities of the second and third token together."""
    pairs: dict[tuple[int, int], float] = Counter()
    for path in itertools.product(range(vocab), repeat=2):
        rows = torch.softmax(plain_logits(target, [*prompt, *path]).double(), -1)
        here = float(rows[-3][path[0]] * rows[-2][path[1]])
        for third in range(vocab):
            pairs[path[1], third] += here * float(rows[-1][third])
    return pairs


def draft_model(decoder: LlamaDecoder, num_slots: int, **options: object) -> DraftModelDrafter:
    return DraftModelDrafter(
        decoder,
        num_slots=num_slots,
        max_context_tokens=CONTEXT,
        draft_vocab=None,
        drafter_id="weak",
        drafter_hash="0",
        **options,  # type: ignore[arg-type]
    )


def lengths(kind: ScheduleKind, outcomes: Sequence[bool]) -> list[int]:
    """Draft lengths of one row whose drafts were kept whole or not at all, in this order."""
    schedule, committed, asked = DraftSchedule(kind), [1], []
    for is_kept in [*outcomes, True]:
        now = ask(committed, SETTING)
        asked.append(schedule.length(now))
        draft = [5] * asked[-1]
        schedule.note(now, draft)
        committed = [*committed, *(draft if is_kept else []), 6]
    return asked


def test_the_heuristic_schedule_drafts_less_after_a_refusal_and_two_more_after_success() -> None:
    refused, kept = False, True
    assert lengths(ScheduleKind.HEURISTIC, [kept, refused, refused, refused, kept, refused]) == [
        6, 6, 5, 4, 3, 5, 4
    ]  # fmt: skip
    assert lengths(ScheduleKind.HEURISTIC, [refused] * 8)[-3:] == [1, 1, 1]
    assert lengths(ScheduleKind.CONSTANT, [refused] * 3) == [6, 6, 6, 6]


def test_an_adaptive_draft_has_the_length_of_its_setting_whatever_the_schedule() -> None:
    schedule = DraftSchedule(ScheduleKind.HEURISTIC)
    for _ in range(4):
        now = adaptive()
        assert schedule.length(now) == now.k
        schedule.note(now, [5] * now.k)
    assert schedule.length(ask([1], SETTING)) == SETTING.k


@pytest.mark.parametrize(
    "options",
    [{"min_confidence": 0.4}, {"schedule": ScheduleKind.HEURISTIC}],
    ids=["confidence", "schedule"],
)
def test_both_ways_to_stop_early_draft_less_and_change_no_token(options: dict[str, object]) -> None:
    draft = random_decoder(7, 24)
    engine = small_engine(drafters=["draft_model"], draft=draft)
    asked = [
        request(str(number), prompt, setting=SETTING, max_tokens=20)
        for number, prompt in enumerate(prompts(6, 24, seed=8))
    ]
    plain = engine.run(asked)
    stopping = small_engine(drafters=["draft_model"], draft=draft)
    drafter = draft_model(draft, 8, **options)
    drafting = Drafting({Method.DRAFT_MODEL: drafter}, max_context_tokens=CONTEXT)
    stopping.core._drafting = drafting
    stopped = stopping.run(asked)
    assert {n: tokens_of(d) for n, d in stopped.items()} == {
        n: tokens_of(d) for n, d in plain.items()
    }
    drafted = [sum(t.drafted for t in e.traces().values()) for e in (stopping, engine)]
    assert drafted[0] < 0.7 * drafted[1]
