"""A store filled with what an hour of a small product could have left in it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from collectors.records import (
    LOAD_LEVELS,
    OFF,
    DecodeStep,
    EngineSample,
    JournalPage,
    LatencyHistogram,
    Method,
    PinnedConfig,
    Plan,
    PlanEntry,
    Setting,
)
from policy.decode_sum import DecodeSum
from policy.drift_alarms import Alarm, AlarmKind
from policy.pool_advice import PoolAdvice
from policy.types import (
    AcceptanceCurve,
    Advice,
    DraftObservation,
    Evidence,
    Interval,
    LoadChange,
    LoadMix,
    Observation,
    Recommendation,
    RequestObservation,
    StepCost,
    Trial,
    TurningPoint,
    Window,
)
from tuner.store import (
    Store,
    decisions,
    divergences,
    drift,
    facts,
    jobs,
    observations,
    pinned,
    plans,
    recommendations,
    replays,
    samples,
)
from tuner.store.decisions import Decision
from tuner.store.recommendations import State

ENGINE = "bundled"
DRAFT = Setting(method=Method.DRAFT_MODEL, k=3)
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=1, lookup_max=3)
LOADS = LOAD_LEVELS[:5]
ROUTES = {"code_edit": 0.74, "rag_answer": 0.66, "json_extract": 0.81, "chat": 0.52, "story": 0.38}
PLAN = Plan(
    version=3,
    entries=tuple(
        PlanEntry(route=route, load=load, setting=DRAFT)
        for route in ("code_edit", "chat")
        for load in LOADS[:3]
    ),
)


FORMER = replace(PLAN, entries=tuple(one for one in PLAN.entries if one.route == "chat"))


def fill(store: Store, now: datetime) -> None:
    """Fill an empty store at the newest revision."""
    rng = random.Random(7)
    _add_journal(store, now)
    with store.writing() as session:
        for age in range(40, 0, -1):
            end_s = now.timestamp() - 60 * (age - 1)
            observations.add(session, ENGINE, _window(rng, end_s - 60, end_s), now)
        plans.add(session, _plan_change(now))
        for minutes, plan in ((50, FORMER), (29, PLAN)):
            decisions.note(session, _decision(now - timedelta(minutes=minutes), plan))
    _add_recommendations(store, now)
    _add_proofs(store, now, rng)
    _add_jobs(store, now)
    _add_alarms(store, now)


def recommendation(route: str, alpha: float, advice: Advice = Advice.CHANGE) -> Recommendation:
    """Return what the policy could say about a route."""
    return Recommendation(
        route=route,
        advice=advice,
        changes=tuple(_change(load, alpha) for load in LOADS),
        curves=(
            _curve(Method.DRAFT_MODEL, alpha, (Evidence.LIVE,)),
            _curve(Method.PROMPT_LOOKUP, alpha - 0.2, (Evidence.REPLAY, Evidence.COUNTERFACTUAL)),
        ),
        cost_rows=tuple((rows, rows * 4, 0.02 + 0.0016 * rows) for rows in (1, 2, 4, 8, 16)),
        break_even_load=LOADS[3],
        reasons=(
            f"draft_model k=3 keeps {alpha:.0%} of first tokens and a draft costs 9 % of a pass.",
            "Above load 5-8 the batch fills the memory bandwidth that speculation lives on.",
        ),
        would_change_mind=(
            "Acceptance at position 1 below 0.48.",
            "A replay of prompt_lookup k=8.",
        ),
        predicted_goodput={load.label: 40.0 * (place + 1) for place, load in enumerate(LOADS)},
        turning_points=(
            TurningPoint(
                load=LOADS[0],
                setting=DRAFT,
                tokens_per_pass=1.1 + alpha,
                needed_tokens_per_pass=1.27,
                acceptance=alpha,
                needed_acceptance=0.22,
            ),
        ),
        trials=(
            Trial(
                setting=LOOKUP,
                by=Evidence.LIVE,
                load=LOADS[0],
                most_gain=0.31,
                most_token_share=0.02,
            ),
        ),
        pools=(
            PoolAdvice(
                load=LOADS[3],
                leaves=(route,),
                settings={"other": LOOKUP},
                gain=Interval(low=0.03, mean=0.041, high=0.052),
                reason=f"{route} runs better in a pool without speculation.",
            ),
        ),
    )


def _add_journal(store: Store, now: datetime) -> None:
    step = DecodeStep(
        seq=1,
        at=now.timestamp() - 2,
        plan_digest=PLAN.digest,
        running=1,
        waiting=0,
        positions=4,
        prefill_tokens=0,
        context_tokens=100,
        verify_s=0.02,
        sample_s=0.001,
        other_s=0.001,
    )
    with store.writing() as session:
        cursor = facts.open_cursor(session, ENGINE, "boot-1", now)
        page = JournalPage(boot_id="boot-1", first_seq=1, last_seq=1, records=(step,))
        moved = facts.add_page(session, cursor, page)
        facts.note_pull(session, moved, now.timestamp() - 1, now.timestamp() - 1)
        samples.add_engine(
            session,
            EngineSample(
                at=now.timestamp() - 1,
                engine=ENGINE,
                boot_id="boot-1",
                running=3,
                waiting=0,
                kv_used_ratio=0.2,
                plan_digest=PLAN.digest,
            ),
        )


def _plan_change(now: datetime) -> plans.PlanChange:
    return plans.PlanChange(
        engine=ENGINE,
        recommendation=None,
        at=now - timedelta(minutes=50),
        who="demo",
        why="first live schedule",
        outcome=plans.Outcome.APPLIED,
        plan=PLAN,
        before=Plan(),
        read_back_digest=PLAN.digest,
    )


def _decision(at: datetime, plan: Plan) -> Decision:
    return Decision(
        engine=ENGINE,
        at_s=at.timestamp(),
        plan=plan,
        policy_version="0.1.0+abc",
        who="Ada",
        arms=(OFF, DRAFT),
    )


def _window(rng: random.Random, start_s: float, end_s: float) -> Window:
    seen, done = [], []
    for route, alpha in ROUTES.items():
        for load in LOADS[: rng.choice((2, 3, 5))]:
            setting = PLAN.setting_for(route, load)
            seen.append(_observation(rng, route, setting, alpha, load, Evidence.LIVE, start_s))
            done.append(_requests(rng, route, setting, load))
        for evidence in (Evidence.REPLAY, Evidence.COUNTERFACTUAL):
            row = _observation(rng, route, LOOKUP, alpha - 0.2, LOADS[0], evidence, start_s)
            seen.append(row)
    return Window(
        start_s=start_s,
        end_s=end_s,
        observations=tuple(seen),
        requests=tuple(done),
        step_costs=tuple(
            StepCost(
                rows=rows,
                positions=rows * width,
                context_tokens=1024,
                steps=9,
                total_s=9 * (0.02 + 0.002 * rows * width),
                total_square_s2=9 * (0.02 + 0.002 * rows * width) ** 2 * 1.02,
            )
            for rows in (1, 2, 4, 8)
            for width in (1, 4)
        ),
        draft_costs=tuple(
            DraftObservation(
                method=Method.DRAFT_MODEL, rows=rows, depth=3, rounds=7, total_s=7 * 0.006
            )
            for rows in (1, 2, 4)
        ),
        mixes=tuple(
            LoadMix(
                load=load,
                steps=50,
                rows_by_route={"chat": load.low / 2, "code_edit": load.low / 2},
                context_tokens=700.0 * load.low,
                tokens=90 * load.low,
                busy_s=50 * (0.03 + 0.003 * load.low),
            )
            for load in LOADS
        ),
        decode_sums=tuple(
            DecodeSum(
                load=load,
                route=route,
                steps=25,
                tokens=rng.randint(40, 50) * load.low,
                busy_s=25 * (0.03 + 0.003 * load.low),
            )
            for load in LOADS
            for route in (("chat", "code_edit") if load.is_lone else (None,))
        ),
    )


def _observation(
    rng: random.Random,
    route: str,
    setting: Setting,
    alpha: float,
    load: object,
    evidence: Evidence,
    start_s: float,
) -> Observation:
    passes = rng.randint(20, 90)
    drafting = passes if setting.method is Method.DRAFT_MODEL else passes // 3
    drafting = drafting if setting.k else 0
    attempts, accepts, reached = [], [], drafting
    for _ in range(setting.k):
        attempts.append(reached)
        reached = sum(rng.random() < alpha for _ in range(reached))
        accepts.append(reached)
    return Observation(
        route=route,
        setting=setting,
        load=load,
        evidence=evidence,
        start_s=start_s,
        end_s=start_s + 60,
        passes=passes,
        verify_passes=drafting,
        drafted=drafting * setting.k,
        accepted=sum(accepts),
        tokens=passes + sum(accepts),
        attempts=tuple(attempts),
        accepts=tuple(accepts),
    )


def _requests(rng: random.Random, route: str, setting: Setting, load: object) -> RequestObservation:
    tpot = [rng.uniform(0.012, 0.03) for _ in range(6)]
    return RequestObservation(
        route=route,
        setting=setting,
        load=load,
        requests=6,
        completion_tokens=6 * 64,
        decode_s=sum(tpot) * 63,
        ttft=LatencyHistogram.of(rng.uniform(0.05, 0.4) for _ in range(6)),
        chunk_gaps=LatencyHistogram.of(tpot),
        tpot=LatencyHistogram.of(tpot),
    )


def _change(load: object, alpha: float) -> LoadChange:
    place = LOADS.index(load)
    gain = alpha - 0.45 - 0.12 * place
    stays = gain < 0.03
    middle = 0.0 if stays else gain
    return LoadChange(
        load=load,
        current=OFF,
        proposed=OFF if stays else DRAFT,
        tokens_per_pass=Interval(low=1.0 + alpha, mean=1.1 + alpha, high=1.2 + alpha),
        current_tokens_per_pass=1.0,
        step_ratio=Interval.certain((1.1 + alpha) / (1 + middle)),
        token_share=0.5,
        route_speed=Interval(low=0.97 + middle, mean=1 + middle, high=1.03 + middle),
        engine_total=Interval(
            low=1 + middle - (0 if stays else 0.04), mean=1 + middle, high=1.05 + middle
        ),
        over_off=Interval(low=0.97 + middle, mean=1.0 + middle, high=1.03 + middle),
        runner_up=None if stays else (LOOKUP, 0.95 + gain),
        goodput=Interval(low=36.0 * (place + 1), mean=40.0 * (place + 1), high=44.0 * (place + 1)),
        runner_up_reason=None if stays else f"it gives -5.0% against {DRAFT.label}",
        reason="Off is at least as good here." if stays else "Drafting pays at this load.",
    )


def _curve(method: Method, alpha: float, evidence: tuple[Evidence, ...]) -> AcceptanceCurve:
    return AcceptanceCurve(
        method=method,
        conditional=tuple(
            Interval(low=alpha - 0.05 - drop, mean=alpha - drop, high=alpha + 0.05 - drop)
            for drop in (0.0, 0.06, 0.1)
        ),
        attempts=(2400.0, 1650.0, 990.0),
        coverage=1.0 if method is Method.DRAFT_MODEL else 0.34,
        evidence=evidence,
    )


def _add_recommendations(store: Store, now: datetime) -> None:
    states = {"code_edit": (State.APPROVED, State.STAGED, State.PROMOTED), "rag_answer": ()}
    states |= {"json_extract": (), "chat": (State.REJECTED,), "story": ()}
    for age, (route, alpha) in enumerate(ROUTES.items()):
        at = now - timedelta(minutes=30 - 4 * age)
        advice = Advice.NOT_ENOUGH_DATA if route == "story" else Advice.CHANGE
        said = recommendation(route, alpha, advice)
        with store.writing() as session:
            stored = recommendations.add(session, ENGINE, said, PLAN, who="recommend", at=at)
            assert stored is not None
            for state in states[route]:
                at += timedelta(seconds=20)
                recommendations.move(
                    session, stored.id, state, who="Ada", at=at, why="looks right on the replay"
                )


def pinned_config(setting: Setting) -> PinnedConfig:
    """Return a pinned configuration of the bundled engine."""
    return PinnedConfig(
        model="smollm2-135m-instruct",
        weights_hash="a" * 64,
        tokenizer_hash="b" * 64,
        dtype="float32",
        device="cpu",
        engine="spectuner 0.1.0",
        attention_backend="sdpa",
        max_rows=32,
        setting=setting,
    )


def _add_proofs(store: Store, now: datetime, rng: random.Random) -> None:
    base, other = pinned_config(OFF), pinned_config(DRAFT)
    with store.writing() as session:
        for config in (base, other):
            pinned.remember(session, config, now)
        number = replays.start(
            session,
            engine=ENGINE,
            route="code_edit",
            base=base.digest,
            other=other.digest,
            options={"requests": 12},
            at=now - timedelta(minutes=14),
        )
        pairs = [_pair(rng, place) for place in range(12)]
        replays.add_pairs(session, number, pairs)
        summary = replays.ReplaySummary(
            pairs=11, void_pairs=1, speedup=Interval(low=1.31, mean=1.42, high=1.55)
        )
        replays.finish(session, number, state=replays.ReplayState.DONE, summary=summary, at=now)
        divergences.add(
            session,
            engine=ENGINE,
            plain=base.digest,
            tested=other.digest,
            summary=_divergence_summary(),
            pairs=_divergence_pairs(),
            at=now - timedelta(minutes=9),
        )


def _pair(rng: random.Random, place: int) -> replays.ReplayPair:
    seconds = rng.uniform(1.5, 3.0)
    return replays.ReplayPair(
        place=place,
        request_id=f"cmpl-{place:04d}",
        route="code_edit",
        base=replays.ArmRun(tokens=96, seconds=seconds, passes=95, drafted=0, accepted=0),
        other=replays.ArmRun(
            tokens=96, seconds=seconds / rng.uniform(1.2, 1.7), passes=52, drafted=156, accepted=43
        ),
        void_reason="the engine ran k=1, asked was k=3" if place == 5 else None,
    )


def _divergence_summary() -> divergences.DivergenceSummary:
    return divergences.DivergenceSummary(
        tested=divergences.ArmCounts(identical=37, near_tie=3),
        control=divergences.ArmCounts(identical=38, near_tie=2),
        diverges=False,
        verdict="differs no more than plain decoding does at another batch shape",
        noise_margin=1e-4,
        false_alarm_rate=0.01,
        p_value=0.5,
    )


def _divergence_pairs() -> list[divergences.DivergencePair]:
    arms = [("tested", 40, 3), ("control", 40, 2)]
    return [
        divergences.DivergencePair(
            arm=arm,
            place=place,
            request_id=f"cmpl-{place:04d}",
            route="chat",
            kind="near_tie" if place < splits else "identical",
            split_at=14 + 9 * place if place < splits else None,
            margin=3e-5 if place < splits else None,
        )
        for arm, pairs, splits in arms
        for place in range(pairs)
    ]


def _add_jobs(store: Store, now: datetime) -> None:
    for age in range(12, 0, -1):
        for job, error in (("ingest", None), ("observe", None), ("replay", "no captured request")):
            due_at = now - timedelta(seconds=30 * age)
            with store.writing() as session:
                number = jobs.start(
                    session,
                    job=job,
                    due_key=due_at.isoformat(),
                    due_at=due_at,
                    holder="here",
                    at=due_at + timedelta(milliseconds=12),
                )
                assert number is not None
                jobs.finish(
                    session,
                    number,
                    outcome=jobs.RunOutcome.FAILED if error else jobs.RunOutcome.OK,
                    at=due_at + timedelta(milliseconds=70),
                    duration_s=0.058,
                    detail="" if error else "312 records",
                    error=error,
                )


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def _add_alarms(store: Store, now: datetime) -> None:
    """Add a decay that lasts, a loop that stops decisions, and a fault that is over."""
    at_s = now.timestamp()
    decay = Alarm(
        kind=AlarmKind.DECAY,
        route="chat",
        method=Method.DRAFT_MODEL,
        since_s=at_s - 1800,
        seen_s=at_s,
        saw="draft_model on chat fell from 3.07 to 2.80 tokens a pass.",
        advice="Restart the engine.",
        figures={"tokens_per_pass_before": 3.07, "tokens_per_pass": 2.80},
    )
    loop = replace(decay, kind=AlarmKind.LOOP, route="story", saw="All drafts were kept.")
    fault = replace(decay, kind=AlarmKind.COUNTER_FAULT, route=None, method=None, seen_s=at_s - 900)
    with store.writing() as session:
        drift.note_alarms(session, ENGINE, [decay, loop, fault], now)
        drift.end_quiet(session, ENGINE, at_s)
