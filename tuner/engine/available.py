"""Memory that this process could still have: of the machine, its container, or a CUDA device."""

from __future__ import annotations

from pathlib import Path

import torch


def available_bytes(
    device: str = "cpu",
    *,
    meminfo: Path = Path("/proc/meminfo"),
    cgroup: Path = Path("/sys/fs/cgroup"),
) -> int | None:
    """Return the memory that is to be had; None where the system does not say.

    Args:
        device: a torch device.
        meminfo: what the kernel tells of the machine.
        cgroup: what it tells of the container.
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    known = (_of_machine(meminfo), _of_container(cgroup))
    return min((found for found in known if found is not None), default=None)


def _of_machine(meminfo: Path) -> int | None:
    found = _figures(meminfo).get("MemAvailable:")
    return None if found is None else found * 1024


def _of_container(cgroup: Path) -> int | None:
    """Return what the container's limit leaves; cached files can be dropped and count in."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return max(0, limit - used + _figures(cgroup / "memory.stat").get("inactive_file", 0))


def _figures(path: Path) -> dict[str, int]:
    """Return the whole numbers of a file of `name number` lines."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}
