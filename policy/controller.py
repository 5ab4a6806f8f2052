"""The policy as a control loop: every window in, the Settings of the next one out.

Beside ``recommend``, which answers to people and for days, this answers to the engine and for the
next window, so it may venture a little beyond what was measured and see what comes of it. It is
held back three ways: a share of tokens to explore with, a bound under which the low end of no plan
may fall against speculation off, and a budget of edits of the plan. All three are options, none is
luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collectors.records import OFF, LoadLevel, Route, Setting
from policy.acceptance import AcceptanceModel
from policy.belief import Belief
from policy.budgets import EditBudget, TokenBudget
from policy.cost import CostModel
from policy.goodput import Batch
from policy.knowledge import MOST_ROWS, Knowledge, Mix, Venture
from policy.learning import Learner
from policy.options import ControlOptions
from policy.pace import PaceLog
from policy.plan_choice import PlanChoice
from policy.plan_evaluation import OFF_ARM, PlanEvaluation
from policy.scenes import lone_batch, shared_batch, step_bounds
from policy.statistics import Floats, Ints
from policy.types import Interval, Window

SHAPES_PER_WINDOW = 500
"""Shapes of steps whose fit may be paid for by each window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one window is to run.

    Attributes:
        settings: Setting by route.
        exploring: routes that try what does not look best, to learn.
        goodput: predicted tokens per second with 90 % interval; None where nothing is known.
        changed: routes that behave otherwise than at the last decision.
    """

    settings: Mapping[str, Setting]
    exploring: frozenset[str] = frozenset()
    goodput: Interval | None = None
    changed: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class _State:
    """What the loop remembers between windows."""

    learner: Learner
    num_windows: int = 0
    is_held: bool = False
    unpriced: list[Window] = field(default_factory=list)
    paces: PaceLog = field(default_factory=PaceLog)
    tables: dict[tuple[object, ...], tuple[float, float, Floats] | Floats] = field(
        default_factory=dict
    )
    in_force: dict[tuple[str, LoadLevel], Setting] = field(default_factory=dict)
    last: dict[str, Setting] = field(default_factory=dict)
    running: dict[str, Setting] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Controller:
    """Learns from windows and decides for batches."""

    def __init__(
        self,
        arms: Sequence[Setting],
        generator: np.random.Generator,
        options: ControlOptions | None = None,
        limits: Mapping[str, Route] | None = None,
    ) -> None:
        """Start without knowledge.

        Args:
            arms: the Settings to choose from; off is always among them.
            generator: source of the posterior draws.
            options: how bold to be.
            limits: routes with their objectives, by name.
        """
        self._arms = tuple(dict.fromkeys((OFF, *arms)))
        self._generator = generator
        self._options = options or ControlOptions()
        self._limits = limits or {}
        self._tokens = TokenBudget(self._options)
        granted, per_edit = self._options.granted_edits, self._options.seconds_per_edit
        self._edits = EditBudget(granted, per_edit)
        self._tries = EditBudget(granted, 2 * per_edit)
        self._state = _State(
            learner=Learner(
                AcceptanceModel.empty(self._options.half_life_s),
                CostModel.empty(self._options.cost_half_life_s),
                self._options.stale_windows,
            )
        )

    def observe(self, window: Window) -> None:
        """Learn from a window."""
        state = self._state
        changed = state.learner.observe(window)
        state.changed |= changed
        for route in changed:
            self._edits.pardon(route)
            self._tries.pardon(route)
        was_risked = self._tokens.is_at_risk
        self._tokens.earn(window)
        state.unpriced.append(window)
        if window.step_costs:
            state.paces = state.paces.with_window(state.learner.cost.pace_of(window, state.paces))
        state.num_windows += 1
        is_due = len(state.unpriced) >= self._options.windows_per_cost_fit(state.num_windows)
        is_awaited = state.is_held and len(state.unpriced) > self._patience
        if is_due or was_risked or is_awaited or state.learner.cost.is_news(window.step_costs):
            for each in state.unpriced:
                state.learner.price(each)
            state.unpriced, state.tables = [], {}
            state.paces = state.learner.cost.paces

    @property
    def _patience(self) -> int:
        """Windows that a fit of step times waits for even where it is needed."""
        return len(self._state.learner.cost.steps) // SHAPES_PER_WINDOW

    def decide(self, mix: Mix, now_s: float) -> Decision:
        """Choose the Settings of a batch.

        Args:
            mix: the rows of each route and the context they hold.
            now_s: the present, Unix seconds.
        """
        self._state.is_held = False
        if not all(0 < rows < MOST_ROWS for rows in mix.rows_by_route.values()):
            return Decision(settings=dict.fromkeys(mix.rows_by_route, OFF))
        knowledge = self._knowledge(now_s)
        settings, exploring, goodputs = {}, set(), []
        for batch in self._batches(knowledge, mix):
            belief = Belief(self._state.learner.regimes, knowledge, batch, mix.context_tokens)
            bounds = None if mix.is_lone else step_bounds(knowledge, mix)
            running = self._state.running
            charge = self._state.learner.switching.charge(batch, running, mix.context_tokens)
            num_draws = self._options.num_draws
            evaluation = PlanEvaluation(batch, belief, self._generator, num_draws)
            found = PlanChoice(evaluation, self._options, bounds, charge)
            plan, tried = self._settled(found, batch, now_s)
            goodputs.append(found.goodput(plan))
            for route, name in enumerate(batch.routes[0]):
                settings[name] = batch.arms[plan[route]]
                if route in tried:
                    exploring.add(name)
        for name in mix.rows_by_route:
            settings.setdefault(name, OFF)
        self._state.running |= settings
        changed, self._state.changed = frozenset(self._state.changed), set()
        return Decision(
            settings=settings,
            exploring=frozenset(exploring),
            goodput=goodputs[0] if len(goodputs) == 1 else None,
            changed=changed,
        )

    def _knowledge(self, now_s: float) -> Knowledge:
        return Knowledge(
            acceptance=self._state.learner.acceptance.faded_to(now_s),
            cost=self._state.learner.cost,
            arms=self._arms,
            min_passes=self._options.min_passes,
            posteriors={},
            venture=Venture(),
            tables=self._state.tables,
            paces=self._state.paces,
        )

    def _batches(self, knowledge: Knowledge, mix: Mix) -> list[Batch]:
        if mix.is_lone:
            routes = [replace(mix, rows_by_route={name: 1.0}) for name in sorted(mix.rows_by_route)]
            found = [lone_batch(knowledge, [one], self._limits) for one in routes]
        else:
            found = [shared_batch(knowledge, [mix], self._limits)]
        return [batch for batch in found if batch is not None]

    def _settled(self, found: PlanChoice, batch: Batch, now_s: float) -> tuple[Ints, set[int]]:
        """Return the plan to run and the routes that explore in it."""
        names, load = batch.routes[0], batch.loads[0]
        current = self._current(batch, load)
        frozen = {
            route
            for route, name in enumerate(names)
            if (name, load) in self._state.in_force and not self._edits.has(name, load, now_s)
        }
        if frozen and not found.is_safe(current):
            frozen = set()
        best = found.improved(current, frozen)
        is_held = not found.is_safe(best)
        self._state.is_held |= is_held
        if is_held:
            if found.is_worth_risking(best) and self._tokens.may_risk:
                self._tokens.risk(found.least_goodput(best))
            else:
                best = found.safest([current])
        self._put_in_force(batch, best, now_s)
        open_routes = [self._tries.has(name, load, now_s) for name in names]
        tried = found.explored(best, np.array(open_routes), self._tokens.price)
        rows = float(batch.rows[0][tried != best].sum())
        if not rows or not self._tokens.affords(rows):
            return best, set()
        is_risky = not found.is_safe(tried)
        if is_risky and not self._tokens.may_risk:
            return best, set()
        self._tokens.spend(rows)
        if is_risky:
            self._tokens.risk(found.least_goodput(tried))
        trying = {int(route) for route in np.flatnonzero(tried != best)}
        for route in trying:
            self._tries.spend(names[route], load, now_s)
        return tried, trying

    def _current(self, batch: Batch, load: LoadLevel) -> Ints:
        number = {arm: index for index, arm in enumerate(batch.arms)}
        held = [
            self._state.in_force.get((name, load), self._state.last.get(name, OFF))
            for name in batch.routes[0]
        ]
        plan = np.array([number[setting] for setting in held], dtype=np.intp)
        legal = batch.allowed[0][np.arange(len(plan)), plan]
        return np.where(legal, plan, OFF_ARM)

    def _put_in_force(self, batch: Batch, plan: Ints, now_s: float) -> None:
        load = batch.loads[0]
        for route, name in enumerate(batch.routes[0]):
            setting, key = batch.arms[plan[route]], (name, load)
            if key in self._state.in_force and self._state.in_force[key] != setting:
                self._edits.spend(name, load, now_s)
            self._state.in_force[key] = self._state.last[name] = setting
