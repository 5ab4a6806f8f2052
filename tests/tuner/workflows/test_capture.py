"""Capture on a real engine: opt-in, redacted, bounded, never of private routes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import CapturedRequest, Route, Setting
from tests.fixtures.sites import Clock, site_on
from tests.tuner.engine.server.running import RunningEngine
from tests.tuner.workflows.conftest import PROMPT
from tuner.store import captures
from tuner.store.captures import StoredCapture
from tuner.store.counterfactuals import Counterfactual
from tuner.workflows.capture import Captured, capture
from tuner.workflows.counterfactual import scored
from tuner.workflows.site import Site

Ask = Callable[..., None]


def stored(site: Site) -> tuple[StoredCapture, ...]:
    with site.store.reading() as session:
        return captures.listed(session, site.engine)


def test_a_captured_request_keeps_prompt_ids_and_sampling(site: Site, ask: Ask):
    capture(site)
    ask("chat", temperature=0.7, seed=3)

    assert capture(site) == Captured(stored=1, scored=1)

    (one,) = stored(site)
    assert one.request.prompt == PROMPT
    assert one.request.prompt_ids
    assert one.request.route == "chat"
    assert (one.request.sampling["temperature"], one.request.sampling["seed"]) == (0.7, 3)
    assert one.request.completion_tokens > 0


def test_nothing_is_captured_unless_the_settings_say_so(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, ask: Ask
):
    with site_on(migrated_file, tmp_path, engine.url) as off:
        capture(off)
        ask()

        assert capture(off) == Captured()
        assert engine.http.get("/spec/capture").json()["enabled"] is False


def test_switching_capture_off_reaches_the_engine(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine
):
    capture(site)
    assert engine.http.get("/spec/capture").json()["enabled"] is True

    with site_on(migrated_file, tmp_path, engine.url) as off:
        capture(off)

    assert engine.http.get("/spec/capture").json() == {
        "enabled": False,
        "share": 0.1,
        "per_route": 50,
        "private_routes": [],
        "held": 0,
    }


def test_secrets_never_reach_the_disk_in_text_or_in_ids(site: Site, ask: Ask, tmp_path: Path):
    capture(site)
    ask(prompt="mail ann@example.org the key sk-abcdefgh12345678", stop=["bob@example.org"])

    done = capture(site)

    (one,) = stored(site)
    assert (done.stored, done.redactions) == (1, 3)
    assert one.request.prompt == "mail [email] the key [key]"
    assert one.request.prompt_ids == ()
    assert one.request.sampling["stop"] == ["[email]"]
    on_disk = b"".join(path.read_bytes() for path in tmp_path.glob("spectuner.db*"))
    assert b"ann@example" not in on_disk
    assert b"bob@example" not in on_disk
    assert b"sk-abcdefgh" not in on_disk


def test_private_routes_are_never_captured_and_lose_what_they_had(
    site: Site, migrated_file: Path, tmp_path: Path, engine: RunningEngine, ask: Ask
):
    capture(site)
    ask("medical")
    capture(site)
    assert len(stored(site)) == 1

    with site_on(
        migrated_file,
        tmp_path,
        engine.url,
        capture_enabled=True,
        capture_share=1.0,
        routes=(Route(name="medical", is_private=True),),
    ) as private:
        assert capture(private).deleted == 1
        ask("medical")
        assert capture(private).stored == 0
        assert stored(private) == ()


def test_old_captures_and_those_beyond_the_bound_are_deleted(
    migrated_file: Path, tmp_path: Path, engine: RunningEngine, ask: Ask
):
    with site_on(
        migrated_file,
        tmp_path,
        engine.url,
        capture_enabled=True,
        capture_share=1.0,
        capture_per_route=2,
    ) as site:
        capture(site)
        deleted = 0
        for _ in range(4):
            ask()
            deleted += capture(site).deleted

        assert deleted == 2
        arrivals = [one.request.at for one in stored(site)]
        assert len(arrivals) == 2
        assert arrivals[-1] == max(one.at for one in site.collector.captures(0, 10).records)
        week_later = replace(site, clock=Clock(site.clock() + 8 * 86_400))
        assert capture(week_later).deleted == 2


def test_a_pull_stores_each_request_once_over_restarts(
    site: Site, migrated_file: Path, tmp_path: Path, fresh_engine: RunningEngine, ask: Ask
):
    capture(site)
    for _ in range(3):
        ask()
    assert capture(site).stored == 3
    assert capture(site).stored == 0

    with site_on(
        migrated_file, tmp_path, fresh_engine.url, capture_enabled=True, capture_share=1.0
    ) as restarted:
        capture(restarted)
        body = {"prompt": PROMPT, "max_tokens": 4}
        fresh_engine.http.post("/v1/completions", json=body).raise_for_status()

        assert capture(restarted).stored == 1
        assert capture(restarted).stored == 0
        assert len(stored(restarted)) == 4


def test_others_can_write_while_answers_are_scored(
    site: Site, ask: Ask, monkeypatch: pytest.MonkeyPatch
):
    """Long answers take seconds to score; SQLite lets one transaction write at a time."""
    written = []

    def scoring(
        requests: Iterable[CapturedRequest], arms: Sequence[Setting]
    ) -> tuple[Counterfactual, ...]:
        with site.store.writing() as session:
            written.append(captures.delete_before(session, 0.0))
        return scored(requests, arms)

    monkeypatch.setattr("tuner.workflows.capture.scored", scoring)
    capture(site)
    ask()

    assert capture(site).stored == 1
    assert written
