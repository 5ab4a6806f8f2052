"""``spectuner bench service``: the whole service on the real engine, arms in interleaved blocks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tuner.cli.errors import UsageError
from tuner.cli.options import parse_setting
from tuner.cli.output import NO_DATA, JsonOption, Output, table, whole_numbers

if TYPE_CHECKING:
    from policy.types import Interval
    from tuner.bench.service.conditions import Condition
    from tuner.bench.service.report import ConditionReport, ServiceReport

_ENGINE = "Engine"

ConditionsOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="quiet,neighbour,both",
        help="Neighbours of the engine: none; one core burnt in bursts of 20 s; two cores.",
    ),
]
LevelsOption: TypeAlias = Annotated[
    str, typer.Option(metavar="N,...", help="Requests held under way.")
]
MinutesOption: TypeAlias = Annotated[float, typer.Option(help="Traffic to learn from.")]
GateOption: TypeAlias = Annotated[float, typer.Option(help="Minutes for evaluations.")]
SteadyOption: TypeAlias = Annotated[
    float, typer.Option(help="Steady traffic in which recommendations are counted.")
]
ArmsOption: TypeAlias = Annotated[
    str, typer.Option(metavar="ARM,...", help="Of off, fixed, reviewed, adaptive.")
]
FixedOption: TypeAlias = Annotated[
    str, typer.Option(metavar="SETTING,...", help="Settings tried everywhere.")
]
EnginePortOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=65535, help="Port of the engine.")
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


def service(
    conditions: ConditionsOption = "quiet",
    levels: LevelsOption = "1,2,4,8,16,24",
    surge: Annotated[bool, typer.Option(help="Measure the demo's surge too.")] = True,
    rounds: Annotated[int, typer.Option(help="Blocks of each arm at each level.")] = 2,
    block_s: Annotated[float, typer.Option(help="Seconds an arm is in force.")] = 7.0,
    settle_s: Annotated[float, typer.Option(help="Seconds of them that are left out.")] = 2.0,
    learn_minutes: MinutesOption = 3.0,
    gate_minutes: GateOption = 8.0,
    steady_minutes: SteadyOption = 0.5,
    arms: ArmsOption = "off,fixed,reviewed,adaptive",
    fixed: FixedOption = "suffix:8,prompt_lookup:3",
    adaptive: Annotated[
        str, typer.Option(metavar="SETTING", help="The engine's own adaptive mode.")
    ] = "suffix:8:adaptive",
    seed: Annotated[int, typer.Option(help="Seed of prompts and order.")] = 0,
    traffic: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL file with other prompts.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the service.")] = 8400,
    engine_port: EnginePortOption = 8401,
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    max_rows: MaxRowsOption = 32,
    json_path: JsonOption = None,
) -> None:
    """Measure what the service brings on the real engine, in wall-clock time.

    It learns from demo traffic, what passes the gate is approved, and that plan runs in turns with
    speculation off, fixed Settings and the engine's adaptive mode. Nothing else should run beside.
    """
    output = Output.open(json_path)
    from tuner.bench.service.options import ServiceBenchOptions
    from tuner.bench.service.run import bench_service
    from tuner.demo.traffic import bundled_traffic
    from tuner.engine.model.bundled_model import BUNDLED, prepare_bundled_model

    options = ServiceBenchOptions(
        conditions=_conditions(conditions),
        levels=whole_numbers("--levels", levels),
        has_surge=surge,
        rounds=rounds,
        block_s=block_s,
        settle_s=settle_s,
        learn_minutes=learn_minutes,
        gate_minutes=gate_minutes,
        steady_minutes=steady_minutes,
        arms=tuple(arms.split(",")),
        fixed=tuple(parse_setting(text) for text in fixed.split(",")),
        adaptive=parse_setting(adaptive),
        seed=seed,
        traffic=traffic or bundled_traffic(),
        port=port,
        engine_port=engine_port,
        model=model,
        draft=draft,
        max_rows=max_rows,
    )
    if model == BUNDLED:
        with output.console.status("Preparing the bundled model (once)"):
            prepare_bundled_model()
    report = bench_service(options, output.console)
    _show(output, report)
    output.write(report.to_dict())


def _conditions(text: str) -> tuple[Condition, ...]:
    from tuner.bench.service.conditions import Condition

    known = {condition.value: condition for condition in Condition}
    for name in text.split(","):
        if name not in known:
            raise UsageError(f"--conditions {name!r}: use {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(text.split(",")))


def _show(output: Output, report: ServiceReport) -> None:
    lines = [one.verdict() for one in report.conditions]
    lines += [one.promise_line() for one in report.conditions]
    for line in lines:
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)
    for one in report.conditions:
        _show_condition(output, one)


def _show_condition(output: Output, found: ConditionReport) -> None:
    from tuner.bench.service.report import arm_names

    levels = found.comparison.levels
    arms = arm_names(levels)
    rows = table(["requests", "off tokens/s", *(f"{arm} over off" for arm in arms)])
    for one in levels:
        speed = one.tokens_per_s.get("off")
        plain = NO_DATA if speed is None else f"{speed.mean:.0f}"
        rows.add_row(one.level.name, plain, *(_ratio(one.over_off.get(arm)) for arm in arms))
    rows.add_section()
    overall = found.comparison.overall
    rows.add_row("all", "", *(_ratio(overall.get(arm)) for arm in arms))
    output.show(f"Condition {found.run.condition}: whole engine, 90 % intervals", rows)
    if found.outcomes:
        _show_predictions(output, found)


def _show_predictions(output: Output, found: ConditionReport) -> None:
    rows = table(["route", "load", "Setting", "predicted over off", "measured", "held"], 3)
    for one in found.outcomes:
        promise = one.promise
        rows.add_row(
            promise.route,
            promise.load.label,
            promise.setting.label,
            _ratio(promise.predicted),
            _ratio(one.realised),
            "yes" if one.is_inside else "no",
        )
    output.show("Each route's speed: predicted and measured", rows)


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return NO_DATA
    return f"{interval.mean:.2f} ({interval.low:.2f} to {interval.high:.2f})"
