"""What is believed of the routes of one batch, by Setting: of the next window, or of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from collectors.records import OFF, LoadLevel
from policy.adaptive import AtLoad, Kind, kind_of
from policy.goodput import Batch
from policy.knowledge import Knowledge
from policy.regimes import Regimes
from policy.statistics import Bools, Floats, Ints


class Belief:
    """What is believed of the routes of one scene, by arm."""

    def __init__(
        self, regimes: Regimes, knowledge: Knowledge, batch: Batch, context_tokens: float
    ) -> None:
        """Ask what was learned about one scene.

        Args:
            regimes: the behaviours of each route.
            knowledge: everything else that was learned.
            batch: the scene.
            context_tokens: KV entries that it holds.
        """
        self._context_tokens = context_tokens
        self._regimes = regimes
        self._knowledge = knowledge
        self._batch = batch
        self._kinds = [kind_of(arm, batch.loads[0]) for arm in batch.arms]
        self._drafting = [kind for kind in dict.fromkeys(self._kinds) if kind != OFF]
        self._deepest = max(1, int(batch.depth.max()))

    def mean_tokens(self) -> Floats:
        """Return the expected tokens of a pass; [R, A]."""
        return np.stack([self._by_arm(self._mean(name)) for name in self._batch.routes[0]])

    def mean_positions(self) -> Floats:
        """Return the expected positions of a step; of adaptive arms as the regimes have it; [R, A].

        Other arms keep those of the batch.
        """
        positions = self._batch.positions.copy()
        for index, kind in enumerate(self._kinds):
            if isinstance(kind, AtLoad):
                fills = [self.mean_fill(name, kind) for name in self._batch.routes[0]]
                drafted = self._batch.depth[index] * np.array(fills)
                positions[0, :, index] = self._batch.rows[0] * (1 + drafted)
        return positions

    def mean_fill(self, name: str, kind: AtLoad) -> float:
        """Return the share of its ceiling that an adaptive Setting keeps."""
        guess = self._knowledge.posterior(name, kind).fill
        return self._regimes.mean_fill(name, kind, guess)

    def draws(self, generator: np.random.Generator, num_draws: int, *, is_next: bool) -> Floats:
        """Draw the tokens of a pass in the next window, or as things stand now; [N, R, A]."""
        drawn = []
        for name in self._batch.routes[0]:
            guesses = {kind: self._guess(name, kind) for kind in self._drafting}
            drawn.append(
                self._regimes.drawn_tokens(name, guesses, generator, num_draws, is_next=is_next)
            )
        return np.stack([self._by_arm(tokens) for tokens in drawn], axis=1)

    def is_known(self, plan: Ints) -> Bools:
        """True for arms of the planned method within its evidence: they teach nothing; [R, A]."""
        same = self._batch.family == self._batch.family[plan][:, None]
        is_evident = self._batch.depth <= self._depths(self._batch.loads[0])
        return np.asarray((same & is_evident) | (self._batch.depth == 0))

    def lasting_windows(self, most: float) -> Floats:
        """Return for how many windows what an arm shows now may be of use; [R, A].

        At most as given, and that for methods never tried on a route: how they do there is news
        whatever its regime. No longer than one window where regimes do not last.
        """
        names = self._batch.routes[0]
        by_route = np.array([self._regimes.lasting_windows(name, most) for name in names])
        is_untried = self._depths(None) == 0
        return np.where(is_untried, most, by_route[:, None])

    def _depths(self, load: LoadLevel | None) -> Ints:
        """Return the evidenced draft positions of each arm's method; [R, A].

        Of adaptive ones at a load level, or at any where that is None.
        """
        arms, names = self._batch.arms, self._batch.routes[0]
        return np.array(
            [[self._knowledge.depth(name, arm, load) for arm in arms] for name in names]
        )

    def step_error_ratio(self, rows: float, positions: float) -> float:
        """Return the relative error of the time of a step of about this size."""
        cost = self._knowledge.cost
        return cost.step_error_ratio(round(rows), round(positions), self._context_tokens)

    def pace_error_ratio(self, rows: float, positions: float) -> float:
        """Return what not knowing the machine's pace adds to that error."""
        cost = self._knowledge.cost
        return cost.pace_error_ratio(round(rows), round(positions), self._context_tokens)

    def next_paces(self, generator: np.random.Generator, num_draws: int) -> Floats:
        """Draw the log pace of the next window; [N]."""
        paces = self._knowledge.paces or self._knowledge.cost.paces
        return paces.next_draws(generator, num_draws)

    def _mean(self, name: str) -> dict[Kind, Floats]:
        return {
            kind: self._regimes.mean_tokens(name, kind, *self._guess(name, kind))
            for kind in self._drafting
        }

    def _guess(self, name: str, kind: Kind) -> tuple[Floats, Floats]:
        """Return the first guess of acceptance, and how far drafts reach; [D] each."""
        posterior = self._knowledge.posterior(name, kind)
        mean = posterior.alpha / (posterior.alpha + posterior.beta)
        return mean[: self._deepest], posterior.reach[: self._deepest]

    def _by_arm(self, by_kind: Mapping[Kind, Floats]) -> Floats:
        """Take each arm's draft length out of its kind's tokens; [..., A]. Off gives one."""
        plain = np.ones(next(iter(by_kind.values())).shape[:-1]) if by_kind else np.ones(1)
        columns = zip(self._batch.arms, self._kinds, strict=True)
        return np.stack(
            [by_kind[kind][..., arm.k] if arm.k else plain for arm, kind in columns], axis=-1
        )


class LastingBelief(Belief):
    """What the weighing is to believe: not of the next window, but of all that a plan will see."""

    def __init__(
        self, regimes: Regimes, knowledge: Knowledge, batch: Batch, context_tokens: float
    ) -> None:
        """Take the outlook of the knowledge, which must have one; the batch holds one scene."""
        super().__init__(regimes, knowledge, batch, context_tokens)
        assert knowledge.outlook is not None
        self._outlook = knowledge.outlook

    def mean_tokens(self) -> Floats:
        """Return the expected tokens of a pass; [R, A]."""
        return self._stacked(self._outlook.mean_tokens)

    def draws(self, generator: np.random.Generator, num_draws: int, *, is_next: bool) -> Floats:
        """Return the outlook's draws, which hold for now and later alike; [N, R, A]."""
        return np.moveaxis(self._stacked(self._outlook.drawn_tokens), 0, 1)

    def mean_fill(self, name: str, kind: AtLoad) -> float:
        """Return the share of its ceiling that an adaptive Setting keeps."""
        return self._outlook.mean_fill(name, kind)

    def _stacked(self, tokens_of: Callable[[str, Kind], Floats]) -> Floats:
        names, kinds = self._batch.routes[0], dict.fromkeys(self._kinds)
        by_route = [{kind: tokens_of(name, kind) for kind in kinds} for name in names]
        return np.stack([self._by_arm(tokens) for tokens in by_route])
