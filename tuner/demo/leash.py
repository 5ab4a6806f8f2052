"""Runs a command that ends when its parent ends: ``python -m tuner.demo.leash COMMAND...``.

The kernel sends SIGTERM to this process when the parent dies, even by SIGKILL, and the order
survives the exec. The parent is checked once more afterwards, since it may have died in between.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for SIGTERM at the parent's death, then become the command."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
