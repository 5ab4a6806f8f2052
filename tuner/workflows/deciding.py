"""Log which plan came into force, and how likely each Setting of it was to be chosen."""

from __future__ import annotations

from importlib import metadata

from sqlalchemy.orm import Session

from collectors.records import Plan
from collectors.records.parsing import digest_of
from tuner.settings import Settings
from tuner.store import decisions
from tuner.store.decisions import Decision
from tuner.workflows.site import Site

FOUND = "found in force"


def note_decision(site: Site, session: Session, plan: Plan, *, who: str) -> None:
    """Log that a plan is in force from now on; nothing where it was already.

    Plans are approved or proposed without a draw, so each Setting's propensity is 1.

    Args:
        site: the engine.
        session: session of the transaction that notes the change.
        plan: the plan read back.
        who: token name of an operator, or the name of a job.
    """
    decisions.note(
        session,
        Decision(
            engine=site.engine,
            at_s=site.clock(),
            plan=plan,
            policy_version=policy_version(site.settings),
            who=who,
            arms=site.settings.arms,
        ),
    )


def note_in_force(site: Site) -> None:
    """Log the live plan where it came into force by another way, such as the engine's default.

    Raises:
        EngineUnreachable: the plan in force cannot be read.
    """
    live = site.actuator.read_back()
    with site.store.writing() as session:
        note_decision(site, session, live, who=FOUND)


def policy_version(settings: Settings) -> str:
    """Return what decided: the program's version, and a digest of the options it decided with."""
    options = {
        "min_gain": settings.min_gain,
        "half_life_s": settings.half_life_s,
        "arms": [arm.to_dict() for arm in settings.arms],
        "routes": [route.name for route in settings.routes],
    }
    return f"{metadata.version('spectuner')}+{digest_of(options)[:12]}"
