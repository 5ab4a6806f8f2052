"""Faults that people met with speculation elsewhere, put to every drafter: F9, F10 and F11."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from collectors.records import OFF, FinishReason
from tests.contracts.drafter_cases import EACH_CASE, WINDOW, Case, greedy, target
from tests.tuner.engine.harness import request, tokens_of
from tuner.engine.limits import EngineLimits
from tuner.engine.request import Delta

LENGTH = 24


@lru_cache(maxsize=4)
def looping(window: int | None = None) -> tuple[list[int], list[int]]:
    """Return a prompt that loops, being the target's own words, and how the target goes on."""
    prompt = greedy([8], 40, window=window)
    return prompt, greedy(prompt, LENGTH, window=window)


def letters(token_ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in token_ids)


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


@EACH_CASE
def test_every_neighbouring_token_pair_as_stop_string_ends_where_greedy_would(case: Case) -> None:
    prompt, wanted = looping()
    stops = sorted({letters(wanted[i : i + 2]) for i in range(LENGTH - 1)})
    deltas = case.engine().run(
        [
            request(stop, prompt, setting=case.setting, max_tokens=LENGTH, stop=(stop,))
            for stop in stops
        ]
    )
    for stop in stops:
        at = letters(wanted).index(stop)
        answer = deltas[stop]
        assert text_of(answer) == letters(wanted)[:at]
        assert tokens_of(answer) == wanted[: at + len(stop)]
        assert (answer[-1].finish_reason, answer[-1].stop_reason) == (FinishReason.STOP, stop)


@EACH_CASE
def test_every_produced_token_as_end_token_ends_where_greedy_would(case: Case) -> None:
    """The limit is one token behind the end, so that a block may hold both."""
    prompt, wanted = looping()
    ends = sorted(set(wanted))
    deltas = case.engine().run(
        [
            request(
                str(end),
                prompt,
                setting=case.setting,
                max_tokens=wanted.index(end) + 2,
                stop_token_ids=(end,),
                logprobs=1,
            )
            for end in ends
        ]
    )
    for end in ends:
        num_tokens = wanted.index(end) + 1
        answer = deltas[str(end)]
        assert tokens_of(answer) == wanted[:num_tokens]
        assert text_of(answer) == letters(wanted[: num_tokens - 1])
        assert sum(len(delta.logprobs) for delta in answer) == num_tokens
        assert answer[-1].counts.completion_tokens == num_tokens
        assert answer[-1].finish_reason is FinishReason.STOP


@EACH_CASE
def test_limits_inside_a_block_are_never_passed(case: Case) -> None:
    prompt, wanted = looping()
    limits = (1, 2, 3, 5, LENGTH)
    deltas = case.engine().run(
        [request(str(n), prompt, setting=case.setting, max_tokens=n) for n in limits]
    )
    for limit in limits:
        assert tokens_of(deltas[str(limit)]) == wanted[:limit]
        assert deltas[str(limit)][-1].finish_reason is FinishReason.LENGTH


@EACH_CASE
def test_the_context_limit_inside_a_block_is_never_passed(case: Case) -> None:
    prompt, wanted = looping()
    for room in (2, 7):
        limits = EngineLimits(max_rows=2, max_context_tokens=len(prompt) + room, prefill_tokens=16)
        engine = case.engine(limits=limits)
        answer = engine.run([request("a", prompt, setting=case.setting, max_tokens=room)])["a"]
        assert tokens_of(answer) == wanted[:room]


@EACH_CASE
def test_a_target_that_sees_a_sliding_window_says_what_it_says_alone(case: Case) -> None:
    prompt, wanted = looping(WINDOW)
    assert wanted != greedy(prompt, LENGTH)
    engine = case.engine(target=target(WINDOW))
    answer = engine.run([request("a", prompt, setting=case.setting, max_tokens=LENGTH)])["a"]
    assert tokens_of(answer) == wanted


@EACH_CASE
def test_parameters_act_at_every_position_of_a_block(case: Case) -> None:
    """Penalties, a ban, and a least length with an end token that would come at once."""
    prompt, wanted = looping()
    kinds: dict[str, dict[str, object]] = {
        "penalties": {"frequency_penalty": 0.7, "presence_penalty": 0.3, "repetition_penalty": 1.2},
        "ban": {"logit_bias": {wanted[2]: -100.0}},
        "least": {"min_tokens": 6, "stop_token_ids": (wanted[0],)},
    }

    def answers(engine_case: Case) -> dict[str, list[int]]:
        deltas = engine_case.engine().run(
            [
                request(name, prompt, setting=engine_case.setting, max_tokens=20, **sampling)
                for name, sampling in kinds.items()
            ]
        )
        return {name: tokens_of(each) for name, each in deltas.items()}

    spoken = answers(case)
    assert spoken == answers(Case(name=case.name, setting=OFF))
    assert spoken["penalties"] != wanted[:20]
    assert wanted[2] not in spoken["ban"]
    assert wanted[0] not in spoken["least"][:6]


def test_the_looping_prompts_say_more_than_one_thing() -> None:
    assert min(len(set(looping(window)[1])) for window in (None, WINDOW)) > 4
