"""Captured requests become prompts; what cannot be one is named by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.records import CapturedRequest
from tuner.engine.training.captured import read_captured
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.selfgen import MAX_PROMPT_TOKENS, answer_captured
from tuner.engine.training.shards import read_shard, shard_paths
from tuner.engine.training.target import Target


def _line(seq: int, prompt_ids: tuple[int, ...], **sampling: float) -> str:
    request = CapturedRequest(
        seq=seq,
        at=1.0,
        request_id=f"r{seq}",
        route="chat",
        prompt="hi",
        prompt_ids=prompt_ids,
        sampling=sampling,
        completion_tokens=3,
    )
    return json.dumps(request.to_dict())


def test_prompts_keep_their_tokens_route_and_sampling(tmp_path: Path) -> None:
    path = tmp_path / "captures.jsonl"
    longest = tuple(range(MAX_PROMPT_TOKENS + 1))
    lines = [_line(1, (5, 6), temperature=0.7, top_p=0.9), _line(2, (7,)), _line(3, longest)]
    path.write_text("\n".join(lines) + "\n\n")
    first, second = read_captured(path)
    assert (first.tokens, first.prompt.kind) == ([5, 6], "chat")
    assert (first.prompt.temperature, first.prompt.top_p) == (0.7, 0.9)
    assert (second.prompt.temperature, second.prompt.top_p) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_line(1, (5,)) + "\n{", "jsonl:2 is no captured request"),
        (_line(1, (5,)) + "\n[]", "jsonl:2 is no captured request"),
        (_line(1, (5,), temperature="warm"), "jsonl:1 is no captured request"),  # type: ignore[arg-type]
        ("\n", "holds no prompt"),
    ],
)
def test_what_is_no_captured_request_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "captures.jsonl"
    path.write_text(text)
    with pytest.raises(TrainingError, match=reason):
        read_captured(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"cannot read captured requests .*none.jsonl"):
        read_captured(tmp_path / "none.jsonl")


def test_every_captured_prompt_is_answered_once_in_several_shards(
    tiny_target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "captures.jsonl"
    path.write_text("\n".join(_line(n, (n + 3, 9)) for n in range(19)))
    answer_captured(tiny_target, 2, read_captured(path), tmp_path, 0, lambda _n, _tokens: None)
    shards = [read_shard(shard, tiny_target.digest) for shard in shard_paths(tmp_path)]
    assert [len(answers) for answers in shards] == [3, 3, 3, 3, 3, 3, 1]
    firsts = [int(answer.tokens[0]) for answers in shards for answer in answers]
    assert sorted(firsts) == list(range(3, 22))
