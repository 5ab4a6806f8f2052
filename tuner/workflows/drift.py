"""Watch closed windows for drift, note what the engine is made of, and say what still counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectors.base import Capabilities
from policy.drift import watch
from policy.drift_alarms import DRAFTER, Alarm, Boot, restart_alarm, version_alarms
from policy.drift_evidence import investigated, trusted
from policy.types import Window
from tuner.store import drift, observations
from tuner.store.drift import Identity, StoredAlarm
from tuner.workflows.deciding import note_in_force
from tuner.workflows.site import Site

WINDOWS_AT_ONCE = 200
"""Windows between two transactions, so that a long history is gone through in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What one round saw.

    Attributes:
        windows: closed windows looked at.
        raised: alarms that are new.
        ended: alarms that are over.
    """

    windows: int
    raised: int
    ended: int

    def __str__(self) -> str:
        """Say it in one line."""
        return f"looked at {self.windows} windows, {self.raised} new alarms, {self.ended} over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What decisions may stand on.

    Attributes:
        windows: windows, those from before a change cut down to what they are worth.
        waiting: routes about which nothing should be decided, and why; None stands for all.
    """

    windows: tuple[Window, ...]
    waiting: Mapping[str | None, str]

    def waiting_reason(self, route: str) -> str | None:
        """Return why nothing should be decided about a route; None where something may."""
        return self.waiting.get(route) or self.waiting.get(None)


def watch_drift(site: Site) -> Watched:
    """Look at windows that were closed since the last round, and at the engine itself.

    Safe to kill at any moment: what was seen and the alarms of it are stored together, so that no
    window counts twice.

    Raises:
        CollectorError: the engine does not answer; its windows were looked at all the same.
    """
    seen, raised = 0, 0
    while (count := _next_windows(site)) is not None:
        seen, raised = seen + count[0], raised + count[1]
        site.raise_if_stopping()
    raised += _restarts(site)
    with site.store.writing() as session:
        ended = drift.end_quiet(session, site.engine, site.clock())
    raised += _note_identity(site, site.collector.capabilities())
    note_in_force(site)
    return Watched(windows=seen, raised=raised, ended=ended)


def ground(site: Site, windows: tuple[Window, ...]) -> Ground:
    """Return what decisions may stand on, given every alarm since the windows began."""
    start_s = min((window.start_s for window in windows), default=0.0)
    with site.store.reading() as session:
        stored = drift.alarms(session, site.engine, since_s=start_s)
    return Ground(
        windows=trusted(windows, [one.alarm for one in stored]),
        waiting=investigated([one.alarm for one in stored if one.is_open]),
    )


def waiting_reason(site: Site, route: str) -> str | None:
    """Return why nothing should be decided or tried on a route now; None where something may."""
    with site.store.reading() as session:
        stored = drift.alarms(session, site.engine, open_only=True)
    waiting = investigated([one.alarm for one in stored])
    return waiting.get(route) or waiting.get(None)


def acknowledge(site: Site, number: int, *, who: str, why: str) -> StoredAlarm:
    """Note that somebody looked at an alarm; it stops no decisions any more.

    Raises:
        NotFound: there is none with this number.
        BadRequest: the reason is empty or too long.
    """
    with site.store.writing() as session:
        return drift.acknowledge(session, number, who=who, why=why, at=site.now())


def parts_of(capabilities: Capabilities) -> Mapping[str, str]:
    """Return what an engine is made of, by part, as far as it can change acceptance or times."""
    pinned = capabilities.pinned
    named = ("model", "weights_hash", "tokenizer_hash", "dtype", "device", "attention_backend")
    return {
        **{name: str(getattr(pinned, name)) for name in named},
        "engine": f"{capabilities.engine} {capabilities.version}",
        **{f"version of {name}": version for name, version in pinned.versions.items()},
        **{
            f"{DRAFTER}{one.method}": f"{one.drafter} {one.drafter_hash}".strip()
            for one in capabilities.methods
        },
    }


def _next_windows(site: Site) -> tuple[int, int] | None:
    """Look at some windows; return how many, and how many alarms are new; None if none is left."""
    with site.store.reading() as session:
        state, through_s = drift.state_of(session, site.engine)
        windows = observations.after(session, site.engine, through_s or 0.0, WINDOWS_AT_ONCE)
        boots = drift.boots(session, site.engine, windows[0].start_s) if windows else ()
    if not windows:
        return None
    alarms: list[Alarm] = []
    for window in windows:
        state, found = watch(state, window, _boot_of(window, boots))
        alarms += found
    with site.store.writing() as session:
        new = drift.note_alarms(session, site.engine, alarms, site.now())
        drift.save_state(session, site.engine, state, windows[-1].end_s)
    return len(windows), new


def _boot_of(window: Window, boots: Sequence[Boot]) -> Boot | None:
    before = [boot for boot in boots if boot.started_s <= window.end_s]
    return before[-1] if before else None


def _restarts(site: Site) -> int:
    now_s = site.clock()
    with site.store.reading() as session:
        alarm = restart_alarm(drift.boots(session, site.engine, 0.0), now_s)
    if alarm is None:
        return 0
    with site.store.writing() as session:
        return drift.note_alarms(session, site.engine, [alarm], site.now())


def _note_identity(site: Site, capabilities: Capabilities) -> int:
    """Store what the engine is made of where that changed; return how many alarms are new."""
    now_s, parts = site.clock(), parts_of(capabilities)
    with site.store.writing() as session:
        before = drift.latest_identity(session, site.engine)
        if before is not None and before.parts == parts:
            return 0
        boots = drift.boots(session, site.engine, 0.0)
        is_new_boot = before is not None and before.boot_id != capabilities.boot_id
        known = [boot for boot in boots if boot.boot_id == capabilities.boot_id]
        since_s = known[0].started_s if is_new_boot and known else now_s
        identity = Identity(at_s=since_s, boot_id=capabilities.boot_id, parts=parts)
        drift.add_identity(session, site.engine, identity)
        if before is None:
            return 0
        changes = version_alarms(before.parts, parts, since_s=since_s, seen_s=now_s)
        return drift.note_alarms(session, site.engine, changes, site.now())
