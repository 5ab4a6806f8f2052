"""Peak resident memory of this process, from a moment on."""

from __future__ import annotations

from pathlib import Path

_RESET_PEAK = "5"
_MEBIBYTE = 1 << 20


class PeakMemory:
    """The kernel's high-water mark, set back where the kernel allows it."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        """Look at a process's folder under /proc."""
        self._process = process

    def restart(self) -> None:
        """Begin anew from what is resident now; where that is forbidden the old peak stays."""
        try:
            (self._process / "clear_refs").write_text(_RESET_PEAK)
        except OSError:
            return

    def read_mb(self) -> float | None:
        """Return the peak in MiB; None where the system does not say."""
        try:
            lines = (self._process / "status").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / _MEBIBYTE
        return None
