"""Log which plan came into force, and how likely each Setting of it was to be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from sqlalchemy.orm import Session

from collectors.records import Plan
from collectors.records.parsing import digest_of
from policy.lottery import Chance
from tuner.settings import Settings
from tuner.store import decisions
from tuner.store.decisions import Decision
from tuner.workflows.site import Site

FOUND = "found in force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How what is in force in one window was drawn.

    Attributes:
        chances: where something was drawn, and how likely each arm was.
        seed: of the generator.
        until_s: end of the window, Unix seconds.
    """

    chances: tuple[Chance, ...]
    seed: int
    until_s: float


def note_decision(
    site: Site, session: Session, plan: Plan, *, who: str, draw: Draw | None = None
) -> None:
    """Log that a plan is in force from now on; nothing where it was already and nothing was drawn.

    A plan that people approve is not drawn, so each of its Settings has a propensity of 1.

    Args:
        site: the engine.
        session: session of the transaction that notes the change.
        plan: the plan read back.
        who: token name of an operator, or the name of a job.
        draw: how it was drawn; None where it was not.
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
            chances=() if draw is None else draw.chances,
            seed=None if draw is None else draw.seed,
            until_s=None if draw is None else draw.until_s,
        ),
    )


def note_in_force(site: Site) -> None:
    """Log the live plan where it came into force by another way, such as the engine's default.

    Raises:
        EngineUnreachable: the plan in force cannot be read.
    """
    with site.plan_lock:
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
