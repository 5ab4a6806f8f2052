"""Whatever comes in, nothing unsafe comes out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import LOAD_LEVELS, OFF, LatencyHistogram, Method, Plan, Route, Setting
from policy.acceptance import AcceptanceModel
from policy.recommend import RecommendOptions, plan_with, recommend
from policy.types import (
    Advice,
    DraftObservation,
    Evidence,
    LoadChange,
    LoadMix,
    Observation,
    Recommendation,
    RequestObservation,
    StepCost,
    Window,
)
from tests.policy.worlds import (
    END_S,
    draft,
    draft_costs,
    lookup,
    mix,
    observation,
    step_costs,
    survival_of,
    window,
)

ADAPTIVE = replace(draft(7), is_adaptive=True)
ARMS = (draft(1), draft(4), draft(16), lookup(2), lookup(8), ADAPTIVE)
ROUTES = ("a", "b", "c")
MIN_PASSES = 30.0

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1e3),
    st.sampled_from((0.0, -1.0, math.nan, math.inf, 1e-300, 1e300)),
)
SECONDS = st.one_of(st.floats(1e-6, 10), NUMBERS)
COUNTS = st.one_of(st.integers(0, 60), st.sampled_from((0, 1, 10**9, -1)))
SETTINGS = st.sampled_from((OFF, *ARMS))
LEVELS = st.sampled_from(LOAD_LEVELS)
NAMES = st.sampled_from(ROUTES)
MOMENTS = st.one_of(st.just(END_S), st.floats(END_S - 3000, END_S), NUMBERS)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Counts that mostly could have been, and sometimes could not."""
    setting = draw(SETTINGS)
    chain = sorted(draw(st.lists(COUNTS, min_size=2 * setting.k, max_size=2 * setting.k)))[::-1]
    first = chain[0] if chain else 0
    return Observation(
        route=draw(NAMES),
        setting=setting,
        load=draw(LEVELS),
        evidence=draw(st.sampled_from(Evidence)),
        start_s=draw(MOMENTS),
        end_s=draw(MOMENTS),
        passes=draw(st.one_of(st.just(first), COUNTS)),
        verify_passes=first,
        drafted=sum(chain[::2]),
        accepted=sum(chain[1::2]),
        tokens=draw(COUNTS),
        attempts=tuple(chain[::2]),
        accepts=tuple(chain[1::2]),
    )


STEPS = st.builds(
    StepCost,
    rows=st.one_of(st.integers(1, 8), COUNTS),
    positions=st.one_of(st.integers(1, 40), COUNTS),
    context_tokens=st.sampled_from((0, 100, 5000)),
    steps=COUNTS,
    total_s=SECONDS,
    total_square_s2=SECONDS,
)
DRAFTS = st.builds(
    DraftObservation,
    method=st.sampled_from((Method.DRAFT_MODEL, Method.PROMPT_LOOKUP)),
    rows=st.one_of(st.integers(1, 8), COUNTS),
    depth=st.one_of(st.integers(1, 16), COUNTS),
    rounds=COUNTS,
    total_s=SECONDS,
)
MIXES = st.builds(
    LoadMix,
    load=LEVELS,
    steps=st.one_of(st.just(100), COUNTS),
    rows_by_route=st.dictionaries(NAMES, st.one_of(st.floats(0, 8), NUMBERS)),
    context_tokens=st.one_of(st.just(100.0), NUMBERS),
    tokens=COUNTS,
    busy_s=NUMBERS,
)
HISTOGRAMS = st.lists(st.floats(0, 200), max_size=5).map(LatencyHistogram.of)
REQUESTS = st.builds(
    RequestObservation,
    route=NAMES,
    setting=SETTINGS,
    load=LEVELS,
    requests=COUNTS,
    completion_tokens=COUNTS,
    decode_s=NUMBERS,
    ttft=HISTOGRAMS,
    chunk_gaps=HISTOGRAMS,
    tpot=HISTOGRAMS,
)
JUNK = st.builds(
    Window,
    start_s=MOMENTS,
    end_s=MOMENTS,
    observations=st.lists(observations(), max_size=4).map(tuple),
    requests=st.lists(REQUESTS, max_size=2).map(tuple),
    step_costs=st.lists(STEPS, max_size=4).map(tuple),
    draft_costs=st.lists(DRAFTS, max_size=4).map(tuple),
    mixes=st.lists(MIXES, max_size=2).map(tuple),
)


