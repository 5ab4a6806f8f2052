"""Rules on acceptance alone, as engines and their pull requests have them.

Each lives in an engine that decides every step; here it decides every window, on the mean of the
window's steps, like every other policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np

from policy.simulate.engine import Choice, Counts, Turn, model
from policy.simulate.peers.base import for_all, for_each
from policy.simulate.worlds import MAX_DEPTH


class SglangAdaptive:
    """SGLang's adaptive steps: tiers by batch size, moved by an average of accepted drafts.

    Source: sgl-project/sglang, adaptive_spec_params.py, DEFAULT_ADAPTIVE_CONFIG: candidates from
    batch size 1, 8, 32 and 64 on (the key below the batch size counts), ema_alpha 0.2, no warm-up
    left after the first window; a tier is left downwards at the next lower candidate - 0.5 (0.5
    for none at all) plus down_hysteresis, upwards above its own steps - 0.5.
    """

    name = "sglang_adaptive"

    _TIERS = ((1, (1, 3, 5, 7), -0.25), (8, (0, 1, 3), 0.0), (32, (0, 1), 0.0), (64, (0,), 0.0))
    _ALPHA = 0.2
    _INITIAL = 3

    def __init__(self) -> None:
        """Start each tier at 3 steps, or at its middle candidate."""
        self._current = [
            self._INITIAL if self._INITIAL in steps else steps[len(steps) // 2]
            for _, steps, _ in self._TIERS
        ]
        self._average = [float(steps - 1) for steps in self._current]

    def choose(self, turn: Turn) -> Choice:
        """Return the steps of the batch's tier for all routes."""
        return for_all(model(self._current[self._tier(turn)]), turn)

    def observe(self, counts: Counts) -> None:
        """Move the tier by what its steps accepted."""
        tier = self._tier(counts.turn)
        if self._current[tier]:
            accepted = counts.accepts.sum() / (counts.turn.num_rows * counts.steps)
            kept = (1 - self._ALPHA) ** counts.steps
            self._average[tier] = kept * self._average[tier] + (1 - kept) * float(accepted)
        self._current[tier] = self._moved(tier)

    def _moved(self, tier: int) -> int:
        _, steps, hysteresis = self._TIERS[tier]
        place, average = steps.index(self._current[tier]), self._average[tier]
        if self._current[tier] == 0:
            probe = steps[min(1, len(steps) - 1)]
            self._average[tier] = float(probe - 1) if average < 0 else average
            return probe
        before = place
        while place and average <= max(steps[place - 1] - 0.5, 0.5) + hysteresis:
            place -= 1
        while place >= before and place < len(steps) - 1 and average > steps[place] - 0.5:
            place += 1
            before = place
        return steps[place]

    def _tier(self, turn: Turn) -> int:
        return max(0, bisect_right([size for size, _, _ in self._TIERS], turn.num_rows) - 1)


class AcceptanceBand:
    """Keep the acceptance rate near a target, route by route (it is by sequence there).

    Source: vllm-project/vllm#26504: threshold 0.7, hysteresis 0.05, the last 10 rates and at least
    3, one token up or down at a time, between 1 and the configured length.
    """

    name = "acceptance_band"

    _TARGET, _HYSTERESIS, _HISTORY, _LEAST = 0.7, 0.05, 10, 3

    def __init__(self, num_routes: int) -> None:
        """Start all routes at the configured length."""
        self._length = [MAX_DEPTH] * num_routes
        self._rates: list[deque[float]] = [deque(maxlen=self._HISTORY) for _ in self._length]

    def choose(self, turn: Turn) -> Choice:
        """Return each route's length."""
        return for_each([model(k) for k in self._length], turn)

    def observe(self, counts: Counts) -> None:
        """Move each route's length by its rate."""
        drafted = counts.turn.rows * counts.steps * counts.choice.depth
        for route in np.flatnonzero(drafted):
            rates = self._rates[route]
            rates.append(float(counts.accepts[route].sum() / drafted[route]))
            if len(rates) >= self._LEAST:
                mean = sum(rates) / len(rates)
                up, down = mean > self._TARGET + self._HYSTERESIS, mean < self._TARGET - 0.05
                self._length[route] = min(MAX_DEPTH, max(1, self._length[route] + up - down))


class OneWayGate:
    """A fixed length that is switched off for good when acceptance falls below a threshold.

    Source: TensorRT-LLM, speculation_gate.py: a rolling mean of acceptance rates over the last
    iterations. Window and threshold have no defaults there; 1000 iterations and 0.2 keep the gate
    from closing by chance. Length 3 is among its documented examples.
    """

    name = "trtllm_gate"

    _LENGTH, _ITERATIONS, _THRESHOLD = 3, 1000, 0.2

    def __init__(self) -> None:
        """Start with speculation on."""
        self._rates: deque[tuple[int, float]] = deque()
        self._is_open = True

    def choose(self, turn: Turn) -> Choice:
        """Return the length, or off once closed."""
        return for_all(model(self._LENGTH if self._is_open else 0), turn)

    def observe(self, counts: Counts) -> None:
        """Close the gate where the rolling mean is too low."""
        if not self._is_open:
            return
        drafted = counts.turn.num_rows * counts.steps * self._LENGTH
        self._rates.append((counts.steps, float(counts.accepts.sum() / drafted)))
        held = sum(steps for steps, _ in self._rates)
        while held - self._rates[0][0] >= self._ITERATIONS:
            held -= self._rates.popleft()[0]
        if held >= self._ITERATIONS:
            mean = sum(steps * rate for steps, rate in self._rates) / held
            self._is_open = mean >= self._THRESHOLD
