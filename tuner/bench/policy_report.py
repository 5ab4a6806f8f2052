"""The report of `spectuner bench policy`: one HTML file, plots as inline SVG, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from policy.simulate.objectives import tpot_limits_s
from policy.simulate.scores import OURS, Pair, Row
from policy.simulate.worlds import ROUTES
from policy.statistics import Floats
from tuner.bench.policy import PolicyBench

CURVES = (*OURS, "oracle_one_arm", "av_one_pass", "goodput_average", "batch_size_table", "off")
COLOURS = ("#0b6e4f", "#45b39d", "#7a5195", "#ef5675", "#ffa600", "#2f4b7c", "#8a8a8a")

_WIDTH, _LEFT, _ROW = 860, 230, 24
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
code{background:#f2f2f2;padding:.1rem .3rem}svg{width:100%;height:auto}
svg text{font:12px system-ui,sans-serif}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right}
td:first-child,th:first-child{text-align:left}tr.ours{font-weight:600;color:#0b6e4f}
"""


def report_of(result: PolicyBench) -> str:
    """Return the report as one HTML page."""
    table, options = result.table, result.options
    intro = (
        f"{options.seeds} worlds of {options.windows} windows, profile {options.profile}, "
        f"workloads {options.workloads}. Share is goodput over that of an oracle that tries every "
        "combination of arms on the true acceptance of each route."
    )
    parts = (
        f"<h1>Policies compared</h1><p>{escape(intro)}</p>",
        f"<p>Again: <code>{escape(result.command)}</code></p>",
        "".join(f"<p>{escape(line)}</p>" for line in result.lines()),
        "<h2>Share of the oracle, with 95 % interval</h2>",
        _bars(table.rows),
        *(
            f"<h2>{one.row.policy} less each other, paired by world, with 95 % interval</h2>"
            f"{_differences(one.pairs)}"
            for one in table.standings
        ),
        "<h2>Share of the oracle over the run</h2>",
        _curves([row for name in CURVES for row in table.rows if row.policy == name]),
        "<h2>Lost to the oracle so far, of all that it got</h2>",
        _regrets([row for name in CURVES for row in table.rows if row.policy == name]),
        "<h2>Load of the first world, in rows</h2>",
        _line(result.load),
        "<h2>Figures</h2>",
        _figures(table.rows),
        "<h2>Limits on the time per output token</h2>",
        f"<p>{escape(_limits_words(result))}</p>",
        _limited(table.rows),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Policies compared'
        f"</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _bars(rows: Sequence[Row]) -> str:
    scale = (_WIDTH - _LEFT - 70) / max(1.0, *(row.oracle_share_high for row in rows))
    shapes = []
    for index, row in enumerate(rows):
        y, end = index * _ROW, _LEFT + scale * row.oracle_share
        colour = COLOURS[0] if row.policy in OURS else "#b7c3c0"
        low, high = (_LEFT + scale * at for at in (row.oracle_share_low, row.oracle_share_high))
        shapes += [
            _text(_LEFT - 8, y + 16, row.policy, "end"),
            f'<rect x="{_LEFT}" y="{y + 4}" width="{end - _LEFT:.1f}" height="16" '
            f'fill="{colour}"/>',
            _stroke(low, y + 12, high, y + 12, "#1b1b1b"),
            _text(high + 6, y + 16, f"{100 * row.oracle_share:.1f}", "start"),
        ]
    return _svg(len(rows) * _ROW, shapes)


def _differences(pairs: Sequence[Pair]) -> str:
    least = min(0.0, *(pair.low for pair in pairs))
    scale = (_WIDTH - _LEFT - 20) / (max(0.01, *(pair.high for pair in pairs)) - least)
    zero = _LEFT - scale * least
    shapes = [_stroke(zero, 0, zero, len(pairs) * _ROW, "#1b1b1b")]
    for index, pair in enumerate(pairs):
        y, colour = index * _ROW + 12, COLOURS[0] if pair.is_ahead else "#c0392b"
        shapes += [
            _text(_LEFT - 8, y + 4, pair.peer, "end"),
            _stroke(zero + scale * pair.low, y, zero + scale * pair.high, y, colour),
            f'<circle cx="{zero + scale * pair.difference:.1f}" cy="{y}" r="4" fill="{colour}"/>',
        ]
    return _svg(len(pairs) * _ROW, shapes)


def _curves(rows: Sequence[Row]) -> str:
    return _lines([(row.policy, row.parts) for row in rows])


def _regrets(rows: Sequence[Row]) -> str:
    most = max(1e-9, *(float(row.regret.max()) for row in rows))
    return _lines([(f"{row.policy} {row.regret[-1]:.1%}", row.regret / most) for row in rows])


def _lines(curves: Sequence[tuple[str, Floats]]) -> str:
    """Draw named curves of values from 0 to 1."""
    height, shapes = 240, []
    for index, ((name, values), colour) in enumerate(zip(curves, COLOURS, strict=False)):
        step = (_WIDTH - _LEFT) / max(1, len(values) - 1)
        points = ((_LEFT + i * step, height * (1 - float(v))) for i, v in enumerate(values))
        shapes += [
            _path(points, colour),
            _text(_LEFT - 12, 20 + index * 20, name, "end", colour),
        ]
    return _svg(height, shapes)


def _line(values: Sequence[int]) -> str:
    height, most = 120, max(values)
    step = (_WIDTH - _LEFT) / max(1, len(values) - 1)
    points = ((_LEFT + i * step, height * (1 - v / most)) for i, v in enumerate(values))
    return _svg(
        height, [_path(points, COLOURS[4]), _text(_LEFT - 12, 14, f"{most} at most", "end")]
    )


def _figures(rows: Iterable[Row]) -> str:
    heads = (
        *("policy", "% of oracle", "below 98 % of off", "worst drawdown, windows of off"),
        *("recovery", "switches in 1000 windows"),
    )
    return _table(
        heads,
        (
            (
                row.policy,
                f"{100 * row.oracle_share:.2f}",
                f"{row.harm_share:.2%}",
                f"{row.drawdown_windows:.2f}",
                "-" if row.recovery_windows is None else f"{row.recovery_windows:.0f}",
                f"{1000 * row.switches_per_window:.0f}",
            )
            for row in rows
        ),
    )


def _limits_words(result: PolicyBench) -> str:
    limits_s = tpot_limits_s(result.options.played_profile)
    named = ", ".join(f"{n} {1e3 * s:.1f} ms" for n, s in zip(ROUTES, limits_s, strict=True))
    return (
        f"Limits: {named}. Tokens of a route count in windows in which it keeps its limit; the "
        "share is over an oracle that plans for that. Then the time per output token that each "
        "route keeps in 99 % of windows, in ms."
    )


def _limited(rows: Iterable[Row]) -> str:
    return _table(
        ("policy", "% of oracle within limits", "% of own tokens within", *ROUTES),
        (
            (
                row.policy,
                "-" if row.limited_share is None else f"{100 * row.limited_share:.2f}",
                f"{100 * row.kept_share:.2f}",
                *(f"{1e3 * seconds:.1f}" for seconds in row.tpot_p99_s),
            )
            for row in rows
        ),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the row of ours stands out."""
    lines = ["<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    for cells in rows:
        mark = ' class="ours"' if cells[0] in OURS else ""
        lines.append(f"<tr{mark}>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def _svg(height: int, shapes: Iterable[str]) -> str:
    return f'<svg viewBox="-4 -8 {_WIDTH + 8} {height + 16}" role="img">{"".join(shapes)}</svg>'


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#1b1b1b") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"


def _stroke(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="2"/>'


def _path(points: Iterable[tuple[float, float]], colour: str) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
