"""Exercises in copying: a text, and a span of it as the answer.

Added to the target's own answers by distill.py. Edits, quotes and extractions repeat their prompt;
two layers learn to look up what followed a token earlier, and these exercises speed that up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import torch

from tuner.engine.training.material import stdlib_functions, stdlib_passages
from tuner.engine.training.selfgen import TOP_COUNT
from tuner.engine.training.shards import Answer

MIN_COPIED_TOKENS, MAX_COPIED_TOKENS = 12, 90
_GIVEN_TOKENS = 2
_SURE_LOGPROB = -0.05
_FRAMES = (
    "{text}",
    "Copy from this text:\n\n{text}",
    "{text}\n\nWrite a part of it again.",
    "Text: {text}",
)


def copy_exercises(
    encode: Callable[[str, str], tuple[list[int], list[int]]], seed: int
) -> Iterator[Answer]:
    """Yield exercises without end, the same for the same seed.

    The first tokens of a copy count as given: nothing in the prompt says where it starts.

    Args:
        encode: gives the token ids of a user's text in the chat template, and of an answer.
        seed: start of the random sequence.
    """
    rng = random.Random(seed)
    while True:
        text, span = _prose(rng) if rng.random() < 0.6 else _code(rng)
        prompt, copied = encode(rng.choice(_FRAMES).format(text=text), span)
        copied = copied[:MAX_COPIED_TOKENS]
        if len(copied) >= MIN_COPIED_TOKENS:
            yield _exercise(prompt, copied)


def _prose(rng: random.Random) -> tuple[str, str]:
    sentences = [
        sentence
        for passage in rng.sample(stdlib_passages(), 2)
        for sentence in re.split(r"(?<=[.!?]) ", passage)
    ]
    rng.shuffle(sentences)
    kept = sentences[: rng.randint(3, 6)]
    start = rng.randrange(len(kept))
    return " ".join(kept), " ".join(kept[start : start + rng.randint(1, 4)])


def _code(rng: random.Random) -> tuple[str, str]:
    lines = rng.choice(stdlib_functions()).splitlines()
    start = rng.choice([0, 0, rng.randrange(len(lines))])
    span = "\n".join(lines[start:])
    return "```python\n" + "\n".join(lines) + "\n```", f"```python\n{span}\n```"


def _exercise(prompt: list[int], copied: list[int]) -> Answer:
    labels = torch.tensor(copied[_GIVEN_TOKENS:], dtype=torch.int32)
    top_ids = torch.zeros(len(labels), TOP_COUNT, dtype=torch.int32)
    top_ids[:, 0] = labels
    top_logprobs = torch.full(top_ids.shape, float("-inf"), dtype=torch.float16)
    top_logprobs[:, 0] = _SURE_LOGPROB
    return Answer(
        kind="copy",
        tokens=torch.tensor(prompt + copied, dtype=torch.int32),
        prompt_len=len(prompt) + _GIVEN_TOKENS,
        top_ids=top_ids,
        top_logprobs=top_logprobs,
    )
