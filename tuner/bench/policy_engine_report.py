"""What parts A and C add to the report of `spectuner bench policy`: plain HTML and inline SVG."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from html import escape

from tuner.bench.policy_fidelity import Cell
from tuner.bench.policy_live import Confirmation, goodput_of
from tuner.bench.policy_parts import PartA

_COLOURS = ("#8a8a8a", "#0b6e4f", "#7a5195", "#ef5675", "#ffa600", "#2f4b7c")
_SIDE, _LEFT, _ROW, _WIDTH = 360, 230, 30, 860
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
code{background:#f2f2f2;padding:.1rem .3rem}svg{width:100%;height:auto}
svg text{font:12px system-ui,sans-serif}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right}
td:first-child,th:first-child{text-align:left}
"""


def page_of(sections: Iterable[str], base: str | None = None) -> str:
    """Put sections behind the report of part B, or onto a page of their own without one."""
    inside = "".join(sections)
    if base is not None:
        return base.replace("</body>", f"{inside}</body>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Policies compared'
        f"</title><style>{_STYLE}</style></head><body>{inside}</body></html>\n"
    )


def again(command: str) -> str:
    """Return the command line that gives the report again."""
    return f"<p>All of this again: <code>{escape(command)}</code></p>"


def part_a(found: PartA) -> str:
    """Return what was measured on the engine and how well it predicts."""
    parts = ["<h2>A. Measured on the engine</h2>", _sentences(found.lines()), _times(found)]
    parts.append("<h3>Tokens of a pass on recorded answers, by method and draft length</h3>")
    parts.append(_acceptance(found))
    if found.fidelity is not None:
        parts += [
            "<h3>Tokens per CPU-second: predicted against measured</h3>",
            _sentences(found.fidelity.lines()),
            _against(found.fidelity.cells),
            _cells(found.fidelity.cells),
        ]
    return "".join(parts)


def part_c(confirmation: Confirmation) -> str:
    """Return what policies got on the engine."""
    return "".join(
        (
            "<h2>C. Confirmed on the engine</h2>",
            _sentences(confirmation.lines()),
            _standings(confirmation),
        )
    )


def _sentences(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _times(found: PartA) -> str:
    positions = sorted({cell.positions for cell in found.measured.calibration.verify})
    rows = []
    for batch in found.batches():
        times = {cell.positions: f"{1e3 * cell.seconds:.1f}" for cell in batch}
        context = sum(cell.context_tokens for cell in batch) / len(batch)
        head = (f"{batch[0].rows} rows, {context:.0f} entries",)
        rows.append((*head, *(times.get(count, "") for count in positions)))
    heads = ("CPU ms by positions", *map(str, positions))
    return f"<h3>Target passes, 25th percentile</h3>{_table(heads, rows)}"


def _acceptance(found: PartA) -> str:
    rows = []
    for one in found.acceptance():
        figures = one["tokens_per_pass"]
        assert isinstance(figures, dict)
        rows.append((str(one["method"]), *(f"{value:.2f}" for value in figures.values())))
    return _table(("method", "k = 1", "k = 3", "k = 7"), rows)


def _cells(cells: Sequence[Cell]) -> str:
    rows = [
        (
            f"{' + '.join(cell.routes)}, {cell.rows} rows",
            cell.setting.label,
            f"{cell.measured:.1f}",
            f"{cell.predicted:.1f}",
            f"{cell.error:+.1%}",
            f"{cell.noise:.1%}",
        )
        for cell in cells
    ]
    return _table(("cell", "Setting", "measured", "predicted", "error", "standard error"), rows)


def _against(cells: Sequence[Cell]) -> str:
    """Draw predictions over measurements, a colour for each Setting; they agree on the line."""
    most = 1.05 * max(max(cell.measured, cell.predicted) for cell in cells)
    labels = list(dict.fromkeys(cell.setting.label for cell in cells))
    colours = dict(zip(labels, itertools.cycle(_COLOURS), strict=False))
    dots = [
        f'<circle cx="{_SIDE * cell.measured / most:.1f}" '
        f'cy="{_SIDE * (1 - cell.predicted / most):.1f}" r="4" '
        f'fill="{colours[cell.setting.label]}"/>'
        for cell in cells
    ]
    names = [
        _text(_SIDE + 24, 60 + 20 * place, label, "start", colours[label])
        for place, label in enumerate(labels)
    ]
    frame = f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#d0d0d0"/>'
    line = f'<line x1="0" y1="{_SIDE}" x2="{_SIDE}" y2="0" stroke="#8a8a8a"/>'
    ends = (
        _text(0, _SIDE + 16, "0", "start"),
        _text(_SIDE, _SIDE + 16, f"{most:.0f}", "end"),
        _text(_SIDE / 2, _SIDE + 16, "measured, tokens per CPU-second", "middle"),
        _text(_SIDE + 24, 12, f"predicted, up to {most:.0f}", "start"),
        _text(_SIDE + 24, 32, "on the line both agree", "start"),
    )
    shapes = "".join((frame, line, *dots, *names, *ends))
    return f'<svg viewBox="-8 -8 {2 * _SIDE} {_SIDE + 32}" role="img">{shapes}</svg>'


def _standings(confirmation: Confirmation) -> str:
    standings = confirmation.standings
    most = max(max(goodput_of(one.live), goodput_of(one.replayed)) for one in standings)
    scale = (_WIDTH - _LEFT - 60) / most
    shapes = []
    for index, standing in enumerate(standings):
        y = index * _ROW
        live, replayed = (scale * goodput_of(each) for each in (standing.live, standing.replayed))
        shapes += [
            _text(_LEFT - 8, y + 17, standing.policy, "end"),
            _bar(y + 4, live, 10, "#0b6e4f"),
            _bar(y + 15, replayed, 6, "#b7c3c0"),
            _text(_LEFT + max(live, replayed) + 6, y + 17, f"{live / scale:.1f}", "start"),
        ]
    heads = ("policy", "engine", "replay", *(f"{one.rows} rows" for one in standings[0].live))
    rows = [
        (
            one.policy,
            f"{goodput_of(one.live):.1f}",
            f"{goodput_of(one.replayed):.1f}",
            *(f"{live.goodput:.1f} ({replayed.goodput:.1f})" for live, replayed in one.pairs),
        )
        for one in standings
    ]
    return (
        "<p>Tokens per CPU-second on the engine (dark) and on replayed answers (light).</p>"
        f'<svg viewBox="-4 -4 {_WIDTH + 8} {len(standings) * _ROW + 8}" role="img">'
        f"{''.join(shapes)}</svg>{_table(heads, rows)}"
    )


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#1b1b1b") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"


def _bar(y: float, width: float, height: int, colour: str) -> str:
    place = f'x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{height}"'
    return f'<rect {place} fill="{colour}"/>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    lines += [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    return f"<table>{''.join(lines)}</table>"
