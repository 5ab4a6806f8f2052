"""Blocks of every arm at every level, in random order within each round.

Beside neighbours every arm has one part of its block in a burst of theirs and one in
the pause before or after it, so that no arm has more of the bursts than another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tuner.bench.service.arms import Arm, bring_into_force
from tuner.bench.service.blocks import Block, Level, Stretch, block_of
from tuner.bench.service.conditions import BURST_S, Condition, neighbours
from tuner.bench.service.journal import JournalReader
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.traffic import generator_of, levels_of, phase_of
from tuner.demo.board import Board
from tuner.demo.player import Player
from tuner.demo.stack import Stack
from tuner.workflows.site import Site

Spans = dict[str, tuple[tuple[float, float], ...]]
"""Measured spans by arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The measured part of a run.

    Attributes:
        options: how the service is measured.
        condition: the neighbours.
        site: the engine and its store.
        stack: engine and service, which must stay up.
        player: sends the prompts.
        board: what people see.
        logs: folder for the neighbours' output.
        order: of levels and arms.
    """

    options: ServiceBenchOptions
    condition: Condition
    site: Site
    stack: Stack
    player: Player
    board: Board
    logs: Path
    order: Random

    async def measure(self, arms: Sequence[Arm]) -> tuple[Block, ...]:
        """Return a block of every arm at every level in every round.

        The arms of a level follow each other on traffic that goes on, so that each stands beside
        off in time.

        Raises:
            ActuatorError: the engine did not take a plan.
            ChildFailed: engine or service ended.
            JournalBroken: steps are missing.
        """
        reader = JournalReader(collector=self.site.collector)
        await asyncio.to_thread(reader.skip)
        levels = levels_of(self.options)
        blocks: list[Block] = []
        for turn in range(self.options.rounds):
            for level in self.order.sample(levels, len(levels)):
                spans = await self._level(turn, level, arms)
                steps = await asyncio.to_thread(reader.steps)
                stretches = [_stretch(turn, level, arm, spans) for arm in arms]
                blocks += [block_of(stretch, steps) for stretch in stretches]
            self.board.say(f"Measured round {turn + 1} of {self.options.rounds}")
        return tuple(blocks)

    async def _level(self, turn: int, level: Level, arms: Sequence[Arm]) -> Spans:
        """Run every arm at one level; the traffic first fills the engine under speculation off."""
        await asyncio.to_thread(bring_into_force, self.site, arms[0])
        await self._play(turn, level, 0, self.options.settle_s)
        spans: Spans = {}
        for part, neighbour in enumerate(self._parts()):
            with neighbours(neighbour, self.logs, pause_s=0.0):
                for arm in self.order.sample(arms, len(arms)):
                    measured = await self._block(turn, level, part, arm, len(arms))
                    spans[arm.name] = (*spans.get(arm.name, ()), measured)
        await self.player.drain(0)
        for child in (self.stack.engine, self.stack.service):
            if child is not None:
                child.require_running()
        return spans

    def _parts(self) -> list[Condition]:
        """Return the neighbours of each part of a level: a burst and a pause, or neither."""
        parts = [Condition.QUIET]
        if self.condition is not Condition.QUIET:
            parts.append(self.condition)
        return self.order.sample(parts, len(parts))

    async def _block(
        self, turn: int, level: Level, part: int, arm: Arm, num_arms: int
    ) -> tuple[float, float]:
        """Run an arm; return start and end of what counts."""
        block_s = self.options.block_s
        if self.condition is not Condition.QUIET:
            block_s = min(block_s, BURST_S / num_arms)
        await asyncio.to_thread(bring_into_force, self.site, arm)
        start_s = time.time()
        await self._play(turn, level, part, block_s)
        settle_s = self.options.settle_s * block_s / self.options.block_s
        return start_s + settle_s, start_s + block_s

    async def _play(self, turn: int, level: Level, part: int, seconds: float) -> None:
        self.player.generator = generator_of(self.options.seed, turn, level, part)
        await self.player.play(phase_of(level, seconds, self.options.max_rows))


def _stretch(turn: int, level: Level, arm: Arm, spans: Spans) -> Stretch:
    return Stretch(
        round=turn,
        level=level,
        arm=arm.name,
        plan_digest=arm.plan.digest,
        spans=spans[arm.name],
    )
