"""A neighbour that takes one core in bursts: ``python -m ... BUSY_S IDLE_S``.

Run on a leash (``tuner.demo.leash``), so that it ends with the benchmark that started it.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    """Burn a core for so many seconds, sleep for so many, until ended."""
    busy_s, idle_s = (float(argument) for argument in sys.argv[1:3])
    while True:
        until = time.monotonic() + busy_s
        while time.monotonic() < until:
            sum(range(10_000))
        time.sleep(idle_s)


if __name__ == "__main__":
    main()
