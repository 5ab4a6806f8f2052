"""The plan that recommendations and approvals start from: trials and exploration taken out.

What is tried is in force for a while only, so that comparing with it, or approving on top of it,
would make a passing Setting the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping

from collectors.records import LoadLevel, Plan, Setting
from tuner.store import plans
from tuner.store.plans import PlanChange
from tuner.workflows.site import Site
from tuner.workflows.trial import LONGEST_S, running, without_trial

Place = tuple[str, LoadLevel]


def baseline(site: Site, live: Plan) -> Plan:
    """Return the plan as it will be once what is tried now is over: the last approved one, or off.

    Args:
        site: the engine.
        live: the plan read back.
    """
    return without_exploration(site, without_trial(site, live))


def without_exploration(site: Site, live: Plan) -> Plan:
    """Return a plan with every explored Setting that is still in force as it was before."""
    exploration = _exploration(site)
    if exploration is None:
        return live
    explored = _explored(exploration, live)
    before = {(one.route, one.load): one for one in exploration.before.entries}
    kept = [one for one in live.entries if (one.route, one.load) not in explored]
    restored = [before[place] for place in sorted(explored) if place in before]
    return Plan(version=live.version, default=live.default, entries=(*kept, *restored))


def trying_reason(site: Site, live: Plan) -> str | None:
    """Say that a trial or an exploration runs, so that nothing is recommended; None without one."""
    trial = running(site, live)
    if trial is not None:
        return (
            f"{trial.setting.label} is on trial on {trial.route} at load {trial.load.label}; "
            "recommendations wait until it is over"
        )
    exploration = _exploration(site)
    if exploration is None or not _explored(exploration, live):
        return None
    age_s = (site.now() - exploration.at).total_seconds()
    if age_s > LONGEST_S:
        return None
    return f"{exploration.why} runs since {age_s:.0f} s; recommendations wait until it is over"


def _exploration(site: Site) -> PlanChange | None:
    with site.store.reading() as session:
        return plans.open_exploration(session, site.engine)


def _explored(exploration: PlanChange, live: Plan) -> Mapping[Place, Setting]:
    """Return where a plan still runs what an exploration brought."""
    before = {(one.route, one.load): one.setting for one in exploration.before.entries}
    return {
        (one.route, one.load): one.setting
        for one in exploration.plan.entries
        if before.get((one.route, one.load)) != one.setting
        and live.setting_for(one.route, one.load) == one.setting
    }
