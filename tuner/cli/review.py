"""``spectuner approve | reject | hold | rollback``: what an operator decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tuner.cli.errors import UsageError
from tuner.cli.options import MOST_NUMBER, ConfigOption, WhoOption, acting_user, read_settings
from tuner.cli.output import JsonOption, Output
from tuner.cli.recommend import recommendation_figures

if TYPE_CHECKING:
    from tuner.store.recommendations import StoredRecommendation
    from tuner.workflows.site import Site

Number: TypeAlias = Annotated[
    int, typer.Argument(min=1, max=MOST_NUMBER, help="Number of the recommendation.")
]
Numbers: TypeAlias = Annotated[
    list[int],
    typer.Argument(
        metavar="number...", min=1, max=MOST_NUMBER, help="Number of the recommendation."
    ),
]
Together: TypeAlias = Annotated[
    bool, typer.Option("--together", help="Approve all of them in one change, or none.")
]
Why: TypeAlias = Annotated[str, typer.Option("--why", help="Reason, kept with the decision.")]


def approve(
    numbers: Numbers,
    together: Together = False,
    why: Why = "approved on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Bring a recommendation into force on the engine and read it back; several as one set."""
    from tuner.workflows import review

    if together:
        _approve_set(numbers, why, who, config, json_path)
        return
    if len(numbers) > 1:
        listed = " ".join(str(number) for number in numbers)
        raise UsageError(f"approve one at a time, or {listed} as one set with --together")
    _decide(
        lambda site: review.approve(site, numbers[0], who=acting_user(who), why=why),
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


def _approve_set(
    numbers: list[int], why: str, who: str, config: Path | None, json_path: str | None
) -> None:
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.site import open_site
    from tuner.workflows.standing import standing_of
    from tuner.workflows.together import approve_together

    with open_site(settings) as site:
        done = approve_together(site, numbers, who=acting_user(who), why=why)
        with site.store.reading() as session:
            figures = [recommendation_figures(one, standing_of(session, one)) for one in done]
    for one in done:
        output.console.print(
            f"Recommendation {one.id} for route {one.route} is {one.state.value}.", highlight=False
        )
    output.write({"recommendations": figures})


def _decide(
    act: Callable[[Site], StoredRecommendation], config: Path | None, json_path: str | None
) -> None:
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.site import open_site
    from tuner.workflows.standing import standing_of

    with open_site(settings) as site:
        decided = act(site)
        with site.store.reading() as session:
            standing = standing_of(session, decided)
    output.console.print(
        f"Recommendation {decided.id} for route {decided.route} is {decided.state.value}.",
        highlight=False,
    )
    output.write(recommendation_figures(decided, standing))
