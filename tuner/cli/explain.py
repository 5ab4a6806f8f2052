"""``spectuner explain``: everything that stands behind one recommendation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.errors import UsageError
from tuner.cli.options import MOST_NUMBER, ConfigOption, read_settings
from tuner.cli.output import NO_DATA, JsonOption, Output, table
from tuner.cli.realised import show_standing
from tuner.cli.recommend import per_cent, recommendation_figures, times

if TYPE_CHECKING:
    from policy.types import (
        AcceptanceCurve,
        FeatureCheck,
        LoadChange,
        Recommendation,
        Trial,
        TurningPoint,
    )
    from tuner.store.recommendations import StoredRecommendation
    from tuner.workflows.site import Site


def explain(
    which: Annotated[
        str,
        typer.Argument(metavar="ROUTE|NUMBER", help="A route's newest recommendation, or one."),
    ],
    config: ConfigOption = None,
    json_path: JsonOption = None,
) -> None:
    """Show what a recommendation rests on, what would change it, and what it brought.

    It shows what is stored; `spectuner recommend` asks anew.
    """
    output, settings = Output.open(json_path), read_settings(config)
    from tuner.workflows.site import open_site
    from tuner.workflows.standing import standing_of

    with open_site(settings) as site:
        entry = _found(site, which)
        with site.store.reading() as session:
            standing = standing_of(session, entry)
    _print(output, entry)
    show_standing(output, entry, standing)
    output.write(recommendation_figures(entry, standing))


def _found(site: Site, which: str) -> StoredRecommendation:
    """Return the recommendation with a number, or a route's newest.

    Raises:
        NotFound: there is none.
        UsageError: no number is as large.
    """
    from tuner.store import recommendations
    from tuner.workflows.recommend import newest_of

    if not which.isdecimal():
        return newest_of(site, which)
    if int(which) > MOST_NUMBER:
        raise UsageError(f"there is no recommendation {which}; `spectuner recommend` lists them")
    with site.store.reading() as session:
        return recommendations.one(session, int(which))


def _print(output: Output, entry: StoredRecommendation) -> None:
    said = entry.said
    words = said.advice.value.replace("_", " ")
    head = f"Recommendation {entry.id}, {entry.state.value}: {words} for {said.route}"
    output.console.print(head, style="bold", markup=False, highlight=False)
    if entry.successor is not None:
        output.console.print(f"It is superseded by #{entry.successor}, open it.", highlight=False)
    _say(output, "Why", said.reasons)
    _show_changes(output, said)
    _say(output, "Why not the runner-up", tuple(_runner_ups(said)))
    _show_curves(output, said.curves)
    _show_costs(output, said)
    mind = (*said.would_change_mind, *map(_turning_line, said.turning_points))
    _say(output, "What would change its mind", mind)
    _say(output, "What to try next", tuple(map(_trial_line, said.trials)))
    _show_features(output, said)


def _show_changes(output: Output, said: Recommendation) -> None:
    columns = [
        "load", "now", "proposed", "route speed", "engine total", "over off", "step time",
        "tokens a pass", "tokens/s",
    ]  # fmt: skip
    rows = table(columns, 3)
    for change in said.changes:
        goodput = said.predicted_goodput.get(change.load.label)
        rows.add_row(
            change.load.label,
            change.current.label,
            "keep" if change.proposed == change.current else change.proposed.label,
            per_cent(change.route_speed.minus_one),
            per_cent(change.engine_total.minus_one),
            times(change.over_off),
            times(change.step_ratio),
            f"{change.current_tokens_per_pass:.2f} to {change.tokens_per_pass.mean:.2f}",
            NO_DATA if goodput is None else f"{goodput:.1f}",
        )
    if said.changes:
        output.show("By load level, with 90 % intervals", rows)
        pays = said.break_even_load
        line = "at no load level seen" if pays is None else f"up to load {pays.label}"
        output.console.print(f"Speculation pays {line}.", highlight=False)


def _show_curves(output: Output, curves: tuple[AcceptanceCurve, ...]) -> None:
    rows = table(["method", "evidence", "found", "kept by position (90 % interval)"], 2)
    for curve in curves:
        kept = "  ".join(f"{p.mean:.2f} ({p.low:.2f}-{p.high:.2f})" for p in curve.conditional)
        shares = ", ".join(f"{share:.0%} {kind.value}" for kind, share in curve.shares.items())
        rows.add_row(curve.method.value, shares or NO_DATA, f"{curve.coverage:.0%}", kept)
    if curves:
        output.show("Acceptance used", rows)


def _show_costs(output: Output, said: Recommendation) -> None:
    rows = table(["rows", "positions", "ms"], 0)
    for count, positions, seconds in said.cost_rows:
        rows.add_row(str(count), str(positions), f"{1e3 * seconds:.2f}")
    if said.cost_rows:
        output.show("Measured passes used", rows)


def _show_features(output: Output, said: Recommendation) -> None:
    lines = tuple(
        f"{method.value}: {_feature_line(check, said.route)}"
        for method, check in said.features.items()
    )
    _say(output, "What acceptance depends on beside route and position", lines)
    for method, check in said.features.items():
        rows = table(["predicted", "counted", "attempts"], 0)
        for part in check.reliability:
            rows.add_row(f"{part.predicted:.1%}", f"{part.counted:.1%}", str(part.attempts))
        if check.reliability and check.why_not is None:
            output.show(f"{method.value} on held-out windows", rows)


def _feature_line(check: FeatureCheck, route: str) -> str:
    if check.why_not is not None:
        return f"not supported by data: {check.why_not}."
    factors = ", ".join(f"{name} {odds:.2f}" for name, odds in check.odds_by_feature.items())
    shift = check.shift_by_route.get(route, 0.0)
    return f"odds change by {factors}; requests of late are {shift:+.2f} from the mean in log odds."


def _say(output: Output, title: str, lines: tuple[str, ...]) -> None:
    if lines:
        output.console.print(f"[bold]{title}[/]")
    for line in lines:
        output.console.print(f"- {line}", markup=False, highlight=False)


def _runner_ups(said: Recommendation) -> Iterator[str]:
    for change in said.changes:
        if change.runner_up is not None and change.runner_up_reason is not None:
            yield _runner_up_line(change, change.runner_up[0].label, change.runner_up_reason)


def _runner_up_line(change: LoadChange, label: str, why: str) -> str:
    return f"At load {change.load.label} {label}: {why}."


def _turning_line(point: TurningPoint) -> str:
    line = (
        f"At load {point.load.label} {point.setting.label} equals off at "
        f"{point.needed_tokens_per_pass:.2f} tokens a pass ({point.tokens_per_pass:.2f} now)"
    )
    if point.needed_acceptance is None:
        return f"{line}; no acceptance gives that."
    return (
        f"{line}, a first token kept in {point.needed_acceptance:.0%} ({point.acceptance:.0%} now)."
    )


def _trial_line(trial: Trial) -> str:
    most = (
        ""
        if trial.most_gain is None
        else f", which may bring up to {trial.most_gain:+.1%} engine total"
    )
    share = f" on at most {trial.most_token_share:.0%} of tokens" if trial.most_token_share else ""
    return f"{trial.setting.label} by {trial.by.value}{share}{most} at load {trial.load.label}."
