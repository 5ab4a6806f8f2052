"""What a training shows and leaves behind as a picture."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from rich.console import Console

from tuner.engine.training.display import sparkline, training_bar
from tuner.engine.training.distill import Mark, StepProgress
from tuner.engine.training.plot import write_plot

MARKS = [
    Mark(step=10, loss=5.0, tokens_per_pass=1.0),
    Mark(step=20, loss=3.0, tokens_per_pass=1.5),
    Mark(step=30, loss=2.5, tokens_per_pass=2.0),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_small_bars_run_from_the_least_to_the_largest_and_flat_values_are_flat() -> None:
    assert sparkline([1.0, 1.5, 2.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline([float(n) for n in range(100)])) == 24


def test_where_nothing_can_be_redrawn_each_checkpoint_is_a_line_with_its_plot() -> None:
    stream = io.StringIO()
    with training_bar(Console(file=stream, width=200), 30) as report:
        for step in (29, 30):
            done = StepProgress(step=step, loss=2.4, match_ratios=(0.5, 0.25), num_scored=9)
            report(done, MARKS)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("step")]
    assert lines == [
        "step 30: loss 2.400, same best token 50% 25%, held out ▁▅█ 2.00 tokens per pass"
    ]


def test_the_picture_has_a_line_of_losses_and_one_of_held_out_tokens_per_pass(
    tmp_path: Path,
) -> None:
    path = tmp_path / "training.svg"
    write_plot(path, "eagle", MARKS)
    lines = [line.attrib["points"] for line in ElementTree.parse(path).iter(f"{SVG}polyline")]
    heights = [[float(point.split(",")[1]) for point in line.split()] for line in lines]
    assert len(lines) == 2
    assert heights[0] == sorted(heights[0])
    assert heights[1] == sorted(heights[1], reverse=True)
    assert heights[0][-1] - heights[0][0] == heights[1][0] - heights[1][-1] == 180
    write_plot(path, "pard", [Mark(step=4, loss=1.0, tokens_per_pass=None)])
    assert len(list(ElementTree.parse(path).iter(f"{SVG}polyline"))) == 1
