"""Answers under a grammar, through the whole core: right, and the same with speculation as without.

Statistical tests have fixed seeds; their false-alarm rate is stated with each.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
import torch

from collectors.records import OFF, AcceptanceRule, FinishReason, Method, Setting
from tests.tuner.engine.grammars import END, NUM_LETTERS, compiled, letters, regex, spelled
from tests.tuner.engine.harness import (
    CONTEXT,
    DRAFTERS,
    SCRIPTED,
    SmallEngine,
    plain_logits,
    prompts,
    random_decoder,
    request,
    small_engine,
    tokens_of,
)
from tuner.engine import drafting
from tuner.engine.drafters.base import Draft
from tuner.engine.limits import EngineLimits
from tuner.engine.pruning import pruned
from tuner.engine.request import Delta, EngineRequest
from tuner.engine.row import Row
from tuner.engine.text import StopScanner
from tuner.engine.verification.rows import RowSampler
from tuner.engine.verification.selfcheck import chi_square_p_value

REJECTION = AcceptanceRule.REJECTION
VOCAB = NUM_LETTERS + 1
PATTERNS = ("(ab|cd[a-k]{2})*w", "([a-h]{2,5}u){1,3}", "[a-w]{7}", "(abc|abd)(q|rst)*")
SETTINGS = [
    (name, setting)
    for name, drafter in (DRAFTERS | SCRIPTED).items()
    for setting in drafter.settings
]
IDS = [f"{name}-{setting.label}" for name, setting in SETTINGS]


def engine_with(name: str | None = None, **options: object) -> SmallEngine:
    names = ["prompt_lookup"] if name is None else [name]
    return small_engine(vocab_size=VOCAB, drafters=names, eos_ids=(END,), **options)  # type: ignore[arg-type]


def held(
    name: str, pattern: str, *, prompt: list[int], setting: Setting = OFF, **sampling: object
) -> EngineRequest:
    grammar = compiled(regex(pattern))
    return request(name, prompt, setting=setting, **{"grammar": grammar, **sampling})


def answer(deltas: list[Delta]) -> str:
    return spelled([token for token in tokens_of(deltas) if token != END])


def ends(deltas: list[Delta]) -> tuple[FinishReason | None, str | int | None]:
    return deltas[-1].finish_reason, deltas[-1].stop_reason


LANGUAGE = "a[a-l](m|n[ab])"
SAMPLINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    "least tokens": {"min_tokens": 9},
    "stop strings": {"stop": ("wv", "dd")},
    "bias": {"logit_bias": {0: 2.0, 22: -100.0}},
}


@pytest.mark.parametrize(("name", "setting"), SETTINGS, ids=IDS)
def test_greedy_answers_equal_plain_decoding_under_the_same_grammar(name: str, setting: Setting):
    engine = engine_with(name)
    asked = list(zip(PATTERNS, prompts(len(PATTERNS), VOCAB, seed=3), strict=True))

    def answers(setting: Setting) -> dict[str, tuple[list[int], object]]:
        found = engine.run(
            [
                held(f"{pattern} {kind}", pattern, prompt=prompt, setting=setting, **sampling)
                for pattern, prompt in asked
                for kind, sampling in SAMPLINGS.items()
            ]
        )
        return {number: (tokens_of(deltas), ends(deltas)) for number, deltas in found.items()}

    plain = answers(OFF)

    assert answers(setting) == plain
    assert {reason for _, (reason, _) in plain.values()} == {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize(("name", "setting"), SETTINGS, ids=IDS)
def test_sampled_answers_are_in_the_language(name: str, setting: Setting):
    asked = dict(enumerate(zip(PATTERNS * 3, prompts(3 * len(PATTERNS), VOCAB), strict=True)))
    sampling = {"setting": setting, "temperature": 1.5, "max_tokens": 50}

    found = engine_with(name).run(
        [
            held(f"{number}", pattern, prompt=prompt, seed=number, **sampling)
            for number, (pattern, prompt) in asked.items()
        ]
    )

    for number, (pattern, _) in asked.items():
        reason, _ = ends(found[f"{number}"])
        text = answer(found[f"{number}"])
        state = compiled(regex(pattern)).start()
        assert reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert all(state.advance(token) for token in letters(text)), (pattern, text)
        assert reason is FinishReason.LENGTH or re.fullmatch(pattern, text), (pattern, text)


def chances(engine: SmallEngine, prompt: list[int], temperature: float) -> dict[str, float]:
    """Return the probability of each text of a small language, straight from the logits."""
    grammar = compiled(regex(LANGUAGE))

    def spread(text: str) -> dict[str, float]:
        state = grammar.start()
        assert all(state.advance(token) for token in letters(text))
        if state.is_over:
            return {text: 1.0}
        logits = plain_logits(engine.target, [*prompt, *letters(text)])[-1].double() / temperature
        logits[~torch.from_numpy(state.allowed())] = -torch.inf
        return {
            longer: probability * rest
            for token, probability in enumerate(logits.softmax(-1).tolist())
            if probability > 0
            for longer, rest in spread(text + spelled([token])).items()
        }

    return spread("")


def fit(name: str, setting: Setting, num_answers: int = 1000) -> float:
    """Return the chi-square p-value of sampled answers against the target's own chances."""
    limits = EngineLimits(max_rows=16, max_context_tokens=CONTEXT, queue_limit=num_answers)
    engine = engine_with(name, target=random_decoder(5, VOCAB, scale=0.3), limits=limits)
    prompt, temperature = letters("abeadceb"), 1.3
    expected = chances(engine, prompt, temperature)
    found = engine.run(
        [
            held(
                f"{number}",
                LANGUAGE,
                prompt=prompt,
                setting=setting,
                temperature=temperature,
                seed=number,
                max_tokens=8,
            )
            for number in range(num_answers)
        ]
    )
    seen = Counter(answer(deltas) for deltas in found.values())
    assert set(seen) <= set(expected)
    return chi_square_p_value(
        torch.tensor([float(seen[text]) for text in expected]),
        num_answers * torch.tensor(list(expected.values())),
    )


