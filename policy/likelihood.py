"""How likely a window's counts are under the behaviours that a route may show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from collectors.records import Setting
from policy.regime import PRIOR_STRENGTH, Regime
from policy.statistics import Floats
from policy.tally import Tally

LEVELS = np.linspace(0.05, 0.95, 10)
LEVEL_STRENGTH = 20.0
"""What a method not yet seen in a regime may be like: accepted at one of these levels at the first
position, further on in the shape that it has elsewhere. One level, since positions are alike: as
many independent guesses as positions would make everything unseen look far-fetched."""

OPEN = 0.5
"""Weight of any level being as likely as any other: that a method fails on some routes says little
of the next one."""


def trust_after(
    regime: Regime, family: Setting, tally: Tally, weight: float, guess: Floats
) -> float:
    """Return the chance that a family's counts speak of a regime, now that a window was seen."""
    alone = {family: (tally, weight)}
    known = Regime(counts={family: regime.counts[family]})
    held, unseen = log_fits([known, Regime()], alone, {family: guess})
    return float(special.expit(special.logit(regime.trust(family)) + held - unseen))


def log_fits(
    regimes: Sequence[Regime],
    scaled: Mapping[Setting, tuple[Tally, float]],
    guess: Mapping[Setting, Floats],
) -> Floats:
    """Return the log likelihood of a window's counts under each regime; [K].

    Where counts of a family are doubted, it is as likely as any other level with what is missing to
    certainty.

    Args:
        regimes: K of them.
        scaled: the window's counts by family, and what each pass of them weighs.
        guess: [D] first guess of acceptance by family.
    """
    fits = np.zeros(len(regimes))
    for family, (tally, weight) in scaled.items():
        reached = int(np.count_nonzero(tally.attempts))
        fresh = np.stack([tally.accepts, tally.attempts - tally.accepts])[:, :reached] * weight
        unseen, weights = unseen_levels(guess[family][:reached])
        seen = [i for i, regime in enumerate(regimes) if family in regime.counts]
        levels = _log_fit(unseen, fresh)
        likeliest = levels.max()
        fit = np.full(len(regimes), likeliest + np.log(weights @ np.exp(levels - likeliest)))
        if seen:
            first = guess[family][:reached]
            held = np.stack([regimes[i].counts[family][:, :reached] for i in seen])
            known = _log_fit(held + PRIOR_STRENGTH * np.stack([first, 1 - first]), fresh)
            trust = np.array([regimes[i].trust(family) for i in seen])
            with np.errstate(divide="ignore"):
                fit[seen] = np.logaddexp(np.log(trust) + known, np.log1p(-trust) + fit[seen])
        fits += fit
    return fits


def unseen_levels(prior: Floats) -> tuple[Floats, Floats]:
    """Return parameters [L, 2, D] of a method not yet seen in a regime, and their weights [L]."""
    mean = LEVELS[:, None] * np.clip(prior / prior[0], 0.0, 1.0)
    parameters = LEVEL_STRENGTH * np.stack([mean, 1 - mean], axis=1)
    first = PRIOR_STRENGTH * np.array([prior[0], 1 - prior[0]]) - 1
    log_weights = first[0] * np.log(LEVELS) + first[1] * np.log(1 - LEVELS)
    weights = np.exp(log_weights - log_weights.max())
    return parameters, (1 - OPEN) * weights / weights.sum() + OPEN / len(LEVELS)


def _log_fit(parameters: Floats, fresh: Floats) -> Floats:
    """Return the log likelihood of counts [2, D] under Betas [N, 2, D]; [N]."""
    with_it, without = parameters + fresh, parameters
    gained = special.betaln(with_it[:, 0], with_it[:, 1])
    gained -= special.betaln(without[:, 0], without[:, 1])
    return np.asarray(gained.sum(axis=1))
