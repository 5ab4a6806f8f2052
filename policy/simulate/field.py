"""All policies of the benchmark, by what they need."""

from __future__ import annotations

import numpy as np

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


def peers(engine: Engine, seed: int) -> list[Policy]:
    """Return fresh policies for one world: those that learn, and those that know."""
    generator = np.random.default_rng((seed, 3))
    return [
        BatchSizeTable(engine),
        SglangAdaptive(),
        AcceptanceBand(engine.world.num_routes),
        OneWayGate(),
        GoodputAverage(engine),
        Cascade(engine),
        ByLoad("ucb_load", Ucb),
        ByLoad("discounted_ucb_load", lambda: Ucb(DISCOUNT)),
        ByLoad("epsilon_greedy_load", lambda: EpsilonGreedy(generator)),
        ByRouteAndLoad("ucb_route_load", Ucb),
        PerfectConfidence(engine, Drafting.ONE_PASS),
        PerfectConfidence(engine, Drafting.MODEL),
        OneArmOracle(engine),
    ]


def entrants(engine: Engine, seed: int) -> list[Policy]:
    """Return every policy for one world but ours, the oracle first."""
    return [PerRouteOracle(engine), *fixed(), *peers(engine, seed)]
