"""Shadow replay on a real engine with a tiny model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from collectors.records import OFF, DecodeStep, RequestTrace, Setting
from policy.types import Evidence
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.player import Player
from tests.fixtures.sites import site_on
from tuner.errors import BadRequest, Interrupted, NothingToDo
from tuner.store import pinned, replays
from tuner.store.replays import ReplayState
from tuner.workflows.capture import capture
from tuner.workflows.ingest import ingest
from tuner.workflows.observe import window_of
from tuner.workflows.replay import ReplayOptions, replay
from tuner.workflows.site import Site
from tuner.workflows.turns import chosen_captures

Ask = Callable[..., None]


@pytest.fixture
def full(site: Site, ask: Ask) -> Site:
    """A site with six captured requests on two routes."""
    capture(site)
    for route in ("chat", "story") * 3:
        ask(route, max_tokens=16)
    capture(site)
    return site


def test_both_arms_run_every_request_at_the_setting_asked_for(full: Site):
    report = replay(full, OFF, DRAFT_3, ReplayOptions(requests=6))

    assert (report.summary.pairs, report.summary.void_pairs) == (6, 0)
    assert {pair.base.setting for pair in report.pairs} == {OFF}
    assert {pair.other.setting for pair in report.pairs} == {DRAFT_3}
    assert [pair.place for pair in report.pairs] == list(range(6))
    assert report.summary.base_tokens_per_pass == 1.0
    assert report.summary.other_tokens_per_pass is not None
    assert report.summary.other_tokens_per_pass > 2.0
    assert all(pair.base.tokens == pair.other.tokens > 0 for pair in report.pairs)


def test_a_replay_is_stored_with_its_configurations(full: Site):
    report = replay(full, OFF, LOOKUP_5, ReplayOptions(requests=2, concurrency=2))

    with full.store.reading() as session:
        stored = replays.one(session, report.id)
        assert replays.pairs(session, report.id) == report.pairs
        base, other = pinned.one(session, stored.base), pinned.one(session, stored.other)
    assert (stored.state, stored.summary) == (ReplayState.DONE, report.summary)
    assert (base.setting, other.setting) == (OFF, LOOKUP_5)
    assert base.weights_hash == other.weights_hash
    assert stored.options["concurrency"] == 2


def test_the_order_of_the_arms_does_not_change_acceptance(full: Site):
    """Field case F16."""
    ahead = replay(full, OFF, DRAFT_3, ReplayOptions(requests=4))
    back = replay(full, DRAFT_3, OFF, ReplayOptions(requests=4))

    forth = [(pair.other.passes, pair.other.accepted) for pair in ahead.pairs]
    assert forth == [(pair.base.passes, pair.base.accepted) for pair in back.pairs]


def test_the_arm_that_goes_first_alternates_and_blocks_hold_one_arm(full: Site):
    full.address.send("PUT", "/spec/capture", body={"enabled": False})
    before = full.collector.steps(0, 1).last_seq
    replay(full, OFF, DRAFT_3, ReplayOptions(requests=4, concurrency=2))

    steps = [
        record
        for record in full.collector.steps(before, 5000).records
        if isinstance(record, DecodeStep)
    ]
    arms = [{one.setting for one in step.groups} for step in steps if step.groups]
    order = [next(iter(arm)).label for arm in arms]
    changes = [label for label, _ in itertools.groupby(order)]
    assert all(len(arm) == 1 for arm in arms)
    assert changes == ["off", "draft_model k=3", "off"]


def test_replayed_rows_are_shadow_traffic_and_count_as_replay_evidence(full: Site):
    began_s = chosen_captures(full, None, 6)[0].request.at
    replay(full, OFF, DRAFT_3, ReplayOptions(requests=4))
    ingest(full)

    with full.store.reading() as session:
        window = window_of(session, full.engine, began_s, 4e9)
    replayed = {one.setting for one in window.observations if one.evidence is Evidence.REPLAY}
    live = {one.setting for one in window.observations if one.evidence is Evidence.LIVE}
    assert replayed == {OFF, DRAFT_3}
    assert live == {OFF}
    assert sum(one.requests for one in window.requests) == 6


def test_replayed_requests_are_never_captured_again(full: Site):
    replay(full, OFF, DRAFT_3, ReplayOptions(requests=6))

    assert capture(full).stored == 0


def test_redacted_prompts_are_replayed_as_text(site: Site, ask: Ask):
    capture(site)
    for _ in range(2):
        ask(prompt="write to ann@example.org and say that the answer is short")
    capture(site)

    report = replay(site, OFF, DRAFT_3, ReplayOptions())

    assert (report.summary.pairs, report.summary.void_pairs) == (2, 0)


def test_requests_are_spread_over_the_routes_in_order_of_arrival(site: Site, ask: Ask):
    capture(site)
    for route in ("chat", "chat", "chat", "chat", "story"):
        ask(route)
    capture(site)

    chosen = chosen_captures(site, None, 3)

    assert [one.request.route for one in chosen] == ["chat", "chat", "story"]
    assert [one.request.at for one in chosen] == sorted(one.request.at for one in chosen)
    assert len(chosen_captures(site, "story", 10)) == 1


def test_without_captures_it_says_how_to_get_some(site: Site):
    with pytest.raises(NothingToDo, match="SPECTUNER_CAPTURE_ENABLED=true"):
        replay(site, OFF, DRAFT_3, ReplayOptions())
    with pytest.raises(NothingToDo, match="of route nowhere"):
        replay(site, OFF, DRAFT_3, ReplayOptions(route="nowhere"))


def test_a_setting_that_the_engine_cannot_run_is_refused_before_anything_runs(full: Site):
    unknown = Setting(method=DRAFT_3.method, k=3, drafter="nobody")

    with pytest.raises(BadRequest, match="drafter 'nobody'"):
        replay(full, OFF, unknown, ReplayOptions())

    with full.store.reading() as session:
        assert replays.listed(session) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requests": 0}, "requests must be at least 1, got 0"),
        ({"concurrency": 33}, "concurrency must be 1 to 32, got 33"),
        ({"gap_scale": -1.0}, "gap scale must be 0 to 100"),
        ({"max_tokens": 0}, "max tokens must be at least 2"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, int], message: str):
    with pytest.raises(BadRequest, match=message):
        ReplayOptions(**options)  # type: ignore[arg-type]


def test_gaps_between_arrivals_are_kept_within_a_block(full: Site):
    waits: list[float] = []

    replay(
        full,
        OFF,
        DRAFT_3,
        ReplayOptions(requests=2, concurrency=2, gap_scale=1.0),
        sleep=waits.append,
    )

    first, second = (one.request.at for one in chosen_captures(full, None, 2))
    assert waits == [pytest.approx(second - first)] * 2


def test_a_service_that_stops_ends_its_replay_between_two_blocks(full: Site):
    def stop(done: int, total: int) -> None:
        full.stopping.set()

    with pytest.raises(Interrupted):
        replay(full, OFF, DRAFT_3, ReplayOptions(requests=3), on_pair=stop)

    with full.store.reading() as session:
        (stored,) = replays.listed(session)
    assert stored.state is ReplayState.FAILED
    assert stored.error is not None
    assert stored.error.startswith("stopped after 1 of 3 pairs")
    assert stored.summary.pairs == 1


def streamed(*events: Mapping[str, object]) -> bytes:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def played_answer(setting: Setting) -> bytes:
    metrics = {
        "spectuner": {"setting": setting.to_dict(), "passes": 2, "verify_passes": 2},
        "speculative_decoding": {"num_draft_tokens": 6, "num_accepted_draft_tokens": 1},
    }
    choice = {"token_ids": [5, 6, 7], "logprobs": None, "finish_reason": "length"}
    chunk = {"choices": [choice]}
    return streamed(chunk, {"choices": [], "metrics": metrics})


def test_an_engine_that_runs_another_setting_makes_the_pair_void(
    full: Site, migrated_file: Path, tmp_path: Path, player: Player
):
    """Field case F16: what counts is the Setting in force, not the one asked for."""
    capabilities = full.address.get("/spec/capabilities")
    player.overrides["/spec/capabilities"] = (200, capabilities)
    player.overrides["/v1/completions"] = (200, played_answer(OFF))
    with site_on(migrated_file, tmp_path, player.url) as stubborn:
        report = replay(stubborn, OFF, DRAFT_3, ReplayOptions(requests=2))

    assert (report.summary.pairs, report.summary.void_pairs) == (0, 2)
    assert report.pairs[0].void_reason == "other: asked for draft_model k=3, but off was in force"
    with full.store.reading() as session:
        stored = replays.one(session, report.id)
    assert stored.state is ReplayState.FAILED
    assert stored.error is not None
    assert "no pair counts" in stored.error


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, {"error": {"message": "the core is gone"}}), "500: the core is gone"),
        ((400, {"error": {"message": "prompt too long"}}), "400: prompt too long"),
        ((200, streamed({"error": {"message": "the engine ends"}})), "gave up: the engine ends"),
        ((200, b"data: {oops\n\n"), "not JSON"),
        ((200, streamed({"choices": []})), "no token was delivered"),
        (
            (200, streamed({"choices": [{"token_ids": [5, 6]}]}) + b"data: [DONE]\n\n"),
            "the stream ended without a finish reason",
        ),
        (
            (200, streamed({"choices": [{"token_ids": [5], "finish_reason": "length"}]})),
            "no decode pass",
        ),
        (
            (200, streamed({"choices": [{"token_ids": [5, 6], "finish_reason": "length"}]})),
            "did not say which Setting was in force",
        ),
    ],
)
def test_a_failed_request_makes_its_pair_void_and_says_why(
    full: Site,
    migrated_file: Path,
    tmp_path: Path,
    player: Player,
    answer: tuple[int, Mapping[str, object] | bytes],
    reason: str,
):
    player.overrides["/spec/capabilities"] = (200, full.address.get("/spec/capabilities"))
    player.overrides["/v1/completions"] = answer
    with site_on(migrated_file, tmp_path, player.url) as failing:
        report = replay(failing, OFF, DRAFT_3, ReplayOptions(requests=1))

    assert report.pairs[0].void_reason is not None
    assert reason in report.pairs[0].void_reason


def test_a_full_queue_is_waited_for_as_long_as_the_engine_asks(
    full: Site, migrated_file: Path, tmp_path: Path, player: Player
):
    tries: list[int] = []

    def sometimes(_query: Mapping[str, str]) -> tuple[int, Mapping[str, object] | bytes]:
        tries.append(1)
        if len(tries) == 1:
            return 429, {"error": {"message": "the queue is full"}}
        return 200, played_answer(OFF if len(tries) == 2 else DRAFT_3)

    waits: list[float] = []
    player.overrides["/spec/capabilities"] = (200, full.address.get("/spec/capabilities"))
    player.overrides["/v1/completions"] = sometimes
    with site_on(migrated_file, tmp_path, player.url) as busy:
        report = replay(busy, OFF, DRAFT_3, ReplayOptions(requests=1), sleep=waits.append)

    assert waits == [1.0]
    assert report.pairs[0].void_reason is None


def test_the_engine_is_told_that_requests_are_shadow_traffic_of_their_route(full: Site):
    before = full.collector.steps(0, 1).last_seq

    replay(full, OFF, DRAFT_3, ReplayOptions(requests=2))

    records = full.collector.steps(before, 5000).records
    traces = [record for record in records if isinstance(record, RequestTrace)]
    assert [trace.is_shadow for trace in traces] == [True] * 4
    assert sorted(trace.route for trace in traces) == ["chat", "chat", "story", "story"]
