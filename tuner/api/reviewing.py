"""The review workflow as the console calls it: one function an action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboards.console import Act
from tuner.workflows import review
from tuner.workflows.site import Site
from tuner.workflows.together import approve_together

_WORKFLOWS: dict[Act, Callable[..., object]] = {
    Act.REJECT: review.reject,
    Act.HOLD: review.hold,
    Act.ROLL_BACK: review.roll_back,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReviewer:
    """Implements ``tuner.api.console.Reviewer`` on the engine of a site."""

    site: Site

    def __call__(
        self, number: int, act: Act, *, who: str, why: str, revision: int | None = None
    ) -> None:
        """Move a recommendation and bring its plan into force.

        Raises:
            TunerError: as the workflow of the action says; nothing was changed.
        """
        if act is Act.APPROVE:
            review.approve(self.site, number, who=who, why=why, revision=revision)
        else:
            _WORKFLOWS[act](self.site, number, who=who, why=why)

    def together(self, numbers: Sequence[int], *, who: str, why: str) -> None:
        """Approve several recommendations as one.

        Raises:
            TunerError: as the workflow says; nothing was changed.
        """
        approve_together(self.site, numbers, who=who, why=why)
