"""`spectuner bench drift`: its keys, its refusals; the same command gives the same figures."""

from __future__ import annotations

import json

import pytest

from tests.tuner.cli.running import ran


def test_slides_are_told_in_time_and_the_figures_come_again() -> None:
    asked = ("bench", "drift", "--weeks", "0", "--slides", "2", "--quiet", "4", "--json", "-")
    code, out, _ = ran(*asked)
    figures = json.loads(out)
    again = json.loads(ran(*asked)[1])

    assert code == 0
    assert figures["told_in_time"] == figures["slides"] == 2
    assert all(0 < wait <= figures["within_requests"] for wait in figures["waits"])
    assert figures["false_alarms_per_week"] is None
    assert again["waits"] == figures["waits"]
    assert figures["command"].startswith("spectuner bench drift --weeks 0 --slides 2")


@pytest.mark.parametrize("bad", [("--requests", "0"), ("--wander", "-1"), ("--quiet", "0")])
def test_what_cannot_be_measured_is_one_line(bad: tuple[str, str]) -> None:
    code, _, err = ran("bench", "drift", "--weeks", "0", "--slides", "1", *bad)

    assert code == 2
    assert len(err.splitlines()) == 1
