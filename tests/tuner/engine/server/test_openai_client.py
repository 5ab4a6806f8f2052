from __future__ import annotations

import asyncio

import openai
import pytest

from tests.tuner.engine.server.running import MODEL, RunningEngine

PROMPT = "the user is a person who reads the answer"
MESSAGES = [{"role": "user", "content": "return the value"}]
DRAFT_4 = {"speculation": {"method": "draft_model", "k": 4}}


def test_models_are_listed_and_found_by_name(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "spectuner"
    with pytest.raises(openai.NotFoundError, match="model 'gpt' is not served here; use 'tiny'"):
        client.models.retrieve("gpt")


def test_a_completion_has_text_usage_fingerprint_and_the_id_of_its_header(client: openai.OpenAI):
    raw = client.completions.with_raw_response.create(
        model=MODEL, prompt=PROMPT, max_tokens=12, temperature=0
    )
    answer = raw.parse()

    assert answer.object == "text_completion"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer.system_fingerprint is not None
    assert answer.system_fingerprint.startswith("spectuner-")
    assert answer.id == raw.headers["x-request-id"]


def test_the_answer_is_the_models_own_greedy_continuation(
    client: openai.OpenAI, engine: RunningEngine, greedy_reference
):
    prompt_ids = engine.loaded.codec.encode(PROMPT)

    answer = client.completions.create(
        model=MODEL,
        prompt=prompt_ids,
        max_tokens=20,
        temperature=0,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )

    assert answer.choices[0].model_extra["token_ids"] == greedy_reference(prompt_ids, 20)


def test_text_and_token_ids_as_prompt_give_the_same_answer(
    client: openai.OpenAI, engine: RunningEngine
):
    def text_of(prompt: str | list[int] | list[str] | list[list[int]]) -> str:
        answer = client.completions.create(model=MODEL, prompt=prompt, temperature=0)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 16
        return answer.choices[0].text

    ids = engine.loaded.codec.encode(PROMPT)
    assert text_of(PROMPT) == text_of(ids) == text_of([PROMPT]) == text_of([ids])


def test_speculation_changes_passes_and_not_the_answer(client: openai.OpenAI):
    def answer_with(**extra: object):
        return client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=40, temperature=0, extra_body=extra
        )

    plain, drafted = answer_with(), answer_with(**DRAFT_4)

    assert drafted.choices[0].text == plain.choices[0].text
    assert drafted.model_extra["metrics"]["spectuner"]["passes"] < 20
    assert plain.model_extra["metrics"]["spectuner"]["passes"] == 39


def test_speculation_is_reported_in_the_shape_of_vllm(client: openai.OpenAI):
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=40, temperature=0, extra_body=DRAFT_4
    )
    told = answer.model_extra["metrics"]
    stats = told["speculative_decoding"]
    histogram = stats["acceptance_histogram"]

    assert len(histogram) == stats["num_spec_tokens"] + 1 == 5
    assert sum(histogram) == stats["num_spec_steps"] > 0
    assert sum(n * rows for n, rows in enumerate(histogram)) == stats["num_accepted_draft_tokens"]
    assert stats["draft_acceptance_rate"] == (
        stats["num_accepted_draft_tokens"] / stats["num_draft_tokens"]
    )
    assert stats["mean_acceptance_length"] == (
        1 + stats["num_accepted_draft_tokens"] / stats["num_spec_steps"]
    )
    assert told["spectuner"]["setting"]["method"] == "draft_model"
    assert told["spectuner"]["setting"]["k"] == 4


def test_rates_of_a_request_without_drafts_are_unknown_and_not_zero(client: openai.OpenAI):
    answer = client.completions.create(model=MODEL, prompt=PROMPT, temperature=0)
    stats = answer.model_extra["metrics"]["speculative_decoding"]

    assert stats["mean_acceptance_length"] is None
    assert stats["draft_acceptance_rate"] is None
    assert stats["acceptance_histogram"] == [0]


def test_a_chat_answer_runs_to_the_end_of_the_context_unless_limited(client: openai.OpenAI):
    unlimited = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, extra_body={"ignore_eos": True}
    )
    limited = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_completion_tokens=7
    )

    assert unlimited.object == "chat.completion"
    assert unlimited.usage is not None
    assert unlimited.usage.total_tokens == 256
    assert unlimited.choices[0].message.role == "assistant"
    assert limited.usage is not None
    assert limited.usage.completion_tokens == 7


