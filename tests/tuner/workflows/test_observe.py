from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.records import (
    OFF,
    DraftCost,
    FinishReason,
    JournalRecord,
    LatencyHistogram,
    Method,
    load_level_of,
)
from policy.types import Evidence, Observation, Window
from tests.fixtures.facts import DRAFT_3, LOOKUP_5, busy_records, group, page, step, trace
from tests.fixtures.sites import Clock, site_on
from tuner.store import facts, observations
from tuner.workflows.observe import close_windows, history, window_of
from tuner.workflows.site import Site

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def site(migrated_file: Path, tmp_path: Path, clock: Clock) -> Iterator[Site]:
    with site_on(migrated_file, tmp_path, NOWHERE, clock, window_s=10.0) as opened:
        yield opened


def store(site: Site, *records: JournalRecord, caught_up_s: float = 0.0) -> None:
    with site.store.writing() as session:
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        facts.add_page(session, cursor, page("boot", records))
        facts.note_pull(session, cursor, caught_up_s, caught_up_s)


def window(site: Site, start_s: float = 0.0, end_s: float = 100.0) -> Window:
    with site.store.reading() as session:
        return window_of(session, site.engine, start_s, end_s)


def only(window: Window) -> Observation:
    (seen,) = window.observations
    return seen


def test_only_the_run_of_accepted_tokens_from_the_front_counts(site: Site):
    """Field case F1: verdicts 1,0,1 / 1,1,1 / 0,1,0 at K = 3 are runs of 1, 3 and 0."""
    runs = ((3, 1, 1), (3, 3, 1), (3, 0, 1))
    store(site, step(1, 1.0, (group(outcomes=runs),)))

    seen = only(window(site))

    assert (seen.drafted, seen.accepted, seen.verify_passes, seen.tokens) == (9, 4, 3, 7)
    assert (seen.attempts, seen.accepts) == ((3, 2, 1), (2, 1, 1))
    assert seen.acceptance_rate == pytest.approx(4 / 9)
    assert seen.acceptance_length == pytest.approx(7 / 3)


def test_passes_without_a_draft_lower_coverage_and_nothing_else(site: Site):
    """Field case F4."""
    drafted = tuple(
        step(seq, 1.0, (group(outcomes=((3, kept, 1),)),))
        for seq, kept in enumerate((3, 0, 2, 1), start=1)
    )
    empty = tuple(step(seq, 1.0, (group(outcomes=((0, 0, 1),)),)) for seq in range(5, 11))
    store(site, *drafted, *empty)

    seen = only(window(site))

    assert (seen.passes, seen.drafted) == (10, 12)
    assert seen.acceptance_rate == 0.5
    assert seen.acceptance_length == 2.5
    assert seen.tokens_per_pass == 1.6
    assert seen.coverage == 0.4


def test_routes_settings_levels_and_shadow_rows_are_kept_apart(site: Site):
    store(
        site,
        step(1, 1.0, (group("chat"), group("story"), group("chat", LOOKUP_5))),
        step(2, 1.0, (group("chat"),)),
        step(3, 1.0, (group("chat", is_shadow=True),)),
    )

    seen = {
        (one.route, one.setting.method, one.load.label, one.evidence): one.passes
        for one in window(site).observations
    }

    assert seen == {
        ("chat", Method.DRAFT_MODEL, "3-4", Evidence.LIVE): 1,
        ("story", Method.DRAFT_MODEL, "3-4", Evidence.LIVE): 1,
        ("chat", Method.PROMPT_LOOKUP, "3-4", Evidence.LIVE): 1,
        ("chat", Method.DRAFT_MODEL, "1", Evidence.LIVE): 1,
        ("chat", Method.DRAFT_MODEL, "1", Evidence.REPLAY): 1,
    }


def test_a_window_is_half_open(site: Site):
    store(site, step(1, 9.999, (group(),)), step(2, 10.0, (group(),)))

    assert only(window(site, 0.0, 10.0)).passes == 1
    assert only(window(site, 10.0, 20.0)).passes == 1


