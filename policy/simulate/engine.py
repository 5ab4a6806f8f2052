"""A simulated engine: what a choice yields in expectation, and what its counters would say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from collectors.records import OFF, Method, Setting
from policy.simulate.allotment import Queue
from policy.simulate.profiles import Drafting, Profile
from policy.simulate.worlds import MAX_DEPTH, WINDOW_S, World
from policy.statistics import Bools, Floats, Ints

STEP_NOISE = 0.05
"""Relative spread of the time of single steps around its mean."""

LOOKUP_LENGTHS = (2, 4, 7)
MODEL_LENGTHS = (1, 2, 3, 5, 7)


def lookup(k: int) -> Setting:
    """Return prompt lookup with a draft length."""
    return Setting(method=Method.PROMPT_LOOKUP, k=k, lookup_min=1, lookup_max=3)


def model(k: int) -> Setting:
    """Return the draft model with a draft length; off for 0."""
    return Setting(method=Method.DRAFT_MODEL, k=k) if k else OFF


ARMS = (OFF, *(lookup(k) for k in LOOKUP_LENGTHS), *(model(k) for k in MODEL_LENGTHS))
"""The arms of every policy that chooses among arms."""

ADAPTIVE_ARMS = tuple(
    Setting(method=method, k=MAX_DEPTH, is_adaptive=True)
    for method in (Method.PARD, Method.DRAFT_MODEL)
)
"""What an engine that ends drafts by itself offers beside them: a drafter of one pass, and one of a
pass for each position. Both draft the whole block in every step."""

WAYS = {
    Method.OFF: Drafting.OFF,
    Method.PROMPT_LOOKUP: Drafting.LOOKUP,
    Method.DRAFT_MODEL: Drafting.MODEL,
    Method.PARD: Drafting.ONE_PASS,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """The batch that a policy has to serve.

    Attributes:
        window: number of the window.
        rows: [R] running sequences of each route.
        context_tokens: KV entries of the batch beyond the usual ones.
    """

    window: int
    rows: Ints
    context_tokens: float

    @property
    def num_rows(self) -> int:
        """Rows of the batch."""
        return int(self.rows.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What is drafted and verified.

    Attributes:
        way: [R] Drafting of each route.
        depth: [R] draft length.
        slots: [R, D] rows of which each position is verified; of adaptive routes none until the
            engine has allotted them.
        is_adaptive: [R] routes whose drafts the engine ends; by default none.
    """

    way: Ints
    depth: Ints
    slots: Ints
    is_adaptive: Bools = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))

    @classmethod
    def of(cls, settings: list[Setting], rows: Ints) -> Choice:
        """Return the choice in which each route has a Setting."""
        depth = np.array([setting.k for setting in settings], dtype=np.intp)
        is_adaptive = np.array([setting.is_adaptive for setting in settings])
        fixed = np.where(is_adaptive, 0, depth)
        return cls(
            way=np.array([WAYS[setting.method] for setting in settings], dtype=np.intp),
            depth=depth,
            slots=rows[:, None] * (np.arange(MAX_DEPTH) < fixed[:, None]),
            is_adaptive=is_adaptive,
        )

    def moved(self, before: Choice) -> Ints:
        """Return 1 for each route whose drafting, draft length or way to end it differs; [R]."""
        is_other = (self.way != before.way) | (self.depth != before.depth)
        return np.asarray(is_other | (self.is_adaptive != before.is_adaptive), dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """What the engine's counters say of one window.

    Attributes:
        turn: the batch.
        choice: what was drafted and verified.
        steps: steps run.
        target_s: mean measured seconds of a target pass.
        target_square_s2: mean of their squares.
        draft_s: [4] mean measured seconds of a draft round by Drafting.
        attempts: [R, D] passes in which a position was reached.
        accepts: [R, D] of those, how often it was accepted.
        tokens: [R] tokens delivered.
        lost_s: seconds of the window in which nothing ran, since Settings changed.
    """

    turn: Turn
    choice: Choice
    steps: int
    target_s: float
    target_square_s2: float
    draft_s: Floats
    attempts: Ints
    accepts: Ints
    tokens: Ints
    lost_s: float = 0.0

    @property
    def step_s(self) -> float:
        """Mean seconds of a step with its drafting."""
        return self.target_s + float(self.draft_s.sum())

    @property
    def busy_s(self) -> float:
        """Seconds of all steps, and those lost by switching."""
        return self.steps * self.step_s + self.lost_s

    @property
    def goodput(self) -> float:
        """Tokens per second."""
        return float(self.tokens.sum()) / self.busy_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """One world on one profile.

    Attributes:
        world: what happens.
        profile: what steps cost.
    """

    world: World
    profile: Profile

    def turn(self, window: int) -> Turn:
        """Return the batch of a window."""
        rows = self.world.rows[window]
        context = float(self.world.context_tokens[window]) * float(rows.sum())
        return Turn(window=window, rows=rows, context_tokens=context)

    def allotted(self, turn: Turn, choice: Choice) -> Choice:
        """Return the choice with the slots that the engine verifies of adaptive routes."""
        if not choice.is_adaptive.any():
            return choice
        offered = turn.rows[:, None] * (np.arange(MAX_DEPTH) < choice.depth[:, None])
        queue = Queue.of(self._survival(turn, choice), offered * choice.is_adaptive[:, None])
        fixed = replace(choice, slots=np.where(choice.is_adaptive[:, None], 0, choice.slots))
        budget = queue.budgets(
            self.profile.step_table_s(turn.num_rows, turn.context_tokens),
            self.tokens(turn, fixed).sum(keepdims=True),
            np.array([turn.num_rows + fixed.slots.sum()]),
            self._drafts_s(turn, fixed).sum(keepdims=True),
        )
        return replace(fixed, slots=fixed.slots + queue.taken(budget).reshape(fixed.slots.shape))

    def seconds(self, turn: Turn, choice: Choice) -> tuple[float, Floats]:
        """Return the expected seconds of a target pass, and of drafting by Drafting; [4].

        Both are those of the profile, at the machine's quick pace.
        """
        positions = turn.num_rows + int(choice.slots.sum())
        target = float(self.profile.step_table_s(turn.num_rows, turn.context_tokens)[positions])
        if not choice.depth.any():
            target *= 1 + self.profile.off_tax_ratio
        return target, self._drafts_s(turn, choice)

    def _drafts_s(self, turn: Turn, choice: Choice) -> Floats:
        drafts = np.zeros(len(Drafting))
        for way in (Drafting.LOOKUP, Drafting.MODEL, Drafting.ONE_PASS):
            uses = choice.way == way
            if uses.any():
                rows, depth = (turn.rows * uses).sum(), (choice.depth * uses).max()
                drafts[way] = float(self.profile.draft_s(way, rows, depth))
        return drafts

    def tokens(self, turn: Turn, choice: Choice) -> Floats:
        """Return the expected tokens of a step; [R]."""
        return np.asarray(turn.rows + (choice.slots * self._survival(turn, choice)).sum(axis=1))

    def _survival(self, turn: Turn, choice: Choice) -> Floats:
        """Return the survival of each position under a choice; [R, D]."""
        kind = np.where(choice.way == Drafting.LOOKUP, 0, 1)
        return np.asarray(self.world.survival(turn.window)[np.arange(len(kind)), kind])

    def goodput(self, turn: Turn, choice: Choice) -> float:
        """Return the expected tokens per second."""
        return float(self.route_goodputs(turn, choice).sum())

    def route_goodputs(self, turn: Turn, choice: Choice) -> Floats:
        """Return the expected tokens per second by route; [R]."""
        target, drafts = self.seconds(turn, choice)
        rates = self.tokens(turn, choice) / (target + float(drafts.sum()))
        return np.asarray(rates * self.world.pace.speed(turn.window))

    def counts(
        self, turn: Turn, choice: Choice, generator: np.random.Generator, lost_s: float = 0.0
    ) -> Counts:
        """Draw what the counters of one window say, of which some seconds went by switching."""
        target, drafts = self.seconds(turn, choice)
        pace, window = self.world.pace, turn.window
        speed = pace.speed(window)
        steps = max(1, int((WINDOW_S - lost_s) * speed / (target + drafts.sum())))
        noise = 1 + STEP_NOISE / np.sqrt(steps) * generator.standard_normal(1 + len(drafts))
        attempts, accepts = self._outcomes(turn, choice, steps, generator)
        quick_s = target * float(noise[0])
        return Counts(
            turn=turn,
            choice=choice,
            steps=steps,
            target_s=quick_s / speed,
            target_square_s2=quick_s**2 * (1 + STEP_NOISE**2) * pace.mean_square(window),
            draft_s=drafts * noise[1:] / speed,
            attempts=attempts,
            accepts=accepts,
            tokens=turn.rows * steps + accepts.sum(axis=1),
            lost_s=lost_s,
        )

    def _outcomes(
        self, turn: Turn, choice: Choice, steps: int, generator: np.random.Generator
    ) -> tuple[Ints, Ints]:
        """Draw attempts and accepts by position, easy and hard steps apart; [R, D] each.

        Rows whose drafts end before others of their route are as likely accepted as these.
        """
        easy_steps = np.rint(self.world.easy_share[turn.window] * steps).astype(np.intp)
        kind = np.where(choice.way == Drafting.LOOKUP, 0, 1)
        chances = self.world.acceptance[turn.window][np.arange(len(kind)), kind]
        left = np.stack([easy_steps, steps - easy_steps], axis=1) * turn.rows[:, None]
        attempts = np.zeros((len(kind), MAX_DEPTH), dtype=np.intp)
        accepts = np.zeros_like(attempts)
        going = choice.slots / np.maximum(1, np.column_stack([turn.rows, choice.slots[:, :-1]]))
        for position in range(int(choice.depth.max(initial=0))):
            left = np.rint(left * going[:, position, None]).astype(np.intp)
            attempts[:, position] = left.sum(axis=1)
            left = generator.binomial(left, chances[:, :, position])
            accepts[:, position] = left.sum(axis=1)
        return attempts, accepts


def switch_loss(profile: Profile, turn: Turn, choice: Choice, before: Choice | None) -> float:
    """Return the share of a window lost by what changes."""
    if before is None or not profile.switch_loss_ratio:
        return 0.0
    share = float((choice.moved(before) * turn.rows).sum()) / max(1, turn.num_rows)
    return profile.switch_loss_ratio * share
