"""``spectuner recommend``: asks the policy now and lists what is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import ConfigOption, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table
from tuner.cli.realised import show_standing, standing_figures

if TYPE_CHECKING:
    from policy.types import Interval
    from tuner.store.recommendations import StoredRecommendation
    from tuner.workflows.standing import Standing

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
    from tuner.workflows.recommend import recommend as ask_policy
    from tuner.workflows.recommend import require_known
    from tuner.workflows.site import open_site
    from tuner.workflows.standing import standing_of

    with open_site(settings) as site:
        silence = ask_policy(site).silence_reason if fresh else None
        if route is not None:
            require_known(site, route)
        with site.store.reading() as session:
            found = recommendations.listed(session, engine=site.engine, route=route)
            open_ones = [one for one in found if one.state.value in OPEN]
            standing = {one.id: standing_of(session, one) for one in open_ones}
    if silence:
        output.console.print(f"Nothing new: {silence}", markup=False, highlight=False)
    _print(output, open_ones, with_reasons=route is not None)
    for entry in open_ones:
        show_standing(output, entry, standing[entry.id], is_whole=route is not None)
    output.write(
        {
            "silence_reason": silence,
            "recommendations": [
                recommendation_figures(entry, standing[entry.id]) for entry in open_ones
            ],
        }
    )


def recommendation_figures(entry: StoredRecommendation, standing: Standing) -> dict[str, object]:
    """Return the JSON form of one recommendation: number, state, what was said and brought."""
    from tuner.store.coding import recommendation_to_dict

    return {
        "id": entry.id,
        "state": entry.state.value,
        "revision": entry.revision,
        "successor": entry.successor,
        **recommendation_to_dict(entry.said),
        **standing_figures(standing),
    }


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
