"""All policies of the benchmark, by what they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectors.records import Setting
from policy.simulate.engine import ARMS, Engine
from policy.simulate.peers.bandits import DISCOUNT, ByLoad, ByRouteAndLoad, EpsilonGreedy, Ucb
from policy.simulate.peers.base import Fixed, Policy
from policy.simulate.peers.oracles import OneArmOracle, PerfectConfidence, PerRouteOracle
from policy.simulate.peers.rules import AcceptanceBand, OneWayGate, SglangAdaptive
from policy.simulate.peers.tables import BatchSizeTable, Cascade, GoodputAverage
from policy.simulate.profiles import Drafting

ORACLE = PerRouteOracle.name
OFF_NAME = "off"
BEST_FIXED = "best_fixed"
"""The best fixed arm of each world, known only afterwards; made of the fixed ones."""


def fixed() -> list[Policy]:
    """Return off and every fixed arm."""
    return [Fixed(arm) for arm in ARMS]


def peers(engine: Engine, seed: int, arms: Sequence[Setting] = ARMS) -> list[Policy]:
    """Return fresh policies for one world: those that learn, and those that know.

    Args:
        engine: the world on its profile.
        seed: of what they draw.
        arms: what those that choose among arms may choose; rules of k keep to theirs.
    """
    num_arms = len(arms)
    generator = np.random.default_rng((seed, 3))
    return [
        BatchSizeTable(engine),
        SglangAdaptive(),
        AcceptanceBand(engine.world.num_routes),
        OneWayGate(),
        GoodputAverage(engine),
        Cascade(engine),
        ByLoad("ucb_load", lambda: Ucb(1.0, num_arms), arms),
        ByLoad("discounted_ucb_load", lambda: Ucb(DISCOUNT, num_arms), arms),
        ByLoad("epsilon_greedy_load", lambda: EpsilonGreedy(generator, num_arms), arms),
        ByRouteAndLoad("ucb_route_load", lambda: Ucb(1.0, num_arms), arms),
        PerfectConfidence(engine, Drafting.ONE_PASS),
        PerfectConfidence(engine, Drafting.MODEL),
        OneArmOracle(engine, arms),
    ]


def entrants(engine: Engine, seed: int, arms: Sequence[Setting] = ARMS) -> list[Policy]:
    """Return every policy for one world but ours, the oracle first; arguments as in ``peers``."""
    return [PerRouteOracle(engine, arms), *fixed(), *peers(engine, seed, arms)]
