"""The step loop: limits, stops, counts, queueing, chunked prefill."""

from __future__ import annotations

import pytest

from collectors.records import OFF, FinishReason, Method, Plan, PlanEntry, Setting, load_level_of
from tests.tuner.engine.harness import (
    CONTEXT,
    SmallEngine,
    greedy_reference,
    prompts,
    random_decoder,
    request,
    settings_under_test,
    small_engine,
    tokens_of,
)
from tuner.engine.errors import ContextTooLong, InvalidRequest, QueueFull
from tuner.engine.limits import EngineLimits

VOCAB = 24
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=8, lookup_min=1, lookup_max=3)
SELF_DRAFT = Setting(method=Method.DRAFT_MODEL, k=5)
BURSTS = pytest.mark.parametrize("setting", [LOOKUP, SELF_DRAFT], ids=lambda s: s.label)


def looping_prompt(engine: SmallEngine) -> list[int]:
    return greedy_reference(engine.target, [7], 40)


def letters(token_ids: list[int]) -> str:
    return "".join(chr(ord("a") + token) for token in token_ids)


def cut_at_text(reference: list[int], stop: str) -> tuple[str, int]:
    """Text before the stop and the number of tokens up to the one that completes it."""
    text = letters(reference)
    at = text.find(stop)
    return (text, len(reference)) if at < 0 else (text[:at], at + len(stop))


@BURSTS
def test_every_neighbouring_token_pair_as_stop_string_ends_where_greedy_would(
    setting: Setting,
) -> None:
    engine = small_engine()
    prompt = looping_prompt(engine)
    reference = greedy_reference(engine.target, prompt, 24)
    stops = [letters(reference[i : i + 2]) for i in range(23)]
    deltas = engine.run(
        [
            request(str(n), prompt, setting=setting, max_tokens=24, stop=(stop,))
            for n, stop in enumerate(stops)
        ]
    )
    for n, stop in enumerate(stops):
        text, num_tokens = cut_at_text(reference, stop)
        answer = deltas[str(n)]
        assert "".join(delta.text for delta in answer) == text
        assert tokens_of(answer) == reference[:num_tokens]
        assert (answer[-1].finish_reason, answer[-1].stop_reason) == (FinishReason.STOP, stop)


@BURSTS
def test_every_produced_token_as_end_token_ends_where_greedy_would(setting: Setting) -> None:
    engine = small_engine()
    prompt = looping_prompt(engine)
    reference = greedy_reference(engine.target, prompt, 24)
    ends = sorted(set(reference))
    deltas = engine.run(
        [
            request(str(end), prompt, setting=setting, max_tokens=24, stop_token_ids=(end,))
            for end in ends
        ]
    )
    for end in ends:
        num_tokens = reference.index(end) + 1
        answer = deltas[str(end)]
        assert tokens_of(answer) == reference[:num_tokens]
        assert "".join(delta.text for delta in answer) == letters(reference[: num_tokens - 1])
        assert answer[-1].finish_reason is FinishReason.STOP


@BURSTS
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 24])
def test_a_limit_inside_a_block_is_never_passed(setting: Setting, limit: int) -> None:
    engine = small_engine()
    prompt = looping_prompt(engine)
    answer = engine.run([request("a", prompt, setting=setting, max_tokens=limit)])["a"]
    assert tokens_of(answer) == greedy_reference(engine.target, prompt, limit)
    assert answer[-1].finish_reason is FinishReason.LENGTH
    assert answer[-1].counts.completion_tokens == limit


@BURSTS
def test_the_context_limit_inside_a_block_is_never_passed(setting: Setting) -> None:
    limits = EngineLimits(max_rows=2, max_context_tokens=47, prefill_tokens=16)
    engine = small_engine(limits=limits)
    prompt = looping_prompt(engine)
    answer = engine.run([request("a", prompt, setting=setting, max_tokens=7)])["a"]
    assert tokens_of(answer) == greedy_reference(engine.target, prompt, 7)


@pytest.mark.parametrize("method", [Method.DRAFT_MODEL, Method.PARD])
def test_a_draft_model_of_fewer_positions_than_the_context_drafts_as_far_as_they_reach(
    method: Method,
) -> None:
    draft = random_decoder(1, VOCAB, max_positions=40)
    engine = small_engine(drafters=[method.value], draft=draft)
    prompt = looping_prompt(engine)[:30]
    answer = engine.run([request("a", prompt, setting=Setting(method=method, k=4), max_tokens=60)])
    assert tokens_of(answer["a"]) == greedy_reference(engine.target, prompt, 60)
    assert 0 < engine.traces()["a"].drafted < 40


