"""Copying exercises repeat a span of their prompt and train nothing that cannot be known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tuner.engine.training.copying import MAX_COPIED_TOKENS, MIN_COPIED_TOKENS, copy_exercises
from tuner.engine.training.shards import Answer

END = 0


def _encode(text: str, answer: str) -> tuple[list[int], list[int]]:
    """One token a character keeps the test independent of a tokenizer."""
    return [ord(char) for char in text], [*(ord(char) for char in answer), END]


def _exercises(seed: int) -> list[Answer]:
    found: Iterator[Answer] = copy_exercises(_encode, seed)
    return list(itertools.islice(found, 40))


@pytest.fixture(scope="module")
def exercises() -> list[Answer]:
    """Forty exercises of one seed."""
    return _exercises(1)


def test_the_answer_is_a_span_of_the_prompt(exercises: list[Answer]) -> None:
    for exercise in exercises:
        labels = exercise.top_ids[:, 0].tolist()
        assert exercise.tokens[exercise.prompt_len :].tolist() == labels
        span = "".join(chr(token) for token in labels if token != END)
        prompt = "".join(chr(token) for token in exercise.tokens[: exercise.prompt_len].tolist())
        assert span.removeprefix("`python\n").removesuffix("```").strip() in prompt


def test_lengths_stay_within_their_bounds_and_only_the_copied_token_has_mass(
    exercises: list[Answer],
) -> None:
    for exercise in exercises:
        assert MIN_COPIED_TOKENS <= len(exercise.top_ids) + 2 <= MAX_COPIED_TOKENS
        assert bool((exercise.top_logprobs[:, 0] > -0.1).all())
        assert bool((exercise.top_logprobs[:, 1:] < -1e4).all())


def test_the_same_seed_gives_the_same_exercises(exercises: list[Answer]) -> None:
    again = [exercise.tokens.tolist() for exercise in _exercises(1)]
    assert again == [exercise.tokens.tolist() for exercise in exercises]
    assert again != [exercise.tokens.tolist() for exercise in _exercises(2)]
