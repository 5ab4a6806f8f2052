"""A training's course as one SVG: loss, and tokens per pass on held-out answers.

Written by job.py at each checkpoint beside the weights; plain text, no library.
"""

from __future__ import annotations

from pathlib import Path

from tuner.engine.training.distill import Mark

_WIDTH, _HEIGHT, _LEFT, _GAP = 640, 180, 60, 50


def write_plot(path: Path, method: str, marks: list[Mark]) -> None:
    """Draw the marks of a training of `method`; the file appears whole."""
    losses = [(mark.step, mark.loss) for mark in marks]
    lengths = [(m.step, m.tokens_per_pass) for m in marks if m.tokens_per_pass is not None]
    panels = [_panel(f"{method}: loss in nats", losses, 0)]
    if lengths:
        panels.append(_panel(f"{method}: tokens per pass, held out, greedy", lengths, 1))
    height = len(panels) * (_HEIGHT + _GAP) + 20
    width = _WIDTH + _LEFT + 20
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "".join(panels) + "</svg>\n"
    )
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _panel(title: str, points: list[tuple[int, float]], number: int) -> str:
    """Draw one line with its axis labels; `number` counts panels from the top."""
    top = 30 + number * (_HEIGHT + _GAP)
    last = max(step for step, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    span = (high - low) or 1.0
    line = " ".join(
        f"{_LEFT + _WIDTH * step / last:.1f},{top + _HEIGHT * (high - value) / span:.1f}"
        for step, value in points
    )
    bottom = top + _HEIGHT
    return (
        f'<text x="{_LEFT}" y="{top - 10}" font-weight="bold">{title}</text>\n'
        f'<path d="M{_LEFT} {top}V{bottom}H{_LEFT + _WIDTH}" fill="none" stroke="#999"/>\n'
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{high:.2f}</text>\n'
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">{low:.2f}</text>\n'
        f'<text x="{_LEFT + _WIDTH}" y="{bottom + 16}" text-anchor="end">step {last}</text>\n'
        f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>\n'
    )
