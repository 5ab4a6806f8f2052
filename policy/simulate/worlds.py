"""Traffic and its hidden difficulty: what happens, whatever a policy does.

Each route's text is easy or hard by a two-state chain that moves from step to step, so that
acceptance is neither independent nor constant. Numbers are those of the stated prototype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policy.errors import InvalidInput
from policy.simulate.pace import Pace, draw_pace
from policy.simulate.profiles import USUAL_CONTEXT_TOKENS
from policy.statistics import Floats, Ints

NUM_WINDOWS = 1200
WINDOW_S = 1.0
MAX_DEPTH = 7

ROUTES = ("code", "chat", "extract", "creative")

FIRST_ACCEPTANCE = np.array(
    [
        [[0.85, 0.30], [0.88, 0.70]],
        [[0.25, 0.10], [0.75, 0.55]],
        [[0.92, 0.60], [0.80, 0.60]],
        [[0.10, 0.05], [0.55, 0.35]],
    ]
)
"""[R, 2, 2] acceptance of the first position by route, drafting (lookup, model), easy or hard."""

DECAY = np.array([0.98, 0.95])
"""[2] factor of acceptance from position to position, by drafting."""

STEPS_PER_WINDOW = 50
USUAL_DWELL_STEPS = 20.0
LONG_DWELL_WINDOWS = 1 / 0.03
"""How long a text stays easy or hard: some steps, or with W5 some 33 windows."""

PERIOD_WINDOWS = 400
BURST_WINDOWS = 10
BURST_CHANCE = 0.01
BURST_FACTOR = 3
STEADY_ROWS = 16

SHARE_STRENGTH = 8.0
LONG_CONTEXT_TOKENS = 8192.0
LONG_SHARE = 0.6

WORKLOADS: Mapping[str, str] = {
    "W1": "steady load",
    "W2": "a day of load in 400 windows, with bursts of three times as much",
    "W3": "W2, and two moments at which the routes change places",
    "W4": "the last route appears after a quarter of the run",
    "W5": "each route's text stays easy or hard for some 33 windows",
    "W6": "the share of long contexts rises from none to 60 %",
    "W7": "the machine's pace wanders: all steps take up to five times as long for 5 to 60 s",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Everything that is hidden from a policy.

    Attributes:
        seed: what it was drawn from.
        rows: [W, R] running sequences of each route.
        context_tokens: [W] mean KV entries of a row.
        easy_share: [W, R] share of a window's steps in which a route's text is easy.
        acceptance: [W, R, 2, 2, D] chance of each position given all before it, by drafting
            (lookup, model) and easy or hard.
        change_points: windows at which routes change places.
        pace: how long steps take over what the profile says.
    """

    seed: int
    rows: Ints
    context_tokens: Floats
    easy_share: Floats
    acceptance: Floats
    change_points: tuple[int, ...]
    pace: Pace = field(default_factory=Pace)

    @property
    def num_windows(self) -> int:
        """W."""
        return len(self.rows)

    @property
    def num_routes(self) -> int:
        """R."""
        return int(self.rows.shape[1])

    def survival(self, window: int) -> Floats:
        """Return the chance that a position and all before it are accepted; [R, 2, D]."""
        by_state = np.cumprod(self.acceptance[window], axis=-1)
        easy = self.easy_share[window][:, None, None]
        return np.asarray(easy * by_state[:, :, 0] + (1 - easy) * by_state[:, :, 1])


def workloads_of(text: str) -> tuple[str, ...]:
    """Read names joined by ``+``, such as ``W2+W3+W5``.

    Raises:
        InvalidInput: a name is unknown.
    """
    names = tuple(dict.fromkeys(name.strip().upper() for name in text.split("+")))
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        legal = ", ".join(WORKLOADS)
        raise InvalidInput(f"unknown workload {unknown[0]!r}; join some of {legal} with +")
    return names


