"""The course of one demo: children up, days of traffic, the proof, the summary, children down."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random

import httpx

from collectors.records.parsing import as_time
from tuner.demo.acts import Acts
from tuner.demo.board import Board
from tuner.demo.day import keep_timetable, timetable
from tuner.demo.options import DemoOptions
from tuner.demo.pace import pace_s
from tuner.demo.phases import Phase, monday_morning
from tuner.demo.player import Player
from tuner.demo.stack import Stack
from tuner.demo.summary import DemoSummary, summarise
from tuner.demo.tables import summary_tables
from tuner.demo.traffic import Prompt
from tuner.errors import TunerError
from tuner.store.counts import Span
from tuner.store.facts import JournalTotals
from tuner.workflows.ingest import ingest
from tuner.workflows.site import Site

_DRAIN_S = 60.0
_IDLE_S = 10.0
_READ_S = 300.0
_POLL_S = 0.1
_PROOF_SHARE = 0.4


@dataclass(slots=True, kw_only=True)
class Show:
    """One demo from start to end.

    Attributes:
        options: how it is run.
        prompts: the traffic file.
        stack: engine and service.
        board: what people see.
        site: the engine and its store, as workflows need them.
        link: signs in to the console.
        before: the journal's account at the start.
        started_s: Unix seconds at the start.
        players: one a day of traffic.
        summary: once the traffic is over.
    """

    options: DemoOptions
    prompts: Sequence[Prompt]
    stack: Stack
    board: Board
    site: Site
    link: str
    before: JournalTotals
    started_s: float = field(default_factory=time.time)
    players: list[Player] = field(default_factory=list)
    summary: DemoSummary | None = None

    async def run(self) -> DemoSummary | None:
        """Run to the end, or to Ctrl-C, which still gives a summary of what happened until then.

        Raises:
            PortInUse: a port is taken.
            ChildFailed: engine or service did not come up or stay up.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            await self._until_ended()
        except asyncio.CancelledError:
            task.uncancel()
            self.site.stopping.set()
            if self.summary is None and self.players:
                self.board.say("Stopping; Ctrl-C again stops without a summary")
                await self._conclude()
        finally:
            self.stack.stop()
        return self.summary

    async def _until_ended(self) -> None:
        await self._start()
        await self._beside_watch(self._days())
        await self._conclude()
        if not self.options.exits:
            self.board.say(f"The traffic is over; the console stays up until Ctrl-C: {self.link}")
            await self.stack.watch()

    async def _start(self) -> None:
        folder = self.stack.settings.data_dir
        kept = f"kept in {folder}" if self.options.keeps else "thrown away at the end"
        self.board.say(f"Starting engine and service; facts are {kept}")
        with self.board.console.status("The engine loads its model"):
            await self.stack.start()
        self.board.say(f"Console {self.stack.settings.public_url} - sign in: {self.link}")
        if self.options.approves:
            self.board.say(
                "What passes the gate is approved without asking; --no-approve leaves it to you"
            )

    async def _beside_watch(self, work: Coroutine[None, None, None]) -> None:
        tasks = [asyncio.create_task(self.stack.watch()), asyncio.create_task(work)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _days(self) -> None:
        capabilities = await asyncio.to_thread(self.site.collector.capabilities)
        timeout = httpx.Timeout(_READ_S, connect=10)
        generator, is_first = Random(self.options.seed), True
        async with httpx.AsyncClient(
            base_url=self.site.settings.engine_url, timeout=timeout, trust_env=False
        ) as client:
            while is_first or self.options.minutes is None:
                player = Player(
                    client=client,
                    model=capabilities.pinned.model,
                    prompts=self.prompts,
                    generator=generator,
                    on_trace=self.board.count,
                )
                self.players.append(player)
                await self._day(player, is_first=is_first)
                is_first = False

    async def _day(self, player: Player, *, is_first: bool) -> None:
        phases = monday_morning(self.options.day_s, self.options.max_rows)
        acts = Acts(
            site=self.site,
            routes=tuple(sorted({prompt.route for prompt in self.prompts})),
            say=self.board.say,
            approves=self.options.approves,
            pace=lambda: pace_s(player.traces),
        )
        timed = await asyncio.to_thread(timetable, acts, phases, explores=is_first)
        beside = [
            asyncio.create_task(keep_timetable(timed, self.board.say)),
            asyncio.create_task(self.board.follow(phases)),
        ]
        try:
            for phase in phases[:-1]:
                await self._phase(player, phase)
            await beside[0]
            if acts.approves:
                await self._pass_the_gate(acts, player)
            await self._phase(player, phases[-1])
            await asyncio.to_thread(acts.recommend)
            await player.drain(_DRAIN_S)
            if is_first and not acts.evaluated:
                await asyncio.to_thread(acts.prove, _PROOF_SHARE * self.options.day_s)
        finally:
            for task in beside:
                task.cancel()
            await player.drain(0)
            await asyncio.to_thread(self._end_exploration, acts)

    async def _pass_the_gate(self, acts: Acts, player: Player) -> None:
        """Evaluate what is recommended while no traffic comes, and approve what passes."""
        await player.drain(_DRAIN_S)
        await asyncio.to_thread(acts.recommend)
        self.board.say("Gate: captured prompts run with and without what is recommended")
        await asyncio.to_thread(acts.approve, _PROOF_SHARE * self.options.day_s)

    def _end_exploration(self, acts: Acts) -> None:
        """Leave no explored arm in force, however the day ended."""
        try:
            acts.end_exploration()
        except TunerError as error:
            self.board.say(f"An explored arm stays in force: {error}")

    async def _phase(self, player: Player, phase: Phase) -> None:
        self.board.say(
            f"Phase {phase.name}: {phase.duration_s:.0f} s, {phase.rate_per_s:g} arrivals/s, "
            f"at most {phase.max_in_flight} requests at once"
        )
        await player.play(phase)

    async def _conclude(self) -> None:
        journalled = await asyncio.to_thread(self._settle)
        span = Span(engine=self.site.engine, start_s=self.started_s, end_s=time.time() + 1)
        self.summary = summarise(
            self.site.store,
            span=span,
            started_at=as_time(self.started_s),
            plan=self.site.actuator.read_back(),
            before=self.before,
            journalled=journalled,
            clients=[trace for player in self.players for trace in player.traces],
            unsent=sum(player.num_unsent for player in self.players),
        )
        self.board.console.print(summary_tables(self.summary))

    def _settle(self) -> int:
        """Wait until the engine idles, store the rest of its journal, return its last number."""
        deadline = time.monotonic() + _IDLE_S
        while time.monotonic() < deadline:
            load = self.site.collector.load()
            if load.running == load.waiting == 0:
                break
            time.sleep(_POLL_S)
        last = self.site.collector.steps(0, 1).last_seq
        ingest(self.site)
        return last
