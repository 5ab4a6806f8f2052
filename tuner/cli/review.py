"""``spectuner approve | reject | hold | rollback``: what an operator decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tuner.cli.options import MOST_NUMBER, ConfigOption, WhoOption, acting_user, read_settings
from tuner.cli.output import JsonOption, Output
from tuner.cli.recommend import recommendation_figures

if TYPE_CHECKING:
    from tuner.store.recommendations import StoredRecommendation
    from tuner.workflows.site import Site

Number: TypeAlias = Annotated[
    int, typer.Argument(min=1, max=MOST_NUMBER, help="Number of the recommendation.")
]
Why: TypeAlias = Annotated[str, typer.Option("--why", help="Reason, kept with the decision.")]


def approve(
    number: Number,
    why: Why = "approved on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Bring a recommendation into force on the engine and read it back."""
    from tuner.workflows import review

    _decide(
        lambda site: review.approve(site, number, who=acting_user(who), why=why),
        config,
        json_path,
    )


def reject(
    number: Number,
    why: Why = "rejected on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Close a recommendation without acting on it."""
    from tuner.workflows import review

    _decide(
        lambda site: review.reject(site, number, who=acting_user(who), why=why),
        config,
        json_path,
    )


def hold(
    number: Number,
    why: Why = "held on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Put a recommendation aside; it can still be approved."""
    from tuner.workflows import review

    _decide(
        lambda site: review.hold(site, number, who=acting_user(who), why=why),
        config,
        json_path,
    )


def rollback(
    number: Number,
    why: Why = "rolled back on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Give the route of a recommendation the Settings back that it had before."""
    from tuner.workflows import review

    _decide(
        lambda site: review.roll_back(site, number, who=acting_user(who), why=why),
        config,
        json_path,
    )


def _decide(
    act: Callable[[Site], StoredRecommendation], config: Path | None, json_path: str | None
) -> None:
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.realised import realised
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        decided = act(site)
        with site.store.reading() as session:
            brought = realised(session, decided)
    output.console.print(
        f"Recommendation {decided.id} for route {decided.route} is {decided.state.value}.",
        highlight=False,
    )
    output.write(recommendation_figures(decided, brought))
