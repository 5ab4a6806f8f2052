import json

import pytest

from tests.tuner.cli.running import ran
from tuner.cli.theory import theory_figures

TABLES = {
    0.05: {
        0.5: ([1.43, 1.59, 1.63, 1.61, 1.57, 1.53, 1.43], 3, 1.63),
        0.6: ([1.52, 1.78, 1.89, 1.92, 1.91, 1.87, 1.77], 4, 1.92),
        0.7: ([1.62, 1.99, 2.20, 2.31, 2.35, 2.35, 2.28], 6, 2.35),
        0.8: ([1.71, 2.22, 2.57, 2.80, 2.95, 3.04, 3.09], 8, 3.09),
        0.9: ([1.81, 2.46, 2.99, 3.41, 3.75, 4.01, 4.38], 13, 4.67),
    },
    0.2: {
        0.5: ([1.25, 1.25, 1.17, 1.08, 0.98, 0.90, 0.77], 1, 1.25),
        0.9: ([1.58, 1.94, 2.15, 2.28, 2.34, 2.37, 2.36], 7, 2.37),
    },
}


@pytest.mark.parametrize(("c", "alpha"), [(c, alpha) for c in TABLES for alpha in TABLES[c]])
def test_the_table_is_the_published_one(c: float, alpha: float) -> None:
    speedups, best_k, best = TABLES[c][alpha]

    code, out, _ = ran("theory", "--alpha", str(alpha), "--c", str(c))

    row = out.splitlines()[-1].split()
    assert code == 0
    assert row[1:] == [*(f"{value:.2f}" for value in speedups), str(best_k), f"({best:.2f})"]


def test_json_has_exactly_the_promised_keys_and_nothing_else_on_stdout() -> None:
    code, out, err = ran("theory", "--alpha", "0.8", "--c", "0.05", "--k", "1,2,8", "--json", "-")

    figures = json.loads(out)
    assert code == 0
    assert set(figures) == {"rows", "best"}
    assert [set(row) for row in figures["rows"]] == [
        {"alpha", "c", "k", "expected_tokens", "speedup"}
    ] * 3
    assert figures["best"] == {"k": 8, "speedup": pytest.approx(3.092, abs=1e-3)}
    assert "Speedup" in err


def test_alpha_one_is_the_limit_and_not_a_division_by_zero() -> None:
    figures = theory_figures([1.0], [0.0], [4])

    assert figures["rows"] == [
        {"alpha": 1.0, "c": 0.0, "k": 4, "expected_tokens": 5.0, "speedup": 5.0}
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--alpha", "1.2"], "1.2"),
        (["--alpha", "high"], "'high' is not a number"),
        (["--alpha", "nan"], "nan is not a finite number"),
        (["--alpha", "0.5,"], "'' is not a number"),
        (["--c", "-1"], "-1"),
        (["--k", "1.5"], "1.5 is not a whole number"),
        (["--k", "-1"], "-1"),
        (["--k", "1,100000000"], "100000000 is more than 10000"),
        (["--json", "/nowhere/x.json"], "existing folder"),
    ],
)
def test_a_bad_value_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], words: str
) -> None:
    code, out, err = ran("theory", *arguments)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
