"""Plays phases of traffic against an engine: open-loop arrivals, bounded requests in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import httpx

from tuner.demo.client import ClientTrace, ask
from tuner.demo.phases import Arrival, Phase, arrivals
from tuner.demo.traffic import Prompt


@dataclass(slots=True)
class Player:
    """Sends prompts as phases ask and remembers what the clients saw.

    Attributes:
        client: with the engine's address as base URL.
        model: as the engine names it.
        prompts: the traffic file.
        generator: arrival times and choice of prompts.
        on_trace: called as each request ends.
        traces: every request ended so far.
        in_flight: requests under way.
        num_unsent: arrivals whose phase ended before their turn came.
    """

    client: httpx.AsyncClient
    model: str
    prompts: Sequence[Prompt]
    generator: Random
    on_trace: Callable[[ClientTrace], None] = lambda _: None
    traces: list[ClientTrace] = field(default_factory=list)
    in_flight: int = 0
    num_unsent: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, phase: Phase) -> None:
        """Send the arrivals of one phase; returns at its end, with requests still under way."""
        start = time.monotonic()
        end = start + phase.duration_s
        for arrival in arrivals(phase, self.prompts, self.generator):
            await asyncio.sleep(max(0.0, start + arrival.at_s - time.monotonic()))
            if await self._has_turn(phase, end):
                self._send(arrival)
            else:
                self.num_unsent += 1
        await asyncio.sleep(max(0.0, end - time.monotonic()))

    async def drain(self, timeout_s: float) -> None:
        """Wait for the requests under way, at most so long; the rest is cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _has_turn(self, phase: Phase, end: float) -> bool:
        while self.in_flight >= phase.max_in_flight:
            self._ended.clear()
            left_s = end - time.monotonic()
            if left_s <= 0:
                return False
            try:
                await asyncio.wait_for(self._ended.wait(), left_s)
            except TimeoutError:
                return False
        return True

    def _send(self, arrival: Arrival) -> None:
        self.in_flight += 1
        task = asyncio.create_task(self._ask(arrival.prompt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, prompt: Prompt) -> None:
        try:
            trace = await ask(self.client, self.model, prompt)
            self.traces.append(trace)
            self.on_trace(trace)
        finally:
            self.in_flight -= 1
            self._ended.set()
