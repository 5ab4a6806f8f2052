"""``spectuner drift``: alarms about what was learned, what to do, and noting that one was seen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.errors import UsageError
from tuner.cli.options import MOST_NUMBER, ConfigOption, WhoOption, acting_user, read_settings
from tuner.cli.output import JsonOption, Output, table

if TYPE_CHECKING:
    from tuner.store.drift import StoredAlarm


def drift(
    route: Annotated[str | None, typer.Option(help="Only what concerns this route.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show alarms that are over or acknowledged too.")
    ] = False,
    acknowledge: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_NUMBER,
            metavar="NUMBER",
            help="Note that you looked at it; it stops nothing then.",
        ),
    ] = None,
    why: Annotated[str, typer.Option(help="Why, one line; needed to acknowledge.")] = "",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """List drift: decay, changed versions or traffic, faulty counters, loops; with what to do."""
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.store import drift as stored
    from tuner.workflows.drift import acknowledge as note
    from tuner.workflows.recommend import require_known
    from tuner.workflows.site import open_site

    if acknowledge is not None and not why.strip():
        raise UsageError(f"--acknowledge {acknowledge} needs --why, so that others can tell")
    with open_site(settings) as site:
        if acknowledge is not None:
            by = acting_user(who)
            found: tuple[StoredAlarm, ...] = (note(site, acknowledge, who=by, why=why),)
        else:
            with site.store.reading() as session:
                found = stored.alarms(session, site.engine, open_only=not every)
        if route is not None and route not in {entry.alarm.route for entry in found}:
            require_known(site, route)
    shown = [entry for entry in found if route is None or entry.alarm.route in (None, route)]
    _print(output, shown)
    output.write({"alarms": [alarm_figures(entry) for entry in shown]})


def alarm_figures(entry: StoredAlarm) -> dict[str, object]:
    """Return the JSON form of one alarm."""
    alarm = entry.alarm
    return {
        "id": entry.id,
        "kind": alarm.kind.value,
        "route": alarm.route,
        "method": None if alarm.method is None else alarm.method.value,
        "since": _moment(alarm.since_s).isoformat(),
        "seen": _moment(alarm.seen_s).isoformat(),
        "stops_decisions": entry.is_open and alarm.kind.stops_decisions,
        "saw": alarm.saw,
        "advice": alarm.advice,
        "figures": dict(alarm.figures),
        "ended": _text(entry.ended_at),
        "acknowledged": _text(entry.acknowledged_at),
        "acknowledged_by": entry.acknowledged_by,
        "acknowledged_why": entry.acknowledged_why,
    }


def _print(output: Output, entries: list[StoredAlarm]) -> None:
    if not entries:
        output.console.print("No alarm: what was learned still holds, as far as traffic tells.")
        return
    rows = table(["no.", "kind", "route", "method", "since", "state"], 6)
    for entry in entries:
        alarm = entry.alarm
        state = "over" if entry.ended_at else "acknowledged" if entry.acknowledged_at else "open"
        rows.add_row(
            str(entry.id),
            alarm.kind.value.replace("_", " "),
            alarm.route or "all",
            alarm.method or "all",
            f"{_moment(alarm.since_s):%Y-%m-%d %H:%M}",
            state,
        )
    output.show("Drift", rows)
    for entry in entries:
        for line in (f"{entry.id}: {entry.alarm.saw}", f"   {entry.alarm.advice}"):
            output.console.print(line, markup=False, highlight=False)


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
