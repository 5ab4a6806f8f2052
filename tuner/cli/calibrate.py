"""``spectuner calibrate``: what steps of an idle engine cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table, whole_numbers
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from tuner.workflows.calibrate import Calibrated


def calibrate(
    rows: Annotated[
        str, typer.Option(metavar="N,...", help="Sequences together.")
    ] = "1,2,3,4,6,8,12,16,24,32",
    contexts: Annotated[
        str, typer.Option(metavar="N,...", help="Tokens of each sequence.")
    ] = "64,256,1024",
    steps: Annotated[int, typer.Option(min=5, help="Steps of each shape.")] = 8,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew what was measured before.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although other requests run.")
    ] = False,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Fill the cost table on an idle engine, so that recommendations need not wait for traffic.

    Takes a few minutes. What was measured is stored at once: run it again to go on where it was
    stopped. Times that traffic measures count before calibrated ones.
    """
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.calibrate import CalibrateOptions
    from tuner.workflows.calibrate import calibrate as measure
    from tuner.workflows.site import open_site

    options = CalibrateOptions(
        rows=whole_numbers("--rows", rows),
        contexts=whole_numbers("--contexts", contexts),
        steps=steps,
        is_forced=force,
        is_again=again,
    )
    with open_site(settings) as site, Progressing.on(output.console, "Calibrating") as progress:
        found = measure(site, options, on_cell=progress.update)
    _print(output, found)
    output.write(_figures(found))


def _print(output: Output, found: Calibrated) -> None:
    steps = table(["rows", "positions", "context", "steps", "ms"], 0)
    for cost in found.costs.steps:
        steps.add_row(
            str(cost.rows),
            str(cost.positions),
            str(cost.context_tokens),
            str(cost.steps),
            _milliseconds(cost.total_s, cost.steps),
        )
    output.show("Target passes, verification included", steps)
    drafts = table(["method", "rows", "depth", "rounds", "ms"])
    for draft in found.costs.drafts:
        drafts.add_row(
            draft.method,
            str(draft.rows),
            str(draft.depth),
            str(draft.rounds),
            _milliseconds(draft.total_s, draft.rounds),
        )
    output.show("Draft rounds", drafts)
    output.console.print(
        f"{found.measured} cells measured, {found.kept} kept from before; {found.costs.num_steps} "
        "steps in all."
    )
    for line in found.left_out:
        output.console.print(line, markup=False, highlight=False)


def _milliseconds(total_s: float, count: int) -> str:
    return f"{1e3 * total_s / count:.2f}" if count else NO_DATA


def _figures(found: Calibrated) -> dict[str, object]:
    costs = found.costs
    return {
        "pinned": found.pinned,
        "measured": found.measured,
        "kept": found.kept,
        "left_out": list(found.left_out),
        "steps": [
            {
                "rows": cost.rows,
                "positions": cost.positions,
                "context_tokens": cost.context_tokens,
                "steps": cost.steps,
                "mean_s": cost.total_s / cost.steps,
            }
            for cost in costs.steps
        ],
        "drafts": [
            {
                "method": cost.method.value,
                "rows": cost.rows,
                "depth": cost.depth,
                "rounds": cost.rounds,
                "mean_s": cost.total_s / cost.rounds,
            }
            for cost in costs.drafts
        ],
        "catch_ups": [
            {
                "method": one.method.value,
                "context_tokens": one.context_tokens,
                "rounds": one.rounds,
                "mean_s": one.total_s / one.rounds,
            }
            for one in costs.catch_ups
        ],
    }
