"""``spectuner replay``: captured requests on two Settings, paired request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, parse_setting, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from policy.types import Interval
    from tuner.store.replays import ReplayPair
    from tuner.workflows.replay import ReplayReport


def replay(
    setting: Annotated[
        str, typer.Argument(help="Setting to try: draft_model:3, a tree as eagle:4:16:4, or JSON.")
    ],
    base: Annotated[str, typer.Option(help="Setting to compare with.")] = "off",
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Captured requests at most.")] = 20,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests on the engine at once.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Cap on the answers.")] = None,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Replay captured requests on two Settings as shadow traffic and compare them in pairs.

    Needs captured requests: run the service with SPECTUNER_CAPTURE_ENABLED=true.
    """
    output, settings = Output.open(json_path), read_settings(config)
    arms = parse_setting(base), parse_setting(setting)
    from tuner.workflows.replay import ReplayOptions
    from tuner.workflows.replay import replay as run_replay
    from tuner.workflows.site import open_site

    options = ReplayOptions(
        route=route, requests=requests, concurrency=concurrency, max_tokens=max_tokens
    )
    with open_site(settings) as site, Progressing.on(output.console, "Replaying") as progress:
        report = run_replay(site, *arms, options, on_pair=progress.update)
    _print(output, report)
    output.write(_figures(report))


def interval_words(interval: Interval | None) -> str:
    """Return a ratio with its interval for people."""
    if interval is None:
        return NO_DATA
    return f"{interval.mean:.2f}x (90 % interval {interval.low:.2f} to {interval.high:.2f})"


def _print(output: Output, report: ReplayReport) -> None:
    found = report.summary
    rows = table(["route", "request", "base tok/s", "other tok/s", "ratio", "note"], 2)
    for pair in report.pairs:
        rows.add_row(pair.route, pair.request_id, *_pair_figures(pair), pair.void_reason or "")
    output.show(f"Replay {report.id}: {report.base.label} against {report.other.label}", rows)
    output.console.print(
        f"Speed ratio {interval_words(found.speedup)} over {found.pairs} pairs, "
        f"{found.void_pairs} void."
    )


def _pair_figures(pair: ReplayPair) -> tuple[str, str, str]:
    figures = (pair.base.tokens_per_s, pair.other.tokens_per_s, pair.ratio)
    one, two, three = (NO_DATA if figure is None else f"{figure:.2f}" for figure in figures)
    return one, two, three


def _figures(report: ReplayReport) -> dict[str, object]:
    return {
        "id": report.id,
        "base": report.base.to_dict(),
        "other": report.other.to_dict(),
        "summary": report.summary.to_dict(),
        "pairs": [
            {
                "route": pair.route,
                "request_id": pair.request_id,
                "base": pair.base.to_dict(),
                "other": pair.other.to_dict(),
                "ratio": pair.ratio,
                "void_reason": pair.void_reason,
            }
            for pair in report.pairs
        ],
    }
