"""Which Setting of a method to use, chosen on one half of the questions and timed on the other.

The fastest of many Settings looks faster than it is where the same questions choose and judge it.
So each half chooses for the other, and off is always among what may be chosen: a method that does
not pay is recommended off.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectors.records import OFF, Method, Setting
from policy.theory import tokens_from_survival
from tuner.bench.figures import Figures, Sums, figures_of, step_ratio, survival_of

Arms = Mapping[Setting, Sequence[Sums]]
"""What each Setting did, question by question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What to use of one method at one batch size.

    Attributes:
        method: the method.
        batch: sequences together.
        setting: chosen on all questions; off where nothing of the method is predicted to pay.
        predicted_speedup: what it was chosen for: tokens per pass over its step in plain steps.
        halves: what each half of the questions chose.
        held_out: measured on each half under the other half's choice; None where there are not
            two questions, or one half has none that could be counted.
    """

    method: Method
    batch: int
    setting: Setting
    predicted_speedup: float
    halves: tuple[Setting, ...]
    held_out: Figures | None

    @property
    def speedup(self) -> float | None:
        """Plain time over time where the choice was not made; None where nothing was timed."""
        return None if self.held_out is None else self.held_out.speedup

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "method": self.method,
            "batch": self.batch,
            "setting": self.setting.to_dict(),
            "predicted_speedup": self.predicted_speedup,
            "halves": [setting.to_dict() for setting in self.halves],
            "speedup": self.speedup,
            "speedup_interval": None if self.held_out is None else self.held_out.interval,
        }


def recommend(arms: Arms, batch: int) -> list[Recommended]:
    """Recommend a Setting of each method.

    Args:
        arms: speculation off and every other Setting, on the same questions.
        batch: sequences together.
    """
    methods = dict.fromkeys(setting.method for setting in arms if setting.k)
    return [_of_method(method, batch, arms) for method in methods]


def predicted_speedup(sums: Sequence[Sums], k: int) -> float | None:
    """Return tokens per pass, from acceptance by position, over the step's time in plain steps.

    Returns:
        None where there was no pass, or none was timed.
    """
    survival, ratio = survival_of(sums, k), step_ratio(sums)
    if survival is None or ratio is None:
        return None
    return tokens_from_survival(survival, k) / ratio


def _of_method(method: Method, batch: int, arms: Arms) -> Recommended:
    own = {setting: sums for setting, sums in arms.items() if setting.method is method}
    setting, predicted = _chosen(own)
    halves = _halves(arms)
    choices = [_chosen(_asked(own, half))[0] for half in halves]
    held_out = [
        _asked(arms, other).get(choice, ())
        for choice, other in zip(choices, reversed(halves), strict=True)
    ]
    depth = max((choice.k for choice in choices), default=0)
    return Recommended(
        method=method,
        batch=batch,
        setting=setting,
        predicted_speedup=predicted,
        halves=tuple(choices),
        held_out=figures_of(list(itertools.chain(*held_out)), depth) if all(held_out) else None,
    )


def _chosen(arms: Arms) -> tuple[Setting, float]:
    """Return the Setting with the most goodput for its rows, and its speedup; off gives 1."""
    best = (OFF, 1.0)
    for setting, sums in arms.items():
        predicted = predicted_speedup(sums, setting.k)
        if predicted is not None and predicted > best[1]:
            best = (setting, predicted)
    return best


def _halves(arms: Arms) -> tuple[frozenset[str], ...]:
    """Cut the questions in two by turns, since they lie in order of their categories."""
    names = list(dict.fromkeys(each.question for sums in arms.values() for each in sums))
    return (frozenset(names[::2]), frozenset(names[1::2])) if len(names) > 1 else ()


def _asked(arms: Arms, questions: frozenset[str]) -> dict[Setting, list[Sums]]:
    return {
        setting: [each for each in sums if each.question in questions]
        for setting, sums in arms.items()
    }
