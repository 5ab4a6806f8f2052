"""One condition from start to end: children up, learning, gate, steady traffic, blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import httpx

from collectors.records.parsing import as_time
from policy.types import Advice
from tuner.bench.service.arms import Arm, arms_of, require_settings
from tuner.bench.service.blocks import Block, Level
from tuner.bench.service.churn import Churn
from tuner.bench.service.conditions import Condition, neighbours
from tuner.bench.service.learning import Learned, arrive, play_day
from tuner.bench.service.measuring import Measuring
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.predictions import Promise, num_impossible, promises_of
from tuner.bench.service.traffic import phase_of
from tuner.demo.acts import Acts
from tuner.demo.board import Board
from tuner.demo.pace import pace_s
from tuner.demo.phases import monday_morning
from tuner.demo.player import Player
from tuner.demo.preparing import prepare_database
from tuner.demo.stack import Stack, demo_settings
from tuner.demo.traffic import Prompt
from tuner.errors import TunerError
from tuner.store import recommendations
from tuner.store.recommendations import StoredRecommendation
from tuner.workflows.ingest import ingest
from tuner.workflows.recommend import recommend
from tuner.workflows.site import Site, open_site

_READ_S = 300.0
_ASK_S = 20.0
"""Between recommendations on steady traffic, as in the demo."""

_STEADY = Level(concurrency=4)
_LISTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened under one condition.

    Attributes:
        condition: the neighbours.
        learned: where the service arrived.
        arms: what was compared.
        blocks: what was measured.
        promises: what was predicted of the plan of the arm `reviewed`.
        num_impossible: predictions above what tokens per pass allow.
        churn: how calm recommendations were on steady traffic.
        failed: requests that did not come back whole.
    """

    condition: Condition
    learned: Learned
    arms: tuple[Arm, ...]
    blocks: tuple[Block, ...]
    promises: tuple[Promise, ...]
    num_impossible: int
    churn: Churn
    failed: int


def run_condition(
    condition: Condition, options: ServiceBenchOptions, prompts: Sequence[Prompt], board: Board
) -> Run:
    """Measure the service under one condition, on an engine and a store of its own.

    Raises:
        ChildFailed: engine or service did not come up or stay up.
        BadRequest: the engine cannot run a Setting that was asked for.
        TunerError: the engine or its journal could not be used.
    """
    with TemporaryDirectory(prefix="spectuner-bench-") as name:
        folder = Path(name)
        settings = demo_settings(options.demo, folder)
        prepare_database(settings)
        with open_site(settings) as site:
            stack = Stack(options=options.demo, settings=settings, logs=folder, say=board.say)
            course = _Course(
                condition=condition,
                options=options,
                prompts=prompts,
                board=board,
                site=site,
                stack=stack,
                logs=folder,
            )
            return asyncio.run(course.run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """A run under way."""

    condition: Condition
    options: ServiceBenchOptions
    prompts: Sequence[Prompt]
    board: Board
    site: Site
    stack: Stack
    logs: Path

    @property
    def _routes(self) -> tuple[str, ...]:
        return tuple(sorted({prompt.route for prompt in self.prompts}))

    async def run(self) -> Run:
        try:
            await self.stack.start()
            await asyncio.to_thread(require_settings, self.site, self.options)
            return await self._with_traffic()
        finally:
            self.site.stopping.set()
            self.stack.stop()

    async def _with_traffic(self) -> Run:
        capabilities = await asyncio.to_thread(self.site.collector.capabilities)
        timeout = httpx.Timeout(_READ_S, connect=10)
        async with httpx.AsyncClient(
            base_url=self.site.settings.engine_url, timeout=timeout, trust_env=False
        ) as client:
            player = Player(
                client=client,
                model=capabilities.pinned.model,
                prompts=self.prompts,
                generator=Random(self.options.seed),
                on_trace=self.board.count,
            )
            try:
                return await self._play(player)
            finally:
                await player.drain(0)

    async def _play(self, player: Player) -> Run:
        with neighbours(self.condition, self.logs):
            learned = await self._learn(player)
            listed = await asyncio.to_thread(self._listed)
            churn = await self._steady(player, learned)
        arms = arms_of(self.options, learned.plan)
        self.board.say(f"Measuring {', '.join(arm.name for arm in arms)}")
        measuring = Measuring(
            options=self.options,
            condition=self.condition,
            site=self.site,
            stack=self.stack,
            player=player,
            board=self.board,
            logs=self.logs,
            order=Random(f"{self.options.seed} order"),
        )
        blocks = await measuring.measure(arms)
        return Run(
            condition=self.condition,
            learned=learned,
            arms=arms,
            blocks=blocks,
            promises=promises_of(listed, learned.plan),
            num_impossible=num_impossible(await asyncio.to_thread(self._listed)),
            churn=churn,
            failed=sum(bool(trace.error) for trace in player.traces),
        )

    async def _learn(self, player: Player) -> Learned:
        acts = Acts(
            site=self.site,
            routes=self._routes,
            say=self.board.say,
            approves=False,
            pace=lambda: pace_s(player.traces),
        )
        phases = monday_morning(self.options.demo.day_s, self.options.max_rows)
        await play_day(acts, player, phases)
        gate_s = 60 * self.options.gate_minutes
        return await asyncio.to_thread(arrive, self.site, gate_s, self.board.say)

    async def _steady(self, player: Player, learned: Learned) -> Churn:
        """Play steady traffic under the plan, and ask for recommendations again and again."""
        seconds = 60 * self.options.steady_minutes
        churn = Churn(hours=seconds / 3600, num_routes=len(self._routes))
        churn.note(learned.said)
        since = as_time(time.time())
        asking = asyncio.create_task(self._ask(churn, seconds))
        try:
            await player.play(phase_of(_STEADY, seconds, self.options.max_rows))
            await asking
        finally:
            asking.cancel()
            await player.drain(0)
        churn.num_new = await asyncio.to_thread(self._num_new, since)
        return churn

    async def _ask(self, churn: Churn, seconds: float) -> None:
        step_s = min(_ASK_S, seconds / 2)
        for _ in range(int(seconds / step_s)):
            await asyncio.sleep(step_s)
            try:
                await asyncio.to_thread(ingest, self.site)
                churn.note((await asyncio.to_thread(recommend, self.site)).said)
            except TunerError as error:
                self.board.say(f"Not asked: {error}")

    def _listed(self) -> tuple[StoredRecommendation, ...]:
        with self.site.store.reading() as session:
            return recommendations.listed(session, engine=self.site.engine, limit=_LISTED)

    def _num_new(self, since: datetime) -> int:
        return sum(
            stored.created_at >= since and stored.said.advice is Advice.CHANGE
            for stored in self._listed()
        )
