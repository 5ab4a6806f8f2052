"""What the policy is given and what it returns.

Observations hold sufficient statistics (counts and sums), never averages, so that two windows add
up. Rates are None where nothing was counted: no data is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from collectors.records import LatencyHistogram, LoadLevel, Method, Setting
from policy.changes import JointEffect as JointEffect
from policy.changes import LoadChange as LoadChange
from policy.decode_sum import DecodeSum
from policy.interval import Interval as Interval
from policy.pairing import StepPairing
from policy.plan_edit import PlanEdit as PlanEdit
from policy.pool_advice import PoolAdvice
from policy.timings import CatchUp


class Evidence(StrEnum):
    """Where an observation comes from."""

    LIVE = "live"
    REPLAY = "replay"
    COUNTERFACTUAL = "counterfactual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one route saw at one Setting and load level within a window.

    Attributes:
        route: route name.
        setting: the Setting in force.
        load: load level of the steps counted.
        evidence: live, replay or counterfactual.
        start_s: start of the window, Unix seconds.
        end_s: end of the window, Unix seconds.
        passes: target passes seen by sequences (P).
        verify_passes: passes with at least one draft token (V).
        drafted: draft tokens verified (D).
        accepted: draft tokens kept (A).
        tokens: tokens delivered (G).
        attempts: by draft position, passes in which the position was drafted and all before it
            were accepted.
        accepts: by draft position, attempts that were accepted.
        is_greedy: True or False where all rows were sampled one way; None where mixed or unknown.
        reference_passes: passes of reference steps, plain for comparison whatever the plan says.
    """

    route: str
    setting: Setting
    load: LoadLevel
    evidence: Evidence = Evidence.LIVE
    start_s: float
    end_s: float
    passes: int
    verify_passes: int
    drafted: int
    accepted: int
    tokens: int
    attempts: tuple[int, ...] = ()
    accepts: tuple[int, ...] = ()
    is_greedy: bool | None = None
    reference_passes: int = 0

    @property
    def planned_passes(self) -> int:
        """Passes with the Setting of a plan or a request, reference steps left out."""
        return self.passes - self.reference_passes

    @property
    def acceptance_rate(self) -> float | None:
        """A / D; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_length(self) -> float | None:
        """1 + A / V; None where no pass had a draft."""
        return 1 + self.accepted / self.verify_passes if self.verify_passes else None

    @property
    def tokens_per_pass(self) -> float | None:
        """(P + A) / P, tokens per target pass; None without passes.

        Every pass yields its accepted tokens and one more. Tokens cut by a stop in the last pass
        of a request count here, as they do in every engine's counters.
        """
        return (self.passes + self.accepted) / self.passes if self.passes else None

    @property
    def coverage(self) -> float | None:
        """V / P, share of passes with a draft; None without passes."""
        return self.verify_passes / self.passes if self.passes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestObservation:
    """What the finished requests of one route saw at one Setting and load level.

    Attributes:
        route: route name.
        setting: Setting at the end of the requests.
        load: load level at their first token.
        requests: finished requests, cancelled and failed ones left out.
        completion_tokens: tokens delivered.
        decode_s: sum over requests of the time after the first token, in seconds.
        ttft: time to first token.
        chunk_gaps: time between deliveries.
        tpot: time per output token, one sample a request.
    """

    route: str
    setting: Setting
    load: LoadLevel
    requests: int
    completion_tokens: int
    decode_s: float
    ttft: LatencyHistogram
    chunk_gaps: LatencyHistogram
    tpot: LatencyHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Target passes of one shape and the time they took (prefill-free steps only).

    Attributes:
        rows: sequences in the pass.
        positions: positions computed, at least one a row.
        context_tokens: KV entries held by the batch, rounded to the bucket's middle.
        steps: passes counted.
        total_s: their summed seconds at the window's usual pace, verification and sampling
            included.
        total_square_s2: sum of the squared seconds.
        blocks: stretches of time in which they were taken; 0 where each step stands for itself.
    """

    rows: int
    positions: int
    context_tokens: int
    steps: int
    total_s: float
    total_square_s2: float
    blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftObservation:
    """Draft rounds of one method and shape and the time they took.

    Attributes:
        method: drafting method.
        rows: sequences that drafted.
        depth: longest draft asked for.
        rounds: rounds counted.
        total_s: their summed seconds.
    """

    method: Method
    rows: int
    depth: int
    rounds: int
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMix:
    """What a typical step at one load level holds.

    Attributes:
        load: the load level.
        steps: steps seen at it.
        rows_by_route: mean rows of each route in a step.
        context_tokens: mean KV entries held by the batch.
        tokens: tokens delivered at this level.
        busy_s: summed step time at this level, in seconds.
    """

    load: LoadLevel
    steps: int
    rows_by_route: Mapping[str, float]
    context_tokens: float
    tokens: int
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Everything counted between two moments.

    Attributes:
        start_s: Unix seconds.
        end_s: Unix seconds.
        observations: by route, Setting, load level and evidence.
        requests: by route, Setting and load level.
        step_costs: by shape.
        draft_costs: by method and shape.
        mixes: by load level.
        decode_sums: by load level; by route where a step holds one row.
        pairings: reference steps beside drafting ones, by load level.
        catch_ups: first draft rounds, as a calibration times them.
        is_calibration: True where the costs were measured on an idle engine, by requests sent for
            it: they stand in where traffic has measured nothing, and do not fade.
    """

    start_s: float
    end_s: float
    observations: tuple[Observation, ...] = ()
    requests: tuple[RequestObservation, ...] = ()
    step_costs: tuple[StepCost, ...] = ()
    draft_costs: tuple[DraftObservation, ...] = ()
    mixes: tuple[LoadMix, ...] = ()
    decode_sums: tuple[DecodeSum, ...] = ()
    pairings: tuple[StepPairing, ...] = ()
    catch_ups: tuple[CatchUp, ...] = ()
    is_calibration: bool = False


class Advice(StrEnum):
    """What a recommendation says."""

    CHANGE = "change"
    NO_CHANGE = "no_change"
    NOT_ENOUGH_DATA = "not_enough_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCurve:
    """Acceptance of one method on one route, as used by the planner.

    Attributes:
        method: drafting method.
        conditional: by draft position, chance to be accepted given that all before it were.
        attempts: by draft position, attempts behind the estimate.
        coverage: share of passes in which the method finds a draft.
        evidence: kinds of evidence behind it.
        shares: what each of them weighs, of all passes behind it as they are weighted.
    """

    method: Method
    conditional: tuple[Interval, ...]
    attempts: tuple[float, ...]
    coverage: float
    evidence: tuple[Evidence, ...]
    shares: Mapping[Evidence, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """Where a Setting and speculation off change places, all else staying as it is.

    Attributes:
        load: the load level.
        setting: the Setting with the highest speedup there.
        tokens_per_pass: what it is predicted to yield.
        needed_tokens_per_pass: what it yields where it equals off.
        acceptance: chance that its first draft token is kept.
        needed_acceptance: the same where it equals off, later positions changing in proportion;
            None where no acceptance gives that.
    """

    load: LoadLevel
    setting: Setting
    tokens_per_pass: float
    needed_tokens_per_pass: float
    acceptance: float
    needed_acceptance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Attempts of similar predicted acceptance, held out of the fit.

    Attributes:
        predicted: mean chance predicted.
        counted: share that was kept.
        attempts: how many there were.
    """

    predicted: float
    counted: float
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCheck:
    """Whether the acceptance of one kind of Setting depends on what a request is like.

    Attributes:
        why_not: why its features are not used; None where they are.
        requests: finished requests looked at.
        windows: windows that these fall into.
        gain: log loss of an attempt that the features save on held-out windows; None where there
            was too little to try.
        reliability: predicted and counted acceptance on held-out windows.
        odds_by_feature: factor on the odds of acceptance for one more of each feature: a
            temperature higher by 1, a context twice as long, a grammar.
        shift_by_route: log odds by which the requests of late differ from all of a route.
    """

    why_not: str | None = None
    requests: int
    windows: int
    gain: Interval | None = None
    reliability: tuple[Reliability, ...] = ()
    odds_by_feature: Mapping[str, float] = field(default_factory=dict)
    shift_by_route: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Something worth trying on a route, to learn what it does there.

    Attributes:
        setting: what to try.
        by: the cheapest kind of evidence that is lacking.
        load: the load level at which it promises most.
        most_gain: high end of the engine's tokens that it may gain there over the plan, 0.03 being
            3 %; None if its time is unknown.
        most_token_share: share of the route's live tokens that it may take at most.
        win_share: share of the posterior draws in which it gains most of what is proposed live
            there and of what is in force; 0 where it is not proposed live.
    """

    setting: Setting
    by: Evidence
    load: LoadLevel
    most_gain: float | None
    most_token_share: float
    win_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What the policy says about one route.

    Attributes:
        route: route name.
        advice: change, no change, or not enough data.
        changes: one per load level with data, lowest load first.
        curves: the acceptance curves used.
        cost_rows: the measured step costs used, as (rows, positions, seconds).
        break_even_load: highest load level at which speculation still pays; None where it never
            does.
        reasons: sentences, most important first.
        would_change_mind: sentences.
        predicted_goodput: tokens per second by load level label, at the proposed plan.
        turning_points: where the best Setting of a load level and off change places.
        trials: what is worth trying next, most promising first.
        features: by method, whether acceptance depends on what a request is like.
        pools: where the route had better move to a pool without speculation.
    """

    route: str
    advice: Advice
    changes: tuple[LoadChange, ...]
    curves: tuple[AcceptanceCurve, ...] = ()
    cost_rows: tuple[tuple[int, int, float], ...] = ()
    break_even_load: LoadLevel | None = None
    reasons: tuple[str, ...] = ()
    would_change_mind: tuple[str, ...] = ()
    predicted_goodput: Mapping[str, float] = field(default_factory=dict)
    turning_points: tuple[TurningPoint, ...] = ()
    trials: tuple[Trial, ...] = ()
    features: Mapping[Method, FeatureCheck] = field(default_factory=dict)
    pools: tuple[PoolAdvice, ...] = ()
