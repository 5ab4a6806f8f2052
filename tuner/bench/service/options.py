"""How the service is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collectors.records import OFF, Setting
from tuner.bench.service.conditions import Condition
from tuner.demo.options import MIN_MINUTES, DemoOptions
from tuner.demo.traffic import bundled_traffic
from tuner.errors import BadRequest

OFF_ARM, FIXED, REVIEWED, ADAPTIVE = "off", "fixed", "reviewed", "adaptive"
BEST_FIXED = "best_fixed"
ARMS = (OFF_ARM, FIXED, REVIEWED, ADAPTIVE)
MIN_ROUNDS = 2
"""Intervals come from rounds, and the best fixed Setting is chosen by other rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBenchOptions:
    """How the service is measured.

    Attributes:
        conditions: neighbours of the engine, one run each.
        levels: requests held under way, one level of traffic each.
        has_surge: add the demo's surge as a level.
        rounds: every arm has one block at every level in each.
        block_s: seconds that an arm is in force at a stretch.
        settle_s: seconds at the start of a block that are left out.
        learn_minutes: traffic from which the service learns, as in the demo.
        gate_minutes: time for evaluating what was recommended; what is not evaluated by then is
            not approved.
        steady_minutes: steady traffic under the frozen plan, in which recommendations are counted.
        arms: of `ARMS`; off is always measured.
        fixed: Settings tried everywhere; the best of them is one arm.
        adaptive: Setting of the engine's own adaptive mode.
        seed: of prompts and order.
        traffic: JSONL file with the prompts.
        port: of the service.
        engine_port: of the engine.
        model: what the engine loads.
        draft: its draft model.
        max_rows: sequences in its batch.
    """

    conditions: tuple[Condition, ...] = (Condition.QUIET,)
    levels: tuple[int, ...] = (1, 2, 4, 8, 16, 24)
    has_surge: bool = True
    rounds: int = 2
    block_s: float = 7.0
    settle_s: float = 2.0
    learn_minutes: float = 3.0
    gate_minutes: float = 8.0
    steady_minutes: float = 0.5
    arms: tuple[str, ...] = ARMS
    fixed: tuple[Setting, ...] = ()
    adaptive: Setting = OFF
    seed: int = 0
    traffic: Path = bundled_traffic()
    port: int = 8400
    engine_port: int = 8401
    model: str = "bundled"
    draft: str = "bundled"
    max_rows: int = 32

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        unknown = [arm for arm in self.arms if arm not in ARMS]
        if unknown:
            raise BadRequest(f"--arms {unknown[0]}: the service offers {', '.join(ARMS)}")
        if self.rounds < MIN_ROUNDS:
            raise BadRequest(f"--rounds must be at least {MIN_ROUNDS}, got {self.rounds}")
        if not 0 <= self.settle_s < self.block_s:
            raise BadRequest(
                f"--settle-s {self.settle_s:g} must be 0 or more and shorter than a block of "
                f"{self.block_s:g} s"
            )
        if not self.levels or not self.conditions:
            raise BadRequest("give at least one of --levels and one of --conditions")
        for level in self.levels:
            if not 1 <= level <= self.max_rows:
                raise BadRequest(f"--levels {level} must be 1 to {self.max_rows} (--max-rows)")
        if len(set(self.levels)) < len(self.levels):
            raise BadRequest(f"--levels {self.levels} names a level twice")
        if min(self.learn_minutes, self.gate_minutes, self.steady_minutes) < MIN_MINUTES:
            raise BadRequest(f"--*-minutes must be at least {MIN_MINUTES}")

    @property
    def demo(self) -> DemoOptions:
        """How engine and service are started: as for an unattended demo."""
        return DemoOptions(
            minutes=self.learn_minutes,
            exits=True,
            traffic=self.traffic,
            seed=self.seed,
            port=self.port,
            engine_port=self.engine_port,
            keeps=False,
            model=self.model,
            draft=self.draft,
            max_rows=self.max_rows,
        )
