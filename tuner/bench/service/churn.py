"""How calm recommendations are while neither traffic nor plan changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from collectors.records import LoadLevel, Setting
from policy.types import Recommendation


@dataclass(slots=True, kw_only=True)
class Churn:
    """What was recommended on steady traffic.

    Attributes:
        hours: length of the stretch.
        num_routes: routes of the traffic.
        num_new: recommendations of a change that were new in it.
        proposed: what was proposed for each route and load level, one round after the other.
    """

    hours: float
    num_routes: int
    num_new: int = 0
    proposed: dict[tuple[str, LoadLevel], list[Setting]] = field(default_factory=dict)

    def note(self, said: Sequence[Recommendation]) -> None:
        """Take in what the policy said in one round."""
        for one in said:
            for change in one.changes:
                self.proposed.setdefault((one.route, change.load), []).append(change.proposed)

    @property
    def num_answers(self) -> int:
        """Proposals that had one of the same place before them."""
        return sum(len(course) - 1 for course in self.proposed.values())

    @property
    def num_reversals(self) -> int:
        """Proposals that went back on the one before; see `reversals_in`."""
        return sum(reversals_in(course) for course in self.proposed.values())

    @property
    def per_hour(self) -> float:
        """New recommendations a route and hour."""
        return self.num_new / self.num_routes / self.hours


def reversals_in(course: Sequence[Setting]) -> int:
    """Count the proposals that go back on the one before.

    That is a change between speculation on and off, or back to a Setting proposed earlier.
    """
    return sum(
        now != before and ((now.k == 0) != (before.k == 0) or now in course[:place])
        for place, (before, now) in enumerate(pairwise(course))
    )


def share(reversals: int, answers: int) -> float | None:
    """Return reversals among answers; None without any."""
    return reversals / answers if answers else None
