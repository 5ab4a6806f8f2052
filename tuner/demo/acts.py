"""What the demo does beside the traffic: explore, replay, recommend, approve, compare outputs.

All of it goes through the service's own workflows, as the command line's commands do.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from collectors.records import LoadLevel, Method, Plan, Setting
from policy.types import Advice
from tuner.demo.exploration import (
    WHO,
    Exploration,
    explored,
    exploring,
    live_arms,
    shadow_arms,
)
from tuner.demo.pace import Budget
from tuner.errors import Interrupted, NotEvaluated, NothingToDo, StateChanged
from tuner.store import captures, recommendations
from tuner.store.plans import Purpose
from tuner.store.recommendations import State, StoredRecommendation
from tuner.workflows import review
from tuner.workflows.apply import Intent, apply
from tuner.workflows.capture import capture
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.evaluate import (
    evaluate,
    missing_reason,
    proposed_loads,
    proposed_settings,
)
from tuner.workflows.ingest import ingest
from tuner.workflows.recommend import recommend
from tuner.workflows.replay import ReplayOptions, replay
from tuner.workflows.site import Site

_SHADOW_TOKENS = 40
_EXPLORED_TOKENS = 24
_SHADOW_CONCURRENCY = 2
_MOST_REPLAYED = 2
_PATIENCE = 1.5
_APPROVER = "demo (unattended)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """The demo's hands.

    Attributes:
        site: the engine and its store.
        routes: of the traffic file.
        say: prints one line.
        approves: approve what is recommended; otherwise the operator does.
        pace: returns the seconds a token takes just now; None while that is not known.
        begun: exploration under way.
        speeds: over speculation off, as the newest shadow replay of each method showed it: its
            tokens per pass where it had too few pairs for a ratio of speeds.
        evaluated: routes of which the gate compared speed and outputs of a Setting.
    """

    site: Site
    routes: tuple[str, ...]
    say: Callable[[str], None]
    approves: bool
    pace: Callable[[], float | None]
    begun: list[Exploration] = field(default_factory=list)
    speeds: dict[Method, float] = field(default_factory=dict)
    evaluated: list[str] = field(default_factory=list)

    def live_arms(self) -> tuple[Setting, ...]:
        """Return the arms to be tried on live traffic, the most promising first."""
        return live_arms(self.site.possible_arms(), self.speeds)

    def explore(self, place: int, loads: Sequence[LoadLevel]) -> None:
        """Put one arm in force on every route at some load levels, until `end_exploration`.

        Args:
            place: which of `live_arms`, as they stand now.
            loads: load levels.
        """
        arm = self.live_arms()[place]
        exploration = exploring(self.site.actuator.read_back(), self.routes, loads, arm)
        self._apply(
            exploration.during,
            exploration.before,
            f"exploration: {arm.label}",
            Purpose.EXPLORATION,
        )
        self.begun.append(exploration)
        shown = f"{loads[0].low}-{loads[-1].high}"
        self.say(f"Exploration: every route runs {arm.label} at load {shown} for a while")

    def end_exploration(self) -> None:
        """Take an explored arm back, if there is one; what an operator changed meanwhile stays."""
        while self.begun:
            live = self.site.actuator.read_back()
            plan = explored(live, self.begun[-1])
            if plan.digest != live.digest:
                self._apply(plan, live, "end of exploration", Purpose.END_OF_EXPLORATION)
            self.begun.pop()

    def explore_in_shadow(self, seconds: float) -> None:
        """Replay captured prompts on the longest draft of each method beside speculation off.

        Args:
            seconds: time for it; at least two prompts are replayed an arm, and arms whose turn
                has not come when half as much more is over are left out. A third of it more is
                waited for the first prompts.
        """
        if not self._await_captures(seconds / 3):
            self.say("No shadow exploration: no request has been captured so far")
            return
        arms = shadow_arms(self.site.possible_arms())
        budget = Budget(
            seconds=seconds / max(1, len(arms)),
            answers=1.5,
            tokens=_EXPLORED_TOKENS,
            fewest=_SHADOW_CONCURRENCY,
            most=8,
        )
        last_s = time.monotonic() + seconds * _PATIENCE
        for place, arm in enumerate(arms):
            if time.monotonic() >= last_s:
                left = ", ".join(one.label for one in arms[place:])
                self.say(f"Not explored in shadow, as its time is over: {left}")
                return
            requests = budget.prompts(self.pace())
            limit_s = budget.seconds * _PATIENCE
            self.replay(arm, requests, limit_s, _SHADOW_CONCURRENCY, tokens=_EXPLORED_TOKENS)

    def replay(
        self,
        arm: Setting,
        requests: int,
        limit_s: float,
        concurrency: int = 1,
        tokens: int = _SHADOW_TOKENS,
    ) -> None:
        """Replay captured prompts on speculation off and on an arm, for so many seconds at most."""
        options = ReplayOptions(requests=requests, concurrency=concurrency, max_tokens=tokens)
        try:
            found = replay(limited(self.site, limit_s), Setting(), arm, options).summary
        except NothingToDo as reason:
            self.say(f"No shadow replay: {reason}")
            return
        except Interrupted:
            self.say(f"Shadow replay: {arm.label} ran out of time; what it saw is kept as evidence")
            return
        longer = (found.other_tokens_per_pass or 1.0) / (found.base_tokens_per_pass or 1.0)
        self.speeds[arm.method] = longer if found.speedup is None else found.speedup.mean
        speed = "no ratio" if found.speedup is None else f"{found.speedup.mean:.2f}x the speed"
        self.say(f"Shadow replay: {arm.label} against off on {found.pairs} prompts, {speed}")

    def recommend(self) -> None:
        """Bring the store up to date and ask the policy."""
        ingest(self.site)
        said = recommend(self.site)
        if said.silence_reason is not None:
            self.say(f"No recommendation: {said.silence_reason}")
        changes = [one for one in said.said if one.advice is Advice.CHANGE]
        self.say(f"Recommended: {len(changes)} of {len(said.said)} routes should change")
        if changes and not self.approves:
            self.say("Approve them in the console")

    def approve(self, seconds: float) -> None:
        """Evaluate what waits, the largest gain first, for so long, and approve what passes."""
        last_s = time.monotonic() + seconds
        for entry in sorted(self._waiting(), key=lambda one: -_largest_total(one)):
            for setting in proposed_settings(entry):
                loads = proposed_loads(entry, setting)
                if missing_reason(self.site, setting, entry.route, loads) is not None:
                    self._evaluate(setting, entry.route, last_s - time.monotonic())
            self._approve(entry.id, entry.route)

    def _evaluate(self, setting: Setting, route: str, seconds: float) -> None:
        name = f"{setting.label} on {route}"
        if seconds <= 0:
            self.say(f"Gate: no time left to evaluate {name}")
            return
        try:
            found = evaluate(limited(self.site, seconds), setting, route)
        except Interrupted:
            self.say(f"Gate: {name} could not be evaluated within {seconds:.0f} s")
            return
        except NothingToDo as reason:
            self.say(f"Gate: {name} was not evaluated: {reason}")
            return
        self.evaluated.append(route)
        passed = "passed" if found.is_passing else "did not pass"
        self.say(f"Gate: {name} {passed}: {'; '.join(found.reasons)}")

    def prove(self, seconds: float) -> None:
        """Compare the Settings used most with speculation off: speed in pairs, outputs by token.

        Args:
            seconds: time for it; at least four prompts are compared.
        """
        arms = self.live_settings()
        if not arms:
            self.say(
                "The plan in force never speculates; arms that were tried are compared instead"
            )
            arms = self.live_arms()
        budget = Budget(seconds=seconds, answers=4, tokens=_SHADOW_TOKENS, fewest=4, most=20)
        requests = budget.prompts(self.pace())
        for arm in arms[:_MOST_REPLAYED]:
            self.replay(arm, max(budget.fewest, requests // 3), seconds * _PATIENCE)
        for arm in arms[:1]:
            self.compare(arm, requests, 2 * seconds * _PATIENCE)

    def compare(self, arm: Setting, requests: int, limit_s: float) -> None:
        """Compare greedy outputs of an arm with plain decoding, beside a control arm."""
        options = DivergenceOptions(requests=requests, max_tokens=_SHADOW_TOKENS)
        try:
            found = divergence(limited(self.site, limit_s), arm, options).summary
        except NothingToDo as reason:
            self.say(f"No outputs compared: {reason}")
            return
        except Interrupted:
            self.say(f"Outputs of {arm.label} could not be compared within {limit_s:.0f} s")
            return
        self.say(
            f"Outputs: {arm.label} gave the same tokens as plain decoding on "
            f"{found.tested.identical} of {found.tested.pairs} prompts, "
            f"plain decoding in another batch on {found.control.identical}"
        )

    def live_settings(self) -> tuple[Setting, ...]:
        """Return the Settings of the plan in force, most used first, speculation off left out."""
        plan = self.site.actuator.read_back()
        uses = Counter(entry.setting for entry in plan.entries)
        return tuple(
            setting for setting, _ in uses.most_common() if setting.method is not Method.OFF
        )

    def _await_captures(self, patience_s: float) -> bool:
        """Wait for prompts to replay; return whether there are any."""
        last_s = time.monotonic() + patience_s
        while True:
            capture(self.site)
            with self.site.store.reading() as session:
                num_held = sum(captures.count_by_route(session, self.site.engine).values())
            if num_held >= _SHADOW_CONCURRENCY or time.monotonic() >= last_s:
                return num_held > 0
            self.site.stopping.wait(1.0)
            self.site.raise_if_stopping()

    def _waiting(self) -> list[StoredRecommendation]:
        """Return the pending changes that may be approved alone."""
        with self.site.store.reading() as session:
            pending = recommendations.listed(
                session, engine=self.site.engine, states=(State.PENDING,)
            )
        return [
            entry
            for entry in pending
            if entry.said.advice is Advice.CHANGE
            and not any(change.needs_set for change in entry.said.changes)
        ]

    def _approve(self, number: int, route: str) -> None:
        try:
            review.approve(self.site, number, who=_APPROVER, why="--approve")
        except (StateChanged, NotEvaluated) as reason:
            self.say(f"Not approved: {reason}")
            return
        self.say(f"Approved: recommendation {number} for route {route} is in force")

    def _apply(self, plan: Plan, before: Plan, why: str, purpose: Purpose) -> None:
        intent = Intent(
            plan=plan, before=before, recommendation=None, who=WHO, why=why, purpose=purpose
        )
        apply(self.site, intent)


def _largest_total(entry: StoredRecommendation) -> float:
    return max((change.engine_total.mean for change in entry.said.changes), default=1.0)


def limited(site: Site, seconds: float) -> Site:
    """Return the site with long workflows ending at their next safe point when time is over.

    They also end where the site itself is stopping.
    """
    over = threading.Event()

    def watch() -> None:
        site.stopping.wait(seconds)
        over.set()

    threading.Thread(target=watch, name="time limit", daemon=True).start()
    return replace(site, stopping=over)
