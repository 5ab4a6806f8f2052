"""Fill the cost table on an idle engine: a few minutes of requests that only time steps.

Each cell is so many rows of so much context at one Setting. What it cost is read from the engine's
own journal and stored at once, so an interrupted calibration goes on where it stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collectors.base import Capabilities
from collectors.records import CALIBRATION_ROUTE, OFF, DecodeStep, Method, Setting
from policy.calibration import CalibratedCosts, costs_of
from policy.types import Window
from tuner.errors import BadRequest, EngineBusy
from tuner.store import calibrations
from tuner.store.calibrations import StoredCalibration
from tuner.workflows.calibration_traffic import Ask, run_together, seed_tokens
from tuner.workflows.site import Site

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXTS = (64, 256, 1024)
DEPTHS = (1, 3, 7)
MOST_CONTEXT_TOKENS = 4096
"""Cells that would hold more KV entries are left out: reading their prompts would take minutes."""

STEPS = 8
SEED_TOKENS = 96
PAGE_RECORDS = 1000
_PREFILL_TOKENS = 256
_STRIDE = 7
_SPARE_STEPS = 2
_LOOKS = 30
_LOOK_S = 0.1
"""Readers of different requests may be a step apart."""

_WITHOUT_WEIGHTS = (Method.PROMPT_LOOKUP, Method.SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """What is measured.

    Attributes:
        rows: sequences together.
        contexts: prompt lengths, in tokens.
        steps: steps of each cell.
        is_forced: go on although other requests run.
        is_again: measure anew what was measured before.
    """

    rows: tuple[int, ...] = ROWS
    contexts: tuple[int, ...] = CONTEXTS
    steps: int = STEPS
    is_forced: bool = False
    is_again: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.rows or min(self.rows) < 1:
            raise BadRequest(f"rows must be 1 or more, got {list(self.rows)}")
        if not self.contexts or min(self.contexts) < 1:
            raise BadRequest(f"contexts must be 1 or more tokens, got {list(self.contexts)}")
        if self.steps < 5:
            raise BadRequest(f"steps must be 5 or more, got {self.steps}; fewer are not believed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Requests of one length at one Setting."""

    rows: int
    context: int
    setting: Setting

    @property
    def label(self) -> str:
        """Name, as stored."""
        return f"{self.setting.label} rows={self.rows} context={self.context}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What is known after a calibration.

    Attributes:
        pinned: digest of the engine's configuration.
        costs: all costs of it, earlier ones included.
        measured: cells measured now.
        kept: cells that were measured before.
        left_out: what was wished for and cannot be, one sentence each.
    """

    pinned: str
    costs: CalibratedCosts
    measured: int
    kept: int
    left_out: tuple[str, ...]


def calibrate(
    site: Site,
    options: CalibrateOptions,
    on_cell: Callable[[int, int], None] = lambda done, total: None,
) -> Calibrated:
    """Measure the cells that were not measured yet in the engine's configuration.

    Args:
        site: the engine and its store.
        options: what is measured.
        on_cell: called after each cell with cells done and cells in all.

    Raises:
        EngineBusy: other requests run, or came in between; what was measured stays stored.
        BadRequest: nothing can be measured within the engine's limits.
        SourceUnreachable: the engine does not answer.
        SourceRefused: the engine refused.
    """
    _require_idle(site, options)
    capabilities = site.collector.capabilities()
    cells, left_out = cells_of(capabilities, options)
    pinned = capabilities.pinned.digest
    with site.store.reading() as session:
        found = calibrations.find(session, site.engine, pinned)
    if found is None or options.is_again:
        found = StoredCalibration(
            pinned=pinned, created_at=site.now(), cells=(), costs=CalibratedCosts()
        )
    missing = [cell for cell in cells if cell.label not in found.cells]
    kept = len(cells) - len(missing)
    on_cell(kept, len(cells))
    text = seed_tokens(site.address, SEED_TOKENS) if missing else ()
    for done, cell in enumerate(missing, kept + 1):
        site.raise_if_stopping()
        costs = _measured(site, cell, text, capabilities.max_context_tokens, options)
        found = replace(
            found,
            created_at=site.now(),
            cells=(*found.cells, cell.label),
            costs=found.costs.plus(costs),
        )
        with site.store.writing() as session:
            calibrations.save(session, site.engine, found)
        on_cell(done, len(cells))
    return Calibrated(
        pinned=pinned, costs=found.costs, measured=len(missing), kept=kept, left_out=left_out
    )


def calibration_of(site: Site, windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return windows with the engine's calibration before them, where there is one.

    Args:
        site: the engine and its store.
        windows: of traffic, oldest first.

    Raises:
        SourceUnreachable: the engine does not answer.
    """
    pinned = site.collector.capabilities().pinned.digest
    with site.store.reading() as session:
        found = calibrations.find(session, site.engine, pinned)
    if found is None or not windows:
        return tuple(windows)
    return (found.costs.window(windows[0].start_s), *windows)