@pytest.mark.parametrize("name", [*DRAFTERS, *SCRIPTED])
def test_sampled_answers_have_the_targets_distribution_within_the_grammar(
    name: str,
):
    """False alarms: one in 1e5 for each method; the seeds are fixed."""
    lossless = [
        setting for found, setting in SETTINGS if found == name and setting.rule is REJECTION
    ]
    assert fit(name, lossless[-1]) > 1e-5


def test_leaving_a_drawn_forbidden_token_out_of_the_draft_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
):
    """Why `pruned` keeps it: its rejection moves the draw that follows to the right places."""

    def eager(draft: Draft, row: Row) -> Draft:
        assert row.grammar is not None
        reached = set(row.grammar.visit(draft.token_ids, draft.parents))
        num_kept = sum(node in reached for node in range(len(draft.token_ids)))
        return Draft(
            token_ids=draft.token_ids[:num_kept],
            probs=None if draft.probs is None or not num_kept else draft.probs[:num_kept],
        )

    monkeypatch.setattr(drafting, "pruned", eager)

    assert fit("scripted_draws", Setting(method=Method.EAGLE, k=4), num_answers=2000) < 1e-6


def test_a_row_under_a_grammar_answers_the_same_alone_and_among_others():
    prompt = letters("abcdabcd")
    setting = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=2)
    sampling = {"setting": setting, "temperature": 0.9, "seed": 4, "max_tokens": 30}
    held_alone = engine_with().run([held("held", PATTERNS[0], prompt=prompt, **sampling)])
    free_alone = engine_with().run([request("free", prompt, **sampling)])

    together = engine_with().run(
        [
            request("free", prompt, **sampling),
            held("held", PATTERNS[0], prompt=prompt, **sampling),
            held("other", PATTERNS[2], prompt=prompt, **{**sampling, "seed": 9}),
        ]
    )

    assert tokens_of(together["held"]) == tokens_of(held_alone["held"])
    assert tokens_of(together["free"]) == tokens_of(free_alone["free"])


def test_the_end_of_the_grammar_ends_the_answer_without_another_pass():
    found = engine_with().run([held("r", "[a-w]{4}", prompt=[1], max_tokens=50, min_tokens=20)])

    assert ends(found["r"]) == (FinishReason.STOP, None)
    assert len(tokens_of(found["r"])) == 4
    assert found["r"][-1].counts.passes == 3, "the first token comes from the prompt's pass"


def test_an_answer_that_could_go_on_ends_only_after_its_least_tokens():
    """The end token is made likelier than any other, so that the answer ends as soon as it may."""
    lengths = []
    for least in (0, 6):
        sampling = {"min_tokens": least, "logit_bias": {END: 100.0}, "max_tokens": 40}
        found = engine_with().run([held("r", "[a-w]+", prompt=[1], **sampling)])
        assert ends(found["r"])[0] is FinishReason.STOP
        lengths.append(len(tokens_of(found["r"])) - 1)

    assert lengths == [1, 6]


def test_log_probabilities_are_the_models_own_not_the_grammars():
    engine = engine_with()
    prompt = letters("hello")
    found = engine.run([held("r", "[a-c]{3}", prompt=prompt, logprobs=2)])

    tokens = tokens_of(found["r"])
    expected = plain_logits(engine.target, [*prompt, *tokens]).log_softmax(-1)
    given = [entry for delta in found["r"] for entry in delta.logprobs]
    for place, (token, entry) in enumerate(zip(tokens, given, strict=True), len(prompt) - 1):
        assert entry.logprob == pytest.approx(float(expected[place, token]), abs=1e-4)


