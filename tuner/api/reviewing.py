"""The review workflow as the console calls it: one function an action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dashboards.console import Act
from tuner.workflows import review
from tuner.workflows.site import Site

_WORKFLOWS: dict[Act, Callable[..., object]] = {
    Act.APPROVE: review.approve,
    Act.REJECT: review.reject,
    Act.HOLD: review.hold,
    Act.ROLL_BACK: review.roll_back,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReviewer:
    """Implements ``tuner.api.console.Reviewer`` on the engine of a site."""

    site: Site

    def __call__(self, number: int, act: Act, *, who: str, why: str) -> None:
        """Move a recommendation and bring its plan into force.

        Raises:
            TunerError: as the workflow of the action says; nothing was changed.
        """
        _WORKFLOWS[act](self.site, number, who=who, why=why)
