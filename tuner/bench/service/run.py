"""Entry of the benchmark of the whole service."""

from __future__ import annotations

from rich.console import Console

from tuner.bench.service.course import run_condition
from tuner.bench.service.options import ServiceBenchOptions
from tuner.bench.service.report import ServiceReport, report_on
from tuner.demo.board import Board
from tuner.demo.stack import require_ports
from tuner.demo.traffic import read_traffic


def bench_service(options: ServiceBenchOptions, console: Console) -> ServiceReport:
    """Measure the service under each condition, one after the other.

    Args:
        options: how it is measured.
        console: for what happens meanwhile.

    Raises:
        InvalidTraffic: a line of the traffic file cannot be played.
        PortInUse: a port is taken.
        ChildFailed: engine or service did not come up or stay up.
        TunerError: the engine or its journal could not be used.
    """
    prompts = read_traffic(options.traffic)
    require_ports(options.demo)
    reports = []
    for condition in options.conditions:
        board = Board(console=console)
        board.say(f"Condition {condition}: starting engine and service")
        reports.append(report_on(run_condition(condition, options, prompts, board), options))
    return ServiceReport(conditions=tuple(reports))
