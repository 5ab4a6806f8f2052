"""Hidden states beside a shard are the target's own, and never those of other answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from tests.tuner.engine.training.conftest import counting_answers
from tests.tuner.engine.training.tiny_engine import engine_decoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.training.errors import ShardError
from tuner.engine.training.features import (
    ShardStates,
    feature_layers,
    features_path,
    is_current,
    write_features,
)
from tuner.engine.training.shards import write_shard
from tuner.engine.training.target import BatchTarget, Target


def _shard(folder: Path, target: Target, first: int = 3) -> Path:
    path = folder / "shard-00000.safetensors"
    write_shard(path, counting_answers(first, first + 5), target.digest)
    return path


def test_states_are_those_of_transformers_and_of_the_engine(
    tiny_model: LlamaForCausalLM, tiny_target: Target
) -> None:
    tokens = torch.tensor([[3, 17, 80, 4, 9], [5, 5, 60, 0, 0]])
    with torch.inference_mode():
        model = BatchTarget(tiny_target, 0, 16, dtype=torch.float32)
        states = model.states(tokens, (2, 1))
        expected = tiny_model(tokens, output_hidden_states=True).hidden_states
        decoder = engine_decoder(tiny_target)
        batch = lay_out([Span(slot=0, start=0, token_ids=tokens[0].tolist())], decoder.mask_kind)
        engine = decoder.forward(batch, decoder.new_slots(1, 16))
    for place, layer in enumerate((2, 1, 3)):
        torch.testing.assert_close(states[:, :, place], expected[layer], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(states[0, :, -1], engine, rtol=1e-4, atol=1e-4)


def test_each_answer_gets_its_own_states_whatever_shared_its_pass(
    tiny_target: Target, tmp_path: Path
) -> None:
    path = _shard(tmp_path, tiny_target)
    write_features(tiny_target, [path], lambda _path, _tokens: None, batch_tokens=30)
    answers = counting_answers(3, 8)
    read = ShardStates(path, tiny_target, answers)
    model = BatchTarget(tiny_target, 0, 16)
    for number, answer in enumerate(answers):
        alone = model.states(answer.tokens.long()[None], feature_layers(tiny_target.shape))[0]
        assert read[number].dtype == torch.bfloat16
        torch.testing.assert_close(read[number], alone, rtol=0.05, atol=0.1)


def test_a_second_run_computes_nothing(tiny_target: Target, tmp_path: Path) -> None:
    path = _shard(tmp_path, tiny_target)
    done: list[int] = []
    for _ in range(2):
        write_features(tiny_target, [path], lambda _path, tokens: done.append(tokens))
    assert done == [60]


def test_a_file_of_longer_answers_may_follow_one_of_short_answers(
    tiny_target: Target, tmp_path: Path
) -> None:
    short, long = _shard(tmp_path, tiny_target), tmp_path / "shard-00001.safetensors"
    answer = counting_answers(3, 4)[0]
    tokens = answer.tokens.repeat(100)
    write_shard(long, [replace(answer, tokens=tokens, prompt_len=1192)], tiny_target.digest)
    write_features(tiny_target, [short, long], lambda _path, _tokens: None)
    states = ShardStates(long, tiny_target, [replace(answer, tokens=tokens)])
    assert len(states[0]) == 1200


def test_states_of_other_answers_or_a_cut_file_are_refused_and_made_again(
    tiny_target: Target, tmp_path: Path
) -> None:
    path = _shard(tmp_path, tiny_target)
    write_features(tiny_target, [path], lambda _path, _tokens: None)
    _shard(tmp_path, tiny_target, first=40)
    with pytest.raises(ShardError, match="run `features` again"):
        ShardStates(path, tiny_target, counting_answers(40, 45))
    write_features(tiny_target, [path], lambda _path, _tokens: None)
    assert is_current(path, tiny_target)
    beside = features_path(path)
    beside.write_bytes(beside.read_bytes()[:-9])
    assert not is_current(path, tiny_target)
