"""``spectuner replay``: captured requests on two Settings, paired request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, parse_setting, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table
from tuner.cli.progress import lines_on_stderr

if TYPE_CHECKING:
    from policy.gate import RouteSpeed
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

    Each route is judged on its own pairs, at the load that they ran at; no more of its requests are
    sent once its 90 % interval is as narrow as gate_precision asks.

    Needs captured requests: run the service with SPECTUNER_CAPTURE_ENABLED=true.
    """
    output, settings = Output.open(json_path), read_settings(config)
    arms = parse_setting(base), parse_setting(setting)
    from tuner.workflows.replay import ReplayOptions
    from tuner.workflows.replay import replay as run_replay
    from tuner.workflows.site import open_site

    options = ReplayOptions(
        route=route,
        requests=requests,
        concurrency=concurrency,
        max_tokens=max_tokens,
        precision=settings.gate_precision,
    )
    with open_site(settings) as site:
        report = run_replay(site, *arms, options, on_pair=lines_on_stderr("pairs"))
    _print(output, report)
    output.write(_figures(report))


def interval_words(interval: Interval | None) -> str:
    """Return a ratio with its interval for people."""
    if interval is None:
        return NO_DATA
    return f"{interval.mean:.2f}x (90 % interval {interval.low:.2f} to {interval.high:.2f})"


def _print(output: Output, report: ReplayReport) -> None:
    found = report.summary
    rows = table(["route", "request", "base ms/token", "other ms/token", "ratio", "note"], 2)
    for pair in report.pairs:
        rows.add_row(pair.route, pair.request_id, *_pair_figures(pair), pair.void_reason or "")
    output.show(f"Replay {report.id}: {report.base.label} against {report.other.label}", rows)
    for speed in report.speeds:
        output.console.print(speed.sentence, markup=False, highlight=False)
    output.console.print(
        f"All routes together: speed ratio {interval_words(found.speedup)} over {found.pairs} "
        f"pairs, {found.void_pairs} void. At other loads than these the speed rests on the model."
    )


def _pair_figures(pair: ReplayPair) -> tuple[str, str, str]:
    times, ratio = pair.token_times_s, pair.ratio
    if times is None or ratio is None:
        return NO_DATA, NO_DATA, NO_DATA
    return f"{times[0] * 1e3:.2f}", f"{times[1] * 1e3:.2f}", f"{ratio:.2f}"


def speed_figures(speed: RouteSpeed) -> dict[str, object]:
    """Return what the pairs of a route show, for JSON."""
    found = speed.speedup
    return {
        "route": speed.route,
        "load": speed.load.label,
        "pairs": speed.pairs,
        "clusters": speed.clusters,
        "needed_pairs": speed.needed_pairs,
        "precision": speed.precision,
        "speedup": None if found is None else [found.low, found.mean, found.high],
        "verdict": speed.verdict.value,
    }


def _figures(report: ReplayReport) -> dict[str, object]:
    return {
        "id": report.id,
        "base": report.base.to_dict(),
        "other": report.other.to_dict(),
        "summary": report.summary.to_dict(),
        "routes": [speed_figures(speed) for speed in report.speeds],
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
