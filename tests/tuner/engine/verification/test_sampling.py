from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.engine.verification.reference_sampling import reference_logits, reference_probs
from tuner.engine.errors import InvalidRequest
from tuner.engine.request import SamplingParams
from tuner.engine.verification.logit_edits import edit_logits
from tuner.engine.verification.rows import Block, RowSampler
from tuner.engine.verification.sampling import most_likely, target_probs
from tuner.engine.verification.shapes import ShapeError

VOCAB = 12
EOS = 2
GREEDY = SamplingParams(temperature=0.0)


def sampler(
    params: SamplingParams,
    *,
    prompt: Sequence[int] = (1,),
    output: Sequence[int] = (),
    vocab_size: int = VOCAB,
) -> RowSampler:
    row = RowSampler(params, prompt_ids=prompt, eos_ids=(EOS,), vocab_size=vocab_size)
    row.commit(output)
    return row


def edited_block(
    params: SamplingParams, draft: Sequence[int], logits: torch.Tensor
) -> torch.Tensor:
    return edit_logits(logits, Block.from_drafts([draft]), [sampler(params)])


tokens = st.integers(0, VOCAB - 1)
all_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.8]),
    top_k=st.sampled_from([0, 0, 1, 3, VOCAB, 50]),
    top_p=st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.97]),
    min_p=st.sampled_from([0.0, 0.0, 0.03, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.8, 1.05, 1.7]),
    presence_penalty=st.sampled_from([0.0, 0.6, -0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -0.2]),
    logit_bias=st.dictionaries(
        tokens, st.sampled_from([-100.0, -3.0, 0.5, 4.0]), max_size=VOCAB - 3
    ),
    min_tokens=st.integers(0, 7),
    stop_token_ids=st.lists(tokens, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
)
all_rows = st.lists(
    st.tuples(
        all_params,
        st.lists(tokens, min_size=1, max_size=6),
        st.lists(tokens, max_size=6),
        st.lists(tokens, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(rows=all_rows, seed=st.integers(0, 2**20))
def test_every_position_of_a_block_gets_what_it_would_get_one_token_at_a_time(
    rows: list[tuple[SamplingParams, list[int], list[int], list[int]]], seed: int
) -> None:
    block = Block.from_drafts([draft for *_, draft in rows])
    raw = torch.randn(
        block.num_positions, VOCAB, generator=torch.Generator().manual_seed(seed)
    ).mul_(3)
    samplers = [sampler(params, prompt=prompt, output=output) for params, prompt, output, _ in rows]
    edited = edit_logits(raw, block, samplers)
    for number, (params, prompt, output, draft) in enumerate(rows):
        end_ids = {*params.stop_token_ids, *(() if params.ignore_eos else (EOS,))}
        for offset, position in enumerate(block.positions(number)):
            wanted = reference_logits(
                raw[position].tolist(),
                params,
                prompt=prompt,
                output=[*output, *draft[:offset]],
                end_ids=sorted(end_ids),
            )
            torch.testing.assert_close(edited[position], torch.tensor(wanted))
            assert_chosen_like(edited[position], params, wanted)


def assert_chosen_like(
    logits: torch.Tensor, params: SamplingParams, wanted: Sequence[float]
) -> None:
    if max(wanted) == -math.inf:
        assert most_likely(logits.unsqueeze(0)).item() == -1
    elif params.is_greedy:
        assert wanted[int(most_likely(logits.unsqueeze(0)))] == pytest.approx(max(wanted))
    else:
        probs = target_probs(logits.unsqueeze(0), [params])[0]
        wanted_probs = torch.tensor(reference_probs(wanted, params))
        torch.testing.assert_close(probs, wanted_probs, atol=2e-6, rtol=2e-5)


def test_frequency_penalty_counts_accepted_tokens_of_the_same_block() -> None:
    edited = edited_block(SamplingParams(frequency_penalty=0.5), [7, 7, 9], torch.zeros(4, VOCAB))
    wanted = torch.zeros(VOCAB)
    wanted[7], wanted[9] = -1.0, -0.5
    assert torch.equal(edited[3], wanted)
    assert edited[:3, 7].tolist() == [0.0, -0.5, -1.0]


def test_presence_penalty_counts_a_token_once_and_leaves_the_prompt_alone() -> None:
    row = sampler(SamplingParams(presence_penalty=0.5), prompt=[4, 5], output=[5])
    edited = edit_logits(torch.zeros(3, VOCAB), Block.from_drafts([[7, 7]]), [row])
    assert edited[:, 4].tolist() == [0.0, 0.0, 0.0]
    assert edited[:, 5].tolist() == [-0.5, -0.5, -0.5]
    assert edited[:, 7].tolist() == [0.0, -0.5, -0.5]


def test_repetition_penalty_counts_prompt_and_drafted_tokens() -> None:
    row = sampler(SamplingParams(repetition_penalty=2.0), prompt=[4])
    logits = torch.tensor([[1.0] * VOCAB, [-1.0] * VOCAB])
    edited = edit_logits(logits, Block.from_drafts([[7]]), [row])
    assert edited[0, [4, 7]].tolist() == [0.5, 1.0]
    assert edited[1, [4, 7]].tolist() == [-2.0, -2.0]


def test_minimum_length_ends_with_the_token_count_and_not_with_the_step_count() -> None:
    row = sampler(SamplingParams(min_tokens=6))
    eos_open = []
    for _ in range(3):
        edited = edit_logits(torch.zeros(4, VOCAB), Block.from_drafts([[7, 8, 9]]), [row])
        eos_open.append((edited[:, EOS] == 0).tolist())
        row.commit([7, 8, 9])
    assert eos_open == [
        [False, False, False, False],
        [False, False, False, True],
        [True, True, True, True],
    ]


def test_minimum_length_bans_stop_ids_and_leaves_an_ignored_eos_alone() -> None:
    params = SamplingParams(min_tokens=1, stop_token_ids=(5,), ignore_eos=True)
    edited = edited_block(params, [], torch.zeros(1, VOCAB))
    assert edited[0, 5] == -math.inf
    assert edited[0, EOS] == 0


def test_min_p_keeps_tokens_near_the_most_likely_one() -> None:
    logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
    probs = target_probs(logits, [SamplingParams(min_p=0.2)])
    torch.testing.assert_close(probs, torch.tensor([[0.7 / 0.9, 0.2 / 0.9, 0.0]]))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 50.0])
def test_a_bias_of_minus_100_bans_a_token_at_every_position(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, logit_bias={7: -100.0})
    edited = edited_block(params, [1, 2, 3], torch.full((4, VOCAB), -40.0).fill_diagonal_(40))
    edited = edited.clone()
    assert (edited[:, 7] == -math.inf).all()
    if params.is_greedy:
        assert 7 not in most_likely(edited).tolist()
    else:
        assert (target_probs(edited, [params] * 4)[:, 7] == 0).all()


def test_a_bias_far_above_the_rest_forces_a_token() -> None:
    edited = edited_block(SamplingParams(logit_bias={7: 100.0}), [1], torch.randn(2, VOCAB))
    assert most_likely(edited).tolist() == [7, 7]


def test_an_allowed_mask_excludes_tokens_from_greedy_and_sampled_rows() -> None:
    allowed = torch.zeros(1, VOCAB, dtype=torch.bool)
    allowed[0, 3:5] = True
    row = sampler(SamplingParams(logit_bias={9: 50.0}))
    edited = edit_logits(torch.zeros(1, VOCAB), Block.from_drafts([[]]), [row], allowed=allowed)
    assert target_probs(edited, [row.params])[0].nonzero().flatten().tolist() == [3, 4]


def test_logits_are_left_as_they_were_and_not_copied_without_need() -> None:
    logits = torch.randn(4, VOCAB)
    before = logits.clone()
    block = Block.from_drafts([[7, 8, 9]])
    assert edit_logits(logits, block, [sampler(GREEDY)]) is logits
    eager = SamplingParams(
        logit_bias={1: 3.0}, min_tokens=9, repetition_penalty=1.3, temperature=0.5, top_p=0.5
    )
    edited = edit_logits(logits, block, [sampler(eager)])
    target_probs(edited, [eager] * 4)
    assert torch.equal(logits, before)


def test_rows_without_edits_keep_their_logits_beside_rows_with_edits() -> None:
    logits = torch.randn(5, VOCAB)
    rows = [sampler(GREEDY), sampler(SamplingParams(presence_penalty=1.0)), sampler(GREEDY)]
    edited = edit_logits(logits, Block.from_drafts([[7], [7], []]), rows)
    assert torch.equal(edited[[0, 1, 2, 4]], logits[[0, 1, 2, 4]])
    assert edited[3, 7] == logits[3, 7] - 1


@pytest.mark.parametrize("temperature", [1e-30, 1e-7, 1e-3])
def test_a_temperature_near_0_neither_overflows_nor_leaves_the_most_likely_token(
    temperature: float,
) -> None:
    logits = torch.randn(3, 64) * 30
    probs = target_probs(logits, [SamplingParams(temperature=temperature)] * 3)
    assert torch.equal(probs.argmax(1), logits.argmax(1))
    torch.testing.assert_close(probs.sum(1), torch.ones(3))


def test_a_high_temperature_flattens_and_does_not_underflow() -> None:
    probs = target_probs(torch.randn(1, 64), [SamplingParams(temperature=1e6)])
    torch.testing.assert_close(probs, torch.full((1, 64), 1 / 64))


def test_positions_without_a_finite_best_logit_have_no_most_likely_token() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, 4] = math.nan
    logits[1] = -math.inf
    assert most_likely(logits).tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (SamplingParams(logit_bias={VOCAB: 1.0}), "logit_bias"),
        (SamplingParams(logit_bias={-1: 1.0}), "logit_bias"),
        (SamplingParams(stop_token_ids=(VOCAB,)), "stop_token_ids"),
    ],
)
def test_token_ids_beyond_the_vocabulary_are_refused_by_name(
    params: SamplingParams, param: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"{param} names token -?[0-9]+, but .* 0 to 11"):
        sampler(params)


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        (SamplingParams(temperature=-0.1), "temperature is -0.1"),
        (SamplingParams(temperature=math.nan), "temperature is nan"),
        (SamplingParams(temperature=math.inf), "temperature is inf"),
        (SamplingParams(top_k=-1), "top_k is -1"),
        (SamplingParams(top_p=1.1), "top_p is 1.1"),
        (SamplingParams(min_p=-0.1), "min_p is -0.1"),
        (SamplingParams(repetition_penalty=0.0), "repetition_penalty is 0.0"),
        (SamplingParams(presence_penalty=math.nan), "presence_penalty is nan"),
        (SamplingParams(frequency_penalty=-math.inf), "frequency_penalty is -inf"),
        (SamplingParams(min_tokens=-1), "min_tokens is -1"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(params: SamplingParams, fault: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{fault}; give a finite number from"):
        sampler(params)


@pytest.mark.parametrize("bias", [math.nan, math.inf])
def test_a_bias_that_is_no_number_is_refused_by_name(bias: float) -> None:
    with pytest.raises(InvalidRequest, match=f"logit_bias of token 3 is {bias}"):
        sampler(SamplingParams(logit_bias={3: bias}))


def test_logits_of_another_block_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"logits has shape \[3, 12\], expected \[4, 12\]"):
        edited_block(GREEDY, [7, 8, 9], torch.zeros(3, VOCAB))
    with pytest.raises(ShapeError, match="logits has shape"):
        target_probs(torch.zeros(3, VOCAB), [SamplingParams()])


def test_an_empty_batch_is_an_empty_answer() -> None:
    block = Block.from_drafts([])
    assert edit_logits(torch.zeros(0, VOCAB), block, []).shape == (0, VOCAB)
