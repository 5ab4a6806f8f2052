"""Gauges read now and then: the engine's load, the devices' use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """What an engine said of itself at one moment.

    Attributes:
        at: Unix seconds.
        engine: engine name as configured.
        boot_id: changes with each start of the engine.
        running: sequences in the batch.
        waiting: requests queued.
        kv_used_ratio: share of KV memory in use, 0 to 1.
        plan_digest: digest of the plan in force.
    """

    at: float
    engine: str
    boot_id: str
    running: int
    waiting: int
    kv_used_ratio: float
    plan_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One device at one moment.

    Attributes:
        at: Unix seconds.
        device: metric label, such as ``gpu0`` or ``cpu``.
        name: what the driver calls it.
        busy_ratio: share of time busy, 0 to 1.
        memory_used_bytes: device memory in use.
        memory_total_bytes: device memory there is.
        power_w: watts drawn; None where not reported.
    """

    at: float
    device: str
    name: str
    busy_ratio: float
    memory_used_bytes: int
    memory_total_bytes: int
    power_w: float | None = None