def test_nothing_after_a_stop_token_inside_an_accepted_block_is_delivered() -> None:
    """Block A, B, STOP, C, D with a limit of 4."""
    engine = small_engine()
    prompt = looping_prompt(engine)
    reference = greedy_reference(engine.target, prompt, 8)
    end = reference[3]
    first = reference.index(end)
    answer = engine.run(
        [request("a", prompt, setting=SELF_DRAFT, max_tokens=5, stop_token_ids=(end,), logprobs=1)]
    )["a"]
    assert tokens_of(answer) == reference[: first + 1]
    assert sum(len(delta.logprobs) for delta in answer) == first + 1
    assert answer[-1].counts.completion_tokens == first + 1
    assert answer[-1].finish_reason is FinishReason.STOP


@pytest.mark.parametrize("setting", [OFF, *settings_under_test()], ids=lambda s: s.label)
def test_logprobs_under_speculation_are_those_of_plain_decoding(setting: Setting) -> None:
    asked = [
        request(str(n), prompt, setting=setting, max_tokens=12, logprobs=3)
        for n, prompt in enumerate(prompts(4, VOCAB, seed=9))
    ]
    plain = small_engine().run(
        [request(ask.request_id, ask.prompt_ids, max_tokens=12, logprobs=3) for ask in asked]
    )
    ours = small_engine().run(asked)
    for name, deltas in plain.items():
        wanted = [token for delta in deltas for token in delta.logprobs]
        given = [token for delta in ours[name] for token in delta.logprobs]
        assert [token.token_id for token in given] == [token.token_id for token in wanted]
        for one, other in zip(given, wanted, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-4)


@BURSTS
def test_minimum_tokens_counts_tokens_and_not_steps(setting: Setting) -> None:
    engine = small_engine()
    prompt = looping_prompt(engine)
    end = greedy_reference(engine.target, prompt, 1)[0]
    answer = engine.run(
        [request("a", prompt, setting=setting, max_tokens=20, min_tokens=6, stop_token_ids=(end,))]
    )["a"]
    tokens = tokens_of(answer)
    assert end not in tokens[:6]
    if end in tokens:
        assert tokens.index(end) == len(tokens) - 1


def test_a_banned_token_never_appears_at_any_position_of_a_block() -> None:
    engine = small_engine()
    prompt = looping_prompt(engine)
    banned = greedy_reference(engine.target, prompt, 3)[2]
    for setting in (OFF, LOOKUP, SELF_DRAFT):
        answer = small_engine().run(
            [request("a", prompt, setting=setting, max_tokens=24, logit_bias={banned: -100.0})]
        )["a"]
        assert banned not in tokens_of(answer)


def test_penalties_give_the_same_tokens_with_and_without_speculation() -> None:
    sampling = {"frequency_penalty": 0.7, "presence_penalty": 0.3, "repetition_penalty": 1.2}
    answers = []
    for setting in (OFF, LOOKUP, SELF_DRAFT):
        engine = small_engine()
        prompt = looping_prompt(engine)
        deltas = engine.run([request("a", prompt, setting=setting, max_tokens=30, **sampling)])
        answers.append(tokens_of(deltas["a"]))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0] != greedy_reference(small_engine().target, looping_prompt(small_engine()), 30)


def test_a_prompt_longer_than_a_chunk_is_read_in_chunks_beside_running_rows() -> None:
    limits = EngineLimits(max_rows=4, max_context_tokens=CONTEXT, prefill_tokens=16)
    engine = small_engine(limits=limits)
    asked = [
        request("short", [1, 2, 3], max_tokens=20),
        request("long", prompts(1, VOCAB, seed=3, longest=4)[0] * 40, max_tokens=8),
    ]
    deltas = engine.run(asked)
    for ask in asked:
        wanted = greedy_reference(engine.target, ask.prompt_ids, ask.sampling.max_tokens)
        assert tokens_of(deltas[ask.request_id]) == wanted
    assert max(step.prefill_tokens for step in engine.steps()) == 16


