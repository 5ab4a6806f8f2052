"""Blocks made by hand, for the tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.records import LoadLevel
from tuner.bench.service.blocks import Block, Decoding, Level, Stretch

SECONDS = 5.0
LEVEL_1, LEVEL_4 = Level(concurrency=1), Level(concurrency=4)


def block(
    arm: str,
    turn: int,
    level: Level = LEVEL_1,
    *,
    tokens_per_s: float = 100.0,
    decoding: Mapping[tuple[str, LoadLevel], Decoding] | None = None,
    digest: str = "",
) -> Block:
    stretch = Stretch(
        round=turn, level=level, arm=arm, plan_digest=arm, spans=((10.0, 10.0 + SECONDS),)
    )
    return Block(
        stretch=stretch,
        digests=frozenset({digest or arm}),
        tokens=round(tokens_per_s * SECONDS),
        decoding=decoding or {},
    )
