"""Full information about acceptance: every drafter's guess at every token of the target's own text.

The target decodes plainly while each drafter is asked before every step and its draft put aside, so
that it reads what it would read while serving. Compared with the text afterwards, the draft says
what every length would have got accepted there: exactly, since the text is greedy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from collectors.records import Method, Setting
from policy.simulate.replayed import Marks, Script
from policy.simulate.worlds import MAX_DEPTH
from tuner.bench.policy_engine import Parts, greedy
from tuner.bench.questions import Encoded
from tuner.engine.drafters.base import (
    NO_DRAFT,
    Draft,
    DraftAsk,
    Drafter,
    DrafterBase,
    TargetView,
)
from tuner.engine.request import EngineRequest

Item = TypeVar("Item")

WITNESS = Setting(method=Method.SUFFIX, k=MAX_DEPTH)
"""The Setting under which witnesses are asked; its method has no weights and is not used itself."""


class Witnesses(DrafterBase):
    """Asks drafters and drafts nothing itself; keeps what they guessed by prompt and place."""

    method = WITNESS.method
    max_k = MAX_DEPTH

    def __init__(self, drafters: Mapping[Method, Drafter]) -> None:
        """Take over drafters that want no outputs of the target."""
        self._drafters = dict(drafters)
        taps = {tap for drafter in drafters.values() for tap in drafter.taps}
        self.taps = tuple(sorted(taps))
        self.guesses: dict[Method, dict[str, dict[int, tuple[int, ...]]]] = {
            method: defaultdict(dict) for method in drafters
        }
        """By method and route: the guess made once so many tokens were committed."""

    def attach(self, view: TargetView) -> None:
        """Show the target to all."""
        for drafter in self._drafters.values():
            drafter.attach(view)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Draft]:
        """Let all guess at full depth, and guess nothing."""
        for method, drafter in self._drafters.items():
            depth = min(MAX_DEPTH, drafter.max_k)
            wanted = [
                replace(ask, k=depth, num_nodes=depth, setting=_setting(method, depth))
                for ask in asks
            ]
            for ask, draft in zip(asks, drafter.propose(wanted), strict=True):
                self.guesses[method][ask.route][len(ask.token_ids)] = draft.token_ids
        return [NO_DRAFT] * len(asks)

    def move(self, source: int, target: int) -> None:
        """Carry all caches over."""
        for drafter in self._drafters.values():
            drafter.move(source, target)

    def release(self, slot: int) -> None:
        """Forget a slot everywhere."""
        for drafter in self._drafters.values():
            drafter.release(slot)


def can_witness(drafter: Drafter) -> bool:
    """Tell whether a drafter guesses chains without looking at the target's outputs."""
    return not drafter.wants_outputs and drafter.method is not Method.SELF_SPARSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Answers of the target and what every drafter would have got accepted on them.

    Attributes:
        scripts: by route, in the order of the prompts.
        answers: token ids, likewise.
    """

    scripts: Mapping[str, tuple[Script, ...]]
    answers: Mapping[str, tuple[tuple[int, ...], ...]]

    def tokens_per_pass(self, method: Method, depth: int) -> float:
        """Return tokens of a pass that starts at any token, mean over all."""
        all_marks = [
            script.marks[method]
            for scripts in self.scripts.values()
            for script in scripts
            if method in script.marks
        ]
        kept = [min(count, depth) for marks in all_marks for count in marks.kept]
        return 1 + sum(kept) / max(1, len(kept))


def record(
    parts: Parts,
    prompts: Mapping[str, Sequence[Encoded]],
    max_tokens: int,
    on_answer: Callable[[], None] = lambda: None,
) -> Recorded:
    """Answer prompts plainly and mark every drafter at every token.

    Args:
        parts: of the engine.
        prompts: by route.
        max_tokens: longest answer.
        on_answer: called after each.
    """
    chosen = {method: one for method, one in parts.drafters.items() if can_witness(one)}
    witnesses = Witnesses(chosen)
    core = parts.engine({WITNESS.method: witnesses}).core
    prompt_ids = {
        _name(route, place): question.token_ids
        for route, encoded in prompts.items()
        for place, question in enumerate(encoded)
    }
    texts: dict[str, list[int]] = {name: [] for name in prompt_ids}
    for name, ids in prompt_ids.items():
        core.submit(
            EngineRequest(
                request_id=name,
                prompt_ids=ids,
                sampling=greedy(max_tokens),
                route=name,
                setting=WITNESS,
            )
        )
    while core.has_work:
        for delta in core.step():
            texts[delta.request_id] += delta.token_ids
            if delta.finish_reason is not None:
                on_answer()
    scripts = {
        name: Script(
            route=_route(name),
            prompt_tokens=len(ids),
            output_tokens=len(texts[name]),
            marks={
                method: _marks(witnesses.guesses[method][name], len(ids), texts[name])
                for method in chosen
            },
        )
        for name, ids in prompt_ids.items()
    }
    return Recorded(
        scripts={route: _of_route(scripts, route) for route in prompts},
        answers={
            route: tuple(tuple(text) for text in _of_route(texts, route)) for route in prompts
        },
    )


def _marks(
    guesses: Mapping[int, tuple[int, ...]], prompt_tokens: int, text: Sequence[int]
) -> Marks:
    """Compare guesses, by length of what was committed, with the text that followed."""
    drafted, kept = [], []
    for place in range(1, len(text)):
        guess = guesses.get(prompt_tokens + place, ())
        drafted.append(len(guess))
        kept.append(_agreeing(guess, text[place:]))
    return Marks(drafted=tuple(drafted), kept=tuple(kept))


def _agreeing(guess: Sequence[int], text: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(guess, text, strict=False)):
        if one != other:
            return place
    return min(len(guess), len(text))


def _of_route(by_name: Mapping[str, Item], route: str) -> tuple[Item, ...]:
    return tuple(item for name, item in by_name.items() if _route(name) == route)


def _name(route: str, place: int) -> str:
    return f"{route}/{place}"


def _route(name: str) -> str:
    return name.rpartition("/")[0]


def _setting(method: Method, depth: int) -> Setting:
    return Setting.from_dict({"method": method.value, "k": depth})