def test_steps_and_traces_count_the_same_tokens() -> None:
    engine = small_engine(draft=random_decoder(9, VOCAB))
    engine.plan.replace(
        Plan(
            default=SELF_DRAFT,
            entries=(PlanEntry(route="lookup", load=load_level_of(6), setting=LOOKUP),),
        )
    )
    engine.run(
        [
            request(str(n), prompt, route="lookup" if n % 2 else "chat", max_tokens=15)
            for n, prompt in enumerate(prompts(6, VOCAB, seed=8))
        ]
    )
    traces = engine.traces().values()
    groups = [group for step in engine.steps() for group in step.groups]
    assert sum(group.drafted for group in groups) == sum(trace.drafted for trace in traces)
    assert sum(group.accepted for group in groups) == sum(trace.accepted for trace in traces)
    assert sum(group.rows for group in groups) == sum(trace.passes for trace in traces)
    for position in range(LOOKUP.k):
        outcomes = [one for group in groups for one in group.outcomes]
        tried = [o for o in outcomes if o.drafted > position and o.accepted >= position]
        counted = [trace.attempts[position : position + 1] for trace in traces]
        assert sum(o.rows for o in tried) == sum(map(sum, counted))
        kept = [trace.accepts[position : position + 1] for trace in traces]
        assert sum(o.rows for o in tried if o.accepted > position) == sum(map(sum, kept))
    first_tokens = len(traces)
    assert sum(g.tokens for g in groups) + first_tokens == sum(t.completion_tokens for t in traces)
    for step in engine.steps():
        decoding = sum(group.rows + group.drafted for group in step.groups)
        assert step.positions == decoding + step.prefill_tokens


def test_the_plan_is_read_by_route_and_load_level() -> None:
    engine = small_engine()
    entries = (PlanEntry(route="chat", load=load_level_of(2), setting=LOOKUP),)
    engine.plan.replace(Plan(entries=entries))
    engine.run([request("a", [1, 2], max_tokens=6), request("b", [3, 4], max_tokens=20)])
    used = {(step.running, group.setting) for step in engine.steps() for group in step.groups}
    assert (2, LOOKUP) in used
    assert (1, OFF) in used
    assert (1, LOOKUP) not in used


def test_replayed_requests_wait_behind_live_ones_and_are_marked() -> None:
    limits = EngineLimits(max_rows=2, max_context_tokens=CONTEXT, prefill_tokens=40)
    engine = small_engine(limits=limits)
    engine.run(
        [
            *(request(f"shadow{n}", [1, 2], is_shadow=True, max_tokens=4) for n in range(3)),
            *(request(f"live{n}", [1, 2], max_tokens=4) for n in range(3)),
        ]
    )
    order = list(engine.traces())
    assert set(order[:2]) == {"live0", "live1"}
    assert all(
        trace.is_shadow == name.startswith("shadow") for name, trace in engine.traces().items()
    )
    shadow_rows = [
        sum(group.rows for group in step.groups if group.is_shadow) for step in engine.steps()
    ]
    assert max(shadow_rows) == 1


def test_a_full_queue_refuses_and_names_its_limit() -> None:
    limits = EngineLimits(max_rows=1, max_context_tokens=CONTEXT, queue_limit=2)
    engine = small_engine(limits=limits)
    for n in range(2):
        engine.core.submit(request(str(n), [1]))
    with pytest.raises(QueueFull, match="2 requests wait, the limit is 2"):
        engine.core.submit(request("late", [1]))


@pytest.mark.parametrize(
    ("prompt", "changes", "error", "words"),
    [
        ([], {}, InvalidRequest, "prompt is empty"),
        ([1, 99], {}, InvalidRequest, "token 99"),
        ([1] * 150, {"max_tokens": 20}, ContextTooLong, "150 tokens and max_tokens is 20"),
        ([1], {"logit_bias": {77: 1.0}}, InvalidRequest, "token 77"),
        ([1], {"stop_token_ids": (24,)}, InvalidRequest, "token 24"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_by_name(
    prompt: list[int], changes: dict[str, object], error: type[Exception], words: str
) -> None:
    engine = small_engine()
    with pytest.raises(error, match=words):
        engine.core.submit(request("a", prompt, **changes))
    assert not engine.core.has_work


def test_cancelling_a_waiting_request_leaves_a_trace_and_no_work() -> None:
    engine = small_engine()
    engine.core.submit(request("a", [1]))
    assert engine.core.cancel("a")
    assert not engine.core.cancel("a")
    assert not engine.core.has_work
    assert engine.traces()["a"].finish_reason is FinishReason.CANCELLED


def test_a_bias_that_bans_every_token_ends_that_request_with_an_error_and_no_other() -> None:
    engine = small_engine()
    ban = dict.fromkeys(range(VOCAB), -100.0)
    deltas = engine.run(
        [
            request("banned", [1, 2], temperature=0.7, logit_bias=ban),
            request("fine", [1, 2], max_tokens=5),
        ]
    )
    assert deltas["banned"][-1].finish_reason is FinishReason.ERROR
    assert "no token can be drawn" in deltas["banned"][-1].error
    assert tokens_of(deltas["fine"]) == greedy_reference(engine.target, [1, 2], 5)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    def answer(seed: int) -> list[int]:
        ask = request("a", [4, 5, 6], temperature=1.0, seed=seed, setting=SELF_DRAFT)
        return tokens_of(small_engine().run([ask])["a"])

    assert answer(5) == answer(5)
    assert answer(5) != answer(6)