def draw_world(
    seed: int,
    workloads: Sequence[str],
    num_windows: int = NUM_WINDOWS,
    traffic: tuple[Ints, Floats] | None = None,
) -> World:
    """Draw one world.

    Args:
        seed: equal seeds give equal worlds.
        workloads: names of WORKLOADS.
        num_windows: W.
        traffic: [W] running sequences and [W] mean KV entries of a row, in place of the drawn ones.
    """
    generator = np.random.default_rng((20260101, seed))
    is_diurnal = "W2" in workloads or "W3" in workloads
    load = _diurnal(generator, num_windows) if is_diurnal else np.full(num_windows, STEADY_ROWS)
    context = _contexts(num_windows) if "W6" in workloads else np.full(num_windows, 0.0)
    if traffic is not None:
        load, context = traffic[0], traffic[1] - USUAL_CONTEXT_TOKENS
    order, moments = _order(generator, num_windows, "W3" in workloads)
    rows = _split(generator, load, num_windows // 4 if "W4" in workloads else 0)
    dwell = LONG_DWELL_WINDOWS * STEPS_PER_WINDOW if "W5" in workloads else USUAL_DWELL_STEPS
    powers = DECAY[:, None, None] ** np.arange(MAX_DEPTH)
    return World(
        seed=seed,
        rows=rows,
        context_tokens=np.maximum(context, 0.0),
        easy_share=_easy_share(generator, num_windows, dwell),
        acceptance=FIRST_ACCEPTANCE[order][..., None] * powers,
        change_points=moments,
        pace=_pace(seed, num_windows) if "W7" in workloads else Pace(),
    )


def _pace(seed: int, num_windows: int) -> Pace:
    """Draw a pace from numbers of its own: with and without it a world is the same otherwise."""
    return draw_pace(np.random.default_rng((20260107, seed)), num_windows, WINDOW_S)


def _diurnal(generator: np.random.Generator, num_windows: int) -> Ints:
    """Load 3 + 40 ((1 + sin) / 2)^3 with a period of 400 windows, tripled in bursts."""
    angle = 2 * np.pi * np.arange(num_windows) / PERIOD_WINDOWS
    load = 3 + 40 * ((1 + np.sin(angle)) / 2) ** 3
    starts = generator.random(num_windows) < BURST_CHANCE
    is_burst = np.convolve(starts, np.ones(BURST_WINDOWS))[:num_windows] > 0
    return np.rint(np.where(is_burst, BURST_FACTOR, 1) * load).astype(np.intp)


def _contexts(num_windows: int) -> Floats:
    share = LONG_SHARE * np.arange(num_windows) / max(1, num_windows - 1)
    return np.asarray(share * (LONG_CONTEXT_TOKENS - USUAL_CONTEXT_TOKENS))


def _order(
    generator: np.random.Generator, num_windows: int, changes: bool
) -> tuple[Ints, tuple[int, ...]]:
    """Return which behaviour each route has in each window; [W, R]."""
    order = np.tile(np.arange(len(ROUTES)), (num_windows, 1))
    moments = (num_windows // 3, 2 * num_windows // 3) if changes else ()
    for moment in moments:
        order[moment:] = order[moment:][:, _derangement(generator)]
    return order, moments


def _derangement(generator: np.random.Generator) -> Ints:
    while True:
        order = generator.permutation(len(ROUTES))
        if not np.any(order == np.arange(len(ROUTES))):
            return np.asarray(order)


def _split(generator: np.random.Generator, load: Ints, first_window: int) -> Ints:
    """Share rows out by fixed shares, largest remainder first; [W, R]."""
    shares = np.tile(generator.dirichlet(np.full(len(ROUTES), SHARE_STRENGTH)), (len(load), 1))
    shares[:first_window, -1] = 0.0
    exact = load[:, None] * shares / shares.sum(axis=1, keepdims=True)
    whole = np.floor(exact).astype(np.intp)
    missing = load - whole.sum(axis=1)
    rank = np.argsort(np.argsort(-(exact - whole), axis=1, kind="stable"), axis=1)
    return np.asarray(whole + (rank < missing[:, None]))


def _easy_share(generator: np.random.Generator, num_windows: int, dwell_steps: float) -> Floats:
    shape = (num_windows * STEPS_PER_WINDOW, len(ROUTES))
    flips = generator.random(shape) < 1 / dwell_steps
    flips[0] = generator.random(len(ROUTES)) < 0.5
    states = np.cumsum(flips, axis=0) % 2
    return np.asarray(states.reshape(num_windows, STEPS_PER_WINDOW, -1).mean(axis=1))
