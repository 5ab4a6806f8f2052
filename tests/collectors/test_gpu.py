"""Devices: what NVML tells, and what stands in where there is no GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from collectors.gpu import CpuTimes, DeviceCollector, read_cpu_times, read_gpus, read_memory_bytes


@dataclass
class Memory:
    used: int = 7 * 2**30
    total: int = 80 * 2**30


@dataclass
class Use:
    gpu: int = 42


@dataclass
class Library:
    """NVML as a machine with two GPUs answers, one of which tells no power."""

    count: int = 2
    calls: list[str] = field(default_factory=list)

    def nvmlInit(self) -> None:
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return index

    def nvmlDeviceGetName(self, handle: object) -> str | bytes:
        return b"H100" if handle == 0 else "H100"

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Memory:
        return Memory()

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Use:
        return Use()

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 350_500


class Missing(Library):
    def nvmlInit(self) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write_stat(tmp_path, busy=100, idle=900)
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
    return tmp_path


def write_stat(proc: Path, *, busy: int, idle: int) -> None:
    (proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")


def test_every_gpu_gives_a_sample(proc: Path):
    library = Library()

    reading = DeviceCollector(proc, library).read(5.0)

    assert reading.no_gpu_reason is None
    assert [(one.device, one.name, one.busy_ratio) for one in reading.samples] == [
        ("gpu0", "H100", 0.42),
        ("gpu1", "H100", 0.42),
    ]
    assert [one.power_w for one in reading.samples] == [350.5, None]
    assert reading.samples[0].memory_used_bytes == 7 * 2**30
    assert library.calls == ["init", "shutdown"]


def test_without_nvml_it_says_so_and_the_cpu_stands_in(proc: Path):
    devices = DeviceCollector(proc, Missing())
    write_stat(proc, busy=130, idle=910)

    reading = devices.read(5.0)

    assert reading.no_gpu_reason is not None
    assert reading.no_gpu_reason.startswith("no GPU: NVML says")
    (cpu,) = reading.samples
    assert (cpu.device, cpu.busy_ratio) == ("cpu", 0.75)
    assert (cpu.memory_used_bytes, cpu.memory_total_bytes) == (600 * 1024, 1000 * 1024)
    assert cpu.power_w is None


def test_a_machine_with_nvml_and_no_device_says_so(proc: Path):
    assert read_gpus(1.0, Library(count=0)) == ((), "no GPU: NVML found no device")


def test_without_time_gone_by_the_cpu_is_unknown_not_idle(proc: Path):
    reading = DeviceCollector(proc, Missing()).read(5.0)

    assert reading.samples == ()


def test_busy_is_the_share_since_the_last_reading(proc: Path):
    devices = DeviceCollector(proc, Missing())
    write_stat(proc, busy=200, idle=900)
    assert devices.read(1.0).samples[0].busy_ratio == 1.0
    write_stat(proc, busy=200, idle=1000)
    assert devices.read(2.0).samples[0].busy_ratio == 0.0


def test_a_system_without_proc_gives_no_sample(tmp_path: Path):
    assert read_cpu_times(tmp_path) is None
    assert read_memory_bytes(tmp_path) == (0, 0)
    assert DeviceCollector(tmp_path, Missing()).read(1.0).samples == ()


def test_garbage_in_proc_is_no_sample(proc: Path):
    (proc / "stat").write_text("cpu one two\n")

    assert read_cpu_times(proc) is None


def test_this_machine_can_be_read():
    times = read_cpu_times()

    assert times is None or times.total > CpuTimes(busy=0, total=0).total