def cells_of(
    capabilities: Capabilities, options: CalibrateOptions
) -> tuple[list[Cell], tuple[str, ...]]:
    """Return what can be measured on an engine, and what cannot.

    Raises:
        BadRequest: nothing can.
    """
    most_rows = max(1, capabilities.max_rows // 2)
    rows = [count for count in options.rows if count <= most_rows]
    room = _room(options.steps, max(DEPTHS))
    longest = capabilities.max_context_tokens - room
    contexts = sorted({min(context, longest) for context in options.contexts})
    if not rows or contexts[0] < 1:
        raise BadRequest(
            f"nothing can be measured: the engine takes {most_rows} replayed rows and "
            f"{capabilities.max_context_tokens} tokens, of which {room} are needed for answers"
        )
    cells = list(_cells(capabilities, rows, contexts))
    left_out = []
    if len(rows) < len(options.rows):
        left_out.append(
            f"Rows above {most_rows} are left out: replayed requests get half of the engine's "
            f"{capabilities.max_rows}."
        )
    if max(options.contexts) > longest:
        left_out.append(
            f"Contexts are cut to {longest} tokens: the engine holds "
            f"{capabilities.max_context_tokens}, answers included."
        )
    return cells, tuple(left_out)


def _cells(capabilities: Capabilities, rows: Sequence[int], contexts: Sequence[int]) -> list[Cell]:
    """Lay out: off and one drafter over all shapes, the other drafters over a few."""
    found = []
    settings = _settings(capabilities)
    for place, context in enumerate(contexts):
        for count in rows:
            if place and count * context > MOST_CONTEXT_TOKENS:
                continue
            wanted = [OFF, *(settings[0] if settings else [])]
            if place:
                wanted = [one for one in wanted if one.k in (0, DEPTHS[1])]
            found += [Cell(rows=count, context=context, setting=one) for one in wanted]
    few = sorted({rows[0], rows[len(rows) // 2], rows[-1]})
    for others in settings[1:]:
        found += [
            Cell(rows=count, context=contexts[0], setting=one) for count in few for one in others
        ]
    return found


def _settings(capabilities: Capabilities) -> list[list[Setting]]:
    """Return the Settings of each method, the one that drafts most surely first."""
    by_method = [
        [
            Setting.from_dict({"method": one.method.value, "k": depth})
            for depth in sorted({min(depth, one.max_k) for depth in DEPTHS})
        ]
        for one in sorted(capabilities.methods, key=lambda one: one.method in _WITHOUT_WEIGHTS)
        if one.method is not Method.OFF
    ]
    return [
        [one for one in settings if capabilities.unsupported_reason(one) is None]
        for settings in by_method
    ]


def _room(steps: int, depth: int) -> int:
    return (steps + 2 * _SPARE_STEPS) * (1 + depth)


def _measured(
    site: Site, cell: Cell, text: Sequence[int], most_tokens: int, options: CalibrateOptions
) -> CalibratedCosts:
    """Run a cell and read its steps from the journal."""
    first = site.collector.steps(0, 1)
    joining = cell.rows * cell.context // _PREFILL_TOKENS
    wanted = _room(options.steps + joining, cell.setting.k)
    ask = Ask(
        prompts=tuple(_prompt(text, place, cell.context) for place in range(cell.rows)),
        setting=cell.setting,
        max_tokens=min(wanted, most_tokens - cell.context),
        steps=options.steps + _SPARE_STEPS,
    )
    run_together(site.address, ask, site.stopping)
    steps = _steps_after(site, first.last_seq, first.boot_id)
    strangers = {
        group.route
        for step in steps
        for group in step.groups
        if not (group.is_shadow and group.route == CALIBRATION_ROUTE)
    }
    if strangers and not options.is_forced:
        raise EngineBusy(
            f"requests of {', '.join(sorted(strangers))} came to {site.engine} meanwhile; what was "
            "measured so far is stored: run it again when the engine is idle, or with --force"
        )
    return costs_of(steps)


def _steps_after(site: Site, seq: int, boot_id: str) -> list[DecodeStep]:
    """Read the journal from a number to its present end."""
    found: list[DecodeStep] = []
    while True:
        page = site.collector.steps(seq, PAGE_RECORDS, boot_id)
        if page.boot_id != boot_id:
            raise EngineBusy(f"{site.engine} was restarted meanwhile; run it again")
        found += [record for record in page.records if isinstance(record, DecodeStep)]
        if not page.records:
            return found
        seq = page.records[-1].seq


def _prompt(text: Sequence[int], place: int, length: int) -> tuple[int, ...]:
    endless = itertools.cycle(text)
    return tuple(itertools.islice(endless, _STRIDE * place, _STRIDE * place + length))


def _require_idle(site: Site, options: CalibrateOptions) -> None:
    """Wait for what is just ending, as an earlier calibration's last requests may be."""
    for _ in range(_LOOKS):
        load = site.collector.load()
        if options.is_forced or not load.running + load.waiting:
            return
        site.stopping.wait(_LOOK_S)
    raise EngineBusy(
        f"{site.engine} is not idle: {load.running} requests run and {load.waiting} wait; "
        "wait for them, or go on with --force"
    )
