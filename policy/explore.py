"""What is worth trying on a route next, and how: the cheapest kind of evidence that is lacking.

First scores on recorded answers, which cost nothing; then replays of captured requests, which cost
idle time; then live traffic, on a small share of tokens and never where a route breaks its limits.
A trial is worth it where the high end of what is believed would be a gain. Nothing is tried here:
these are proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from collectors.records import Method, Setting
from policy.effects import Stage
from policy.knowledge import Knowledge
from policy.options import RecommendOptions
from policy.settle import with_arm
from policy.statistics import TAIL, Ints
from policy.tally import family_of
from policy.types import Evidence, Trial

SCORABLE = (Method.PROMPT_LOOKUP, Method.SUFFIX)
MOST_TRIALS = 3
"""Trials named for one route: the most promising ones."""


def trials(
    stage: Stage,
    plan: Ints,
    route: int,
    *,
    knowledge: Knowledge,
    options: RecommendOptions,
    burn_ratio: float | None,
) -> Iterator[Trial]:
    """Propose what to try on a route at one load level.

    Args:
        stage: the scene with its draws.
        plan: [R] arms proposed; trials start from them.
        route: number of the route.
        knowledge: evidence and beliefs.
        options: how cautious to be.
        burn_ratio: share of the route's requests beyond its limits; None if unknown.
    """
    name = stage.batch.routes[stage.scene][route]
    is_burning = burn_ratio is not None and burn_ratio > options.max_burn_ratio
    for arm, setting in enumerate(stage.batch.arms):
        by = _lacking(knowledge, name, setting)
        if by is None or arm == plan[route] or (by is Evidence.LIVE and is_burning):
            continue
        most_gain = _most_gain(stage, plan, route, arm, knowledge)
        if most_gain is None or most_gain >= options.min_gain:
            yield Trial(
                setting=setting,
                by=by,
                load=stage.batch.loads[stage.scene],
                most_gain=most_gain,
                most_token_share=options.exploring_share if by is Evidence.LIVE else 0.0,
            )


def best_trials(found: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the most promising trials of a route, each Setting at its best load level."""
    by_setting: dict[Setting, Trial] = {}
    for trial in sorted(found, key=_promise):
        by_setting[trial.setting] = trial
    return tuple(sorted(by_setting.values(), key=_promise, reverse=True)[:MOST_TRIALS])


def _promise(trial: Trial) -> tuple[float, str]:
    return (-1.0 if trial.most_gain is None else trial.most_gain, trial.setting.label)


def _lacking(knowledge: Knowledge, name: str, setting: Setting) -> Evidence | None:
    """Return the cheapest evidence that a Setting lacks on a route; None where it has live."""
    if not setting.k:
        return None
    kinds: Sequence[Evidence] = knowledge.acceptance.evidence(name, setting)
    has_depth = knowledge.has_evidence(name, setting)
    if Evidence.LIVE in kinds and has_depth:
        return None
    if not kinds and setting.method in SCORABLE:
        return Evidence.COUNTERFACTUAL
    if Evidence.REPLAY not in kinds or not has_depth:
        return Evidence.REPLAY
    return Evidence.LIVE


def _most_gain(
    stage: Stage, plan: Ints, route: int, arm: int, knowledge: Knowledge
) -> float | None:
    """Return the high end of what an arm may gain over the plan; None if its time is unknown."""
    tried = with_arm(plan, route, arm)
    if not stage.is_known(tried) or knowledge.outlook is None:
        return None
    setting = stage.batch.arms[arm]
    name = stage.batch.routes[stage.scene][route]
    drawn = knowledge.outlook.drawn_tokens(name, family_of(setting))[:, setting.k]
    rows = stage.batch.rows[stage.scene]
    others = stage.batch.tokens[stage.scene][np.arange(len(plan)), plan].sum()
    others -= stage.batch.tokens[stage.scene, route, plan[route]]
    high = others + rows[route] * float(np.quantile(drawn, 1 - TAIL))
    now = others + stage.batch.tokens[stage.scene, route, plan[route]]
    own = stage.batch.tokens[stage.scene, route, plan[route]] / stage.seconds(plan)
    return float((high / stage.seconds(tried) - now / stage.seconds(plan)) / own)
