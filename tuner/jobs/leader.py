"""Which of several services acts: a lease in the database, renewed while the service lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from tuner.errors import StoreUnavailable
from tuner.store import Store, jobs, leases
from tuner.store.leases import Fence

LEASE = "leader"
TTL_S = 15.0
RENEW_S = 5.0
_LOGGER = logging.getLogger(__name__)


class Leader:
    """Holds the lease while it can. Thread-safe.

    Attributes:
        holder: name of this service, unique among all.
    """

    def __init__(
        self, store: Store, holder: str, now: Callable[[], datetime], ttl_s: float = TTL_S
    ) -> None:
        self.holder = holder
        self._store, self._now, self._ttl_s = store, now, ttl_s
        self._lock = threading.Lock()
        self._fence: Fence | None = None

    @property
    def fence(self) -> Fence | None:
        """Proof of the lease; None while another service leads."""
        return self._fence

    def renew(self) -> None:
        """Take the lease or keep it; close the runs that a former leader left open."""
        with self._lock:
            before = self._fence
            try:
                self._fence = self._acquired(before)
            except StoreUnavailable as error:
                self._fence = None
                _LOGGER.warning("the lease could not be renewed: %s", error)
        if before != self._fence:
            role = "leads" if self._fence else "follows"
            _LOGGER.info("service %s %s", self.holder, role)

    def release(self) -> None:
        """Give the lease back, so that another service need not wait for its end."""
        with self._lock:
            fence, self._fence = self._fence, None
            if fence is None:
                return
            try:
                with self._store.writing() as session:
                    leases.release(session, fence, self._now())
            except StoreUnavailable as error:
                _LOGGER.warning("the lease could not be released: %s", error)

    def _acquired(self, before: Fence | None) -> Fence | None:
        now = self._now()
        with self._store.writing() as session:
            fence = leases.acquire(session, LEASE, self.holder, now, self._ttl_s)
            if fence is not None and fence != before:
                jobs.interrupt_open(session, now)
            return fence