def test_windows_add_up_to_the_whole(site: Site):
    store(site, *busy_records(400))
    cuts = (1_000.0, 1_003.5, 1_007.7, 1_020.0)

    parts = [window(site, *pair) for pair in itertools.pairwise(cuts)]
    whole = window(site, cuts[0], cuts[-1])

    for name in ("passes", "drafted", "accepted", "tokens"):
        parted = sum(getattr(one, name) for part in parts for one in part.observations)
        assert parted == sum(getattr(one, name) for one in whole.observations)
    assert sum(one.requests for part in parts for one in part.requests) == 40
    assert sum(mix.steps for part in parts for mix in part.mixes) == 360


def test_step_costs_leave_prefill_and_drafting_out(site: Site):
    cost = DraftCost(method=Method.DRAFT_MODEL, rows=2, tokens=6, depth=3, seconds=0.5)
    store(
        site,
        step(1, 1.0, (group(),), context_tokens=100, drafts=(cost,)),
        step(2, 1.0, (group(),), context_tokens=127, verify_s=0.04),
        step(3, 1.0, (group(),), context_tokens=128),
        step(4, 1.0, (group(),), prefill_tokens=64),
    )

    costs = window(site).step_costs

    assert [(one.rows, one.positions, one.context_tokens, one.steps) for one in costs] == [
        (1, 4, 96, 2),
        (1, 4, 192, 1),
    ]
    assert costs[0].total_s == pytest.approx(0.023 + 0.043)
    assert costs[0].total_square_s2 == pytest.approx(0.023**2 + 0.043**2)
    (draft,) = window(site).draft_costs
    assert (draft.rows, draft.depth, draft.rounds, draft.total_s) == (2, 3, 1, 0.5)


def test_mixes_are_means_over_steps_without_shadow_rows(site: Site):
    store(
        site,
        step(1, 1.0, (group("chat", OFF, ((0, 0, 2),)),), context_tokens=200),
        step(2, 1.0, (group("story", OFF, ((0, 0, 2),)),), context_tokens=400),
        step(3, 1.0, (group("chat", OFF, ((0, 0, 2),), is_shadow=True),)),
        step(4, 1.0, running=2, prefill_tokens=64, verify_s=1.0),
    )

    (mix,) = window(site).mixes

    assert mix.load == load_level_of(2)
    assert (mix.steps, mix.tokens, mix.context_tokens) == (2, 4, 300.0)
    assert mix.rows_by_route == {"chat": 1.0, "story": 1.0}
    assert mix.busy_s == pytest.approx(0.023 + 0.023 + 1.003)


def test_sums_of_steps_that_only_decoded_leave_prefill_and_shadow_rows_out(site: Site):
    chat, story = group("chat", tokens=3), group("story", OFF, ((0, 0, 1),))
    store(
        site,
        step(1, 1.0, (chat,), verify_s=0.03),
        step(2, 2.0, (story,)),
        step(3, 3.0, (chat, story)),
        step(4, 4.0, (chat, story), prefill_tokens=64),
        step(5, 5.0, (chat, group("story", is_shadow=True))),
        step(6, 6.0, (), prefill_tokens=64),
    )

    found = window(site).decode_sums

    assert [(one.load.label, one.route, one.steps, one.tokens) for one in found] == [
        ("1", "chat", 1, 3),
        ("1", "story", 1, 1),
        ("2", None, 1, 4),
    ]
    assert [one.busy_s for one in found] == pytest.approx([0.033, 0.023, 0.023])


def test_requests_leave_shadow_cancelled_and_failed_ones_out(site: Site):
    store(
        site,
        trace(1, 1.0, completion_tokens=11, ttft_s=0.1, duration_s=1.1),
        trace(2, 1.0, completion_tokens=1, ttft_s=0.1, duration_s=0.1),
        trace(3, 1.0, is_shadow=True),
        trace(4, 1.0, finish_reason=FinishReason.CANCELLED),
        trace(5, 1.0, finish_reason=FinishReason.ERROR, ttft_s=None),
    )

    (seen,) = window(site).requests

    assert (seen.requests, seen.completion_tokens) == (2, 12)
    assert seen.decode_s == pytest.approx(1.0)
    assert seen.tpot == LatencyHistogram.of([0.1])
    assert seen.ttft.num_samples == 2
    assert seen.chunk_gaps.num_samples == 18


