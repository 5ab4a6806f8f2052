"""Runs a command line in this process and catches what it prints."""

import io
from contextlib import redirect_stderr, redirect_stdout

from tuner.cli import run_command


def ran(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of ``spectuner ARGUMENTS``."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command(arguments)
    return code, out.getvalue(), err.getvalue()
