from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.records import DecodeStep, FinishReason, JournalRecord
from tests.tuner.engine.server.running import slowed, tiny_settings
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.errors import (
    ContextTooLong,
    EngineUnavailable,
    InvalidRequest,
    QueueFull,
    RequestCancelled,
)
from tuner.engine.journal import Observer
from tuner.engine.loading import LoadedEngine, load_engine
from tuner.engine.loop import DeltaStream, EngineLoop
from tuner.engine.request import Delta, EngineRequest, SamplingParams


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny")


@contextmanager
def looping(
    model: Path, *observers: Observer, max_rows: int = 2, queue_limit: int = 8
) -> Iterator[tuple[EngineLoop, LoadedEngine]]:
    settings = tiny_settings(model, max_rows=max_rows, queue_limit=queue_limit)
    loaded = load_engine(settings, observers)
    loop = EngineLoop(loaded.core)
    loop.start()
    try:
        yield loop, loaded
    finally:
        loop.stop()


def request(name: str, *, max_tokens: int = 8, prompt: tuple[int, ...] = (5, 6)) -> EngineRequest:
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return EngineRequest(request_id=name, prompt_ids=prompt, sampling=sampling, route="chat")


async def collect(stream: DeltaStream) -> list[Delta]:
    return [delta async for delta in stream]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def test_a_stream_ends_with_the_delta_that_finishes(model: Path):
    with looping(model) as (loop, _):

        async def ask() -> list[Delta]:
            return await collect(await loop.stream(request("a")))

        deltas = asyncio.run(ask())

    assert [delta.finish_reason for delta in deltas] == [None] * 7 + [FinishReason.LENGTH]
    assert sum(len(delta.token_ids) for delta in deltas) == 8


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (request("a", prompt=()), InvalidRequest),
        (request("a", prompt=(5,) * 300), ContextTooLong),
        (request("a", prompt=(5000,)), InvalidRequest),
    ],
)
def test_what_the_core_refuses_is_raised_to_the_asker_and_the_engine_goes_on(
    model: Path, wrong: EngineRequest, error: type[Exception]
):
    with looping(model) as (loop, _):

        async def ask() -> list[Delta]:
            with pytest.raises(error):
                await loop.stream(wrong)
            return await collect(await loop.stream(request("b")))

        assert len(asyncio.run(ask())) == 8


def test_beyond_the_queue_the_asker_is_told_and_nobody_else_suffers(model: Path):
    with looping(model, slowed(0.005), max_rows=1, queue_limit=2) as (loop, _):

        async def ask() -> list[int | str]:
            first = await loop.stream(request("first", max_tokens=30))
            await anext(first)

            async def one(number: int) -> int | str:
                try:
                    return len(await collect(await loop.stream(request(f"r{number}"))))
                except QueueFull as error:
                    return str(error)

            return await asyncio.gather(*(one(number) for number in range(5)))

        results = asyncio.run(ask())

    assert results.count(8) == 2
    assert sum("the limit is 2" in str(result) for result in results) == 3


def test_an_idle_engine_sleeps(model: Path):
    with looping(model) as (loop, loaded):
        asyncio.run(_ask_one(loop))
        before = loaded.journal.last_seq
        assert any(_cpu_share(0.3) < 0.05 for _ in range(10))
        assert loaded.journal.last_seq == before
        assert len(asyncio.run(_ask_one(loop))) == 8


def _cpu_share(seconds: float) -> float:
    """Return the share of a core that this process used for so long."""
    before = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) / seconds


async def _ask_one(loop: EngineLoop) -> list[Delta]:
    return await collect(await loop.stream(request("one")))


def fail_after(num_steps: int) -> Observer:
    """Return an observer that breaks the engine's step, as any fault inside it would."""
    seen = 0

    def fail(record: JournalRecord) -> None:
        nonlocal seen
        seen += isinstance(record, DecodeStep)
        if seen > num_steps:
            raise RuntimeError("memory\nis gone")

    return fail


