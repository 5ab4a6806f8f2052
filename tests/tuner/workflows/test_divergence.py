"""Divergence reports on a real engine with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import OFF, Plan, Setting
from policy.types import Evidence, Trial
from tests.fixtures.facts import DRAFT_3, LOOKUP_5
from tests.fixtures.player import Player
from tests.fixtures.said import LOAD_1, said
from tests.fixtures.sites import site_on
from tuner.errors import BadRequest, Interrupted, NothingToDo
from tuner.store import divergences, recommendations
from tuner.workflows.capture import capture
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.rounds import divergence_round, replay_round
from tuner.workflows.site import Site

Ask = Callable[..., None]
SMALL = DivergenceOptions(requests=4, max_tokens=16)


@pytest.fixture
def full(site: Site, ask: Ask) -> Site:
    """A site with twenty captured requests of several lengths, some of them sampled."""
    capture(site)
    for number in range(20):
        ask(
            "chat",
            prompt=f"the user is number {number} and the answer is " * (1 + number % 3),
            temperature=0.7 if number % 2 else 0.0,
            repetition_penalty=1.3,
        )
    capture(site)
    return site


@pytest.mark.parametrize("setting", [DRAFT_3, LOOKUP_5])
def test_greedy_outputs_of_every_method_equal_plain_ones(full: Site, setting: Setting):
    done = divergence(full, setting, DivergenceOptions(requests=20, max_tokens=24))

    assert done.summary.tested.identical + done.summary.tested.near_tie == 20
    assert done.summary.control.pairs == 20
    assert done.summary.diverges is False, done.summary.verdict
    with full.store.reading() as session:
        assert divergences.one(session, done.id).summary == done.summary
        assert divergences.pairs(session, done.id) == done.pairs


def test_too_few_prompts_pass_no_judgement(full: Site):
    done = divergence(full, DRAFT_3, SMALL)

    assert done.summary.diverges is None
    assert "inconclusive" in done.summary.verdict
    assert not done.summary.is_passing


def test_progress_covers_all_three_arms(full: Site):
    seen: list[tuple[int, int]] = []

    divergence(full, DRAFT_3, SMALL, on_answer=lambda done, total: seen.append((done, total)))

    assert seen == [(number, 12) for number in range(1, 13)]


def test_a_service_that_stops_stores_no_half_report(full: Site):
    def stop(done: int, total: int) -> None:
        full.stopping.set()

    with pytest.raises(Interrupted):
        divergence(full, DRAFT_3, SMALL, on_answer=stop)

    with full.store.reading() as session:
        assert divergences.listed(session) == ()


def test_without_captures_it_says_how_to_get_some(site: Site):
    with pytest.raises(NothingToDo, match="SPECTUNER_CAPTURE_ENABLED"):
        divergence(site, DRAFT_3, SMALL)


def test_the_control_must_differ_from_the_reference():
    with pytest.raises(BadRequest, match="concurrency must be 2 to 32"):
        DivergenceOptions(concurrency=1)


def answer_of(tokens: list[int], margin: float, setting: Mapping[str, object]) -> bytes:
    choice = {
        "token_ids": tokens,
        "finish_reason": "length",
        "logprobs": {"top_token_logprobs": [[-0.1, -0.1 - margin]] * len(tokens)},
    }
    spectuner = {"setting": setting, "passes": 3, "verify_passes": 0}
    lines = [{"choices": [choice]}, {"choices": [], "metrics": {"spectuner": spectuner}}]
    return "".join(f"data: {json.dumps(line)}\n\n" for line in lines).encode()


class Unfaithful:
    """Streams other tokens whenever speculation is asked for."""

    def __init__(self, player: Player, margin: float) -> None:
        self._player, self._margin, self._count = player, margin, 0

    def __call__(self, _query: Mapping[str, str]) -> tuple[int, bytes]:
        is_tested = self._count >= 8
        self._count += 1
        tokens = [1, 2, 4] if is_tested else [1, 2, 3]
        setting = DRAFT_3 if is_tested else OFF
        return 200, answer_of(tokens, self._margin, setting.to_dict())


@pytest.mark.parametrize(
    ("margin", "kind", "diverges"), [(0.5, "suspicious", True), (0.00005, "near_tie", None)]
)
def test_a_difference_is_judged_by_the_margin_where_it_falls(
    full: Site,
    migrated_file: Path,
    tmp_path: Path,
    player: Player,
    margin: float,
    kind: str,
    diverges: bool | None,
):
    player.overrides["/spec/capabilities"] = (200, full.address.get("/spec/capabilities"))
    player.overrides["/v1/completions"] = Unfaithful(player, margin)
    with site_on(migrated_file, tmp_path, player.url) as unfaithful:
        done = divergence(unfaithful, DRAFT_3, SMALL)

    tested = [pair for pair in done.pairs if pair.arm == "tested"]
    assert {pair.kind for pair in tested} == {kind}
    assert {pair.split_at for pair in tested} == {2}
    assert [pair.margin for pair in tested] == [pytest.approx(margin)] * 4
    assert done.summary.control.identical == 4
    assert done.summary.diverges is diverges


def test_rounds_take_the_setting_that_was_proved_least_lately(full: Site):
    quick = replace(full, settings=full.settings.model_copy(update={"replay_requests": 2}))
    capabilities = full.collector.capabilities()
    arms = [
        arm.label
        for arm in full.settings.arms
        if arm != OFF and capabilities.unsupported_reason(arm) is None
    ]
    assert len(arms) > 2

    replayed = [replay_round(quick) for _ in arms]
    reported = [divergence_round(quick) for _ in arms]

    for label, replay_line, report_line in zip(arms, replayed, reported, strict=True):
        assert label in replay_line
        assert label in report_line


def test_a_round_without_captures_says_so(site: Site, migrated_file: Path, tmp_path: Path):
    assert replay_round(site) == "no request with a decode pass is captured yet"
    with site_on(migrated_file, tmp_path, site.settings.engine_url) as off:
        assert "capture is off" in divergence_round(off)


def test_a_replay_that_a_recommendation_asks_for_comes_first_and_once(site: Site, ask: Ask):
    capture(site)
    ask("chat")
    capture(site)
    wanted = site.possible_arms()[-1]
    trial = Trial(
        setting=wanted, by=Evidence.REPLAY, load=LOAD_1, most_gain=0.2, most_token_share=0.0
    )
    asking = replace(said("chat"), trials=(trial,))
    with site.store.writing() as session:
        recommendations.add(session, site.engine, asking, Plan(), who="recommend", at=site.now())

    first, second = replay_round(site), replay_round(site)

    assert f"{wanted.label} on chat" in first
    assert " on chat: " in first
    assert " on chat: " not in second
