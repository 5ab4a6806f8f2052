from collections.abc import Iterator

import httpx
import pytest

from collectors.bundled import BundledCollector
from collectors.http import EngineAddress
from tests.fixtures.player import Player
from tests.tuner.workflows.conftest import player
from tuner.bench.service.journal import JournalBroken, JournalReader

__all__ = ["player"]


@pytest.fixture
def reader(player: Player) -> Iterator[JournalReader]:
    with httpx.Client(trust_env=False) as client:
        address = EngineAddress(base_url=player.url, client=client)
        yield JournalReader(collector=BundledCollector(engine="bundled", address=address))


def test_each_step_after_the_start_is_read_once(player: Player, reader: JournalReader) -> None:
    player.write(5)
    reader.skip()
    player.write(6_000)

    assert [step.seq for step in reader.steps()] == list(range(6, 6_006))
    assert reader.steps() == ()


def test_an_engine_that_restarted_cannot_be_measured(player: Player, reader: JournalReader) -> None:
    reader.skip()
    player.restart("boot-2")

    with pytest.raises(JournalBroken, match="restarted"):
        reader.steps()


def test_steps_that_were_overwritten_are_an_error(player: Player, reader: JournalReader) -> None:
    player.restart("boot-2", capacity=10)
    reader.skip()
    player.write(25)

    with pytest.raises(JournalBroken, match="15 journal records"):
        reader.steps()
