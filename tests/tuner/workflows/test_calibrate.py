"""Calibration of a real engine with a tiny model, and how the policy uses what it measured."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from collectors.base import Capabilities
from collectors.records import CALIBRATION_ROUTE, EngineSample, JournalPage, Method
from policy.cost import CostModel
from policy.types import Evidence
from tuner.errors import BadRequest, EngineBusy, Interrupted
from tuner.store import request_samples
from tuner.workflows.calibrate import CalibrateOptions, calibrate, calibration_of
from tuner.workflows.ingest import ingest
from tuner.workflows.observe import window_of
from tuner.workflows.site import Site

SMALL = CalibrateOptions(rows=(1, 2, 24), contexts=(16, 1024), steps=12)


def test_shapes_of_every_row_count_and_every_method_are_timed(site: Site) -> None:
    seen = []
    found = calibrate(site, SMALL, on_cell=lambda done, total: seen.append((done, total)))

    shapes = {(cost.rows, cost.positions): cost.steps for cost in found.costs.steps}
    assert {(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (2, 16)} <= set(shapes)
    # What takes more than twice the median is dropped, which is less than half of the steps.
    assert shapes[1, 1] >= 6
    assert {cost.method for cost in found.costs.drafts} >= {Method.DRAFT_MODEL}
    assert {one.method for one in found.costs.catch_ups} >= {Method.DRAFT_MODEL}
    assert seen[0][0] == 0
    assert seen[-1] == (found.measured, found.measured)
    assert any("Rows above 2 are left out" in line for line in found.left_out)
    assert any("Contexts are cut to" in line for line in found.left_out)


def test_a_second_run_measures_nothing_and_an_interrupted_one_goes_on(site: Site) -> None:
    stopping = threading.Event()
    stoppable = replace(site, stopping=stopping)

    def stop(done: int, total: int) -> None:
        if done == 3:
            stopping.set()

    with pytest.raises(Interrupted):
        calibrate(stoppable, SMALL, on_cell=stop)
    rest = calibrate(site, SMALL)
    again = calibrate(site, SMALL)

    assert rest.kept == 3
    assert (again.measured, again.kept) == (0, rest.measured + 3)
    assert again.costs == rest.costs


class Watched:
    """The site's collector, with something done at its calls."""

    def __init__(self, site: Site, running: int = 0, intrude: Callable[[], None] | None = None):
        self._inner = site.collector
        self._running = running
        self._intrude = intrude

    def capabilities(self) -> Capabilities:
        return self._inner.capabilities()

    def load(self) -> EngineSample:
        return replace(self._inner.load(), running=self._running)

    def steps(self, after: int, limit: int, boot_id: str | None = None) -> JournalPage:
        page = self._inner.steps(after, limit, boot_id)
        if boot_id is None and self._intrude is not None:
            self._intrude()
        return page


def watched(site: Site, **given: object) -> Site:
    return replace(site, collector=Watched(site, **given))  # type: ignore[arg-type]


def test_a_busy_engine_is_refused_unless_forced(site: Site) -> None:
    busy = watched(site, running=2)
    with pytest.raises(EngineBusy, match="is not idle: 2 requests run and 0 wait"):
        calibrate(busy, SMALL)

    assert calibrate(busy, replace(SMALL, is_forced=True)).measured > 0


def test_strangers_end_it_and_what_was_measured_stays(site: Site, ask: Callable[..., None]) -> None:
    """Somebody's request comes while the third cell is measured."""
    cells = itertools.count(1)

    def intrude() -> None:
        if next(cells) == 3:
            ask(route="chat")

    with pytest.raises(EngineBusy, match="requests of chat came"):
        calibrate(watched(site, intrude=intrude), SMALL)

    assert calibrate(site, SMALL).kept == 2


def test_its_requests_say_nothing_of_acceptance_or_load(site: Site) -> None:
    calibrate(site, SMALL)
    ingest(site)

    with site.store.reading() as session:
        window = window_of(session, site.engine, 0.0, 1e12)
        samples = request_samples.newest(session, site.engine, 1000)

    assert CALIBRATION_ROUTE not in {seen.route for seen in window.observations}
    assert not any(mix.rows_by_route.get(CALIBRATION_ROUTE) for mix in window.mixes)
    assert window.step_costs
    assert CALIBRATION_ROUTE not in {sample.route for sample in samples}


def test_the_policy_prices_what_no_traffic_measured(site: Site) -> None:
    found = calibrate(site, SMALL)
    with site.store.reading() as session:
        traffic = window_of(session, site.engine, 0.0, 1.0)
    windows = calibration_of(site, [replace(traffic, end_s=1.0)])

    model = CostModel.empty()
    for window in windows:
        model = model.updated(window)

    assert windows[0].is_calibration
    assert not any(seen.evidence is Evidence.LIVE for seen in windows[0].observations)
    plain = [one for one in found.costs.steps if (one.rows, one.positions) == (2, 2)]
    cost = max(plain, key=lambda one: one.steps)
    table = model.step_table_s(2, np.array([2.0]), cost.context_tokens)
    assert table[0] == pytest.approx(cost.total_s / cost.steps)


def test_with_force_strangers_are_no_hindrance(site: Site, ask: Callable[..., None]) -> None:
    forced = watched(site, intrude=lambda: ask(route="chat"))
    assert calibrate(forced, replace(SMALL, rows=(1,), is_forced=True)).measured > 0


def test_nothing_is_known_of_another_configuration(site: Site) -> None:
    calibrate(site, SMALL)
    with site.store.reading() as session:
        traffic = window_of(session, site.engine, 0.0, 1.0)

    class Other:
        def capabilities(self) -> object:
            known = site.collector.capabilities()
            return replace(known, pinned=replace(known.pinned, dtype="bfloat16"))

    assert calibration_of(replace(site, collector=Other()), [traffic]) == (traffic,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": (0,)}, "rows must be 1 or more"),
        ({"contexts": ()}, "contexts must be 1 or more"),
        ({"steps": 2}, "steps must be 5 or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        CalibrateOptions(**options)  # type: ignore[arg-type]


def test_an_engine_without_room_is_refused(site: Site) -> None:
    with pytest.raises(BadRequest, match="nothing can be measured"):
        calibrate(site, replace(SMALL, rows=(24,)))
