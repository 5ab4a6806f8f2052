"""Lookup drafting scored on captured answers: exact, once, and never of what is private."""

from __future__ import annotations

from collections.abc import Callable

from collectors.records import OFF, CapturedRequest, Method, Plan, Setting
from policy.types import Evidence, Observation
from tests.tuner.engine.server.running import RunningEngine
from tuner.store import counterfactuals, facts
from tuner.store.counts import Span
from tuner.workflows.capture import Captured, capture
from tuner.workflows.counterfactual import scored
from tuner.workflows.ingest import ingest
from tuner.workflows.observe import window_of
from tuner.workflows.recommend import recommend
from tuner.workflows.site import Site

Ask = Callable[..., None]
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=3)
SUFFIX = Setting(method=Method.SUFFIX, k=2)


def answered(seq: int, output_ids: tuple[int, ...], **changes: object) -> CapturedRequest:
    plain: dict[str, object] = {
        "at": 1.0,
        "request_id": f"cmpl-{seq}",
        "route": "chat",
        "prompt": "a b c d",
        "prompt_ids": (1, 2, 3, 4),
        "sampling": {"temperature": 0.0, "structured_outputs": None},
        "completion_tokens": len(output_ids),
        "output_ids": output_ids,
    }
    return CapturedRequest(seq=seq, **{**plain, **changes})  # type: ignore[arg-type]


def seen_by(site: Site, evidence: Evidence) -> list[Observation]:
    with site.store.reading() as session:
        found = window_of(session, site.engine, 0.0, site.clock() + 3600)
    return [one for one in found.observations if one.evidence is evidence]


def test_an_answer_that_copies_the_prompt_is_scored_at_every_length():
    """1 from the prefill; then 2 3 4 are found behind it, and nothing is behind 4."""
    found = scored([answered(1, (1, 2, 3, 4))], (OFF, LOOKUP, SUFFIX))

    lookups = [one for one in found if one.setting.method is Method.PROMPT_LOOKUP]
    assert [one.setting.k for one in lookups] == [1, 2, 3]
    assert [(one.score.passes, one.score.accepted) for one in lookups] == [(2, 2), (1, 2), (1, 3)]
    assert lookups[2].score.accepts == (1, 1, 1)
    assert [one.setting.k for one in found if one.setting.method is Method.SUFFIX] == [1, 2]


def test_greedy_and_sampled_answers_are_kept_apart_and_routes_too():
    sampled = answered(2, (1, 2, 3), sampling={"temperature": 0.7})
    other = answered(3, (1, 2, 3), route="code")
    found = scored([answered(1, (1, 2, 3)), sampled, other], (LOOKUP,))

    places = {(one.route, one.is_greedy) for one in found}
    assert places == {("chat", True), ("chat", False), ("code", True)}


def test_a_grammar_or_a_missing_prompt_gives_no_score():
    held = answered(1, (1, 2, 3), sampling={"temperature": 0.0, "structured_outputs": {"json": 1}})
    blanked = answered(2, (1, 2, 3), prompt_ids=())
    unknown = answered(3, ())

    assert scored([held, blanked, unknown], (LOOKUP,)) == ()
    assert scored([answered(4, (1, 2, 3))], (OFF, Setting(method=Method.EAGLE, k=3))) == ()


def test_the_score_of_greedy_answers_is_what_the_engine_does_at_that_setting(
    site: Site, ask: Ask, engine: RunningEngine
):
    ingest(site)
    with site.store.reading() as session:
        before = facts.latest_cursor(session, site.engine)
    capture(site)
    engine.http.put("/spec/plan", json=Plan(default=LOOKUP).to_dict()).raise_for_status()
    for turn in range(3):
        ask("lookups", prompt=f"one two three one two three {turn}", max_tokens=40)
    assert before is not None
    assert capture(site).scored == 3
    ingest(site)

    live = [one for one in seen_by(site, Evidence.LIVE) if one.route == "lookups"]
    scores = [one for one in seen_by(site, Evidence.COUNTERFACTUAL) if one.route == "lookups"]
    score = [one for one in scores if one.setting == LOOKUP]
    assert sum(one.passes for one in live if one.setting == LOOKUP) == score[0].passes
    assert all(one.is_greedy for one in (*live, *score))


def test_no_answer_is_scored_twice_and_none_reaches_the_disk(site: Site, ask: Ask):
    capture(site)
    ask("chat")
    assert capture(site) == Captured(stored=1, scored=1)
    passes = [one.passes for one in seen_by(site, Evidence.COUNTERFACTUAL)]
    assert passes

    assert capture(site) == Captured()
    assert [one.passes for one in seen_by(site, Evidence.COUNTERFACTUAL)] == passes


def test_redacted_requests_give_no_score(site: Site, ask: Ask):
    capture(site)
    ask("chat", prompt="mail ann@example.org the answer")

    done = capture(site)

    assert (done.stored, done.scored, done.redactions) == (1, 0, 1)
    assert seen_by(site, Evidence.COUNTERFACTUAL) == []


def test_scores_reach_the_recommendation_and_are_named_there(site: Site, ask: Ask):
    ingest(site)
    capture(site)
    for _ in range(4):
        ask("scored", max_tokens=40)
    capture(site)
    ingest(site)

    (said,) = [one for one in recommend(site).said if one.route == "scored"]

    lookups = next(curve for curve in said.curves if curve.method is Method.PROMPT_LOOKUP)
    assert lookups.evidence == (Evidence.COUNTERFACTUAL,)
    assert lookups.shares == {Evidence.COUNTERFACTUAL: 1.0}


def test_old_scores_are_deleted(site: Site, ask: Ask):
    capture(site)
    ask("chat")
    capture(site)
    span = Span(engine=site.engine, start_s=0.0, end_s=site.clock() + 3600)
    with site.store.writing() as session:
        assert counterfactuals.delete_before(session, site.engine, site.clock() + 1) > 0
        assert counterfactuals.observations(session, span) == ()
