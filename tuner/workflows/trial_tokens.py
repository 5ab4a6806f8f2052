"""How many tokens a live trial may take: a share of what its route was served in a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collectors.records import LoadLevel
from policy.types import Trial
from tuner.settings import Settings
from tuner.store import observations, trials
from tuner.workflows.site import Site

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a trial may take now.

    Attributes:
        route: route name.
        share: share of the route's tokens that may be tried on.
        tokens: tokens left of it.
        seconds: how long they last at the day's mean rate at the trial's load level.
    """

    route: str
    share: float
    tokens: int
    seconds: float

    def shortage_reason(self, settings: Settings) -> str | None:
        """Say that it is too little for a window; None where it is enough."""
        if self.tokens > 0 and self.seconds >= settings.window_s:
            return None
        return (
            f"{self.share:.0%} of the tokens of {self.route} last {self.seconds:.0f} s, less than "
            f"a window of {settings.window_s:.0f} s; it needs more traffic first"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """What each route was served in a day, and what trials took of it.

    Attributes:
        served: live tokens by route and load level.
        spent: tokens of trials by route.
        span_s: seconds since the day's first window began.
    """

    served: Mapping[tuple[str, LoadLevel], int]
    spent: Mapping[str, int]
    span_s: float

    def of(self, route: str, trial: Trial) -> Allowance:
        """Return what a trial may take."""
        total = sum(tokens for (name, _), tokens in self.served.items() if name == route)
        at_load = self.served.get((route, trial.load), 0)
        share = trial.most_token_share
        left = max(0, int(share * total) - self.spent.get(route, 0))
        seconds = left * self.span_s / at_load if at_load else 0.0
        return Allowance(route=route, share=share, tokens=left, seconds=seconds)


def allowances(site: Site) -> Allowances:
    """Count the tokens of the last day, from closed windows and from the trials in it."""
    now_s = site.clock()
    spent: dict[str, int] = {}
    with site.store.reading() as session:
        served, first_s = observations.live_tokens(session, site.engine, now_s - DAY_S)
        for trial in trials.since(session, site.engine, now_s - DAY_S):
            tokens = trials.tokens_of(session, trial)
            spent[trial.route] = spent.get(trial.route, 0) + tokens
    span_s = 0.0 if first_s is None else max(now_s - first_s, site.settings.window_s)
    return Allowances(served=served, spent=spent, span_s=span_s)
