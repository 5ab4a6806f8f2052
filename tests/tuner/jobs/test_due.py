"""When jobs are due, over clock changes, delays and restarts (field case F19)."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.jobs.due import Daily, Due, Every

BERLIN = Daily(at=time(2, 30), zone=ZoneInfo("Europe/Berlin"))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def due_keys(schedule: Daily, first: str, last: str) -> list[str]:
    """Return the due times that a service which looks every half minute meets, in order."""
    moment, end = at(first), at(last)
    keys: dict[str, None] = {}
    while moment <= end:
        keys[schedule.latest_due(moment).key] = None
        moment += timedelta(seconds=30)
    return list(keys)


def test_a_punctual_job_is_first_looked_at_when_it_is_next_due():
    punctual = Every(seconds=60.0, is_punctual=True)

    assert punctual.delay_s(at("2026-11-30T12:00:20+00:00")) == pytest.approx(40.0)
    assert Every(seconds=60.0).delay_s(at("2026-11-30T12:00:20+00:00")) == 0.0
    assert BERLIN.delay_s(at("2026-11-30T12:00:20+00:00")) == 0.0


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-06-15"])
def test_a_daily_job_is_due_once_per_local_date(day: str):
    keys = due_keys(BERLIN, f"{day}T00:00+00:00", f"{day}T23:00+00:00")

    assert keys[1:] == [f"daily {day}"]
    assert len(keys) == 2


def test_where_the_hour_is_skipped_it_is_due_when_the_hour_is_over():
    due = BERLIN.latest_due(at("2026-03-29T12:00+00:00"))

    assert due.at == at("2026-03-29T01:30+00:00")
    assert due.at.astimezone(BERLIN.zone).time() == time(3, 30)


def test_where_the_hour_comes_twice_it_is_due_at_the_first():
    due = BERLIN.latest_due(at("2026-10-25T12:00+00:00"))

    assert due.at == at("2026-10-25T00:30+00:00")


def test_before_its_time_the_day_before_counts():
    assert BERLIN.latest_due(at("2026-06-15T00:29+00:00")).key == "daily 2026-06-14"
    assert BERLIN.latest_due(at("2026-06-15T00:30+00:00")).key == "daily 2026-06-15"


def test_late_by_five_seconds_is_still_the_same_due_time():
    every = Every(seconds=60.0)

    assert every.latest_due(at("2026-06-15T12:00:05+00:00")) == every.latest_due(
        at("2026-06-15T12:00:00+00:00")
    )


def test_a_restart_after_five_minutes_has_one_run_to_catch_up_with():
    down, up = at("2026-06-15T00:29+00:00"), at("2026-06-15T00:35+00:00")

    assert due_keys(BERLIN, str(up), str(up + timedelta(minutes=20))) == ["daily 2026-06-15"]
    assert BERLIN.latest_due(down).key != BERLIN.latest_due(up).key


@given(
    moment=st.datetimes(
        min_value=datetime(2020, 1, 1),
        max_value=datetime(2035, 1, 1),
        timezones=st.just(UTC),
    ),
    schedule=st.one_of(
        st.builds(Every, seconds=st.sampled_from((0.5, 1.0, 30.0, 3600.0))),
        st.builds(
            Daily,
            at=st.times(),
            zone=st.sampled_from(
                [ZoneInfo(name) for name in ("UTC", "Europe/Berlin", "America/St_Johns")]
            ),
        ),
    ),
)
def test_a_due_time_is_never_in_the_future_and_never_more_than_a_period_old(
    moment: datetime, schedule: Every | Daily
):
    due = schedule.latest_due(moment)
    period_s = schedule.seconds if isinstance(schedule, Every) else 26 * 3600

    assert due.at <= moment
    assert (moment - due.at).total_seconds() <= period_s
    assert schedule.latest_due(due.at) == due


def test_schedules_say_themselves_in_words():
    assert str(BERLIN) == "daily at 02:30 Europe/Berlin"
    assert str(Every(seconds=1.0)) == "every 1 s"
    assert Every(seconds=30.0).latest_due(at("1970-01-01T00:01:01+00:00")) == Due(
        key="every 30 s #2", at=at("1970-01-01T00:01:00+00:00")
    )
