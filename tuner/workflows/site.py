"""One engine and everything the workflows need around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import httpx
import numpy as np

from collectors.base import Collector
from collectors.bundled import BundledCollector
from collectors.gpu import DeviceCollector
from collectors.http import EngineAddress
from collectors.records import Setting
from collectors.records.parsing import as_time
from policy.recollection import Recollection
from tuner.actuators.base import Actuator
from tuner.actuators.bundled import BundledActuator
from tuner.errors import Interrupted
from tuner.settings import Settings
from tuner.store import Store, open_store
from tuner.workflows.autopilot_memory import AutopilotMemory

TIMEOUT = httpx.Timeout(10.0, connect=3.0, read=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One engine and everything the workflows need around it.

    Attributes:
        store: the database.
        collector: reads the engine.
        actuator: changes its plan.
        address: where shadow requests go.
        devices: reads the devices.
        settings: what the operator set.
        clock: returns Unix seconds.
        generator: returns a source of randomness for the policy.
        stopping: set when the service stops; long workflows end at their next safe point.
        memory: what recommendations learned from windows so far; the job ``recommend`` has it.
        autopilot: what the control loop remembers between ticks; the job ``autopilot`` has it.
        plan_lock: held in this service while a trial is begun or ended, and while the plan found in
            force is logged.
    """

    store: Store
    collector: Collector
    actuator: Actuator
    address: EngineAddress
    devices: DeviceCollector
    settings: Settings
    clock: Callable[[], float] = time.time
    generator: Callable[[], np.random.Generator] = np.random.default_rng
    stopping: threading.Event = field(default_factory=threading.Event)
    memory: Recollection = field(default_factory=Recollection)
    autopilot: AutopilotMemory = field(default_factory=AutopilotMemory)
    plan_lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def engine(self) -> str:
        """Name of the engine, as configured."""
        return self.settings.engine_name

    def possible_arms(self) -> tuple[Setting, ...]:
        """Return the configured arms that the engine can run.

        Raises:
            SourceUnreachable: the engine does not answer.
        """
        capabilities = self.collector.capabilities()
        return tuple(
            arm for arm in self.settings.arms if capabilities.unsupported_reason(arm) is None
        )

    def now(self) -> datetime:
        """Return the time, aware, UTC."""
        return as_time(self.clock())

    def raise_if_stopping(self) -> None:
        """End a long workflow between two of its parts.

        Raises:
            Interrupted: the service is stopping.
        """
        if self.stopping.is_set():
            raise Interrupted("the service is stopping; what was done so far is stored")


@contextmanager
def open_site(settings: Settings, store: Store | None = None) -> Iterator[Site]:
    """Give the site of the bundled engine; close what was opened at the end.

    Args:
        settings: what the operator set.
        store: a store that is open already and stays open; None opens the one of the settings.
    """
    own = open_store(settings.database_url) if store is None else store
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
    try:
        with httpx.Client(timeout=TIMEOUT, limits=limits, trust_env=False) as client:
            yield bundled_site(settings, own, client)
    finally:
        if store is None:
            own.close()


def bundled_site(settings: Settings, store: Store, client: httpx.Client) -> Site:
    """Put the parts together for the bundled engine."""
    address = EngineAddress(
        base_url=settings.engine_url, client=client, api_key=settings.engine_api_key
    )
    return Site(
        store=store,
        collector=BundledCollector(engine=settings.engine_name, address=address),
        actuator=BundledActuator(engine=settings.engine_name, address=address),
        address=address,
        devices=DeviceCollector(),
        settings=settings,
    )