@st.composite
def believable(draw: st.DrawFn) -> Window:
    """What an engine could have counted, from one pass to a thousand million."""
    hazards = draw(st.lists(st.floats(0, 1), min_size=16, max_size=16))
    slope, noise = draw(st.floats(0, 2)), np.random.default_rng(draw(st.integers(0, 99)))
    seen = [
        observation(
            draw(SETTINGS),
            survival_of(hazards),
            route=draw(NAMES),
            passes=draw(st.sampled_from((1, 20, 100, 500, 10**9))),
            coverage=draw(st.floats(0, 1)),
            evidence=draw(st.sampled_from(Evidence)),
        )
        for _ in range(draw(st.integers(0, 9)))
    ]

    def step_s(rows: int, positions: int) -> float:
        return float(0.01 * (1 + slope * positions) * noise.uniform(0.8, 1.2))

    costs = [cost for rows in (1, 2, 4) for cost in step_costs(step_s, rows, (0, 1, 2, 4, 8, 16))]
    drafts = [
        cost
        for method in (Method.DRAFT_MODEL, Method.PROMPT_LOOKUP)
        for cost in draft_costs(lambda r, d: 1e-3 * slope * d, (1, 2, 4), (1, 4, 16), method)
    ]
    parts = draw(st.lists(st.floats(0.01, 4), min_size=3, max_size=3))
    total = draw(st.sampled_from((1.0, 2.0, 3.5, 4.0)))
    held = {name: total * part / sum(parts) for name, part in zip(ROUTES, parts, strict=True)}
    return window(seen, costs, drafts, [mix(held)])


LIMITS = st.one_of(st.none(), st.floats(1e-3, 10))
PLANS = st.builds(Plan, default=SETTINGS)


def require_consistent(change: LoadChange) -> None:
    """Each figure lies in its interval and follows from the others."""
    values = (
        change.route_speed,
        change.engine_total,
        change.over_off,
        change.step_ratio,
        change.tokens_per_pass,
        change.goodput,
    )
    assert all(-math.inf < v.low <= v.mean <= v.high < math.inf for v in values)
    longer = change.tokens_per_pass.mean / change.current_tokens_per_pass
    assert math.isclose(change.route_speed.mean, longer / change.step_ratio.mean, rel_tol=1e-9)
    if not change.needs_set:
        share = change.token_share
        total = (1 - share + share * longer) / change.step_ratio.mean
        assert math.isclose(change.engine_total.mean, total, rel_tol=1e-9)
    assert 1 <= change.tokens_per_pass.mean <= change.proposed.k + 1 + 1e-9


def require_safe(found: Recommendation, windows: list[Window], options: RecommendOptions) -> None:
    """Check every change against what was put in, by other means than the guardrails."""
    model = AcceptanceModel.empty()
    for seen in sorted((w for w in windows if math.isfinite(w.end_s)), key=lambda w: w.end_s):
        model = model.updated(seen)
    assert all(point.needed_tokens_per_pass >= 1 for point in found.turning_points)
    for change in found.changes:
        require_consistent(change)
        assert change.reason
        if change.proposed == change.current:
            continue
        assert found.advice is Advice.CHANGE
        if change.needs_set:
            assert change.joint is not None
            assert change.joint.engine_total.low > 1
        else:
            assert change.engine_total.low > 1
            assert change.engine_total.mean >= 1 + options.min_gain * change.token_share
        if change.proposed != OFF:
            depth = model.faded_to(END_S).depth(found.route, change.proposed, min_passes=MIN_PASSES)
            assert change.proposed.k <= depth


@given(
    junk=st.lists(JUNK, max_size=2),
    sound=st.lists(believable(), max_size=2),
    limits=st.lists(LIMITS, min_size=6, max_size=6),
    current=PLANS,
    arms=st.lists(SETTINGS, max_size=6),
    min_gain=st.sampled_from((0.0, 0.03, 0.5)),
)
@settings(max_examples=150, deadline=None)
def test_no_input_yields_an_unsafe_plan(
    junk: list[Window],
    sound: list[Window],
    limits: list[float | None],
    current: Plan,
    arms: list[Setting],
    min_gain: float,
) -> None:
    routes = [
        Route(name=name, tpot_limit_s=limits[place], ttft_limit_s=limits[place + 3])
        for place, name in enumerate(ROUTES)
    ]
    windows = [*junk, *sound]
    options = RecommendOptions(min_gain=min_gain, num_draws=20)
    answers = recommend(
        windows,
        routes,
        current,
        arms,
        now_s=END_S,
        generator=np.random.default_rng(0),
        options=options,
    )
    assert [answer.route for answer in answers] == list(ROUTES)
    for answer in answers:
        require_safe(answer, windows, options)
        assert answer.reasons
        legal = {OFF, current.default, *arms}
        plan = plan_with(current, answer)
        assert {entry.setting for entry in plan.entries} <= legal
        assert (plan == current) == (answer.advice is not Advice.CHANGE)
