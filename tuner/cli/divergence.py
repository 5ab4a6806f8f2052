"""``spectuner divergence``: greedy outputs with and without speculation, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, parse_setting, read_settings
from tuner.cli.output import JsonOption, Output, table
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from tuner.store.divergences import ArmCounts, DivergencePair, DivergenceSummary

_KINDS = ("identical", "near_tie", "suspicious", "length", "error")


def divergence(
    setting: Annotated[
        str, typer.Argument(help="Setting to compare with plain decoding, such as draft_model:3.")
    ],
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Captured requests at most.")] = 20,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Compare greedy outputs of a Setting with plain decoding, beside a control arm.

    The control is plain decoding at another batch shape: it shows how much the numbers alone do.
    """
    output, settings = Output.open(json_path), read_settings(config)
    arm = parse_setting(setting)
    from tuner.workflows.divergence import DivergenceOptions
    from tuner.workflows.divergence import divergence as compare
    from tuner.workflows.site import open_site

    options = DivergenceOptions(requests=requests, route=route)
    with open_site(settings) as site, Progressing.on(output.console, "Comparing") as progress:
        report = compare(site, arm, options, on_answer=progress.update)
    _print(output, arm.label, report.summary, report.pairs)
    for name, found in report.by_route.items():
        output.console.print(f"{name}: {found.verdict}", markup=False, highlight=False)
    if report.left_out:
        output.console.print(f"{report.left_out} prompts left out: no decode pass")
    output.write(
        {
            "id": report.id,
            "setting": arm.to_dict(),
            "summary": report.summary.to_dict(),
            "routes": {name: found.to_dict() for name, found in report.by_route.items()},
            "left_out": report.left_out,
            "pairs": [
                {name: getattr(pair, name) for name in type(pair).__slots__}
                for pair in report.pairs
            ],
        }
    )


def _print(
    output: Output, label: str, summary: DivergenceSummary, pairs: Sequence[DivergencePair]
) -> None:
    rows = table(["arm", "pairs", *(kind.replace("_", " ") for kind in _KINDS)])
    rows.add_row(label, *_counts(summary.tested))
    rows.add_row("control: plain, other batch", *_counts(summary.control))
    output.show("Greedy outputs against plain decoding", rows)
    for pair in pairs:
        if pair.split_at is not None:
            margin = "not read" if pair.margin is None else f"{pair.margin:.2g}"
            output.console.print(
                f"{pair.arm} {pair.route} {pair.request_id}: {pair.kind.replace('_', ' ')} at "
                f"token {pair.split_at}, margin {margin}",
                markup=False,
                highlight=False,
            )
    output.console.print(summary.verdict, markup=False, highlight=False)


def _counts(counted: ArmCounts) -> list[str]:
    return [str(counted.pairs), *(str(getattr(counted, kind)) for kind in _KINDS)]
