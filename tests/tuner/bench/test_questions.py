from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tuner.bench.questions import Question, of_each, read_questions, spread
from tuner.errors import BadRequest


def written(folder: Path, lines: Sequence[Mapping[str, object]]) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def of_category(category: str, num: int) -> list[Question]:
    return [
        Question(category=category, messages=({"role": "user", "content": f"{category} {number}"},))
        for number in range(num)
    ]


def test_spec_bench_and_traffic_lines_are_told_apart(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [
            {"question_id": 81, "category": "writing", "turns": ["One?", "Two?"], "reference": []},
            {
                "route": "chat",
                "messages": [
                    {"role": "system", "content": "Be short."},
                    {"role": "user", "content": "Hello"},
                ],
                "sampling": {"temperature": 0.7},
            },
        ],
    )

    bench, traffic = read_questions(path)

    assert (bench.category, bench.num_turns) == ("writing", 2)
    assert bench.messages == ({"role": "user", "content": "One?"},)
    assert (traffic.category, traffic.num_turns) == ("chat", 1)
    assert (bench.number, traffic.number) == (1, 2)
    assert [message["role"] for message in traffic.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"text": "Hello"}, "line 1: neither Spec-Bench's keys"),
        ({"category": "rag", "turns": []}, "line 1: category must be a string and turns a list"),
        ({"category": "rag", "turns": [3]}, "line 1: the first turn must be a string, got 3"),
        ({"route": "chat", "messages": ["Hi"]}, "line 1: each message needs role and content"),
    ],
)
def test_a_line_that_means_nothing_is_refused_by_number(
    tmp_path: Path, line: Mapping[str, object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        read_questions(written(tmp_path, [line]))


def test_a_file_without_questions_or_without_json_is_refused(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.jsonl"
    empty.write_text("\n")
    broken.write_text("hello\n")

    for path, told in ((empty, "holds no question"), (broken, "line 1: not JSON")):
        with pytest.raises(BadRequest, match=told):
            read_questions(path)
    with pytest.raises(BadRequest, match="cannot be read"):
        read_questions(tmp_path / "absent.jsonl")


def test_a_sample_has_every_categorys_share_of_the_file_wherever_its_lines_stand() -> None:
    rag, chat, code = of_category("rag", 80), of_category("chat", 40), of_category("code", 8)
    mixed = [*rag[:50], *code, *chat, *rag[50:]]

    sample = spread(mixed, 16)

    assert Counter(question.category for question in sample) == {"rag": 10, "chat": 5, "code": 1}
    assert len({question.messages[0]["content"] for question in sample}) == 16
    assert len(spread(mixed, 0)) == len(spread(mixed, 500)) == len(mixed)


def test_the_first_questions_of_each_wanted_category_are_taken() -> None:
    questions = [*of_category("rag", 3), *of_category("story", 3), *of_category("code", 1)]

    assert of_each(questions, ("rag", "code"), 2) == [*questions[:2], questions[6]]
