from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from collectors.records import LOAD_LEVELS, Method, Setting
from policy.types import Advice, Interval
from tuner.api.json_form import json_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    ttft_p95_s: float | None
    gain: Interval | None = None


def test_a_quantile_above_the_last_bound_says_so_beside_the_bound() -> None:
    above = json_form(Sample(ttft_p95_s=math.inf))
    assert above == {"ttft_p95_s": pytest.approx(127.3, 0.01), "ttft_p95_is_above": True,
                     "gain": None}  # fmt: skip
    assert json_form(Sample(ttft_p95_s=0.2))["ttft_p95_is_above"] is False
    assert json_form(Sample(ttft_p95_s=None))["ttft_p95_s"] is None


def test_a_number_that_is_none_becomes_null_and_the_json_is_strict() -> None:
    wild = Sample(ttft_p95_s=1.0, gain=Interval(low=-math.inf, mean=math.nan, high=math.inf))
    text = json.dumps(json_form(wild), allow_nan=False)
    assert json.loads(text)["gain"] == {"low": None, "mean": None, "high": None}


def test_settings_levels_times_and_names_have_their_wire_forms() -> None:
    setting = Setting(method=Method.DRAFT_MODEL, k=3)
    assert json_form(setting) == {**setting.to_dict(), "label": "draft_model k=3"}
    assert json_form(LOAD_LEVELS[2]) == "3-4"
    assert json_form(datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)) == "2026-11-30T01:02:03+00:00"
    assert json_form((Advice.NO_CHANGE, True, 0)) == ["no_change", True, 0]


def test_what_has_no_json_form_is_named() -> None:
    with pytest.raises(TypeError, match="set has no JSON form"):
        json_form({"x": {1, 2}})