def test_an_empty_span_is_an_empty_window(site: Site):
    assert window(site) == Window(start_s=0.0, end_s=100.0)


def test_a_window_closes_once_everything_in_it_was_read(site: Site):
    store(site, *busy_records(700), caught_up_s=1_015.0)

    assert close_windows(site) == 1
    assert close_windows(site) == 0

    with site.store.reading() as session:
        (closed,) = observations.newest(session, site.engine, 10)
    assert (closed.start_s, closed.end_s) == (1_000.0, 1_010.0)
    assert closed == window(site, 1_000.0, 1_010.0)


def test_windows_meet_the_clock_again_after_their_length_was_changed(
    site: Site, migrated_file: Path, tmp_path: Path, clock: Clock
):
    """What is drawn for a window, by the clock, could not be told by windows that straddle it."""
    store(site, *busy_records(700), caught_up_s=1_015.0)
    close_windows(site)
    with site.store.writing() as session:
        cursor = facts.open_cursor(session, site.engine, "boot", site.now())
        more = tuple(step(seq, 1_012.0 + seq - 701, (group(),)) for seq in range(701, 751))
        facts.add_page(session, cursor, page("boot", more, first_seq=701))
        facts.note_pull(session, cursor, 1_080.0, 1_080.0)
    with site_on(migrated_file, tmp_path, NOWHERE, clock, window_s=25.0) as longer:
        close_windows(longer)
        with longer.store.reading() as session:
            found = observations.newest(session, longer.engine, 10)

    ends = [(one.start_s, one.end_s) for one in found]
    assert ends == [(1_000, 1_010), (1_010, 1_025), (1_025, 1_050), (1_050, 1_075)]


def test_idle_stretches_give_no_window(site: Site):
    store(
        site,
        step(1, 1_001.0, (group(),)),
        step(2, 9_001.0, (group(),)),
        caught_up_s=9_100.0,
    )

    assert close_windows(site) == 2

    with site.store.reading() as session:
        ends = [one.end_s for one in observations.newest(session, site.engine, 10)]
    assert ends == [1_010.0, 9_010.0]


def test_a_request_that_ends_after_the_last_step_is_not_lost(site: Site):
    store(site, step(1, 1_009.0, (group(),)), trace(2, 1_011.0), caught_up_s=1_100.0)

    assert close_windows(site) == 2

    with site.store.reading() as session:
        windows = observations.newest(session, site.engine, 10)
    assert sum(seen.requests for one in windows for seen in one.requests) == 1


def test_history_is_the_closed_windows_and_what_came_since(site: Site):
    store(site, *busy_records(700), caught_up_s=1_015.0)
    close_windows(site)

    windows = history(site, 1_030.0)

    assert [(one.start_s, one.end_s) for one in windows] == [
        (1_000.0, 1_010.0),
        (1_010.0, 1_030.0),
    ]


def test_the_history_begins_where_it_began_until_a_quarter_of_it_is_too_old(site: Site):
    short = replace(site, settings=site.settings.model_copy(update={"history_windows": 8}))
    spans = []
    for number in range(14):
        window = Window(start_s=10.0 * number, end_s=10.0 * number + 10)
        with site.store.writing() as session:
            observations.add(session, site.engine, window, site.now())
        found = history(short, window.end_s)
        spans.append((int(found[0].start_s / 10), len(found)))

    assert spans[:8] == [(0, number) for number in range(1, 9)]
    assert spans[8:] == [(0, 9), (2, 8), (2, 9), (4, 8), (4, 9), (6, 8)]


def test_counts_of_random_steps_equal_a_plain_count(site: Site):
    rng = random.Random(3)
    outcomes = [(d, rng.randint(0, d), rng.randint(1, 3)) for d in rng.choices(range(6), k=50)]
    store(
        site,
        *(step(n, 1.0, (group(outcomes=(one,)),), running=1) for n, one in enumerate(outcomes, 1)),
    )

    seen = only(window(site))

    for position, (attempts, accepts) in enumerate(zip(seen.attempts, seen.accepts, strict=True)):
        assert attempts == sum(r for d, a, r in outcomes if d > position and a >= position)
        assert accepts == sum(r for d, a, r in outcomes if a > position)
    assert seen.setting == DRAFT_3
