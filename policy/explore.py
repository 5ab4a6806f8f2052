"""What is worth trying on a route next, and how: the cheapest kind of evidence that is lacking.

First scores on recorded answers, which cost nothing; then replays of captured requests, which cost
idle time; then live traffic, on a small share of tokens and never where a route breaks its limits.
A trial is worth it where the high end of what is believed would be a gain. Nothing is tried here:
these are proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collectors.records import Method, Setting
from policy.adaptive import kind_of
from policy.knowledge import Knowledge
from policy.options import RecommendOptions
from policy.plan_evaluation import PlanEvaluation, with_arm
from policy.statistics import TAIL, Floats, Ints
from policy.types import Evidence, Trial

SCORABLE = (Method.PROMPT_LOOKUP, Method.SUFFIX)
MOST_TRIALS = 3
"""Trials named for one route: the most promising ones."""


def trials(
    evaluation: PlanEvaluation,
    plan: Ints,
    route: int,
    *,
    knowledge: Knowledge,
    options: RecommendOptions,
    burn_ratio: float | None,
) -> Iterator[Trial]:
    """Propose what to try on a route at one load level.

    Args:
        evaluation: the batch.
        plan: [R] arms proposed; trials start from them.
        route: number of the route.
        knowledge: evidence and beliefs.
        options: how cautious to be.
        burn_ratio: share of the route's requests beyond its limits; None if unknown.
    """
    gains: dict[int, Floats] = {}
    found: dict[int, Trial] = {}
    rows = evaluation.mean.rows[0]
    least = options.min_gain * float(rows[route] / rows.sum())
    for arm, setting in enumerate(evaluation.mean.arms):
        by = _lacking(evaluation, plan, route, arm, knowledge)
        if by is None or (by is Evidence.LIVE and _is_burning(burn_ratio, options)):
            continue
        drawn = _drawn_gains(evaluation, plan, route, arm, knowledge)
        most_gain = None if drawn is None else float(np.quantile(drawn, 1 - TAIL))
        if most_gain is None or most_gain >= least:
            found[arm] = Trial(
                setting=setting,
                by=by,
                load=evaluation.mean.loads[0],
                most_gain=most_gain,
                most_token_share=options.exploring_share if by is Evidence.LIVE else 0.0,
            )
            if by is Evidence.LIVE and drawn is not None:
                gains[arm] = drawn
    standing = _drawn_gains(evaluation, plan, route, int(plan[route]), knowledge) if gains else None
    shares = {} if standing is None else win_shares(standing, gains)
    for arm, trial in found.items():
        yield replace(trial, win_share=shares.get(arm, 0.0))


def win_shares(standing: Floats, gains: Mapping[int, Floats]) -> dict[int, float]:
    """Return the share of draws in which each arm gains most, what stands among them.

    Drawing an arm by these shares is Thompson sampling: one draw of the posterior, its best arm.

    Args:
        standing: [N] what keeping to the plan gains, by draw.
        gains: [N] by arm, in the same draws.
    """
    arms = list(gains)
    best = np.argmax(np.stack([standing, *(gains[arm] for arm in arms)]), axis=0)
    counts = np.bincount(best, minlength=len(arms) + 1)[1:] / len(best)
    return dict(zip(arms, counts.tolist(), strict=True))


def best_trials(found: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the most promising trials of a route, each Setting at its best load level."""
    by_setting: dict[Setting, Trial] = {}
    for trial in sorted(found, key=_promise):
        by_setting[trial.setting] = trial
    return tuple(sorted(by_setting.values(), key=_promise, reverse=True)[:MOST_TRIALS])


def _promise(trial: Trial) -> tuple[float, str]:
    return (-1.0 if trial.most_gain is None else trial.most_gain, trial.setting.label)


def _is_burning(burn_ratio: float | None, options: RecommendOptions) -> bool:
    return burn_ratio is not None and burn_ratio > options.max_burn_ratio


def _lacking(
    evaluation: PlanEvaluation, plan: Ints, route: int, arm: int, knowledge: Knowledge
) -> Evidence | None:
    """Return the cheapest evidence that an arm lacks on a route; None for what has live, or stands.

    Of an adaptive one at this load level, and never by scores: the engine decides its drafts.
    """
    setting, load = evaluation.mean.arms[arm], evaluation.mean.loads[0]
    name = evaluation.mean.routes[0][route]
    if not setting.k or arm == plan[route]:
        return None
    kinds: Sequence[Evidence] = knowledge.acceptance.evidence(name, kind_of(setting, load))
    has_depth = knowledge.has_evidence(name, setting, load)
    if Evidence.LIVE in kinds and has_depth:
        return None
    if not kinds and setting.method in SCORABLE and not setting.is_adaptive:
        return Evidence.COUNTERFACTUAL
    if Evidence.REPLAY not in kinds or not has_depth:
        return Evidence.REPLAY
    return Evidence.LIVE


def _drawn_gains(
    evaluation: PlanEvaluation, plan: Ints, route: int, arm: int, knowledge: Knowledge
) -> Floats | None:
    """Draw what an arm gains over the plan, as a share of the engine's tokens; None if unknown."""
    tried = with_arm(plan, route, arm)
    if not evaluation.is_known(tried) or knowledge.outlook is None:
        return None
    batch, setting = evaluation.mean, evaluation.mean.arms[arm]
    name = batch.routes[0][route]
    drawn = np.ones(len(evaluation.draws))
    if setting.k:
        kind = kind_of(setting, batch.loads[0])
        drawn = knowledge.outlook.drawn_tokens(name, kind)[:, setting.k]
    tokens = batch.tokens[0]
    now = tokens[np.arange(len(plan)), plan].sum()
    others = now - tokens[route, plan[route]]
    slower = evaluation.step_s(tried) / evaluation.step_s(plan)
    return np.asarray((others + batch.rows[0, route] * drawn) / now / slower - 1)
