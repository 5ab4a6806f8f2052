"""The adaptive mode: a draft ends where its next position no longer pays at this load.

A position pays while the chance that it is kept is worth the tokens that the seconds it takes would
yield elsewhere: survival >= tokens per second now x seconds of one more position. Survival is the
product of the chances of the positions so far, each known before its token was drawn. So whether
a position is drafted never depends on the token drawn there nor on what follows, and verification
stays exact: it is a stopping time of the draft. To drop a token for what it is would bias answers.

At the optimum the rate that prices a position is the rate that results; to take the rate of the
steps before comes to the same fixed point. Source: Dinkelbach, Management Science 13 (1967).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from collectors.records import Method
from tuner.engine.chances import Chances, Kind
from tuner.engine.prices import MIN_BLOCK, DraftTimes, PassTimes, Yields

SEEDED_PRICE = 0.4
"""Survival at which drafts of seeded rows end. A seeded answer must come out the same alone and in
a batch, today and tomorrow, and a draft takes random numbers from its row: so neither load nor
anything learned may reach it."""

PROBE_EVERY = 128
"""Steps of which two are probes: each draft gets one position more than pays, to see whether that
changed. What is not drafted teaches nothing, so that else a wrong figure would stay for good."""

_PROBE_STEPS = 2
"""In the first a drafter that was left alone reads what it missed; the second tells its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What a step did and took.

    Attributes:
        rows: sequences that decoded.
        positions: those that the target computed.
        prefill_tokens: positions of prompts among them.
        tokens: committed, over all rows.
        draft_s: seconds of drafting.
        rest_s: seconds of everything else.
    """

    rows: int
    positions: int
    prefill_tokens: int
    tokens: int
    draft_s: float
    rest_s: float


@dataclass(slots=True, kw_only=True)
class Outlook:
    """How far the draft of one row pays.

    Attributes:
        market: prices of this step.
        route: its route; empty where it counts for its method alone.
        kind: what its chances are counted with.
        is_seeded: its draft may depend on nothing but the row.
        longest: tokens that it may have.
        survival: chance that all tokens so far are kept.
        confidences: of the positions drafted, as known before their tokens were drawn.
        num_judged: positions looked at, one more than drafted where the price ended the draft.
        has_probed: it took the position that a probe gives away.
    """

    market: Market
    route: str
    kind: Kind
    is_seeded: bool
    longest: int
    survival: float = 1.0
    confidences: list[float] = field(default_factory=list)
    num_judged: int = 0
    has_probed: bool = False

    def takes(self, confidence: float, price: float) -> bool:
        """Say whether the next position is drafted; ask before its token is drawn."""
        position = len(self.confidences)
        self.num_judged += 1
        if self.is_seeded:
            survival, price = self.survival * confidence, SEEDED_PRICE
        else:
            chances = self.market.chances
            survival = self.survival * chances.judge(self.route, self.kind, position, confidence)
        if survival < price and not self._probes():
            return False
        self.survival = survival
        self.confidences.append(confidence)
        return True

    def _probes(self) -> bool:
        """Say whether the next position is drafted although it does not pay: once in a probe."""
        if self.is_seeded or self.has_probed or not self.market.is_probe:
            return False
        self.has_probed = True
        return True

    def surplus(self, price: float) -> float:
        """Return the tokens that the next position is expected to gain beyond its price."""
        spread = self.market.spread(self.route, self.kind, len(self.confidences))
        return sum(share * max(0.0, self.survival * chance - price) for share, chance in spread)


class Market:
    """Prices of one method in one step, rising or falling with the positions taken."""

    def __init__(
        self, method: Method, *, rows: int, positions: int, learned: Adaptive, is_probe: bool
    ) -> None:
        """Open before the first position.

        Args:
            method: the method.
            rows: sequences that decode in this step.
            positions: those that the target's pass computes anyway.
            learned: what is known from earlier steps.
            is_probe: each draft gets one position, and all together one pass, more than pays.
        """
        self.chances = learned.chances
        self.is_probe = is_probe
        self._learned = learned
        self._method = method
        self._positions = positions
        self._block = max(MIN_BLOCK, rows)
        self._rate = learned.yields.tokens_per_s(rows)
        self._has_free_pass = is_probe
        self._prices: dict[int, float] = {}
        self._spreads: dict[tuple[str, Kind, int], list[tuple[float, float]]] = {}

    def judge(self, outlooks: Sequence[Outlook], confidences: Sequence[float]) -> list[bool]:
        """Say of each row whether its next position is drafted; ask before its token is drawn.

        Args:
            outlooks: of the rows.
            confidences: of their next positions.
        """
        price = self._price()
        taken = [
            outlook.takes(confidence, price)
            for outlook, confidence in zip(outlooks, confidences, strict=True)
        ]
        self._positions += sum(taken)
        return taken

    def pays_draft(self, outlooks: Sequence[Outlook]) -> bool:
        """Say whether asking the drafter at all is worth its time, to whatever depth is best."""
        if self.is_probe or _has_seeded(outlooks):
            return True
        drafts, rows = self._learned.drafts, len(outlooks)
        first, further = drafts.first(self._method, rows), drafts.next(self._method, rows)
        alike = Counter((outlook.route, outlook.kind, outlook.longest) for outlook in outlooks)
        gain = 0.0
        for depth, surplus in enumerate(self._surpluses(alike)):
            gain += surplus - self._rate * (further if depth else first)
            if gain >= 0:
                return True
        return False

    def pays_pass(self, outlooks: Sequence[Outlook]) -> bool:
        """Say whether the draft pass before the next position is worth its time."""
        if _has_seeded(outlooks):
            return True
        price = self._price()
        surplus = sum(outlook.surplus(price) for outlook in outlooks)
        seconds = self._learned.drafts.next(self._method, len(outlooks))
        if surplus >= self._rate * seconds:
            return True
        if not self._has_free_pass or all(outlook.has_probed for outlook in outlooks):
            return False
        self._has_free_pass = False
        return True

    def spread(self, route: str, kind: Kind, position: int) -> list[tuple[float, float]]:
        """Return `Chances.spread` as it was when first asked for in this step: rows share it."""
        key = (route, kind, position)
        if key not in self._spreads:
            self._spreads[key] = self.chances.spread(route, kind, position)
        return self._spreads[key]

    def _surpluses(self, alike: Mapping[tuple[str, Kind, int], int]) -> Iterator[float]:
        """Yield the tokens that each depth of a draft is expected to gain beyond its price.

        Args:
            alike: number of rows by route, kind and the most tokens they may draft.
        """
        price = self._price()
        curves = (
            self.chances.surpluses(route, kind, longest, price) for route, kind, longest in alike
        )
        for gains in zip_longest(*curves, fillvalue=0.0):
            yield sum(rows * gain for rows, gain in zip(alike.values(), gains, strict=True))

    def _price(self) -> float:
        """Return the tokens that the seconds of one more position would yield elsewhere."""
        step = self._positions // self._block
        if step not in self._prices:
            slope = self._learned.passes.slope(self._positions, self._block)
            self._prices[step] = self._rate * slope
        return self._prices[step]


def _has_seeded(outlooks: Sequence[Outlook]) -> bool:
    """Say whether nothing but their own confidences may end some of the drafts."""
    return any(outlook.is_seeded for outlook in outlooks)


class Adaptive:
    """What the engine has learned of chances and prices; one for all methods and routes."""

    def __init__(self) -> None:
        self.chances = Chances()
        self.passes = PassTimes()
        self.drafts = DraftTimes()
        self.yields = Yields()
        self._steps: dict[Method, int] = {}

    def market(self, method: Method, *, rows: int, positions: int) -> Market:
        """Open the market of a method for one step."""
        step = self._steps.get(method, 0)
        self._steps[method] = (step + 1) % PROBE_EVERY
        return Market(
            method,
            rows=rows,
            positions=positions,
            learned=self,
            is_probe=step >= PROBE_EVERY - _PROBE_STEPS,
        )

    def learn_draft(self, outlook: Outlook, drafted: int, accepted: int) -> None:
        """Take in what became of a row's draft.

        Args:
            outlook: the row's.
            drafted: tokens of it, those that a grammar cut included.
            accepted: tokens kept.
        """
        confidences = outlook.confidences[:drafted]
        self.chances.learn(outlook.route, outlook.kind, confidences, accepted)

    def learn_step(self, step: StepFigures, *, is_reading: bool) -> None:
        """Take in a step.

        Args:
            step: its figures.
            is_reading: a drafter read a prompt in it, so that its time says nothing of others.
        """
        self.passes.add(step.positions, step.rest_s)
        if is_reading or not step.rows:
            return
        self.yields.add(step.rows, step.tokens, step.draft_s + self._decode_s(step))

    def _decode_s(self, step: StepFigures) -> float:
        """Return what is left of a step's time without its prompts."""
        if not step.prefill_tokens:
            return step.rest_s
        decoded = step.positions - step.prefill_tokens
        prompts_s = step.prefill_tokens * self.passes.slope(decoded, step.prefill_tokens)
        return max(step.rest_s - prompts_s, step.rest_s * decoded / step.positions)
