"""Routes leave for a pool without speculation exactly where both pools together give more."""

import itertools

import numpy as np
import pytest

from collectors.records import OFF, load_level_of
from policy.belief import Belief
from policy.goodput import Batch, rates
from policy.options import RecommendOptions
from policy.plan_evaluation import PlanEvaluation
from policy.planner import best_plan
from policy.pools import best_split, goodputs, pool_advice, staying, unknown_reason
from policy.statistics import Floats, Ints
from tests.policy.worlds import draft, lookup

ARMS = (OFF, draft(1), draft(3), lookup(3))
DEPTH = np.array([arm.k for arm in ARMS])
POINTS = 241
NAMES = ("chat", "code", "extract", "notes", "search", "talk")


def step_s(positions: Floats) -> Floats:
    return np.asarray(0.05 * (1 + 0.0008 * positions + 0.007 * np.maximum(positions - 64, 0)))


def batch_of(rows: list[float], hazards: list[float]) -> Batch:
    """Routes with as many rows and acceptance each, sharing steps beyond the knee."""
    count, total = len(rows), sum(rows)
    shape, held = (1, count, len(ARMS)), np.array([rows])
    tokens = np.array([[sum(h**i for i in range(k + 1)) for k in DEPTH] for h in hazards])
    grid = np.linspace(total, 4 * total, POINTS)
    depths, draft_rows = np.arange(4), np.linspace(1.0, total, 33)
    model = np.outer(0.0025 + 0.000025 * draft_rows, depths)
    return Batch(
        loads=(load_level_of(round(total)),),
        routes=(NAMES[:count],),
        arms=ARMS,
        method=np.array([0, 1, 1, 2]),
        depth=DEPTH,
        family=np.array([0, 1, 1, 2]),
        allowed=np.ones(shape, dtype=np.bool_),
        rows=held,
        tokens=held[:, :, None] * tokens[None],
        positions=held[:, :, None] * (1 + DEPTH) * np.ones(shape),
        own_s=np.zeros(shape),
        limit_s=np.full(shape, np.inf),
        step_s=step_s(grid)[None],
        step_from=np.array([total]),
        step_per_position=np.array([(POINTS - 1) / (3 * total)]),
        draft_s=np.stack([np.zeros_like(model), model, np.zeros_like(model)])[None],
        draft_per_row=np.array([32 / (total - 1)]),
    )


def planned(batch: Batch) -> Ints:
    return best_plan(batch, np.zeros(batch.rows.shape, dtype=np.intp))[0]


def goodput_of(batch: Batch, plan: Ints) -> float:
    return float(rates(batch, np.array([0]), plan[None]).goodput[0])


def best_of_all(batch: Batch, off_tax_ratio: float) -> float:
    """Every set of routes that may leave, with every plan of the others."""
    count = batch.rows.shape[1]
    plans = np.array(list(itertools.product(range(len(ARMS)), repeat=count)))
    found = []
    for leaves in itertools.product((False, True), repeat=count):
        every = np.tile(np.array(leaves), (len(plans), 1))
        found.append(goodputs(batch, every, plans, off_tax_ratio).max())
    return float(max(found))


def all_routes(batch: Batch) -> list[int]:
    return list(range(batch.rows.shape[1]))


class Known(Belief):
    """A belief in the tokens of a batch, with a spread."""

    def __init__(self, batch: Batch, spread: float) -> None:
        self.tokens = batch.tokens[0] / batch.rows[0][:, None]
        self.positions = batch.positions
        self.spread = spread

    def mean_tokens(self) -> Floats:
        return self.tokens

    def mean_positions(self) -> Floats:
        return self.positions

    def draws(self, generator: np.random.Generator, num_draws: int, *, is_next: bool) -> Floats:
        noise = generator.standard_normal((num_draws, *self.tokens.shape))
        return np.asarray(self.tokens * (1 + self.spread * noise * (DEPTH > 0)))

    def step_error_ratio(self, rows: float, positions: float) -> float:
        return 0.01

    def pace_error_ratio(self, rows: float, positions: float) -> float:
        return 0.0

    def next_paces(self, generator: np.random.Generator, num_draws: int) -> Floats:
        return np.zeros(num_draws)


def evaluated(batch: Batch, spread: float = 0.02) -> PlanEvaluation:
    return PlanEvaluation(batch, Known(batch, spread), np.random.default_rng(0), 200)


