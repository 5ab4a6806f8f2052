"""``spectuner demo``: engine, service and a product's traffic on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tuner.cli.options import ConfigOption
from tuner.cli.output import JsonOption, Output

_ENGINE = "Engine"


MinutesOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Length of the traffic; day after day when absent.")
]
ExitsOption: TypeAlias = Annotated[
    bool, typer.Option("--exit", help="End after the traffic; needs --minutes.")
]
ApproveOption: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--approve/--no-approve",
        help="Approve every recommended change; on with --exit, else you do in the console.",
    ),
]
TrafficOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="JSONL file with other prompts.")
]
SeedOption: TypeAlias = Annotated[int, typer.Option(help="Seed of the arrivals.")]
PortOption: TypeAlias = Annotated[int, typer.Option(min=1, max=65535, help="Port of the console.")]
EnginePortOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=65535, help="Port of the engine.")
]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for facts and logs; default: demo in data_dir."),
]
KeepOption: TypeAlias = Annotated[
    bool, typer.Option("--keep/--no-keep", help="Keep the facts, so that a next run knows them.")
]
ModelOption: TypeAlias = Annotated[
    str, typer.Option(help="What the engine loads.", rich_help_panel=_ENGINE)
]
DraftOption: TypeAlias = Annotated[
    str, typer.Option(help="Its draft model, or none.", rich_help_panel=_ENGINE)
]
MaxRowsOption: TypeAlias = Annotated[
    int, typer.Option(min=2, help="Sequences in its batch.", rich_help_panel=_ENGINE)
]


def demo(
    minutes: MinutesOption = None,
    exits: ExitsOption = False,
    approve: ApproveOption = None,
    traffic: TrafficOption = None,
    seed: SeedOption = 0,
    port: PortOption = 8400,
    engine_port: EnginePortOption = 8401,
    data_dir: DataDirOption = None,
    keep: KeepOption = True,
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    max_rows: MaxRowsOption = 32,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Start engine, service and demo traffic, and print the console's address.

    The traffic is quiet, surges like a Monday morning, and is quiet again. Ctrl-C stops all three.
    """
    output = Output.open(json_path)
    from tuner.demo.options import DemoOptions
    from tuner.demo.run import run_demo
    from tuner.demo.traffic import bundled_traffic
    from tuner.engine.model.bundled_model import BUNDLED, prepare_bundled_model

    options = DemoOptions(
        minutes=minutes,
        exits=exits,
        approves=exits if approve is None else approve,
        traffic=traffic or bundled_traffic(),
        seed=seed,
        port=port,
        engine_port=engine_port,
        data_dir=data_dir,
        keeps=keep,
        model=model,
        draft=draft,
        max_rows=max_rows,
    )
    if model == BUNDLED:
        with output.console.status("Preparing the bundled model (once)"):
            prepare_bundled_model()
    summary = run_demo(options, output.console, config)
    if summary is not None:
        output.write(summary.to_dict())
