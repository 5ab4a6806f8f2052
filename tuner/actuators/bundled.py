"""The bundled engine's live plan, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.errors import CollectorError, SourceUnreachable
from collectors.http import EngineAddress
from collectors.records import Plan
from tuner.actuators.base import AppliedPlan
from tuner.errors import (
    EngineUnreachable,
    PlanConflict,
    PlanRefused,
    ReadBackMismatch,
)

PATH = "/spec/plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledActuator:
    """Puts plans into force on the bundled engine; see ``Actuator`` for what each raises.

    Attributes:
        engine: name of the engine, as configured.
        address: where it is.
    """

    engine: str
    address: EngineAddress

    def apply(self, plan: Plan, expected_digest: str) -> AppliedPlan:
        """Bring a plan into force, only while another given one is live, and read it back."""
        before = self.read_back()
        if before.digest != expected_digest:
            raise PlanConflict(_conflict(self.engine, before.digest, expected_digest))
        self._put(plan, expected_digest)
        live = self.read_back()
        if live.digest != plan.digest:
            raise ReadBackMismatch(
                f"engine {self.engine} took plan {plan.digest} but runs {live.digest}; "
                "look who else changes its plan"
            )
        return AppliedPlan(before=before, live=live)

    def read_back(self) -> Plan:
        """Return the plan in force."""
        try:
            return Plan.from_dict(self.address.get(PATH))
        except SourceUnreachable as error:
            raise EngineUnreachable(str(error)) from error
        except CollectorError as error:
            raise PlanRefused(
                f"the plan of engine {self.engine} cannot be read: {error}"
            ) from error

    def _put(self, plan: Plan, expected_digest: str) -> None:
        try:
            answer = self.address.send(
                "PUT", PATH, params={"if_digest": expected_digest}, body=plan.to_dict()
            )
            if answer.status == 409:
                raise PlanConflict(f"engine {self.engine} refused: {answer.message}")
            self.address.raise_unless_ok(answer, PATH)
        except SourceUnreachable as error:
            raise EngineUnreachable(str(error)) from error
        except CollectorError as error:
            raise PlanRefused(f"engine {self.engine} refused the plan: {error}") from error


def _conflict(engine: str, live: str, expected: str) -> str:
    return (
        f"engine {engine} runs plan {live}, not {expected} for which the change was made; "
        "look at the newest recommendation"
    )
