"""Several answers read as one, in the order in which their deltas come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from tuner.engine.loop import DeltaStream
from tuner.engine.request import Delta


async def merged(streams: Sequence[DeltaStream]) -> AsyncGenerator[tuple[int, Delta]]:
    """Yield each delta with the index of its stream; end when all have ended.

    Raises:
        EngineError: one of them failed.
    """
    if len(streams) == 1:
        async for only in streams[0]:
            yield 0, only
        return
    waits = {asyncio.ensure_future(anext(stream, None)): n for n, stream in enumerate(streams)}
    try:
        while waits:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in sorted(done, key=waits.__getitem__):
                index, delta = waits.pop(wait), wait.result()
                if delta is not None:
                    waits[asyncio.ensure_future(anext(streams[index], None))] = index
                    yield index, delta
    finally:
        for wait in waits:
            wait.cancel()
