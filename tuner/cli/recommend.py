"""``spectuner recommend``: asks the policy now and lists what is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table
from tuner.cli.realised import realised_figures, show_realised

if TYPE_CHECKING:
    from policy.realised import Realised
    from policy.types import Interval
    from tuner.store.recommendations import StoredRecommendation

OPEN = ("pending", "held", "promoted")
"""States that are listed."""


def recommend(
    route: Annotated[str | None, typer.Option(help="Show this route only, with reasons.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh/--stored", help="Ask the policy now, or show what is stored.")
    ] = True,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Say what each route should run at each load level, with the predicted gain.

    Approve one with `spectuner approve NUMBER`.
    """
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.store import recommendations
    from tuner.workflows.realised import realised
    from tuner.workflows.recommend import recommend as ask_policy
    from tuner.workflows.recommend import require_known
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        silence = ask_policy(site).silence_reason if fresh else None
        if route is not None:
            require_known(site, route)
        with site.store.reading() as session:
            found = recommendations.listed(session, engine=site.engine, route=route)
            open_ones = [one for one in found if one.state.value in OPEN]
            is_asked = route is not None or json_path is not None
            brought = {one.id: realised(session, one) for one in open_ones if is_asked}
    if silence:
        output.console.print(f"Nothing new: {silence}", markup=False, highlight=False)
    _print(output, open_ones, with_reasons=route is not None)
    for found_of in brought.values() if route is not None else ():
        show_realised(output, found_of)
    output.write(
        {
            "silence_reason": silence,
            "recommendations": [
                recommendation_figures(entry, brought.get(entry.id)) for entry in open_ones
            ],
        }
    )


def recommendation_figures(
    entry: StoredRecommendation, brought: Realised | None
) -> dict[str, object]:
    """Return the JSON form of one recommendation: number, state, what was said and brought."""
    from tuner.store.coding import recommendation_to_dict

    said = recommendation_to_dict(entry.said)
    state = entry.state.value
    return {"id": entry.id, "state": state, **said, "realised": realised_figures(brought)}


def _print(output: Output, entries: list[StoredRecommendation], *, with_reasons: bool) -> None:
    rows = table(
        ["no.", "route", "state", "load", "now", "proposed", "route speed", "engine total"], 6
    )
    for entry in entries:
        number, state = str(entry.id), entry.state.value
        changes = [change for change in entry.said.changes if change.current != change.proposed]
        if not changes:
            words = entry.said.advice.value.replace("_", " ")
            rows.add_row(number, entry.route, state, words, "", "", "", "")
        for change in changes:
            settings = (change.current.label, change.proposed.label)
            figures = (
                per_cent(change.route_speed.minus_one),
                per_cent(change.engine_total.minus_one),
            )
            rows.add_row(number, entry.route, state, change.load.label, *settings, *figures)
    output.show("Recommendations", rows)
    if not entries:
        output.console.print(NO_DATA)
    for entry in entries if with_reasons else ():
        for reason in (*entry.said.reasons, *entry.said.would_change_mind):
            output.console.print(f"- {reason}", markup=False, highlight=False)


def per_cent(gain: Interval) -> str:
    """Return a gain with its interval, for people."""
    return f"{gain.mean:+.0%} ({gain.low:+.0%} to {gain.high:+.0%})"


def times(ratio: Interval) -> str:
    """Return a ratio with its interval, for people."""
    return f"{ratio.mean:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
