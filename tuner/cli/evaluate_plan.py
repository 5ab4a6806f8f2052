"""``spectuner evaluate-plan``: what another plan would have yielded in logged windows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectors.records import LOAD_LEVELS, Plan, PlanEntry, load_level_named
from collectors.records.parsing import as_object
from tuner.cli.errors import UsageError
from tuner.cli.options import MOST_NUMBER, ConfigOption, parse_setting, read_settings
from tuner.cli.output import JsonOption, Output, table

if TYPE_CHECKING:
    from policy.off_policy import Estimate, PlaceValue
    from policy.types import Interval
    from tuner.store.decisions import Decision
    from tuner.workflows.plan_worth import PlanWorth
    from tuner.workflows.site import Site


def evaluate_plan(
    recommendation: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_NUMBER, help="The plan with this recommendation approved."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A plan as JSON, as GET /spec/plan gives.")
    ] = None,
    setting: Annotated[
        str | None, typer.Option(help="The plan in force with this Setting: draft_model:3.")
    ] = None,
    route: Annotated[str | None, typer.Option(help="With --setting: only on this route.")] = None,
    load: Annotated[str | None, typer.Option(help="With --setting: only at this load.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=1e6, help="How far to look back.")] = 24.0,
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Estimate what a plan would have yielded in windows that ran under others.

    Reads the log of decisions with their propensities: IPS, SNIPS and doubly robust estimates
    beside the model's direct one. A Setting never in force nor replayed is not evaluable.
    """
    output, settings = Output.open(json_path), read_settings(config)
    if sum(given is not None for given in (recommendation, plan, setting)) != 1:
        raise UsageError("name one of --recommendation, --plan and --setting")
    if setting is None and (route is not None or load is not None):
        raise UsageError("--route and --load go with --setting")
    from tuner.workflows.plan_worth import plan_worth
    from tuner.workflows.site import open_site

    with open_site(settings) as site:
        if recommendation is not None:
            candidate = _approved(site, recommendation)
        elif plan is not None:
            candidate = _read(plan)
        else:
            candidate = _with_setting(site, str(setting), route, load)
        worth = plan_worth(site, candidate, hours * 3600)
    _print(output, worth)
    output.write(worth_figures(worth, candidate))


def worth_figures(worth: PlanWorth, candidate: Plan) -> dict[str, object]:
    """Return the JSON form of an answer."""
    value = worth.value
    return {
        "plan": candidate.to_dict(),
        "start_s": worth.start_s,
        "end_s": worth.end_s,
        "windows": value.windows,
        "decisions": worth.logged.num_decisions,
        "left_out": dict(worth.logged.left_out),
        "evaluable_share": value.evaluable_share,
        "estimates": [_estimate_figures(one) for one in value.estimates],
        "places": [_place_figures(one) for one in value.places],
        "draws": [_draw_figures(one) for one in worth.logged.draws],
    }


def _approved(site: Site, number: int) -> Plan:
    from policy.recommend import plan_with
    from tuner.store import recommendations

    with site.store.reading() as session:
        stored = recommendations.one(session, number)
    return plan_with(site.actuator.read_back(), stored.said)


def _read(path: Path) -> Plan:
    try:
        return Plan.from_dict(as_object(json.loads(path.read_text()), "plan"))
    except OSError as error:
        raise UsageError(f"--plan {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--plan {path} is not JSON: {error}") from error


def _with_setting(site: Site, text: str, route: str | None, load: str | None) -> Plan:
    chosen, live = parse_setting(text), site.actuator.read_back()
    loads = LOAD_LEVELS if load is None else (load_level_named(load),)
    if route is None and load is None:
        return Plan(version=live.version, default=chosen)
    names = [route] if route is not None else [one.name for one in site.settings.routes]
    if not names:
        raise UsageError(f"--load {load} needs --route, or routes in the settings")
    added = {(name, level) for name in names for level in loads}
    kept = [entry for entry in live.entries if (entry.route, entry.load) not in added]
    entries = [PlanEntry(route=name, load=level, setting=chosen) for name, level in sorted(added)]
    return replace(live, entries=(*kept, *entries))


def _print(output: Output, worth: PlanWorth) -> None:
    value = worth.value
    rows = table(["estimator", "tokens/s", "logged", "gain", "coverage", "windows"])
    for one in value.estimates:
        rows.add_row(
            one.estimator.value,
            _numbers(one.tokens_per_s),
            f"{one.logged_tokens_per_s:.1f}",
            _shares(one.gain),
            f"{one.coverage:.0%}",
            f"{one.effective_windows:.0f}",
        )
    output.show("Worth of the plan, 90 % interval, by busy second of the engine", rows)
    output.console.print(
        f"{value.windows} windows under {worth.logged.num_decisions} logged decisions; "
        f"{value.evaluable_share:.0%} of their tokens are where something can be told."
    )
    for reason, count in worth.logged.left_out.items():
        output.console.print(f"Left out {count} times: {reason}.", highlight=False)
    for place in value.places:
        if place.not_evaluable is not None:
            output.console.print(
                f"Not evaluable: {place.route} at load {place.load.label}: {place.not_evaluable}.",
                markup=False,
                highlight=False,
            )


def _estimate_figures(one: Estimate) -> dict[str, object]:
    return {
        "estimator": one.estimator.value,
        "tokens_per_s": _triple(one.tokens_per_s),
        "logged_tokens_per_s": one.logged_tokens_per_s,
        "gain": _triple(one.gain),
        "coverage": one.coverage,
        "effective_windows": one.effective_windows,
    }


def _place_figures(one: PlaceValue) -> dict[str, object]:
    return {
        "route": one.route,
        "load": one.load.label,
        "setting": one.setting.to_dict(),
        "windows": one.windows,
        "matching_windows": one.matching_windows,
        "chance": one.chance,
        "logged_tokens_per_s": one.logged_tokens_per_s,
        "tokens_per_s": {name.value: rate for name, rate in one.by_estimator.items()},
        "not_evaluable": one.not_evaluable,
    }


def _draw_figures(one: Decision) -> dict[str, object]:
    from policy.lottery import drawn

    choices = [chance for chance in one.chances if chance.arms[0][1] < 1]
    chosen = drawn(choices, one.seed or 0)
    return {
        "at_s": one.at_s,
        "until_s": one.until_s,
        "seed": one.seed,
        "chances": [
            {
                "route": chance.route,
                "load": chance.load.label,
                "arms": [{"setting": arm.to_dict(), "chance": share} for arm, share in chance.arms],
            }
            for chance in choices
        ],
        "drawn": None
        if chosen is None
        else {
            "route": chosen[0][0],
            "load": chosen[0][1].label,
            "setting": chosen[1].to_dict(),
        },
    }


def _triple(interval: Interval) -> list[float]:
    return [interval.low, interval.mean, interval.high]


def _numbers(interval: Interval) -> str:
    if interval.low == interval.high:
        return f"{interval.mean:.1f}"
    return f"{interval.mean:.1f} ({interval.low:.1f} to {interval.high:.1f})"


def _shares(interval: Interval) -> str:
    return f"{interval.mean:+.1%} ({interval.low:+.1%} to {interval.high:+.1%})"
