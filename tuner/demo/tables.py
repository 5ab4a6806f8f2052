"""The summary as tables for people. Every figure has its unit; no data is a dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from collectors.records import LATENCY_BOUNDS_S, LatencyHistogram
from policy.types import Interval
from tuner.demo.cells import Cell, totals_of
from tuner.demo.client import ClientTrace
from tuner.demo.summary import DemoSummary, Steps
from tuner.store.divergences import ArmCounts

_DASH = "-"
_MOST_SHOWN = 10.0


def summary_tables(summary: DemoSummary) -> RenderableType:
    """Return everything the demo prints at its end."""
    totals = totals_of(summary.cells)
    cells = summary.cells
    parts = _titled(
        "Speculation by route and load (sequences running)", _speculation_table(cells, totals)
    )
    parts += _titled("Speed by route and load", _speed_table(cells, totals))
    parts += _titled("Settings by route and load", _setting_table(cells))
    parts += _titled("What was recommended", _recommendation_table(summary))
    parts += _titled("Predicted beside measured", _outcome_table(summary))
    parts += _titled("Shadow replay, paired request by request", _replay_table(summary))
    parts += _titled("Greedy outputs against plain decoding", _divergence_table(summary))
    parts += _verdicts(summary)
    parts += _titled("Seen by the clients", _client_table(summary.clients, summary.unsent))
    parts += ["", _journal_line(summary.steps)]
    return Group(*parts)


def _titled(title: str, table: Table) -> list[RenderableType]:
    return ["", f"[bold]{title}[/]", table if table.row_count else "  none"]


def _journal_line(steps: Steps) -> str:
    return (
        f"Journal: {steps.journalled:,} records written by the engine, {steps.stored:,} stored, "
        f"{steps.lost:,} lost."
    )


def _table(words: Sequence[str], figures: Sequence[str]) -> Table:
    table = Table(header_style="dim", box=None, pad_edge=False)
    for word in words:
        table.add_column(word, no_wrap=True)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def _speculation_table(cells: Sequence[Cell], totals: Sequence[Cell]) -> Table:
    table = _table(
        ("route", "load"),
        ("requests", "drafted", "accepted", "rate", "accept. length", "tokens/pass"),
    )
    for cell in cells:
        table.add_row(*_speculation_figures(cell))
    table.add_section()
    for total in totals:
        table.add_row(*_speculation_figures(total))
    return table


def _speculation_figures(cell: Cell) -> tuple[str, ...]:
    return (
        cell.route,
        cell.load.label,
        f"{cell.requests:,}",
        f"{cell.drafted:,}",
        f"{cell.accepted:,}",
        _ratio(cell.acceptance_rate),
        _figure(cell.acceptance_length),
        _figure(cell.tokens_per_pass),
    )


def _setting_table(cells: Sequence[Cell]) -> Table:
    table = _table(
        ("route", "load", "live", "recommended"),
        ("route speed", "engine total"),
    )
    for cell in cells:
        table.add_row(cell.route, cell.load.label, cell.setting, *_advice(cell))
    return table


def _advice(cell: Cell) -> tuple[str, str, str]:
    if cell.recommended is None:
        return "no data", _DASH, _DASH
    if cell.recommended == cell.setting:
        return "no change", _DASH, _DASH
    return cell.recommended, _mean_words(cell.route_speed), _mean_words(cell.engine_total)


def _mean_words(ratio: Interval | None) -> str:
    return _DASH if ratio is None else f"{_per_cent(ratio.mean - 1)} %"


def _speed_table(cells: Sequence[Cell], totals: Sequence[Cell]) -> Table:
    table = _table(
        ("route", "load"),
        ("tokens/s", "engine tokens/s", "TTFT p50", "p95", "per token p50", "p95"),
    )
    for cell in cells:
        table.add_row(*_speed_figures(cell, _DASH))
    table.add_section()
    for total in totals:
        table.add_row(*_speed_figures(total, _figure(total.engine_tokens_per_s, 0)))
    return table


def _speed_figures(cell: Cell, engine_speed: str) -> tuple[str, ...]:
    return (
        cell.route,
        cell.load.label,
        _figure(cell.tokens_per_s, 1),
        engine_speed,
        latency_words(cell.ttft, 0.5),
        latency_words(cell.ttft, 0.95),
        latency_words(cell.tpot, 0.5),
        latency_words(cell.tpot, 0.95),
    )


def _recommendation_table(summary: DemoSummary) -> Table:
    table = _table(
        ("route", "state", "load", "from", "to"),
        ("speed", "engine total (90 %)", "over off"),
    )
    for entry in summary.worth_showing:
        moved = [change for change in entry.said.changes if change.proposed != change.current]
        if not moved:
            words = entry.said.advice.value.replace("_", " ")
            table.add_row(entry.route, words, *[_DASH] * 6)
        for change in moved:
            table.add_row(
                entry.route,
                entry.state.value,
                change.load.label,
                change.current.label,
                change.proposed.label,
                _mean_words(change.route_speed),
                gain_words(change.engine_total),
                f"{change.over_off.mean:.2f}x",
            )
    return table


def _outcome_table(summary: DemoSummary) -> Table:
    table = _table(("route", "load", "in force", "figure"), ("predicted", "measured (90 %)"))
    routes = {entry.id: entry.route for entry in summary.recommendations}
    for number, brought in summary.outcomes.items():
        for one in brought:
            missed = " missed" if one.is_missed else ""
            table.add_row(
                routes.get(number, _DASH),
                one.load.label,
                one.setting.label,
                one.figure,
                f"{one.predicted.mean:.2f}x",
                f"{_times(one.realised)}{missed}",
            )
    return table


def _replay_table(summary: DemoSummary) -> Table:
    table = _table(
        ("route", "base", "against"),
        ("pairs", "void", "speed ratio (90 %)", "tokens/pass base", "against"),
    )
    for line in summary.replays:
        found = line.replay.summary
        table.add_row(
            line.replay.route or "all",
            line.base,
            line.other,
            str(found.pairs),
            str(found.void_pairs),
            _times(found.speedup),
            _figure(found.base_tokens_per_pass),
            _figure(found.other_tokens_per_pass),
        )
    return table


def _divergence_table(summary: DemoSummary) -> Table:
    table = _table(("arm",), ("pairs", "identical", "near tie", "suspicious", "length", "error"))
    for line in summary.divergences:
        found = line.report.summary
        table.add_row(line.setting, *_differences(found.tested))
        table.add_row("control: plain, other batch", *_differences(found.control))
    return table


def _verdicts(summary: DemoSummary) -> list[RenderableType]:
    return [f"{line.setting}: {line.report.summary.verdict}" for line in summary.divergences]


def _differences(counted: ArmCounts) -> tuple[str, ...]:
    kinds = (counted.identical, counted.near_tie, counted.suspicious, counted.length, counted.error)
    return (str(counted.pairs), *(str(kind) for kind in kinds))


def _client_table(clients: Sequence[ClientTrace], unsent: int) -> Table:
    table = _table(
        ("route",),
        ("answered", "failed", "had 429", "TTFT p50", "p95", "delivery gap p50", "p95"),
    )
    for route in sorted({trace.route for trace in clients}):
        mine = [trace for trace in clients if trace.route == route]
        ttft = LatencyHistogram.of(trace.ttft_s for trace in mine if trace.ttft_s is not None)
        gaps = LatencyHistogram.of(gap for trace in mine for gap in trace.gaps_s)
        table.add_row(
            route,
            str(sum(not trace.error for trace in mine)),
            str(sum(bool(trace.error) for trace in mine)),
            str(sum(trace.retries > 0 for trace in mine)),
            *(latency_words(seen, share) for seen in (ttft, gaps) for share in (0.5, 0.95)),
        )
    table.caption = f"{unsent:,} arrivals waited for a turn until their phase ended"
    table.caption_justify = "left"
    return table


def gain_words(ratio: Interval | None) -> str:
    """Return a ratio as a gain in per cent with its interval, such as ``+31 % (+24 to +38)``."""
    if ratio is None:
        return _DASH
    gain = ratio.minus_one
    mean, low, high = (_per_cent(value) for value in (gain.mean, gain.low, gain.high))
    return f"{mean} % ({low} to {high})"


def _per_cent(ratio: float) -> str:
    return f"{100 * ratio:+.0f}" if ratio < _MOST_SHOWN else f"> +{100 * _MOST_SHOWN:.0f}"


def latency_words(histogram: LatencyHistogram, share: float) -> str:
    """Return a quantile with its unit; above the last bucket it is said to be above."""
    value = histogram.quantile_s(share)
    if value is None:
        return _DASH
    if math.isinf(value):
        return f"> {LATENCY_BOUNDS_S[-1]:.0f} s"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _times(interval: Interval | None) -> str:
    if interval is None:
        return _DASH
    return f"{interval.mean:.2f}x ({interval.low:.2f} to {interval.high:.2f})"


def _ratio(value: float | None) -> str:
    return _DASH if value is None else f"{value:.0%}".replace("%", " %")


def _figure(value: float | None, digits: int = 2) -> str:
    return _DASH if value is None else f"{value:,.{digits}f}"
