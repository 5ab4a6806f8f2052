"""Any order of arrivals, steps, changes of plan, cancellations and ends: no slot leaks, no token is
wrong. One engine plays schedule after schedule, so that every slot is used again and again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from collectors.records import OFF, FinishReason, Plan, Setting
from tests.contracts.drafter_cases import VOCAB, cases, greedy, target, weak_parts
from tests.tuner.engine.harness import (
    CONTEXT,
    DRAFTERS,
    SCRIPTED,
    plain_logits,
    prompts,
    request,
    small_engine,
    tokens_of,
)
from tuner.engine.limits import EngineLimits
from tuner.engine.request import Delta, EngineRequest
from tuner.engine.verification.logprobs import top_margins

LONGEST = 5
LIMITS = EngineLimits(max_rows=3, max_context_tokens=CONTEXT, prefill_tokens=9)
GROUPS = pytest.mark.parametrize(
    "drafters", [tuple(DRAFTERS), tuple(SCRIPTED)], ids=["ours", "scripted"]
)


class Player:
    """Plays schedules, each a function of its number alone."""

    def __init__(self, drafters: Sequence[str]) -> None:
        self._engine = small_engine(
            vocab_size=VOCAB,
            drafters=drafters,
            limits=LIMITS,
            **weak_parts(),  # type: ignore[arg-type]
        )
        self._settings = [OFF, *(each.setting for each in cases() if each.name in drafters)]
        self._prompts = prompts(24, VOCAB, seed=13, longest=14)
        for prompt in self._prompts:
            greedy(prompt, LONGEST)

    def play(self, number: int) -> None:
        """Play one schedule and check what it leaves behind."""
        dice = random.Random(number)
        core = self._engine.core
        choices = [OFF, *dice.sample(self._settings, 2)]
        waiting = [self._request(f"{number}-{i}", dice, choices) for i in range(dice.randint(1, 3))]
        asked: dict[str, EngineRequest] = {}
        cancelled: set[str] = set()
        deltas: dict[str, list[Delta]] = {}
        while waiting or core.has_work:
            action = dice.choices(["submit", "step", "switch", "cancel"], [3, 6, 1, 1])[0]
            if action == "submit" and waiting:
                ask = waiting.pop()
                asked[ask.request_id] = ask
                core.submit(ask)
            elif action == "switch":
                self._engine.plan.replace(Plan(default=dice.choice(choices)))
            elif action == "cancel" and asked and dice.random() < 0.5:
                name = dice.choice(list(asked))
                cancelled |= {name} if core.cancel(name) else set()
            else:
                for delta in core.step():
                    assert delta.request_id not in cancelled
                    deltas.setdefault(delta.request_id, []).append(delta)
        assert core.num_running == core.num_waiting == 0
        assert core.kv_used_ratio == 0
        for name, ask in asked.items():
            _check(ask, deltas.get(name, []), is_cancelled=name in cancelled)

    def _request(self, name: str, dice: random.Random, choices: Sequence[Setting]) -> EngineRequest:
        """A greedy or sampled request, under its own Setting or the plan's, that ends somehow."""
        prompt = dice.choice(self._prompts)
        ends = (dice.choice(greedy(prompt, LONGEST)),) if dice.random() < 0.3 else ()
        return request(
            name,
            prompt,
            setting=dice.choice([None, *choices]),
            max_tokens=dice.randint(1, LONGEST),
            stop_token_ids=ends,
            temperature=0.0 if dice.random() < 0.8 else 1.0,
            seed=dice.randint(0, 99),
        )


def _check(ask: EngineRequest, deltas: Sequence[Delta], *, is_cancelled: bool) -> None:
    given = tokens_of(deltas)
    ends = ask.sampling.stop_token_ids
    if is_cancelled:
        assert len(given) < ask.sampling.max_tokens
        assert not deltas or deltas[-1].finish_reason is None
    elif given[-1] in ends:
        assert deltas[-1].finish_reason is FinishReason.STOP
    else:
        assert deltas[-1].finish_reason is FinishReason.LENGTH
        assert len(given) == ask.sampling.max_tokens
    assert not set(given[:-1]).intersection(ends)
    if ask.sampling.is_greedy:
        assert given == greedy(ask.prompt_ids, LONGEST)[: len(given)], ask


@GROUPS
def test_short_schedules_leak_no_slot_and_give_no_wrong_token(drafters: tuple[str, ...]) -> None:
    player = Player(drafters)
    for number in range(200):
        player.play(number)


@pytest.mark.slow
@GROUPS
def test_5000_schedules_of_each_group_leak_no_slot_and_give_no_wrong_token(
    drafters: tuple[str, ...],
) -> None:
    player = Player(drafters)
    for number in range(1000, 6000):
        player.play(number)


def test_no_answer_of_the_schedules_hangs_on_rounding() -> None:
    for prompt in prompts(24, VOCAB, seed=13, longest=14):
        text = [*prompt, *greedy(prompt, LONGEST)]
        margins = top_margins(plain_logits(target(), text)[len(prompt) - 1 : -1])
        assert float(margins.min()) > 1e-3
