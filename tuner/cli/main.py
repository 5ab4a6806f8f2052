"""The outermost edge of the command line: runs one command, turns errors into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence

from rich.console import Console
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from tuner.cli.commands import app

_INTERRUPTED = 130
_SPINS = "10000"


def main() -> None:
    """Run ``spectuner`` on the process's arguments and exit."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    limit_spinning(os.environ)
    sys.exit(run_command(sys.argv[1:]))


def limit_spinning(environ: MutableMapping[str, str]) -> None:
    """Let threads that wait for each other give up their core soon, where the user says nothing.

    torch's OpenMP spins on for milliseconds at the end of every matrix product; where more threads
    want to run than there are cores, that is the core which the last one needs. A product of
    8 x 576 x 3072 on 2 threads took 150 ms on two cores that others kept busy, and 11 ms with this
    limit of a quarter of a millisecond, which is longer than the pause between two products.

    Args:
        environ: read by OpenMP when torch is loaded.
    """
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: without the program's name.

    Returns:
        int: 0; 2 where the user gave a value that cannot be used; 1 for other failures.
    """
    try:
        code = get_command(app)(list(arguments), "spectuner", standalone_mode=False)
    except TyperException as error:
        return _usage_code(error)
    except Abort:
        _say("nothing was done")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except Exception as error:  # noqa: BLE001 - the process edge: no traceback reaches a user
        return _failure_code(error, arguments)
    return code if isinstance(code, int) else 0


def _usage_code(error: TyperException) -> int:
    message = getattr(error, "format_message", lambda: str(error))()
    if message:
        command = getattr(getattr(error, "ctx", None), "command_path", "spectuner")
        _say(f"{message} (see: {command} --help)")
    return int(getattr(error, "exit_code", 2))


def _failure_code(error: Exception, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        raise error
    from tuner.cli.errors import exit_code_of, one_line
    from tuner.settings import InvalidSettings

    lines = str(error).splitlines() if isinstance(error, InvalidSettings) else [one_line(error)]
    for line in lines:
        _say(line)
    return exit_code_of(error)


def _drop_stdout() -> None:
    """Send what is still buffered nowhere: nobody reads on, and exiting must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print("[bold red]error:[/]", end=" ")
    console.print(line, markup=False, highlight=False)
