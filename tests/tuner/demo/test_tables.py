import io

import pytest
from rich.console import Console

from collectors.records import LOAD_LEVELS, LatencyHistogram
from policy.types import Interval
from tuner.demo.cells import Cell
from tuner.demo.client import ClientTrace
from tuner.demo.summary import DemoSummary, Steps
from tuner.demo.tables import gain_words, latency_words, summary_tables


def printed(summary: DemoSummary, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(summary_tables(summary))
    return out.getvalue()


def summary(*cells: Cell) -> DemoSummary:
    return DemoSummary(
        cells=cells,
        recommendations=(),
        were_live=frozenset(),
        replays=(),
        divergences=(),
        steps=Steps(journalled=1234, stored=1234, lost=0),
        clients=(ClientTrace(route="chat", ttft_s=0.2, duration_s=1, gaps_s=(0.1,)),),
        unsent=3,
    )


@pytest.mark.parametrize(
    ("samples", "words"),
    [([], "-"), ([0.03], "33 ms"), ([2.0], "2.3 s"), ([400.0], "> 127 s")],
)
def test_a_latency_has_its_unit_and_is_never_cut_at_the_last_bucket(
    samples: list[float], words: str
) -> None:
    assert latency_words(LatencyHistogram.of(samples), 0.95) == words


def test_a_gain_has_its_interval() -> None:
    assert gain_words(Interval(low=0.98, mean=1.31, high=1.5)) == "+31 % (-2 to +50)"
    assert gain_words(Interval(low=1.5, mean=12, high=1e30)) == "> +1000 % (+50 to > +1000)"
    assert gain_words(None) == "-"


def test_no_data_is_a_dash_and_never_zero() -> None:
    text = printed(summary(Cell(route="chat", load=LOAD_LEVELS[0], passes=3, tokens=3)))
    row = next(line.split() for line in text.splitlines() if line.startswith("chat"))

    assert row[:2] == ["chat", "1"]
    assert row[5:] == ["-", "-", "1.00"]


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    cell = Cell(
        route="json_extract",
        load=LOAD_LEVELS[5],
        requests=120,
        drafted=12_345,
        accepted=8_765,
        passes=4_321,
        verify_passes=4_000,
        tokens=13_000,
        setting="prompt_lookup k=5",
        recommended="draft_model k=3",
        route_speed=Interval(low=1.1, mean=1.2, high=1.3),
        engine_total=Interval(low=1.0, mean=1.15, high=1.3),
    )

    text = printed(summary(cell))

    assert "…" not in text
    assert "prompt_lookup k=5" in text
    assert "+20 %" in text
    assert "+15 %" in text
    assert "1,234 records written by the engine, 1,234 stored, 0 lost" in text


def test_what_did_not_happen_is_said() -> None:
    lines = printed(summary()).splitlines()

    for title in ("What was recommended", "Shadow replay", "Greedy outputs"):
        place = next(index for index, line in enumerate(lines) if line.startswith(title))
        assert lines[place + 1].strip() == "none"