def test_text_parts_and_the_developer_role_are_read_like_plain_strings(client: openai.OpenAI):
    def text_of(messages: list[dict[str, object]]) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            temperature=0,
            max_tokens=12,
        )
        return answer.choices[0].message.content

    parts = [{"type": "text", "text": "return "}, {"type": "text", "text": "the value"}]
    assert text_of([{"role": "user", "content": parts}]) == text_of(
        [{"role": "user", "content": "return the value"}]
    )
    assert text_of([{"role": "developer", "content": "a"}, *MESSAGES]) == text_of(
        [{"role": "system", "content": "a"}, *MESSAGES]
    )


@pytest.mark.parametrize("speculation", [{}, DRAFT_4])
def test_completion_logprobs_cover_each_token_and_agree_with_the_alternatives(
    client: openai.OpenAI, speculation: dict[str, object]
):
    answer = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        max_tokens=12,
        temperature=0,
        logprobs=3,
        extra_body={"return_token_ids": True, **speculation},
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    ids = answer.choices[0].model_extra["token_ids"]

    assert logprobs.model_extra["token_ids"] == ids
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(ids) == 12
    for chosen, token, top_ids, top_values, top in zip(
        logprobs.token_logprobs,
        ids,
        logprobs.model_extra["top_token_ids"],
        logprobs.model_extra["top_token_logprobs"],
        logprobs.top_logprobs,
        strict=True,
    ):
        assert top_ids[0] == token
        assert top_values[0] == chosen == max(top.values())
        assert top_values == sorted(top_values, reverse=True)
        assert len(top) == 3


def test_chat_logprobs_carry_bytes_for_whole_characters(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None

    assert len(logprobs.content) == 12
    for entry in logprobs.content:
        assert entry.top_logprobs[0].logprob == entry.logprob
        assert len(entry.top_logprobs) == 2
        whole = "\ufffd" not in entry.token
        assert entry.bytes == (list(entry.token.encode()) if whole else None)


def test_a_seed_repeats_a_sampled_answer_and_another_seed_does_not(client: openai.OpenAI):
    def text_of(seed: int) -> str:
        answer = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=32, temperature=1, seed=seed
        )
        return answer.choices[0].text

    assert text_of(1) == text_of(1)
    assert text_of(1) != text_of(2)


def test_bias_forbids_a_token(client: openai.OpenAI, engine: RunningEngine):
    def ids_of(**extra: object) -> list[int]:
        answer = client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=20,
            temperature=0,
            extra_body={"return_token_ids": True, **extra},
        )
        return list(answer.choices[0].model_extra["token_ids"])

    favourite = ids_of()[3]
    assert favourite not in ids_of(logit_bias={str(favourite): -100})


def test_a_stop_token_id_ends_the_answer_and_is_named(client: openai.OpenAI):
    def answer_with(**extra: object):
        return client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=20,
            temperature=0,
            extra_body={"return_token_ids": True, **extra},
        ).choices[0]

    ids = list(answer_with().model_extra["token_ids"])
    stopped = answer_with(stop_token_ids=[ids[5]])

    assert stopped.finish_reason == "stop"
    assert stopped.model_extra["stop_reason"] == ids[5]
    first = ids.index(ids[5])
    assert stopped.model_extra["token_ids"][:first] == ids[:first]


def test_many_async_requests_at_once_get_what_each_gets_alone(
    client: openai.OpenAI, engine: RunningEngine
):
    prompts = [f"the user {number} reads the answer" for number in range(12)]
    settings = [{}, DRAFT_4, {"speculation": {"method": "prompt_lookup", "k": 3}}]
    alone = [
        client.completions.create(model=MODEL, prompt=prompt, max_tokens=30, temperature=0)
        .choices[0]
        .text
        for prompt in prompts
    ]

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{engine.url}/v1", api_key="any", max_retries=0
        ) as asked:
            answers = await asyncio.gather(
                *(
                    asked.completions.create(
                        model=MODEL,
                        prompt=prompt,
                        max_tokens=30,
                        temperature=0,
                        extra_body=settings[number % 3],
                    )
                    for number, prompt in enumerate(prompts)
                )
            )
        return [answer.choices[0].text for answer in answers]

    assert asyncio.run(ask_all()) == alone


def test_the_route_header_names_the_route_in_the_journal(
    client: openai.OpenAI, engine: RunningEngine
):
    answer = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        temperature=0,
        extra_headers={"x-spectuner-route": "code-edit", "x-spectuner-shadow": "1"},
    )

    [trace] = [trace for trace in engine.traces() if trace.request_id == answer.id]
    assert (trace.route, trace.is_shadow) == ("code-edit", True)
    assert trace.completion_tokens == 16