def test_without_a_tax_it_is_the_same_where_routes_run_off() -> None:
    batch = batch_of([8.0, 24.0, 16.0], [0.3, 0.5, 0.4])
    off = np.zeros((2, 3), dtype=np.intp)
    leaves = np.array([[True, False, True], [True, True, True]])
    same = goodput_of(batch, off[0])
    assert goodputs(batch, leaves, off, 0.0) == pytest.approx([same, same])
    assert goodputs(batch, leaves, off, 0.1)[1] == pytest.approx(1.1 * same)


def test_the_pool_that_speculates_keeps_its_rows_and_counts_for_its_share() -> None:
    batch = batch_of([10.0, 30.0], [0.9, 0.2])
    leaves, plan = np.array([[False, True]]), np.array([[2, 0]])
    stays = staying(batch, leaves)
    assert stays.rows[0].tolist() == [40.0, 0.0]
    assert stays.positions[0, 0, 2] == 160.0
    alone = goodput_of(batch_of([40.0], [0.9]), np.array([2]))
    plain_s = float(step_s(np.array([40.0]))[0])
    assert goodputs(batch, leaves, plan, 0.05)[0] == pytest.approx(
        0.25 * alone + 30.0 / (plain_s / 1.05), rel=0.01
    )


@pytest.mark.parametrize("tax", [0.0, 0.03, 0.15])
@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_of_all_ways_to_leave(seed: int, tax: float) -> None:
    rng = np.random.default_rng(seed)
    count = 3 + seed % 3
    rows = (rng.dirichlet(np.ones(count)) * rng.uniform(6, 90) + 1.0).tolist()
    batch = batch_of(rows, rng.uniform(0.05, 0.95, count).tolist())
    found = best_split(batch, planned(batch), all_routes(batch), tax)
    assert found.goodput >= 0.995 * best_of_all(batch, tax)
    assert found.goodput >= goodput_of(batch, planned(batch)) * (1 - 1e-9)


def test_a_route_that_runs_off_is_advised_to_leave_where_off_is_dear() -> None:
    batch = batch_of([40.0, 24.0], [0.1, 0.2])
    plan = planned(batch)
    assert plan.tolist() == [0, 0]
    options = RecommendOptions(clean_pool=True, off_tax_ratio=0.08)
    advice = pool_advice(evaluated(batch), plan, all_routes(batch), options)
    assert advice is not None
    assert advice.leaves == ("chat", "code")
    assert advice.gain.mean == pytest.approx(0.08)
    assert "chat and code run better in a pool without speculation: +8.0%" in advice.reason
    assert "off is best there anyway" in advice.reason


def test_routes_that_may_not_be_moved_stay() -> None:
    batch = batch_of([40.0, 24.0], [0.1, 0.2])
    options = RecommendOptions(clean_pool=True, off_tax_ratio=0.2)
    advice = pool_advice(evaluated(batch), planned(batch), [1], options)
    assert advice is not None
    assert advice.leaves == ("code",)
    assert dict(advice.settings) == {"chat": OFF}


def test_no_route_leaves_where_drafts_pay() -> None:
    batch = batch_of([2.0, 2.0], [0.9, 0.8])
    options = RecommendOptions(clean_pool=True, off_tax_ratio=0.15)
    assert pool_advice(evaluated(batch), planned(batch), [0, 1], options) is None


@pytest.mark.parametrize("tax", [0.01, 0.04])
def test_a_gain_that_is_too_small_or_not_sure_is_no_advice(tax: float) -> None:
    batch = batch_of([40.0, 24.0], [0.1, 0.2])
    options = RecommendOptions(clean_pool=True, off_tax_ratio=tax, min_gain=0.03)
    advice = pool_advice(evaluated(batch), planned(batch), [0, 1], options)
    assert (advice is not None) == (tax > 0.03)


def test_without_a_pool_or_a_known_tax_nothing_is_advised() -> None:
    batch = batch_of([40.0, 24.0], [0.1, 0.2])
    unknown = RecommendOptions(clean_pool=True)
    for options in (RecommendOptions(off_tax_ratio=0.2), unknown):
        assert pool_advice(evaluated(batch), planned(batch), [0, 1], options) is None
    assert "not evaluable: set off_tax_ratio" in (unknown_reason(unknown) or "")
    assert unknown_reason(RecommendOptions()) is None
    assert unknown_reason(RecommendOptions(clean_pool=True, off_tax_ratio=0.0)) is None


@pytest.mark.parametrize("tax", [-0.1, float("nan"), float("inf")])
def test_a_tax_that_is_none_is_refused(tax: float) -> None:
    with pytest.raises(ValueError, match="off_tax_ratio"):
        RecommendOptions(off_tax_ratio=tax)
