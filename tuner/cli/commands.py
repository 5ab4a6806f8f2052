"""The table of commands: one line each, in the order in which a newcomer needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import (
    autopilot,
    bench,
    calibrate,
    database,
    demo,
    divergence,
    doctor,
    drift,
    engine,
    evaluate_plan,
    explain,
    prove,
    recommend,
    replay,
    review,
    serve,
    theory,
    train,
    trial,
)

app = typer.Typer(
    name="spectuner",
    help="Watch and tune speculative decoding: measure it, prove it, roll it out under review.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from rich.console import Console

        Console().print(f"spectuner {version('spectuner')}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Watch and tune speculative decoding: measure it, prove it, roll it out under review."""


_RUN, _REVIEW, _STUDY, _CARE = "Run", "Review", "Study", "Care"
app.command(rich_help_panel=_RUN)(demo.demo)
app.command(rich_help_panel=_RUN)(engine.engine)
app.command(rich_help_panel=_RUN)(serve.serve)
app.command(rich_help_panel=_RUN)(calibrate.calibrate)
app.command(rich_help_panel=_REVIEW)(recommend.recommend)
app.command(rich_help_panel=_REVIEW)(explain.explain)
app.command(rich_help_panel=_REVIEW)(trial.trial)
app.command(rich_help_panel=_REVIEW)(drift.drift)
app.command(rich_help_panel=_REVIEW)(evaluate_plan.evaluate_plan)
app.command(rich_help_panel=_REVIEW)(review.approve)
app.command(rich_help_panel=_REVIEW)(review.reject)
app.command(rich_help_panel=_REVIEW)(review.hold)
app.command(rich_help_panel=_REVIEW)(review.rollback)
app.add_typer(autopilot.app, name="autopilot", rich_help_panel=_REVIEW)
app.command(rich_help_panel=_REVIEW)(replay.replay)
app.command(rich_help_panel=_REVIEW)(divergence.divergence)
app.command(rich_help_panel=_STUDY)(theory.theory)
app.command(rich_help_panel=_STUDY)(prove.prove)
app.add_typer(bench.app, name="bench", rich_help_panel=_STUDY)
app.command(
    rich_help_panel=_STUDY,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(train.train)
app.add_typer(database.app, name="db", rich_help_panel=_CARE)
app.command(rich_help_panel=_CARE)(engine.model)
app.command(rich_help_panel=_CARE)(doctor.doctor)
