"""What the service runs, in a world: recommendations that an operator approves after a while.

Windows are stored, `recommend` is asked at intervals, and what stays open for the stated delay is
approved. Evidence comes as in the service: one calibration, replays in idle time, and live trials
drawn by window within a share of each route's tokens. A window of a world stands for a window of
the service, whatever its seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.records import LoadLevel, Plan, Route, Setting, load_level_of
from policy.options import RecommendOptions
from policy.recollection import Recollection
from policy.recommend import plan_with, recommend
from policy.simulate.engine import ARMS, Choice, Counts, Engine, Turn
from policy.simulate.live_trials import LiveTrials, Served
from policy.simulate.ours import EPOCH_S, HALF_LIFE_WINDOWS, window_of
from policy.simulate.peers.base import for_each
from policy.simulate.shadow import Replays, calibration_of, joined
from policy.simulate.worlds import ROUTES, WINDOW_S
from policy.types import Advice, LoadChange, PlanEdit, Recommendation

REVIEWED = "spectuner_reviewed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewOptions:
    """How a service and its operator are thought to work.

    Attributes:
        ask_every_windows: windows between two questions to the policy.
        approve_after_windows: windows for which a recommendation stays open before it is approved.
        replay_every_windows: windows between two replays, each of one Setting on one route.
        day_windows: windows over which a trial's share of tokens is counted.
        policy: how cautious the policy is; an entry may change again after as many windows as
            the service's default of an hour has.
    """

    ask_every_windows: int = 10
    approve_after_windows: int = 20
    replay_every_windows: int = 5
    day_windows: int = 400
    policy: RecommendOptions = field(
        default_factory=lambda: RecommendOptions(
            half_life_s=HALF_LIFE_WINDOWS * WINDOW_S, seconds_per_change=60 * WINDOW_S
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """One change that was approved, with the plan that it was predicted over.

    Attributes:
        window: first window that it was in force in.
        route: route name.
        before: plan in force when the policy was asked.
        change: what was recommended, with its figures.
    """

    window: int
    route: str
    before: Plan
    change: LoadChange


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A recommendation that nobody has decided about.

    Attributes:
        since: window at which its Settings were first recommended.
        before: plan in force when the policy was asked last.
        recommendation: the newest one with these Settings.
    """

    since: int
    before: Plan
    recommendation: Recommendation


class Reviewed:
    """The service and an operator who approves what stays open."""

    name = REVIEWED

    def __init__(
        self, engine: Engine, options: ReviewOptions | None = None, arms: Sequence[Setting] = ARMS
    ) -> None:
        """Calibrate; nothing is known of acceptance.

        Args:
            engine: runs the calibration and the replays; the policy never sees the world.
            options: delays and budgets.
            arms: the Settings to choose from.
        """
        seed = engine.world.seed
        self._arms, self._options = tuple(arms), options or ReviewOptions()
        self._generator = np.random.default_rng((seed, 4))
        self._replays = Replays(engine, arms, self._generator)
        self._trials = LiveTrials(self._options.day_windows, arms, seed)
        self._windows = [calibration_of(engine, arms, self._generator)]
        self._memory = Recollection()
        self._plan, self._edits = Plan(), list[PlanEdit]()
        self._open: dict[str, _Open] = {}
        self._settings: list[Setting] = []
        self.approved: list[Approved] = []
        self.exploring: list[frozenset[str]] = []

    def choose(self, turn: Turn) -> Choice:
        """Return what the plan in force says, with what is tried in this window."""
        self._approve(turn.window)
        load, tried = _load_of(turn), self._trials.draw(self._plan)
        own = [self._plan.setting_for(name, load) for name in ROUTES]
        self.exploring.append(frozenset())
        if tried is not None and tried[0][1] == load:
            route = tried[0][0]
            own[ROUTES.index(route)] = tried[1]
            self.exploring[-1] = frozenset({route})
        self._settings = own
        return for_each(own, turn)

    def observe(self, counts: Counts) -> None:
        """Store the window, replay, and ask the policy where it is time."""
        window, options = counts.turn.window, self._options
        tokens = dict(zip(ROUTES, counts.tokens.tolist(), strict=True))
        tried = next(iter(self.exploring[-1]), None)
        self._trials.serve(Served(load=_load_of(counts.turn), tokens=tokens, tried=tried))
        is_replayed = (window + 1) % options.replay_every_windows == 0
        shadow = self._replays.round(window) if is_replayed else ()
        self._windows.append(joined(window_of(counts, self._settings), shadow))
        if (window + 1) % options.ask_every_windows == 0:
            self._ask(window + 1)

    def _ask(self, window: int) -> None:
        """Ask the policy; what says the same Settings again stays open since it first did."""
        found = recommend(
            self._windows,
            [Route(name=name) for name in ROUTES],
            self._plan,
            self._arms,
            now_s=EPOCH_S + window * WINDOW_S,
            generator=self._generator,
            options=self._options.policy,
            edits=self._edits,
            memory=self._memory,
        )
        self._trials.propose(found)
        self._replays.propose(found)
        self._open = {
            one.route: self._opened(one, window) for one in found if one.advice is Advice.CHANGE
        }

    def _opened(self, found: Recommendation, window: int) -> _Open:
        former = self._open.get(found.route)
        is_same = former is not None and _agree(former.recommendation, found)
        since = former.since if former is not None and is_same else window
        return _Open(since=since, before=self._plan, recommendation=found)

    def _approve(self, window: int) -> None:
        """Approve what has been open for the delay."""
        due = [
            one
            for one in self._open.values()
            if window - one.since >= self._options.approve_after_windows
        ]
        for one in due:
            route = one.recommendation.route
            self._plan = plan_with(self._plan, one.recommendation)
            del self._open[route]
            for change in _changes(one.recommendation):
                at_s = EPOCH_S + window * WINDOW_S
                self._edits.append(PlanEdit(route=route, load=change.load, at_s=at_s))
                self.approved.append(
                    Approved(window=window, route=route, before=one.before, change=change)
                )


def _load_of(turn: Turn) -> LoadLevel:
    return load_level_of(max(1, turn.num_rows))


def _changes(found: Recommendation) -> list[LoadChange]:
    return [change for change in found.changes if change.proposed != change.current]


def _agree(former: Recommendation, found: Recommendation) -> bool:
    """True where a place is in both, and none of those has another Setting."""
    old = {change.load: change.proposed for change in _changes(former)}
    new = {change.load: change.proposed for change in _changes(found)}
    both = old.keys() & new.keys()
    return bool(both) and all(old[load] == new[load] for load in both)
