"""What approved changes were said to bring, beside what they bring in the windows that follow.

A world can be asked what no service can: what exactly this change alone would have brought, all
else staying as it was when the policy was asked. So changes approved together are judged apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collectors.records import OFF, LoadLevel, Plan, PlanEntry, Setting, load_level_of
from policy.simulate.engine import Engine, Turn
from policy.simulate.peers.base import for_each
from policy.simulate.reviewed import Approved
from policy.simulate.worlds import ROUTES
from policy.statistics import Floats

AHEAD_WINDOWS = 30
"""Windows after the change that count: `recommend` looks as far ahead."""

MIN_WINDOWS = 10
"""Windows at the load level from which a change is judged, as on its page in the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """How far what was said of approved changes held.

    Attributes:
        errors: relative error of the goodput predicted for each change that could be judged.
        goodputs_held: goodputs that lay in the 90 % interval predicted.
        over_off_held: speeds over off that lay in theirs.
        over_off_judged: how many of them there were.
    """

    errors: tuple[float, ...]
    goodputs_held: int
    over_off_held: int
    over_off_judged: int


def promises_of(engine: Engine, approved: Sequence[Approved]) -> Promises:
    """Judge each change over the windows at its load level that follow it."""
    errors, goodputs_held, held, judged = [], 0, 0, 0
    for one in approved:
        turns = _turns(engine, one.window, one.change.load)
        if len(turns) < MIN_WINDOWS:
            continue
        changed = _rates(engine, turns, _with(one, one.change.proposed))
        place = ROUTES.index(one.route)
        if one.change.goodput is not None:
            said, got = one.change.goodput, float(changed.sum()) / len(turns)
            errors.append(abs(said.mean - got) / got)
            goodputs_held += said.low <= got <= said.high
        off = float(_rates(engine, turns, _with(one, OFF))[place])
        if one.change.proposed != OFF and off:
            said = one.change.over_off
            judged += 1
            held += said.low <= float(changed[place]) / off <= said.high
    return Promises(
        errors=tuple(errors),
        goodputs_held=goodputs_held,
        over_off_held=held,
        over_off_judged=judged,
    )


def _turns(engine: Engine, first: int, load: LoadLevel) -> list[Turn]:
    last = min(first + AHEAD_WINDOWS, engine.world.num_windows)
    turns = [engine.turn(number) for number in range(first, last)]
    return [turn for turn in turns if load_level_of(max(1, turn.num_rows)) == load]


def _with(one: Approved, setting: Setting) -> Plan:
    """Return the plan that was in force with another Setting at the place of the change."""
    place = (one.route, one.change.load)
    kept = [entry for entry in one.before.entries if (entry.route, entry.load) != place]
    entry = PlanEntry(route=one.route, load=one.change.load, setting=setting)
    return replace(one.before, entries=(*kept, entry))


def _rates(engine: Engine, turns: Sequence[Turn], plan: Plan) -> Floats:
    """Return the tokens of each route under a plan, in tokens per second, summed over windows."""
    load = load_level_of(max(1, turns[0].num_rows))
    settings = [plan.setting_for(name, load) for name in ROUTES]
    found = [
        engine.route_goodputs(turn, engine.allotted(turn, for_each(settings, turn)))
        for turn in turns
    ]
    return sum(found[1:], start=found[0])
