"""Policies on a batch of real or recorded requests, window by window, by the seconds they take.

The same loop runs on the engine and on recorded answers; only the batch differs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from collectors.records import OFF, DecodeStep, Method, Setting, load_level_of
from policy.controller import Controller
from policy.knowledge import Mix
from policy.options import ControlOptions
from policy.simulate.calibrated import Calibration
from policy.simulate.engine import ARMS, Choice, Engine, Turn, lookup, model
from policy.simulate.folding import counts_of, window_of_steps
from policy.simulate.ours import AUTOPILOT, EPOCH_S, HALF_LIFE_WINDOWS
from policy.simulate.peers.bandits import ByLoad, Ucb
from policy.simulate.peers.base import Policy
from policy.simulate.peers.tables import GoodputAverage
from policy.simulate.profiles import Drafting
from policy.simulate.replayed import Timetable
from policy.simulate.worlds import WINDOW_S, draw_world

OURS = AUTOPILOT
GOODPUT_AVERAGE = "goodput_average"
UCB = "ucb_load"


class Batch(Protocol):
    """Sequences that never change in number."""

    def step(self, settings: Mapping[str, Setting]) -> DecodeStep:
        """Do one step with these Settings by route."""


class Player(Protocol):
    """A policy that chooses a Setting by route and sees the steps that came of it."""

    @property
    def name(self) -> str:
        """Short name, as in reports."""

    def choose(self, turn: Turn) -> Mapping[str, Setting]:
        """Say what each route runs in a window."""

    def observe(self, turn: Turn, steps: Sequence[DecodeStep]) -> None:
        """Take in the steps of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Who drafts in a closed loop.

    Attributes:
        routes: names of the routes, at most as many as drawn worlds have.
        drafter: method behind the arms of the draft model.
    """

    routes: tuple[str, ...]
    drafter: Method

    @property
    def ways(self) -> dict[Method, Drafting]:
        """How methods draft."""
        return {Method.PROMPT_LOOKUP: Drafting.LOOKUP, self.drafter: Drafting.MODEL}

    @property
    def arms(self) -> tuple[Setting, ...]:
        """The arms of every policy, as this engine runs them."""
        return tuple(self.realised(arm) for arm in ARMS)

    def realised(self, arm: Setting) -> Setting:
        """Return an arm as this engine runs it."""
        if arm.method is Method.DRAFT_MODEL:
            return Setting(method=self.drafter, k=arm.k)
        return arm


class FixedPlayer:
    """One Setting for ever."""

    def __init__(self, setting: Setting, field: Field) -> None:
        """Fix the Setting."""
        self.name = "off" if setting == OFF else f"fixed {setting.label}"
        self._settings = dict.fromkeys(field.routes, setting)

    def choose(self, turn: Turn) -> Mapping[str, Setting]:
        """Return the Setting for all routes."""
        return self._settings

    def observe(self, turn: Turn, steps: Sequence[DecodeStep]) -> None:
        """Learn nothing."""


class PeerPlayer:
    """A policy of drawn worlds, shown what its engine's counters would say."""

    def __init__(self, policy: Policy, field: Field) -> None:
        """Take a fresh policy."""
        self.name = policy.name
        self._policy = policy
        self._field = field
        self._choice: Choice | None = None

    def choose(self, turn: Turn) -> Mapping[str, Setting]:
        """Ask the policy."""
        self._choice = self._policy.choose(turn)
        arms = map(_arm_of, self._choice.way.tolist(), self._choice.depth.tolist())
        realised = [self._field.realised(arm) for arm in arms]
        return dict(zip(self._field.routes, realised, strict=True))

    def observe(self, turn: Turn, steps: Sequence[DecodeStep]) -> None:
        """Show it counters; windows with prefill in every step show nothing."""
        assert self._choice is not None
        counts = counts_of(steps, turn, self._choice, self._field.routes, self._field.ways)
        if counts is not None:
            self._policy.observe(counts)


