"""Draw at the start of each window what is tried in it: a switchback with chances on record.

Only what the newest recommendations propose takes part: replays came before, and no route that
breaks its limits is among it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from collectors.records import Plan
from policy.lottery import chances_of, drawn
from policy.types import Trial
from tuner.store import recommendations
from tuner.store.recommendations import State
from tuner.store.trials import StoredTrial
from tuner.workflows.deciding import Draw, note_decision
from tuner.workflows.plan_worth import LEAST_SHARE
from tuner.workflows.site import Site
from tuner.workflows.trial import (
    end_trial,
    live_trials,
    put_in_force,
    refusal_reason,
    running,
    uncounted_reason,
)
from tuner.workflows.trial_tokens import Allowance, allowances

WHO = "explore"
MOST_SEED = 2**53
"""Seeds are whole numbers that JSON keeps."""

Candidate = tuple[str, Trial, Allowance]


def explore(site: Site) -> str:
    """Draw what is tried in the window that has just begun, where settings allow live trials.

    Raises:
        ActuatorError: the engine did not take the plan.
    """
    if not site.settings.explore_live:
        return "live trials are off; SPECTUNER_EXPLORE_LIVE=true lets the service make them"
    with site.plan_lock:
        end_trial(site, site.actuator.read_back(), who=WHO)
        live = site.actuator.read_back()
        current = running(site, live)
        if current is not None:
            return f"{current.setting.label} is on trial on {current.route}"
        uncounted = uncounted_reason(site)
        if uncounted is not None:
            return f"nothing is tried: {uncounted}"
        end_s = _window_end_s(site)
        if end_s is None:
            return "the window is too old for a draw; the next one is not"
        candidates = tuple(_candidates(site, live))
        if not candidates:
            return "no live trial is proposed that its share of tokens allows"
        return _draw(site, live, candidates, end_s)


def _draw(site: Site, live: Plan, candidates: Sequence[Candidate], end_s: float) -> str:
    arms = site.settings.arms
    chances = chances_of(((route, trial) for route, trial, _ in candidates), live, arms)
    seed = int(site.generator().integers(MOST_SEED))
    draw, chosen = Draw(chances=chances, seed=seed, until_s=end_s), drawn(chances, seed)
    if chosen is None:
        with site.store.writing() as session:
            note_decision(site, session, live, who=WHO, draw=draw)
        return f"drew from {len(candidates)} trials: none in this window"
    (route, load), setting = chosen
    allowed = {route: allowance for route, _, allowance in candidates}[route]
    wanted = StoredTrial(
        engine=site.engine,
        route=route,
        load=load,
        setting=setting,
        former=live.setting_for(route, load),
        start_s=site.clock(),
        end_s=end_s,
        most_tokens=allowed.tokens,
        who=WHO,
    )
    put_in_force(site, live, wanted, draw)
    return f"{setting.label} on trial on {route} at load {load.label} for this window"


def _window_end_s(site: Site) -> float | None:
    """Return the end of the window that has just begun; None where it is not so young any more."""
    length_s, now_s = site.settings.window_s, site.clock()
    start_s = math.floor(now_s / length_s) * length_s
    return start_s + length_s if now_s - start_s <= (1 - LEAST_SHARE) * length_s else None


def _candidates(site: Site, live: Plan) -> Iterator[Candidate]:
    """Give what may be tried now, with the tokens that it may take."""
    with site.store.reading() as session:
        pending = recommendations.listed(session, engine=site.engine, states=(State.PENDING,))
    proposed = [(one.route, trial) for one in pending for trial in live_trials(one.said)]
    wanted = [(route, trial) for route, trial in proposed if trial.win_share > 0]
    if not wanted:
        return
    all_allowed = allowances(site)
    for route, trial in wanted:
        allowed = all_allowed.of(route, trial)
        reason = allowed.shortage_reason(site.settings)
        if (reason or refusal_reason(site, live, route, trial)) is None:
            yield route, trial, allowed
