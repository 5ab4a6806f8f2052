"""`spectuner bench policy`: its keys, its report, its refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from policy.errors import InvalidInput
from tests.tuner.cli.running import ran
from tuner.bench.policy import PolicyBenchOptions, bench_policy
from tuner.bench.policy_trace import read_trace

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(path: Path, *lines: str) -> Path:
    path.write_text(HEAD + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A request of 500 tokens every tenth of a second: ten seconds each, so 100 run together."""
    lines = [f"2023-11-16 18:{15 + s // 600}:{s % 600 / 10:010.7f},1000,500" for s in range(3000)]
    return write(tmp_path / "trace.csv", *lines)


def test_a_run_gives_exactly_the_promised_keys_and_a_report(tmp_path: Path, trace: Path) -> None:
    html = tmp_path / "report.html"
    code, out, err = ran(
        *("bench", "policy", "--part", "B", "--seeds", "2", "--windows", "60"),
        *("--workloads", "W3+W5", "--trace", str(trace)),
        *("--html", str(html), "--json", "-"),
    )
    figures = json.loads(out)
    assert code == 0
    assert {"scores", "paired", "ours", "bounds", "planner_cpu_ms"} <= set(figures)
    scores = {row["policy"]: row for row in figures["scores"]}
    assert {
        "spectuner_autopilot",
        "spectuner_reviewed",
        "oracle",
        "oracle_one_arm",
        "off",
        "best_fixed",
    } <= set(scores)
    assert set(scores["spectuner_autopilot"]) == {
        "policy",
        "oracle_share",
        "oracle_share_low",
        "oracle_share_high",
        "harm_share",
        "recovery_windows",
        "switches_per_window",
    }
    assert [row["policy"] for row in figures["details"]] == list(scores)
    details = {row["policy"]: row for row in figures["details"]}
    assert set(details["spectuner_autopilot"]) == {
        "policy",
        "switches_per_1000_windows",
        "limited_share",
        "kept_share",
        "tpot_p99_ms",
        "drawdown_windows",
        "regret",
    }
    assert set(details["off"]["tpot_p99_ms"]) == set(figures["tpot_limits_ms"])
    assert details["oracle"]["regret"][-1] == 0.0
    assert details["off"]["drawdown_windows"] == 0.0
    planner = figures["planner_cpu_ms"]
    assert (planner["routes"], planner["levels"], planner["arms"]) == (50, 8, 12)
    assert 0 < planner["p50"] <= planner["p99"]
    assert scores["oracle"]["oracle_share"] == 1.0
    assert scores["off"]["harm_share"] == 0.0
    fixed = [row["oracle_share"] for name, row in scores.items() if name.startswith("fixed ")]
    assert scores["best_fixed"]["oracle_share"] >= max(fixed) - 1e-12
    ours = {one["policy"]: one for one in figures["ours"]}
    assert list(ours) == ["spectuner_autopilot", "spectuner_reviewed"]
    for name, one in ours.items():
        peers = {pair["peer"] for pair in figures["paired"] if pair["policy"] == name}
        assert peers == set(scores) - {*ours, "oracle"}
        assert one["num_ahead"] <= one["num_others"] == len(peers)
        assert one["oracle_share"] == scores[name]["oracle_share"]
        assert one["decision_ms"]["p50"] <= one["decision_ms"]["p99"]
        assert set(one["prediction"]) == {
            "error",
            "coverage",
            "predictions",
            "over_off_coverage",
            "over_off_predictions",
        }
    assert all(pair["low"] <= pair["difference"] <= pair["high"] for pair in figures["paired"])
    bounds = {one["what"]: one for one in figures["bounds"]}
    assert bounds["spectuner_reviewed harm_share"]["high"] == 0.005
    assert {"planner p99, ms", "decision p99 of four routes, ms"} <= set(bounds)
    assert "spectuner_autopilot coverage of goodput" not in bounds
    assert figures["command"] in err
    page = html.read_text()
    assert page.count("<svg") == 6
    assert "http" not in page


def test_adaptive_arms_raise_the_oracle_and_leave_rules_of_a_length_as_they_are() -> None:
    played = [
        bench_policy(PolicyBenchOptions(seeds=1, windows=50, workloads="W1", adaptive=adaptive))
        for adaptive in (False, True)
    ]
    without, having = ({row.policy: row for row in one.table.rows} for one in played)
    assert set(without) == set(having)
    raised = without["goodput_average"].oracle_share / having["goodput_average"].oracle_share
    assert raised > 1.01
    for name in ("cascade", "av_one_pass", "fixed draft_model k=3"):
        assert without[name].oracle_share == pytest.approx(raised * having[name].oracle_share)
    assert having["oracle"].oracle_share == 1.0
    assert "--adaptive" in played[1].command
    assert "--adaptive" not in played[0].command


def test_running_sequences_follow_from_arrivals_and_lengths(trace: Path) -> None:
    rows, context = read_trace(trace).running(3, 280)
    steady = rows[np.abs(rows - 100) <= 1]
    assert len(steady) > 0.85 * len(rows)
    assert np.median(context) == pytest.approx(1250, rel=0.01)
    other, _ = read_trace(trace).running(4, 280)
    assert not np.array_equal(rows, other)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "needs lines under the columns"),
        (["2023-11-16 18:15:46,374,many"], "line 2: invalid literal"),
        (["yesterday,374,44"], "line 2: Invalid isoformat"),
        (["2023-11-16 18:15:46,374"], "line 2:"),
        (["2023-11-16 18:15:46,374,-4"], "line 2: a token count is negative"),
        (
            ["2023-11-16 18:15:46,1,1", "2023-11-16 18:15:45,1,1"],
            "line 3: arrives before the line above",
        ),
    ],
)
def test_a_line_that_is_not_of_the_format_is_named(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_trace(write(tmp_path / "bad.csv", *lines))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--part", "D"], "--part D: use one of A, B, C, all"),
        (["--part", "A", "--calibration", "a.json"], "part A measures anew"),
        (["--part", "C", "--calibration", "nowhere.json"], "--calibration nowhere.json"),
        (["--seeds", "0"], "--seeds must be 1 or more, got 0"),
        (["--windows", "10"], "--windows must be 50 or more, got 10"),
        (["--profile", "tpu"], "unknown profile 'tpu'"),
        (["--workloads", "W2+W9"], "unknown workload 'W9'"),
        (["--off-tax", "-1"], "off-state tax"),
        (["--trace", "nowhere.csv"], "--trace nowhere.csv: cannot be read"),
        (["--html", "/nowhere/report.html"], "not a file in an existing folder"),
        (["--json", "/nowhere/x.json"], "existing folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    code, out, err = ran("bench", "policy", *arguments)
    assert code == 2
    assert out == ""
    assert words in " ".join(err.split())
    assert len(err.strip().splitlines()) == 1
