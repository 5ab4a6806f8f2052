"""What the replay and divergence pages show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from collectors.records import Setting
from policy.gate import RouteSpeed
from policy.types import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLine:
    """A shadow replay in a list.

    Attributes:
        id: number.
        state: how it ended, such as ``done`` or ``failed``.
        routes: routes whose requests were replayed; empty for all.
        baseline: Setting of the first arm.
        candidate: Setting of the second arm.
        started_at: start.
        ended_at: end; None while it runs.
        pairs: requests that ran on both arms with the Settings asked for.
        void_pairs: requests whose applied Setting was not the one asked for, or that failed.
        speedup: ratio of the candidate's speed to the baseline's over all routes together, paired
            by request; None with too few pairs.
        planned_pairs: pairs it makes at most; None where that was not noted.
    """

    id: int
    state: str
    routes: tuple[str, ...]
    baseline: Setting
    candidate: Setting
    started_at: datetime
    ended_at: datetime | None
    pairs: int
    void_pairs: int
    speedup: Interval | None
    planned_pairs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """What one arm of a replay did over all its valid pairs.

    Attributes:
        setting: Setting of the arm.
        config_digest: digest of the pinned configuration.
        tokens: tokens delivered.
        seconds: summed request time.
        passes: target passes; None where the engine did not say.
        accepted: draft tokens kept; None likewise.
        tokens_per_pass: tokens per target pass; None likewise.
        tokens_per_s: tokens per second of request time; None without time.
    """

    setting: Setting
    config_digest: str
    tokens: int
    seconds: float
    passes: int | None
    accepted: int | None
    tokens_per_pass: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPair:
    """One request on both arms.

    Attributes:
        request_id: id of the captured request.
        route: its route.
        baseline_tokens: tokens delivered by the first arm.
        candidate_tokens: tokens delivered by the second.
        baseline_s: time of the first arm.
        candidate_s: time of the second.
        baseline_token_s: seconds a token of the first arm, after the first token where both arms
            showed it; None where the pair is void.
        candidate_token_s: the same of the second.
        ratio: the first of these over the second; None where the pair is void.
        void_reason: why the pair does not count; None where it does.
    """

    request_id: str
    route: str
    baseline_tokens: int
    candidate_tokens: int
    baseline_s: float
    candidate_s: float
    baseline_token_s: float | None
    candidate_token_s: float | None
    ratio: float | None
    void_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """The page of one replay; each route is judged by its own pairs only."""

    line: ReplayLine
    routes: tuple[RouteSpeed, ...]
    baseline: ArmFigures
    candidate: ArmFigures
    pairs: tuple[ReplayPair, ...]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """How the outputs of one arm compare with plain decoding, by kind of first difference.

    Attributes:
        pairs: prompts compared.
        identical: no difference.
        near_tie: the two best tokens were closer at the split than the measured noise.
        suspicious: they were not.
        length: one output ended earlier.
        error: a request failed.
    """

    pairs: int
    identical: int
    near_tie: int
    suspicious: int
    length: int
    error: int

    @property
    def identical_share(self) -> float | None:
        """Exact-match share, 0 to 1; None without pairs."""
        return self.identical / self.pairs if self.pairs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceLine:
    """A divergence report in a list.

    Attributes:
        id: number.
        at: when it was made.
        setting: Setting compared with plain decoding.
        arm: its counts.
        control: counts of plain decoding at another batch shape, the baseline of noise.
        diverges: True where the Setting differs more than the control arm does; None where that
            could not be judged.
        verdict: the same in one sentence.
    """

    id: int
    at: datetime
    setting: Setting
    arm: ArmCounts
    control: ArmCounts
    diverges: bool | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceRoute:
    """What a report says of one route, by that route's prompts alone.

    Attributes:
        route: the route.
        arm: counts of the Setting's arm.
        control: counts of plain decoding at another batch shape.
        diverges: as in ``DivergenceLine``.
        verdict: the same in one sentence.
    """

    route: str
    arm: ArmCounts
    control: ArmCounts
    diverges: bool | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The first difference of one pair.

    Attributes:
        request_id: id of the captured request.
        route: its route.
        is_control: True for the control arm.
        kind: near_tie, suspicious, length or error.
        position: place of the first different token, from 0; None where there is none.
        margin: logit gap of the two best tokens there; None where it was not read.
        detail: one line, such as the error of a failed request.
    """

    request_id: str
    route: str
    is_control: bool
    kind: str
    position: int | None
    margin: float | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceView:
    """The page of one divergence report.

    Attributes:
        line: what the list shows, all routes together.
        routes: the same route by route.
        noise_margin: gap below which a split counts as a near tie; None where unknown.
        false_alarm_rate: chance that a Setting without fault is called divergent; None likewise.
        p_value: of the comparison with the control arm; None likewise.
        baseline_digest: pinned configuration of plain decoding.
        candidate_digest: pinned configuration of the Setting.
        splits: first differences, the Setting's arm first.
    """

    line: DivergenceLine
    routes: tuple[DivergenceRoute, ...]
    noise_margin: float | None
    false_alarm_rate: float | None
    p_value: float | None
    baseline_digest: str
    candidate_digest: str
    splits: tuple[Split, ...]
