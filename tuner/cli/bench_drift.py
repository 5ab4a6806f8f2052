"""``spectuner bench drift``: how soon a slide of acceptance is told, and how many are imagined."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.output import JsonOption, Output, table
from tuner.cli.progress import Progressing


def drift(
    weeks: Annotated[int, typer.Option(min=0, help="Route-weeks without a change.")] = 10,
    slides: Annotated[int, typer.Option(min=0, help="Slides from 3.07 to 2.80.")] = 20,
    requests: Annotated[float, typer.Option(help="Requests of the route a minute.")] = 6.0,
    wander: Annotated[
        float, typer.Option(help="How far the ease of all requests wanders, in logits.")
    ] = 0.05,
    quiet: Annotated[float, typer.Option(min=0.5, help="Hours before a slide.")] = 12.0,
    json_path: JsonOption = None,
) -> None:
    """Measure drift detection on simulated routes: false alarms a week, requests to the alarm."""
    output = Output.open(json_path)
    from tuner.bench.drift import WITHIN_REQUESTS, DriftBenchOptions, bench_drift

    options = DriftBenchOptions(
        weeks=weeks,
        slides=slides,
        requests_per_minute=requests,
        shared_deviation=wander,
        quiet_hours=quiet,
    )
    options.checked()
    with Progressing.on(output.console, "Playing") as progress:
        result = bench_drift(options, progress.counting(weeks + slides))
    rows = table(["measured", "value"])
    if weeks:
        rows.add_row("false alarms", f"{sum(result.false_alarms)} in {weeks} route-weeks")
    if slides:
        told = f"{result.told_in_time} of {slides}"
        rows.add_row(f"slides told within {WITHIN_REQUESTS} requests", told)
        median = result.median_wait
        rows.add_row("median requests", "never" if median is None else f"{median:.0f}")
    output.show("Drift detection", rows)
    output.console.print(f"Again: {options.command}", markup=False, highlight=False)
    output.write(result.to_dict())
