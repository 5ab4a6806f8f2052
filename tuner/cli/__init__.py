"""The command line: ``spectuner <command>``. Commands import what they need when they run."""

from tuner.cli.main import main, run_command

__all__ = ["main", "run_command"]
