"""Training prompts are seeded, all different, and none of them is demo traffic."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections import Counter

import pytest

from tuner.engine.training.errors import MaterialError
from tuner.engine.training.measure import DEFAULT_TRAFFIC, read_traffic
from tuner.engine.training.prompts import KIND_WEIGHTS, TASKS_PATH, training_prompts, weights_of

NUM_PROMPTS = 3000
DEMO_KINDS = ("code_edit", "rag_answer", "json_extract", "chat", "story", "general")
TASKS = tomllib.loads(TASKS_PATH.read_text(encoding="utf-8"))
TASK_KINDS = tuple(kind for kind in TASKS if kind != "words")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text.lower())


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def _pieces(text: str) -> list[str]:
    """Return what a prompt is about: its code, its paragraphs, without the instruction's frame."""
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return code or [piece for piece in text.split("\n\n") if len(_words(piece)) > 12]


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    first = list(itertools.islice(training_prompts(3), 60))
    assert list(itertools.islice(training_prompts(3), 60)) == first
    assert list(itertools.islice(training_prompts(4), 60)) != first


def test_prompts_never_repeat_and_every_kind_comes_about_as_often_as_it_should() -> None:
    found = list(itertools.islice(training_prompts(11), NUM_PROMPTS))
    assert len({prompt.text for prompt in found}) == NUM_PROMPTS
    counts = Counter(prompt.kind for prompt in found)
    for kind, weight in KIND_WEIGHTS.items():
        assert counts[kind] / NUM_PROMPTS == pytest.approx(
            weight / sum(KIND_WEIGHTS.values()), abs=0.035
        )


def test_no_training_prompt_holds_the_content_of_a_traffic_prompt() -> None:
    traffic = [text for prompt in read_traffic(DEFAULT_TRAFFIC) for _, text in prompt.messages]
    kept = set().union(*(_runs(piece, 9) for text in traffic for piece in _pieces(text)))
    whole = {" ".join(_words(text)) for text in traffic}
    for prompt in itertools.islice(training_prompts(2), NUM_PROMPTS):
        assert " ".join(_words(prompt.text)) not in whole
        shared = kept.intersection(_runs(prompt.text, 9))
        assert not shared, f"{prompt.text!r} shares {shared}"


def test_no_placeholder_is_left_in_a_prompt_outside_code() -> None:
    for prompt in itertools.islice(training_prompts(5), NUM_PROMPTS):
        if prompt.kind in {"chat", "story", "general"}:
            assert not re.search(r"\{\w*\}", prompt.text), prompt.text


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MaterialError, match="unknown kind 'poem': use some of code_edit"):
        next(training_prompts(1, {"poem": 1.0}))
    with pytest.raises(MaterialError, match="unknown kind 'poem'"):
        weights_of(["math", "poem"])


def test_every_kind_has_its_writer_and_every_section_of_tasks_is_a_kind() -> None:
    assert set(KIND_WEIGHTS) == {*DEMO_KINDS, *TASK_KINDS}


def test_a_choice_of_kinds_keeps_their_weights_and_gives_no_others() -> None:
    chosen = weights_of(["math", "question"])
    assert chosen == {kind: KIND_WEIGHTS[kind] for kind in ("math", "question")}
    assert {prompt.kind for prompt in itertools.islice(training_prompts(1, chosen), 60)} == {
        *chosen
    }


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_a_tasks_every_list_is_used_and_every_slot_has_its_list(kind: str) -> None:
    """Follow all slots from `prompt` on, so that a list that no draw reaches is found too."""
    lists, reached = {**TASKS["words"], **TASKS[kind]}, {"prompt"}
    waiting = ["prompt"]
    while waiting:
        for text in lists[waiting.pop()]:
            named = set(re.findall(r"\{\^?(?:an )?(?:[\d-]+\*)?([a-z_]\w*)(?:#\w+)?\}", text))
            new = named - reached - {"passage"}
            reached |= new
            waiting += new
    assert not set(TASKS[kind]) - reached


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_tasks_hold_no_unfilled_slot_and_vary(kind: str) -> None:
    prompts = list(itertools.islice(training_prompts(3, {kind: 1.0}), 200))
    openings = Counter(" ".join(_words(prompt.text)[:6]) for prompt in prompts)
    assert max(openings.values()) <= 40, openings.most_common(1)
    for prompt in prompts:
        assert not re.search(r"\{\^?(an )?[\w*#-]+\}", prompt.text), prompt.text
