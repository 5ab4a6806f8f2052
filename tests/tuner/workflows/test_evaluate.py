"""The gate by route, on a real engine with a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collectors.records import OFF, Plan, load_level_of
from policy.divergence import MIN_PAIRS
from policy.gate import MIN_CLUSTERS
from tests.fixtures.facts import DRAFT_3
from tests.fixtures.said import said
from tuner.api.gates import SiteGatekeeper
from tuner.errors import NotEvaluated, NothingToDo
from tuner.store import evaluations, gate_runs, recommendations, replays, route_proofs
from tuner.store.evaluations import Evaluation
from tuner.store.gate_runs import GateState
from tuner.store.recommendations import StoredRecommendation
from tuner.workflows.capture import capture
from tuner.workflows.divergence import DivergenceOptions, divergence
from tuner.workflows.evaluate import (
    evaluate,
    missing_reason,
    proposed_settings,
    require_evaluations,
    unmeasured_note,
)
from tuner.workflows.gate import SILENT, ask_gate, evaluate_pending, run_asked
from tuner.workflows.replay import ReplayOptions, pin, replay
from tuner.workflows.site import Site

Ask = Callable[..., None]
ONE, FIVE = load_level_of(1), load_level_of(5)


def fill(ask: Ask, site: Site, route: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        ask(route, prompt=f"the user is number {number} and the answer is ")
    capture(site)


@pytest.fixture
def quick(site: Site) -> Site:
    """A site whose gate takes few requests, with capture on."""
    capture(site)
    changes = {"gate_requests": MIN_CLUSTERS, "require_evaluation": True}
    return replace(site, settings=site.settings.model_copy(update=changes))


def proposing(site: Site, route: str) -> StoredRecommendation:
    with site.store.writing() as session:
        found = recommendations.add(
            session, site.engine, said(route), Plan(), who="recommend", at=site.now()
        )
    assert found is not None
    return found


def test_an_evaluation_is_made_of_a_report_and_a_replay_of_its_route(quick: Site, ask: Ask):
    fill(ask, quick, "chat", MIN_PAIRS)
    fill(ask, quick, "story", 2)

    verdict = evaluate(quick, DRAFT_3, "chat")

    assert verdict.divergence is not None
    assert verdict.replay is not None
    assert (verdict.route, verdict.load) == ("chat", "1")
    missing = missing_reason(quick, DRAFT_3, "chat", (ONE,))
    assert (missing is None) is verdict.is_passing
    again = evaluate(quick, DRAFT_3, "chat")
    assert (again.divergence, again.replay) == (verdict.divergence, verdict.replay)
    with quick.store.reading() as session:
        assert {pair.route for pair in replays.pairs(session, verdict.replay)} == {"chat"}
    elsewhere = missing_reason(quick, DRAFT_3, "story", (ONE,))
    assert elsewhere is not None
    assert "draft_model k=3 on story has no evaluation" in elsewhere
    assert missing_reason(quick, OFF, "story", (ONE,)) is None


def test_too_few_requests_pass_nothing_until_more_are_captured(quick: Site, ask: Ask):
    fill(ask, quick, "chat", 4)
    few = evaluate(quick, DRAFT_3, "chat")
    assert not few.is_passing
    assert not few.outputs_pass
    assert "too few pairs on chat at load 1 (4 of " in " ".join(few.reasons)
    again = evaluate(quick, DRAFT_3, "chat")
    assert (again.divergence, again.replay) == (few.divergence, few.replay)
    fill(ask, quick, "chat", MIN_PAIRS, first=4)

    enough = evaluate(quick, DRAFT_3, "chat")

    assert enough.divergence != few.divergence
    assert enough.replay != few.replay
    assert enough.outputs_pass


def passed(site: Site, route: str, *, is_passing: bool) -> Evaluation:
    (digest,) = pin(site, (DRAFT_3,))
    verdict = Evaluation(
        digest=digest,
        at=site.now(),
        is_passing=is_passing,
        outputs_pass=True,
        reasons=("slower on chat at load 1",),
        divergence=None,
        replay=None,
        route=route,
        load="1",
    )
    with site.store.writing() as session:
        evaluations.add(session, verdict)
    return verdict


def test_speed_counts_where_it_was_replayed_and_elsewhere_outputs_do(quick: Site):
    verdict = passed(quick, "chat", is_passing=False)

    slower = missing_reason(quick, DRAFT_3, "chat", (ONE, FIVE))
    assert slower is not None
    assert "did not pass: slower on chat at load 1" in slower
    assert missing_reason(quick, DRAFT_3, "chat", (FIVE,)) is None
    note = unmeasured_note((ONE, FIVE), verdict)
    assert note is not None
    assert note.startswith("speed at load 5-8 was not replayed (pairs ran at load 1)")
    assert unmeasured_note((ONE,), verdict) is None


def test_a_recommendation_over_its_route_is_refused_on_evidence_of_another(quick: Site):
    stored = proposing(quick, "chat")
    (digest, *_) = pin(quick, proposed_settings(stored))
    passed(quick, "story", is_passing=True)

    with pytest.raises(NotEvaluated, match="on chat has no evaluation"):
        require_evaluations(quick, stored)

    with quick.store.reading() as session:
        assert evaluations.latest(session, digest, "chat") is None


def test_who_asks_twice_gets_one_evaluation_with_its_progress(quick: Site, ask: Ask):
    fill(ask, quick, "chat", MIN_CLUSTERS)
    (digest,) = pin(quick, (DRAFT_3,))

    assert ask_gate(quick, DRAFT_3, "chat", who="Ada")
    assert not ask_gate(quick, DRAFT_3, "chat", who="Bo")
    note = run_asked(quick)

    assert note.startswith("draft_model k=3 on chat ")
    assert run_asked(quick) == "nothing was asked for"
    with quick.store.reading() as session:
        run = gate_runs.latest(session, engine=quick.engine, route="chat", digest=digest)
    assert run is not None
    assert (run.state, run.who, run.phase) == (GateState.DONE, "Ada", "speed")
    assert 0 < run.done <= run.total == MIN_CLUSTERS
    assert run.evaluation is not None
    assert ask_gate(quick, DRAFT_3, "chat", who="Bo")


def test_an_evaluation_without_requests_says_why(quick: Site):
    ask_gate(quick, DRAFT_3, "chat", who="Ada")

    assert "no request of route chat is captured" in run_asked(quick)

    with quick.store.reading() as session:
        (digest,) = pin(quick, (DRAFT_3,))
        run = gate_runs.latest(session, engine=quick.engine, route="chat", digest=digest)
    assert run is not None
    assert run.state is GateState.FAILED
    assert "no request of route chat" in (run.error or "")


def test_what_is_proposed_is_evaluated_on_its_route_once_there_is_more_to_tell(
    quick: Site, ask: Ask
):
    proposing(quick, "chat")
    waits = "draft_model k=3 on chat waits for more captured requests; nothing was asked for"
    assert evaluate_pending(quick) == waits

    fill(ask, quick, "chat", 2)
    assert evaluate_pending(quick) == "draft_model k=3 on chat did not pass"
    assert evaluate_pending(quick) == waits

    fill(ask, quick, "chat", 1, first=2)
    assert evaluate_pending(quick) == "draft_model k=3 on chat did not pass"
    with quick.store.reading() as session:
        assert len(evaluations.listed(session)) == 2


def test_requests_of_one_token_are_left_out(quick: Site, ask: Ask):
    for number in range(3):
        ask("chat", prompt=f"yes or no, number {number}: ", max_tokens=1)
    capture(quick)

    for prove in (
        lambda: replay(quick, OFF, DRAFT_3, ReplayOptions()),
        lambda: divergence(quick, DRAFT_3, DivergenceOptions()),
    ):
        with pytest.raises(NothingToDo, match="has no decode pass"):
            prove()
    fill(ask, quick, "chat", 2)

    report = replay(quick, OFF, DRAFT_3, ReplayOptions(requests=3))
    compared = divergence(quick, DRAFT_3, DivergenceOptions(requests=3))

    assert (report.summary.pairs, report.summary.void_pairs) == (2, 0)
    assert (compared.summary.tested.pairs, compared.summary.tested.error) == (2, 0)


def test_a_replay_judges_each_route_on_its_own_pairs(quick: Site, ask: Ask):
    fill(ask, quick, "chat", 3)
    fill(ask, quick, "story", 2)

    report = replay(quick, OFF, DRAFT_3, ReplayOptions(requests=5))

    assert [(one.route, one.pairs) for one in report.speeds] == [("chat", 3), ("story", 2)]
    assert all(one.time_ratio is None for one in report.speeds)
    assert report.summary.speedup is None
    with quick.store.reading() as session:
        assert route_proofs.speeds_of(session, report.id) == report.speeds


def test_a_report_judges_each_route_on_its_own_prompts(quick: Site, ask: Ask):
    fill(ask, quick, "chat", 3)
    fill(ask, quick, "story", 2)

    report = divergence(quick, DRAFT_3, DivergenceOptions(requests=5))

    counted = {route: found.tested.pairs for route, found in report.by_route.items()}
    assert counted == {"chat": 3, "story": 2}
    with quick.store.reading() as session:
        assert route_proofs.outputs_of(session, report.id) == report.by_route


def test_a_replay_ends_with_its_budget(quick: Site, ask: Ask):
    fill(ask, quick, "chat", 4)

    report = replay(quick, OFF, DRAFT_3, ReplayOptions(requests=4, budget_tokens=1))

    assert len(report.pairs) == 1
    with quick.store.reading() as session:
        stored = replays.one(session, report.id)
    assert (stored.summary.pairs, stored.summary.planned_pairs) == (1, 4)


def test_the_page_shows_the_evidence_of_its_route_and_how_far_an_evaluation_is(quick: Site):
    stored = proposing(quick, "chat")
    keeper = SiteGatekeeper(site=quick)
    (line,) = keeper.lines(stored)
    assert (line.is_open, line.is_running, line.at) == (False, False, None)
    assert "has no evaluation" in (line.reason or "")

    assert keeper.run(stored, who="Ada") == 1
    assert keeper.run(stored, who="Bo") == 0
    (line,) = keeper.lines(stored)
    assert (line.is_running, line.progress) == (True, "asked for by Ada, about to begin")

    with quick.store.writing() as session:
        (run,) = gate_runs.asked(session, quick.engine)
        gate_runs.begin(session, run.id, quick.now())
        gate_runs.note_progress(session, run.id, phase="speed", done=12, total=20, at=quick.now())
    (line,) = keeper.lines(stored)
    assert line.progress == "12 of 20 pairs"

    with quick.store.writing() as session:
        gate_runs.finish(session, run.id, at=quick.now(), error="the engine is gone")
    (line,) = keeper.lines(stored)
    assert (line.is_running, line.progress) == (False, "the last one failed: the engine is gone")

    passed(quick, "chat", is_passing=True)
    (line,) = keeper.lines(stored)
    assert (line.is_open, line.reason, line.progress) == (True, None, "")


def test_an_evaluation_whose_service_is_gone_is_closed(quick: Site):
    ask_gate(quick, DRAFT_3, "chat", who="Ada")
    with quick.store.writing() as session:
        (run,) = gate_runs.asked(session, quick.engine)
        assert gate_runs.begin(session, run.id, quick.now())
        assert not gate_runs.begin(session, run.id, quick.now())
        assert gate_runs.fail_silent(session, quick.now() - SILENT, quick.now()) == 0
        assert gate_runs.fail_silent(session, quick.now() + SILENT, quick.now()) == 1

    assert ask_gate(quick, DRAFT_3, "chat", who="Bo")
