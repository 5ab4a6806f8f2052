from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.errors import InvalidRecord, SourceUnreachable
from tests.fixtures.player import Player, played_step
from tests.fixtures.sites import Clock, site_on
from tuner.errors import JournalWentBack
from tuner.store import facts, samples
from tuner.store.facts import JournalTotals
from tuner.workflows.ingest import Ingested, ingest, sample_devices
from tuner.workflows.site import Site


@pytest.fixture
def clock() -> Clock:
    return Clock(5_000.0)


@pytest.fixture
def site(migrated_file: Path, tmp_path: Path, player: Player, clock: Clock) -> Iterator[Site]:
    with site_on(migrated_file, tmp_path, player.url, clock) as opened:
        yield opened


def totals(site: Site) -> JournalTotals:
    with site.store.reading() as session:
        return facts.totals(session, site.engine)


def cursor(site: Site) -> facts.Cursor:
    with site.store.reading() as session:
        found = facts.latest_cursor(session, site.engine)
    assert found is not None
    return found


def test_everything_is_pulled_page_by_page(site: Site, player: Player):
    player.write(25)

    done = ingest(site, page_records=10)

    assert done == Ingested(stored=25, boots=1, last_seq=25)
    assert [query["after"] for _, _, query in player.requests] == ["0", "10", "20"]
    assert totals(site) == JournalTotals(boots=1, journalled=25, stored=25, lost=0)


def test_a_second_pull_goes_on_where_the_first_ended(site: Site, player: Player):
    player.write(5)
    ingest(site)
    player.write(3)

    assert ingest(site) == Ingested(stored=3, last_seq=8)
    assert ingest(site) == Ingested(last_seq=8)


def test_an_empty_journal_is_caught_up_with(site: Site, clock: Clock):
    assert ingest(site) == Ingested(boots=1)
    assert cursor(site).caught_up_s == clock.now_s


def test_a_restart_of_the_engine_begins_a_new_boot(site: Site, player: Player):
    player.write(5)
    ingest(site)
    player.restart("boot-2")
    player.write(2)

    assert ingest(site) == Ingested(stored=2, boots=1, last_seq=2)
    assert cursor(site).boot_id == "boot-2"
    assert totals(site) == JournalTotals(boots=2, journalled=7, stored=7, lost=0)


def test_a_boot_that_comes_back_goes_on_at_its_own_cursor(site: Site, player: Player):
    player.write(5)
    ingest(site)
    first = player.journal
    player.restart("boot-2")
    player.write(2)
    ingest(site)
    player.journal = first
    player.write(1)

    assert ingest(site) == Ingested(stored=1, last_seq=6)
    assert totals(site).stored == 8


def test_what_was_overwritten_is_counted_as_lost(site: Site, player: Player):
    player.restart("small", capacity=10)
    player.write(4)
    ingest(site)
    player.write(20)

    assert ingest(site) == Ingested(stored=10, lost=10, last_seq=24)
    assert totals(site) == JournalTotals(boots=1, journalled=24, stored=14, lost=10)


def test_a_journal_that_went_back_in_one_boot_is_an_error(site: Site, player: Player):
    player.write(5)
    ingest(site)
    player.restart("boot-1")
    player.write(2)

    with pytest.raises(JournalWentBack, match="ends at 2, but 5 was read before"):
        ingest(site)


def test_an_invalid_record_is_named_and_stops_before_its_page(site: Site, player: Player):
    player.write(3)
    bad = player.journal.page(0, 10).to_dict()
    bad["records"][1]["verify_s"] = "fast"  # type: ignore[index]
    player.overrides["/spec/steps"] = (200, bad)

    with pytest.raises(InvalidRecord, match="record 2 is invalid: verify_s must be a finite"):
        ingest(site)

    del player.overrides["/spec/steps"]
    assert ingest(site).stored == 3


def test_an_engine_that_is_away_leaves_what_was_stored(site: Site, player: Player):
    player.write(5)
    ingest(site)
    player.overrides["/spec/steps"] = (503, {"error": {"message": "the engine is loading"}})

    with pytest.raises(SourceUnreachable, match="503: the engine is loading"):
        ingest(site)

    assert totals(site).stored == 5


def test_an_old_pull_is_no_proof_of_having_caught_up(site: Site, player: Player, clock: Clock):
    player.write(5)
    ingest(site)
    clock.now_s += 100
    player.overrides["/spec/steps"] = (500, {})
    with pytest.raises(SourceUnreachable):
        ingest(site)

    assert cursor(site).caught_up_s == clock.now_s - 100


def test_load_and_devices_are_sampled(site: Site, player: Player):
    player.overrides["/spec/load"] = (
        200,
        {
            "at": 1.5,
            "boot_id": "boot-1",
            "running": 3,
            "waiting": 2,
            "kv_used_ratio": 0.25,
            "plan_digest": "d",
        },
    )

    line = sample_devices(site)

    assert line.startswith("3 running, 2 waiting")
    with site.store.reading() as session:
        sample = samples.latest_engine(session, site.engine)
    assert sample is not None
    assert (sample.running, sample.waiting, sample.kv_used_ratio) == (3, 2, 0.25)


def test_a_step_reaches_the_store_as_it_was_written(site: Site, player: Player):
    player.write(1)
    ingest(site)

    with site.store.reading() as session:
        assert facts.first_at_s(session, site.engine) == played_step(1).at
        assert facts.last_at_s(session, site.engine) == played_step(1).at
