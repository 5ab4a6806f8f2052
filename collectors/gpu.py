"""How busy the devices are: GPUs through NVML where there are any, else the CPU.

Where there is no GPU the reading says so, with the reason, and the host's CPU stands in under the
device label ``cpu``.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import pynvml

from collectors.records import GpuSample

PROC = Path("/proc")


class NvmlMemory(Protocol):
    """Memory of a device, in bytes."""

    used: int
    total: int


class NvmlUse(Protocol):
    """Share of time a device was busy, in percent."""

    gpu: int


class Nvml(Protocol):
    """The part of NVML that is used, under NVML's own names."""

    def nvmlInit(self) -> None:
        """Load the driver's library."""

    def nvmlShutdown(self) -> None:
        """Let it go."""

    def nvmlDeviceGetCount(self) -> int:
        """Return how many GPUs there are."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        """Return the handle of a GPU."""

    def nvmlDeviceGetName(self, handle: object) -> str | bytes:
        """Return what the driver calls it."""

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> NvmlMemory:
        """Return its memory."""

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> NvmlUse:
        """Return how busy it was."""

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        """Return its draw, in milliwatts."""


NVML = cast(Nvml, pynvml)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """The devices at one moment.

    Attributes:
        samples: one per GPU, else one for the CPU; empty where nothing could be told yet.
        no_gpu_reason: why there are no GPUs; None where there are.
    """

    samples: tuple[GpuSample, ...]
    no_gpu_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """Jiffies since boot, from the first line of /proc/stat."""

    busy: int
    total: int


class DeviceCollector:
    """Reads all devices; keeps the last CPU times, since busy is a share of the time between."""

    def __init__(self, proc: Path = PROC, nvml: Nvml = NVML) -> None:
        self._proc, self._nvml = proc, nvml
        self._last = read_cpu_times(proc)

    def read(self, at: float) -> DeviceReading:
        """Return the devices now; ``at`` is the time to note, in Unix seconds."""
        samples, reason = read_gpus(at, self._nvml)
        if samples:
            return DeviceReading(samples=samples)
        return DeviceReading(samples=self._cpu(at), no_gpu_reason=reason)

    def _cpu(self, at: float) -> tuple[GpuSample, ...]:
        before, now = self._last, read_cpu_times(self._proc)
        self._last = now
        if before is None or now is None or now.total <= before.total:
            return ()
        used, total = read_memory_bytes(self._proc)
        busy = (now.busy - before.busy) / (now.total - before.total)
        sample = GpuSample(
            at=at,
            device="cpu",
            name=f"{platform.machine()} x{os.cpu_count() or 1}",
            busy_ratio=min(1.0, max(0.0, busy)),
            memory_used_bytes=used,
            memory_total_bytes=total,
        )
        return (sample,)


def read_gpus(at: float, nvml: Nvml = NVML) -> tuple[tuple[GpuSample, ...], str | None]:
    """Return a sample per GPU, or none and the reason why."""
    try:
        with _started(nvml):
            count = nvml.nvmlDeviceGetCount()
            samples = tuple(_gpu(nvml, index, at) for index in range(count))
    except pynvml.NVMLError as error:
        return (), f"no GPU: NVML says {error}"
    return samples, None if samples else "no GPU: NVML found no device"


def read_cpu_times(proc: Path = PROC) -> CpuTimes | None:
    """Return the host's CPU times; None where /proc/stat cannot be read."""
    try:
        fields = (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
        values = [int(field) for field in fields]
    except (OSError, ValueError):
        return None
    if len(values) < 5:
        return None
    idle = values[3] + values[4]
    return CpuTimes(busy=sum(values) - idle, total=sum(values))


def read_memory_bytes(proc: Path = PROC) -> tuple[int, int]:
    """Return the host's memory in use and in total; zeros where /proc/meminfo cannot be read."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if len(line.split()) >= 2}
    total = int(sizes.get("MemTotal", "0")) * 1024
    return total - int(sizes.get("MemAvailable", "0")) * 1024, total


@contextmanager
def _started(nvml: Nvml) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Nvml, index: int, at: float) -> GpuSample:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuSample(
        at=at,
        device=f"gpu{index}",
        name=_text(nvml.nvmlDeviceGetName(handle)),
        busy_ratio=nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        memory_used_bytes=memory.used,
        memory_total_bytes=memory.total,
        power_w=_power_w(nvml, handle),
    )


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _power_w(nvml: Nvml, handle: object) -> float | None:
    """Return the draw in watts; None where the device does not tell."""
    try:
        return nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    except pynvml.NVMLError:
        return None