@pytest.mark.parametrize("name", ["prompt_lookup", "draft_model", "scripted_draws"])
def test_a_bias_against_all_that_the_grammar_allows_fails_that_request_alone(name: str):
    setting = next(setting for found, setting in SETTINGS if found == name)
    banned = dict.fromkeys(letters("cd"), -100.0)
    found = engine_with(name).run(
        [
            held("dead", "ab[cd]", prompt=letters("abababab"), setting=setting, logit_bias=banned),
            held("fine", "ab[cd]", prompt=letters("abababab"), setting=setting),
        ]
    )

    assert ends(found["dead"])[0] is FinishReason.ERROR
    assert "a bias or grammar bans all" in found["dead"][-1].error
    assert re.fullmatch("ab[cd]", answer(found["fine"]))


def drawn(text: str, parents: tuple[int, ...] | None = None) -> Draft:
    """Return a draft whose row of probabilities is marked by the number of what was drawn there."""
    rows = torch.arange(len(text), dtype=torch.float32).unsqueeze(1).expand(-1, VOCAB)
    return Draft(token_ids=tuple(letters(text)), probs=rows, parents=parents)


def row_under(pattern: str, temperature: float) -> Row:
    made = held("r", pattern, prompt=[0], temperature=temperature)
    sampler = RowSampler(made.sampling, prompt_ids=[0], vocab_size=VOCAB)
    grammar = compiled(regex(pattern)).start()
    return Row(
        request=made,
        decoder=engine_with().core._codec.new_decoder(),
        scanner=StopScanner(()),
        sampler=sampler,
        grammar=grammar,
    )


def test_a_guess_is_cut_before_its_first_forbidden_token():
    row = row_under("ab[cd]+", 1.0)
    guess = Draft(token_ids=tuple(letters("abucd")))

    assert spelled(list(pruned(guess, row).token_ids)) == "ab"
    assert pruned(Draft(token_ids=tuple(letters("abcd"))), row).token_ids == tuple(letters("abcd"))


@pytest.mark.parametrize(("temperature", "kept"), [(0.0, "ab"), (1.0, "abu")])
def test_a_drawn_chain_keeps_its_forbidden_token_where_it_is_sampled(temperature: float, kept: str):
    found = pruned(drawn("abucd"), row_under("ab[cd]+", temperature))

    assert spelled(list(found.token_ids)) == kept
    assert found.parents is None
    assert found.probs is not None
    assert found.probs[:, 0].tolist() == list(range(len(kept)))


def test_a_tree_loses_what_hangs_below_a_forbidden_token_and_keeps_its_shape():
    #       a      u      b(a)   v(a)   c(u)   c(b)   d(v)
    draft = drawn("aubvccd", (-1, -1, 0, 0, 1, 2, 3))

    sampled = pruned(draft, row_under("ab[cd]+", 1.0))
    greedy = pruned(replace(draft, probs=None), row_under("ab[cd]+", 1.0))

    assert spelled(list(sampled.token_ids)) == "aubvc"
    assert sampled.parents == (-1, -1, 0, 0, 2)
    assert sampled.probs is not None
    assert sampled.probs[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert spelled(list(greedy.token_ids)) == "abc"
    assert greedy.parents == (-1, 0, 1)


def test_a_draft_without_any_allowed_token_is_the_empty_draft():
    found = pruned(Draft(token_ids=tuple(letters("uv"))), row_under("ab", 1.0))

    assert found == Draft()


def test_what_the_grammar_cut_is_not_counted_as_drafted():
    """The prompt repeats "abu": lookup guesses it each time, and only "ab" is ever verified."""
    setting = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=1)
    engine = engine_with()
    found = engine.run(
        [held("r", "(ab){6}w", prompt=letters("uabuabua"), setting=setting, max_tokens=20)]
    )

    trace = engine.traces()["r"]
    assert answer(found["r"]) == "ab" * 6 + "w"
    assert trace.drafted == trace.accepted
    assert trace.drafted > 0


def test_a_grammar_that_the_vocabulary_cannot_spell_fails_that_request_alone():
    """The letters end with w: nothing can follow the third one of `dead`."""
    found = engine_with().run(
        [held("dead", "([ab]{3}x)+", prompt=[1]), held("fine", "([ab]{3}w)+", prompt=[1])]
    )

    assert ends(found["dead"])[0] is FinishReason.ERROR
    assert "no token of this model spells what must come next" in found["dead"][-1].error
    assert re.fullmatch("([ab]{3}w)+", answer(found["fine"])) or len(answer(found["fine"])) == 32
