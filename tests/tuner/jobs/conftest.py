from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import migrated_file
from tests.fixtures.player import Player, playing
from tests.fixtures.sites import Clock, site_on
from tuner.workflows.site import Site

__all__ = ["migrated_file"]

NOW_S = 1_764_504_000.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_S)


@pytest.fixture
def player() -> Iterator[Player]:
    with playing(Player()) as started:
        yield started


@pytest.fixture
def site(migrated_file: Path, tmp_path: Path, player: Player, clock: Clock) -> Iterator[Site]:
    with site_on(migrated_file, tmp_path, player.url, clock) as opened:
        yield opened


@pytest.fixture
def another_site(
    migrated_file: Path, tmp_path: Path, player: Player, clock: Clock, site: Site
) -> Iterator[Site]:
    """The same database and engine, as a second service has them."""
    with site_on(migrated_file, tmp_path, player.url, clock) as opened:
        yield opened


Run = Callable[[Site], object]