def test_a_fatal_fault_ends_every_open_request_and_refuses_new_ones(
    model: Path, caplog: pytest.LogCaptureFixture
):
    told = r"fatal fault \(RuntimeError: memory is gone\); restart it"
    with looping(model, fail_after(5)) as (loop, _):

        async def ask() -> None:
            streams = [await loop.stream(request(f"r{n}", max_tokens=50)) for n in range(4)]
            for stream in streams:
                with pytest.raises(EngineUnavailable, match=told):
                    await collect(stream)
            with pytest.raises(EngineUnavailable, match=told):
                await loop.stream(request("late"))

        asyncio.run(ask())

        assert loop.fault is not None
        assert "\n" not in loop.fault
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_cancelled_request_frees_its_slot_and_disturbs_no_other(model: Path):
    with looping(model, slowed(0.005)) as (loop, loaded):

        async def ask() -> list[Delta]:
            gone = await loop.stream(request("gone", max_tokens=200))
            kept = await loop.stream(request("kept", max_tokens=20))
            await anext(gone)
            threading.Thread(target=loop.cancel, args=("gone",)).start()
            with pytest.raises(RequestCancelled):
                await collect(gone)
            return await collect(kept)

        kept = asyncio.run(ask())

        assert sum(len(delta.token_ids) for delta in kept) == 20
        assert loaded.core.num_running == 0
        assert not loop.has_open_requests


def test_cancelling_what_is_finished_or_unknown_changes_nothing(model: Path):
    with looping(model) as (loop, _):

        async def ask() -> None:
            stream = await loop.stream(request("a"))
            await collect(stream)
            stream.cancel()
            loop.cancel("never")
            assert await collect(stream) == []

        asyncio.run(ask())
        assert len(asyncio.run(_ask_one(loop))) == 8


def test_an_asker_that_is_cancelled_while_it_hands_over_leaves_nothing_behind(model: Path):
    with looping(model, slowed(0.02), max_rows=1) as (loop, loaded):

        async def ask() -> None:
            first = await loop.stream(request("first", max_tokens=100))
            await anext(first)
            handing = asyncio.create_task(loop.stream(request("second", max_tokens=100)))
            await asyncio.sleep(0)
            handing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await handing
            first.cancel()

        asyncio.run(ask())
        assert within(60, lambda: not loaded.core.has_work and not loop.has_open_requests)


def test_an_event_loop_that_is_gone_has_its_requests_cancelled(model: Path):
    with looping(model, slowed(0.005)) as (loop, loaded):

        async def leave() -> None:
            await loop.stream(request("left", max_tokens=200))

        asyncio.run(leave())

        assert within(60, lambda: not loaded.core.has_work)
        assert len(asyncio.run(_ask_one(loop))) == 8


def test_askers_in_two_event_loops_get_their_own_deltas(model: Path):
    with looping(model) as (loop, _):
        results: dict[str, list[Delta]] = {}

        def ask(name: str) -> None:
            async def one() -> list[Delta]:
                return await collect(await loop.stream(request(name, max_tokens=40)))

            results[name] = asyncio.run(one())

        askers = [threading.Thread(target=ask, args=(name,)) for name in ("a", "b")]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()

    for name in ("a", "b"):
        assert {delta.request_id for delta in results[name]} == {name}
        assert sum(len(delta.token_ids) for delta in results[name]) == 40


def test_stopping_ends_open_requests_with_the_reason(model: Path):
    with looping(model, slowed(0.005)) as (loop, _):

        async def ask(then: Callable[[], Awaitable[None]]) -> None:
            stream = await loop.stream(request("a", max_tokens=200))
            await anext(stream)
            await then()
            with pytest.raises(EngineUnavailable, match="the engine is shutting down"):
                await collect(stream)
            with pytest.raises(EngineUnavailable, match="the engine is shutting down"):
                await loop.stream(request("late"))

        asyncio.run(ask(lambda: asyncio.to_thread(loop.stop)))
        loop.stop()
        loop.cancel("a")


def test_a_loop_that_never_started_can_be_stopped(model: Path):
    loop = EngineLoop(load_engine(tiny_settings(model)).core)
    loop.stop()

    assert loop.fault == "the engine is shutting down"
