"""Blocks of every arm at every level, in random order within each round."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tuner.bench.service.arms import Arm, bring_into_force
from tuner.bench.service.blocks import Block, Level, Stretch, block_of
from tuner.bench.service.journal import JournalReader
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.traffic import generator_of, levels_of, phase_of
from tuner.demo.board import Board
from tuner.demo.player import Player
from tuner.demo.stack import Stack
from tuner.workflows.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The measured part of a run.

    Attributes:
        options: how the service is measured.
        site: the engine and its store.
        stack: engine and service, which must stay up.
        player: sends the prompts.
        board: what people see.
    """

    options: ServiceBenchOptions
    site: Site
    stack: Stack
    player: Player
    board: Board

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
        order = Random(f"{self.options.seed} order")
        blocks: list[Block] = []
        for turn in range(self.options.rounds):
            levels = levels_of(self.options)
            for level in order.sample(levels, len(levels)):
                stretches = await self._level(turn, level, order.sample(arms, len(arms)))
                steps = await asyncio.to_thread(reader.steps)
                blocks += [block_of(stretch, steps) for stretch in stretches]
            self.board.say(f"Measured round {turn + 1} of {self.options.rounds}")
        return tuple(blocks)

    async def _level(self, turn: int, level: Level, arms: Sequence[Arm]) -> list[Stretch]:
        """Run every arm at one level; the traffic first fills the engine under the first arm."""
        await asyncio.to_thread(bring_into_force, self.site, arms[0])
        await self._play(turn, level, self.options.settle_s)
        stretches = [await self._block(turn, level, arm) for arm in arms]
        await self.player.drain(0)
        for child in (self.stack.engine, self.stack.service):
            if child is not None:
                child.require_running()
        return stretches

    async def _block(self, turn: int, level: Level, arm: Arm) -> Stretch:
        await asyncio.to_thread(bring_into_force, self.site, arm)
        start_s = time.time()
        await self._play(turn, level, self.options.block_s)
        return Stretch(
            round=turn,
            level=level,
            arm=arm.name,
            plan_digest=arm.plan.digest,
            start_s=start_s + self.options.settle_s,
            end_s=start_s + self.options.block_s,
        )

    async def _play(self, turn: int, level: Level, seconds: float) -> None:
        self.player.generator = generator_of(self.options.seed, turn, level)
        await self.player.play(phase_of(level, seconds, self.options.max_rows))
