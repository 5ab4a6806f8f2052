"""APScheduler behind a typed door. It only gives ticks; whether a job is due is asked at each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger


class Ticker:
    """Calls functions at fixed distances, each in its own thread, none twice at once."""

    def __init__(self, num_threads: int) -> None:
        pool = ThreadPoolExecutor(num_threads)  # type: ignore[no-untyped-call]
        self._scheduler = BackgroundScheduler(  # type: ignore[no-untyped-call]
            timezone=UTC, executors={"default": pool}, logger=_quiet_logger()
        )

    def every(
        self, name: str, seconds: float, call: Callable[[], object], delay_s: float = 0.0
    ) -> None:
        """Call a function again and again; a call that comes late is still made, once."""
        first = datetime.now(UTC) + timedelta(seconds=delay_s)
        self._scheduler.add_job(  # type: ignore[no-untyped-call]
            call,
            IntervalTrigger(seconds=seconds, timezone=UTC),  # type: ignore[no-untyped-call]
            id=name,
            name=name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            next_run_time=first,
        )

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Make no more calls, and wait for those under way."""
        self._scheduler.shutdown(wait=True)  # type: ignore[no-untyped-call]


def _quiet_logger() -> logging.Logger:
    """Return a logger without the line for each tick that finds its job still running."""
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.ERROR)
    return logger
