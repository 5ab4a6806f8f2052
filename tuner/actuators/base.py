"""The seam between a decision and an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collectors.records import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPlan:
    """A plan that was brought into force.

    Attributes:
        before: plan that was in force before.
        live: plan read back afterwards; its digest is that of the plan sent.
    """

    before: Plan
    live: Plan


class Actuator(Protocol):
    """Changes the plan of one engine."""

    @property
    def engine(self) -> str:
        """Name of the engine, as configured."""

    def apply(self, plan: Plan, expected_digest: str) -> AppliedPlan:
        """Bring a plan into force, only while another given one is live, and read it back.

        Args:
            plan: the plan; its version is given by the engine.
            expected_digest: digest of the plan that the change was made for.

        Raises:
            PlanConflict: another plan was live; nothing was changed.
            PlanRefused: the engine cannot run the plan; nothing was changed.
            EngineUnreachable: no answer; whether the plan changed is not known.
            ReadBackMismatch: the plan read back is not the one sent.
        """

    def read_back(self) -> Plan:
        """Return the plan in force.

        Raises:
            EngineUnreachable: no answer.
            PlanRefused: the engine refused to tell, or told something that is no plan.
        """
