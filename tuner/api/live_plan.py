"""The plan that is live, without waiting for the engine at each page: asked once a digest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from collectors.records import Plan
from tuner.errors import TunerError
from tuner.store import Store, plans, samples

RETRY_S = 5.0
PATIENCE_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """What is known of the live plan.

    Attributes:
        plan: the plan; None where it could not be read.
        digest: digest that the engine last named; None before the first sample.
        problem: what is wrong, one line; None where nothing is.
    """

    plan: Plan | None
    digest: str | None
    problem: str | None


class LivePlanReader:
    """Finds the plan behind the digest that an engine names: in the store, else at the engine.

    A page waits for the engine at most a moment; one question is under way at a time.
    """

    def __init__(
        self,
        store: Store,
        engine: str,
        read_back: Callable[[], Plan],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._engine = engine
        self._read_back = read_back
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._answer: Future[Plan] | None = None
        self._asked_at_s = 0.0

    def read(self) -> LivePlan:
        """Return the live plan as far as it is known."""
        with self._store.reading() as session:
            applied = plans.latest_applied(session, self._engine)
            sample = samples.latest_engine(session, self._engine)
        digest = sample.plan_digest if sample else None
        if applied is not None and digest in (None, applied.plan.digest):
            return LivePlan(plan=applied.plan, digest=applied.plan.digest, problem=None)
        try:
            found = self._asked(digest).result(timeout=PATIENCE_S)
        except TunerError as error:
            return LivePlan(plan=None, digest=digest, problem=f"the live plan is unknown: {error}")
        except TimeoutError:
            problem = "the live plan is unknown: the engine has not answered yet"
            return LivePlan(plan=None, digest=digest, problem=problem)
        if applied is None or found.digest == applied.plan.digest:
            return LivePlan(plan=found, digest=found.digest, problem=None)
        problem = (
            f"the engine runs plan {found.digest[:12]}, which was set past this service; "
            f"the last one applied here is {applied.plan.digest[:12]}"
        )
        return LivePlan(plan=found, digest=found.digest, problem=problem)

    def _asked(self, digest: str | None) -> Future[Plan]:
        """Return the answer for a digest, asking the engine where the last one is of no use."""
        with self._lock:
            if self._answer is None or self._is_spent(self._answer, digest):
                self._answer, self._asked_at_s = Future(), self._monotonic_s()
                asking = threading.Thread(target=self._ask, args=(self._answer,), daemon=True)
                asking.start()
            return self._answer

    def _is_spent(self, answer: Future[Plan], digest: str | None) -> bool:
        if not answer.done():
            return False
        is_right = answer.exception() is None and answer.result().digest == digest
        return not is_right and self._monotonic_s() - self._asked_at_s >= RETRY_S

    def _ask(self, answer: Future[Plan]) -> None:
        try:
            answer.set_result(self._read_back())
        except Exception as error:  # noqa: BLE001 - carried to the request that asks
            answer.set_exception(error)
