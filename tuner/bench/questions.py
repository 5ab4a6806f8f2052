"""The questions of a benchmark: read from a file, a fair sample of them, tokenised.

Two formats, told apart by their keys, one JSON object a line: Spec-Bench's (`question_id`,
`category`, `turns`) and the demo's traffic (`route`, `messages`, `sampling`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.demo.traffic import numbered_lines
from tuner.engine.model.codec import HfCodec
from tuner.errors import BadRequest

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        category: Spec-Bench's category, or the route of demo traffic.
        messages: the conversation up to the answer.
        num_turns: turns in the file; only the first is asked, since the second needs its answer.
        number: its place in the file, from 1.
    """

    category: str
    messages: tuple[Message, ...]
    num_turns: int = 1
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A question as token ids.

    Attributes:
        name: no other question of the file has it.
        category: as in the question.
        token_ids: the prompt in the model's chat template.
    """

    name: str
    category: str
    token_ids: tuple[int, ...]


def read_questions(path: Path) -> tuple[Question, ...]:
    """Read a file of questions; empty lines are skipped.

    Raises:
        BadRequest: the file cannot be read or is empty, or a line means nothing; names it.
    """
    lines = numbered_lines(path, "--prompts", "question")
    return tuple(
        replace(_question(line, where), number=number)
        for number, (where, line) in enumerate(lines, 1)
    )


def spread(questions: Sequence[Question], limit: int) -> tuple[Question, ...]:
    """Return at most `limit` questions, each category with its share of the whole.

    Questions are lined up by category and taken at equal distances, so that a mean over the
    sample estimates the mean over the file.

    Args:
        questions: all of them.
        limit: how many; 0 for all.
    """
    order = list(dict.fromkeys(question.category for question in questions))
    lined = sorted(questions, key=lambda question: order.index(question.category))
    if not 0 < limit < len(lined):
        return tuple(lined)
    return tuple(lined[int((place + 0.5) * len(lined) / limit)] for place in range(limit))


def of_each(questions: Sequence[Question], categories: Sequence[str], num: int) -> list[Question]:
    """Return the first `num` questions of each of some categories, in turn."""
    taken: Counter[str] = Counter()
    chosen = []
    for question in questions:
        if question.category in categories and taken[question.category] < num:
            taken[question.category] += 1
            chosen.append(question)
    return chosen


def encode(questions: Sequence[Question], codec: HfCodec) -> list[Encoded]:
    """Tokenise questions by the model's chat template."""
    return [
        Encoded(
            name=f"{question.category} {question.number}",
            category=question.category,
            token_ids=tuple(codec.encode_chat(list(question.messages))),
        )
        for question in questions
    ]


def fitting(questions: Sequence[Encoded], most_tokens: int) -> list[Encoded]:
    """Return the questions whose prompts are no longer than so many tokens."""
    return [question for question in questions if len(question.token_ids) <= most_tokens]


def _question(line: str, where: str) -> Question:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{where}: not JSON ({error})") from None
    if isinstance(data, dict) and "turns" in data:
        return _of_spec_bench(data, where)
    if isinstance(data, dict) and "messages" in data:
        return _of_traffic(data, where)
    raise BadRequest(
        f"{where}: neither Spec-Bench's keys (category, turns) nor traffic's (route, messages)"
    )


def _of_spec_bench(data: Mapping[str, object], where: str) -> Question:
    category, turns = data.get("category"), data["turns"]
    if not isinstance(category, str) or not isinstance(turns, list) or not turns:
        raise BadRequest(f"{where}: category must be a string and turns a list with a question")
    if not isinstance(turns[0], str):
        raise BadRequest(f"{where}: the first turn must be a string, got {turns[0]!r}")
    message = {"role": "user", "content": turns[0]}
    return Question(category=category, messages=(message,), num_turns=len(turns))


def _of_traffic(data: Mapping[str, object], where: str) -> Question:
    route, messages = data.get("route"), data["messages"]
    if not isinstance(route, str) or not isinstance(messages, list) or not messages:
        raise BadRequest(f"{where}: route must be a string and messages a list with one at least")
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise BadRequest(f"{where}: each message needs role and content, got {message!r}")
    plain = tuple({name: str(value) for name, value in message.items()} for message in messages)
    return Question(category=route, messages=plain)
