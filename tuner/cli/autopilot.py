"""``spectuner autopilot``: let the control loop act on a route within bounds, and take it off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.errors import UsageError
from tuner.cli.options import ConfigOption, WhoOption, acting_user, read_settings
from tuner.cli.output import JsonOption, Output

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.records import LoadLevel, Method
    from tuner.store.envelopes import StoredEnvelope
    from tuner.workflows.site import Site

DAY_S = 86_400.0

app = typer.Typer(
    help="Let the control loop act on a route within an envelope that you approve once.",
    no_args_is_help=True,
)

RouteArgument = Annotated[str, typer.Argument(help="Name of the route.")]
RouteOption = Annotated[
    str | None, typer.Option("--route", help="Only this route; all of them when left out.")
]
WhyOption = Annotated[str, typer.Option("--why", help="Reason, kept with the decision.")]


@app.command()
def status(config: ConfigOption = None, json_path: JsonOption = None) -> None:
    """Show which routes are on autopilot, within what, and why not where it fell back."""
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.autopilot_state import listed
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        _show(output, listed(site))


@app.command()
def approve(
    route: RouteArgument,
    methods: Annotated[
        list[str], typer.Option("--method", help="Method allowed; give it once for each.")
    ],
    max_k: Annotated[int, typer.Option("--max-k", help="Longest draft.")] = 8,
    exploring_share: Annotated[
        float,
        typer.Option("--exploring-share", help="Share of live tokens to explore with, 0 to 0.1."),
    ] = 0.0,
    loads: Annotated[
        list[str] | None,
        typer.Option("--load", help="Load level such as 3-4; give it once for each, or none."),
    ] = None,
    days: Annotated[float, typer.Option("--days", help="Days until it expires.")] = 30.0,
    limits: Annotated[
        bool,
        typer.Option("--limits/--no-limits", help="Whether TPOT and TTFT limits must hold."),
    ] = True,
    why: WhyOption = "approved on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Approve an envelope: from now on the control loop may act on the route within it."""
    output, settings = Output.open(json_path), read_settings(config)
    from policy.envelope import Envelope
    from policy.errors import InvalidInput
    from tuner.workflows.autopilot_state import approve_envelope
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        try:
            envelope = Envelope(
                route=route,
                methods=frozenset(_method(name) for name in methods),
                max_k=max_k,
                exploring_share=exploring_share,
                loads=tuple(_load(label) for label in loads or ()),
                keeps_limits=limits,
                expires_s=site.clock() + days * DAY_S,
            )
        except InvalidInput as error:
            raise UsageError(str(error)) from None
        stored = approve_envelope(site, envelope, who=acting_user(who), why=why)
    _show(output, (stored,))


@app.command()
def withdraw(
    route: RouteArgument,
    why: WhyOption = "withdrawn on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Take a route's envelope away; its last approved entries are in force at once."""
    from tuner.workflows.autopilot_state import withdraw as act

    _change(lambda site, by: act(site, route, who=by, why=why), who, config, json_path)


@app.command()
def stop(
    route: RouteOption = None,
    why: WhyOption = "stopped on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Stop the control loop; the last approved entries are in force at once, read back as live."""
    from tuner.workflows.autopilot_state import stop as act

    _change(lambda site, by: act(site, route, who=by, why=why), who, config, json_path)


@app.command()
def start(
    route: RouteOption = None,
    why: WhyOption = "started on the command line",
    who: WhoOption = "",
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Let the control loop act again where it was stopped or fell back."""
    from tuner.workflows.autopilot_state import start as act

    _change(lambda site, by: act(site, route, who=by, why=why), who, config, json_path)


def _change(
    act: Callable[[Site, str], object], who: str, config: Path | None, json_path: str | None
) -> None:
    """Change envelopes in somebody's name, and show how all of them stand then."""
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.autopilot_state import listed
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        act(site, acting_user(who))
        _show(output, listed(site))


def _show(output: Output, stored: Sequence[StoredEnvelope]) -> None:
    lines = [
        f"{one.route}: {one.state.value} since {one.changed_at:%Y-%m-%d %H:%M} UTC by "
        f"{one.changed_by}: {one.reason}"
        for one in stored
    ]
    for line in lines or ["no route has an envelope; the control loop does not run"]:
        output.console.print(line, markup=False, highlight=False)
    output.write({"routes": [_figures(one) for one in stored]})


def _figures(one: StoredEnvelope) -> dict[str, object]:
    from tuner.store.envelopes import envelope_to_dict

    return {
        "envelope": envelope_to_dict(one.envelope),
        "state": one.state.value,
        "approved_at": one.at.isoformat(),
        "approved_by": one.who,
        "why": one.why,
        "changed_at": one.changed_at.isoformat(),
        "changed_by": one.changed_by,
        "reason": one.reason,
        "is_owed": one.is_owed,
        "num_changes": one.num_changes,
        "num_fallbacks": one.num_fallbacks,
    }


def _method(name: str) -> Method:
    from collectors.records import Method

    try:
        return Method(name)
    except ValueError:
        known = ", ".join(sorted(method.value for method in Method))
        raise UsageError(f"--method {name}: no such method; known are: {known}") from None


def _load(label: str) -> LoadLevel:
    from collectors.records import LOAD_LEVELS

    for level in LOAD_LEVELS:
        if level.label == label:
            return level
    known = ", ".join(level.label for level in LOAD_LEVELS)
    raise UsageError(f"--load {label}: no such load level; known are: {known}")
