"""The plans that are compared."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.records import OFF, Plan, Setting
from tuner.bench.service.options import ADAPTIVE, FIXED, OFF_ARM, REVIEWED, ServiceBenchOptions
from tuner.errors import BadRequest
from tuner.workflows.apply import Intent, apply
from tuner.workflows.site import Site

WHO = "bench service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way of running the engine.

    Attributes:
        name: in tables and JSON.
        plan: in force in its blocks.
    """

    name: str
    plan: Plan


def arms_of(options: ServiceBenchOptions, reviewed: Plan) -> tuple[Arm, ...]:
    """Return the arms asked for, off first.

    Args:
        options: how the service is measured.
        reviewed: the plan at which the service arrived.
    """
    arms = [Arm(name=OFF_ARM, plan=Plan())]
    if FIXED in options.arms:
        arms += [Arm(name=one.label, plan=Plan(default=one)) for one in options.fixed]
    if REVIEWED in options.arms:
        arms.append(Arm(name=REVIEWED, plan=reviewed))
    if ADAPTIVE in options.arms and options.adaptive != OFF:
        arms.append(Arm(name=ADAPTIVE, plan=Plan(default=options.adaptive)))
    return tuple(arms)


def require_settings(site: Site, options: ServiceBenchOptions) -> None:
    """Refuse Settings that the engine cannot run.

    Raises:
        BadRequest: names the Setting and what is lacking.
    """
    capabilities = site.collector.capabilities()
    wanted: list[Setting] = list(options.fixed) if FIXED in options.arms else []
    if ADAPTIVE in options.arms:
        wanted.append(options.adaptive)
    for setting in wanted:
        reason = capabilities.unsupported_reason(setting)
        if reason is not None:
            raise BadRequest(f"{setting.label} cannot be measured: {reason}")


def bring_into_force(site: Site, arm: Arm) -> None:
    """Put an arm's plan into force, on record as every change of the service is.

    Raises:
        ActuatorError: the engine did not take it.
    """
    live = site.actuator.read_back()
    if live.digest != arm.plan.digest:
        apply(
            site,
            Intent(plan=arm.plan, before=live, recommendation=None, who=WHO, why=f"arm {arm.name}"),
        )