class OurPlayer:
    """The control loop of this product, shown what its service would have stored.

    It is given the calibration, as a service is whose engine was calibrated, and knows nothing of
    acceptance.
    """

    name = OURS

    def __init__(self, field: Field, calibration: Calibration, seed: int) -> None:
        """Start with the times of steps."""
        options = ControlOptions(half_life_s=HALF_LIFE_WINDOWS * WINDOW_S)
        self._controller = Controller(field.arms, np.random.default_rng((seed, 2)), options)
        methods = {way: method for method, way in field.ways.items()}
        self._controller.observe(
            replace(calibration.window(methods), start_s=EPOCH_S, end_s=EPOCH_S)
        )
        self._field = field

    def choose(self, turn: Turn) -> Mapping[str, Setting]:
        """Ask the controller."""
        named = zip(self._field.routes, turn.rows.tolist(), strict=True)
        mix = Mix(
            load=load_level_of(turn.num_rows),
            steps=1.0,
            rows_by_route={route: float(rows) for route, rows in named if rows},
            context_tokens=_third_octave(turn.context_tokens),
        )
        decision = self._controller.decide(mix, EPOCH_S + turn.window * WINDOW_S)
        return {route: decision.settings.get(route, OFF) for route in self._field.routes}

    def observe(self, turn: Turn, steps: Sequence[DecodeStep]) -> None:
        """Hand the steps over as a window."""
        end_s = EPOCH_S + (turn.window + 1) * WINDOW_S
        context = round(_third_octave(turn.context_tokens))
        self._controller.observe(window_of_steps(steps, end_s - WINDOW_S, end_s, context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a policy got at one load.

    Attributes:
        rows: sequences in the batch.
        tokens: delivered in steps without prefill.
        seconds: of those steps.
        windows: played.
    """

    rows: int
    tokens: int
    seconds: float
    windows: int

    @property
    def goodput(self) -> float:
        """Tokens per second; 0 where every step had prefill."""
        return self.tokens / self.seconds if self.seconds else 0.0


def players(field: Field, times: Timetable, best: Setting, seed: int) -> list[Player]:
    """Return fresh policies to confirm: off, the best fixed arm, two peers, ours.

    Args:
        field: routes and drafter.
        times: the measured times, which the moving average and ours are given.
        best: the fixed arm that is best in hindsight on recorded answers.
        seed: of draws.
    """
    # The moving average reads only the cost table of it; what happens is the batch's affair.
    engine = Engine(world=draw_world(seed, ("W1",), num_windows=1), profile=times.profile)
    return [
        FixedPlayer(OFF, field),
        FixedPlayer(best, field),
        PeerPlayer(GoodputAverage(engine), field),
        PeerPlayer(ByLoad(UCB, Ucb), field),
        OurPlayer(field, times.calibration, seed),
    ]


class ClosedLoop:
    """One policy on one batch, window by window."""

    def __init__(
        self,
        batch: Batch,
        player: Player,
        rows_by_route: Mapping[str, int],
        *,
        window_s: float,
        first_window: int = 0,
    ) -> None:
        """Begin a stretch at one load.

        Args:
            batch: fresh, with so many rows.
            player: a policy; may have played before.
            rows_by_route: sequences of each route in the batch.
            window_s: seconds of steps between two decisions.
            first_window: number of its next window.
        """
        self._batch = batch
        self._player = player
        self._rows = np.array(list(rows_by_route.values()), dtype=np.intp)
        self._window_s = window_s
        self._first_window = self._window = first_window
        self._context = 0.0
        self._tokens = 0
        self._counted_s = 0.0
        self.used_s = 0.0
        """Seconds of all steps, prefill included."""

    def play_window(self) -> None:
        """Ask the policy, do the steps of a window, and show them."""
        turn = Turn(window=self._window, rows=self._rows, context_tokens=self._context)
        steps = run_steps(self._batch, self._player.choose(turn), self._window_s)
        self._player.observe(turn, steps)
        plain = [step for step in steps if not step.prefill_tokens]
        self._tokens += sum(group.tokens for step in plain for group in step.groups)
        self._counted_s += sum(step.step_s for step in plain)
        self.used_s += sum(step.step_s for step in steps)
        self._context = float(steps[-1].context_tokens)
        self._window += 1

    @property
    def next_window(self) -> int:
        """Number of the window to come."""
        return self._window

    @property
    def stretch(self) -> Stretch:
        """What the policy got so far."""
        return Stretch(
            rows=int(self._rows.sum()),
            tokens=self._tokens,
            seconds=self._counted_s,
            windows=self._window - self._first_window,
        )


def run_steps(batch: Batch, settings: Mapping[str, Setting], seconds: float) -> list[DecodeStep]:
    """Do steps until they have taken so many seconds; at least one."""
    steps = [batch.step(settings)]
    while sum(step.step_s for step in steps) < seconds:
        steps.append(batch.step(settings))
    return steps


def _arm_of(way: int, depth: int) -> Setting:
    return lookup(depth) if way == Drafting.LOOKUP else model(depth)


def _third_octave(context_tokens: float) -> float:
    """Return the KV entries of a batch in steps of a third of an octave."""
    return math.exp2(round(3 * math.log2(max(1.0, context_tokens))) / 3)
