"""``spectuner bench policy``: the policy against its peers in drawn worlds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tuner.cli.errors import CommandFailed, UsageError
from tuner.cli.output import JsonOption, Output, table
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from policy.simulate.scores import Standing
    from tuner.bench.policy import PolicyBench, PolicyBenchOptions
    from tuner.bench.policy_engine import Parts
    from tuner.bench.policy_parts import EnginePartsOptions, PartA
    from tuner.bench.policy_trace import Trace

PARTS = ("A", "B", "C", "ALL")

PartOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="A|B|C|all",
        help="A: measure the engine. B: simulated worlds. C: confirm on the engine.",
    ),
]
SeedsOption: TypeAlias = Annotated[int, typer.Option(help="Worlds, drawn from the seeds 0, 1, ...")]
ProfileOption: TypeAlias = Annotated[str, typer.Option(help="gpu, cpu, moe or bs-cliff.")]
WorkloadsOption: TypeAlias = Annotated[str, typer.Option(help="Some of W1 to W7, joined by +.")]
WindowsOption: TypeAlias = Annotated[int, typer.Option(help="Windows of a world, 1 s each.")]
OffTaxOption: TypeAlias = Annotated[
    float, typer.Option(help="Tax of speculation switched off: 0.03.")
]
TraceOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="CSV of arrivals and lengths that gives the load.")
]
CalibrationOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="What part A wrote with --json: for C, and for profile cpu of B."),
]
AdaptiveOption: TypeAlias = Annotated[
    bool, typer.Option("--adaptive", help="Add the engine's adaptive mode to the arms of B.")
]
SecondsOption: TypeAlias = Annotated[
    float, typer.Option(min=1, help="CPU-seconds of each policy in part C.")
]
ModelOption: TypeAlias = Annotated[str, typer.Option(help="Model of parts A and C.")]
DraftOption: TypeAlias = Annotated[str, typer.Option(help="Draft model of parts A and C.")]
HtmlOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write a report with plots to PATH.")
]


def policy(
    part: PartOption = "B",
    seeds: SeedsOption = 20,
    profile: ProfileOption = "gpu",
    workloads: WorkloadsOption = "W2+W3+W5",
    windows: WindowsOption = 1200,
    off_tax: OffTaxOption = 0.03,
    trace: TraceOption = None,
    calibration: CalibrationOption = None,
    adaptive: AdaptiveOption = False,
    seconds: SecondsOption = 90.0,
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    html: HtmlOption = None,
    json_path: JsonOption = None,
) -> None:
    """Compare the policy with its peers, world by world, on the same hidden traffic.

    A share is goodput over that of an oracle that knows each route's acceptance. Ahead means that
    the lower end of the paired 95 % interval lies above 0. Parts A and C run the real engine on one
    thread; where A's table does not predict the engine, no policy is scored.
    """
    output = Output.open(json_path)
    wanted = _wanted(part, html, calibration)
    from tuner.bench.policy import PolicyBenchOptions

    options = PolicyBenchOptions(
        seeds=seeds,
        profile=profile,
        workloads=workloads,
        windows=windows,
        off_tax_ratio=off_tax,
        trace=trace,
        calibration=calibration,
        adaptive=adaptive,
    )
    loaded = _Loaded(model=model, draft=draft, seconds=seconds)
    _Run(output=output, options=options, loaded=loaded, wanted=wanted).finish(html)


def _wanted(part: str, html: Path | None, calibration: Path | None) -> str:
    """Return the part in capitals; refuse what cannot be done before any work is."""
    if part.upper() not in PARTS:
        raise UsageError(f"--part {part}: use one of A, B, C, all")
    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        raise UsageError(f"--html {html}: not a file in an existing folder")
    if part.upper() == "A" and calibration is not None:
        raise UsageError("--calibration: part A measures anew; leave it out")
    return part.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What parts A and C load, and how long C runs each policy."""

    model: str
    draft: str
    seconds: float

    def options(self) -> EnginePartsOptions:
        from tuner.bench.policy_live import LiveOptions
        from tuner.bench.policy_parts import EnginePartsOptions
        from tuner.engine.settings import EngineSettings

        return EnginePartsOptions(
            engine=EngineSettings(model=self.model, draft=self.draft),
            live=LiveOptions(seconds=self.seconds),
        )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of some parts, and what came of it."""

    output: Output
    options: PolicyBenchOptions
    loaded: _Loaded
    wanted: str
    found: PartA | None = None
    figures: dict[str, object] = field(default_factory=dict)
    sections: list[str] = field(default_factory=list)
    report: str | None = None
    parts: Parts | None = None

    @property
    def command(self) -> str:
        """The command line that gives the figures again."""
        return _command(self.wanted, self.options, self.loaded)

    def finish(self, html: Path | None) -> None:
        """Run, and write the figures also where it failed."""
        reason = self._play(self.options.checked())
        self.output.console.print(
            f"Again: {self.command}", markup=False, highlight=False, soft_wrap=True
        )
        if html is not None:
            _write(html, self.page())
        self.output.write(self.figures)
        if reason is not None:
            raise CommandFailed(reason)

    def _play(self, arrivals: Trace | None) -> str | None:
        """Run what is wanted; return why it failed, None where it did not."""
        if self.options.calibration is not None:
            from tuner.bench.policy_parts import read_part_a

            self.found = read_part_a(self.options.calibration)
        elif self.wanted != "B":
            self._measure()
        self.figures["command"] = self.command
        gate = None if self.found is None or self.found.fidelity is None else self.found.fidelity
        if gate is not None and gate.failure is not None:
            return f"part A does not predict the engine, so no policy is scored: {gate.failure}"
        if self.wanted in ("B", "ALL"):
            self._simulate(arrivals)
        return self._confirm() if self.wanted in ("C", "ALL") else None

    def page(self) -> str:
        """Return the report."""
        from tuner.bench.policy_engine_report import again, page_of

        return page_of([*self.sections, again(self.command)], self.report)

    def _measure(self) -> None:
        from tuner.bench.policy_engine_report import part_a
        from tuner.cli.bench_policy_engine import calibrate

        self.found, self.parts = calibrate(self.output, self.loaded.options())
        self.sections.append(part_a(self.found))
        self.figures |= self.found.to_dict()

    def _simulate(self, arrivals: Trace | None) -> None:
        from tuner.bench.policy import bench_policy, num_runs
        from tuner.bench.policy_report import report_of

        measured = None if self.found is None else self.found.measured.calibration
        options = replace(self.options, measured=measured, again=self.command)
        with Progressing.on(self.output.console, "Playing") as progress:
            counted = progress.counting(num_runs(options))
            result = bench_policy(options, arrivals, counted)
        _print(self.output, result)
        self.report = report_of(result)
        self.figures |= result.to_dict()

    def _confirm(self) -> str | None:
        from tuner.bench.policy_engine_report import part_c
        from tuner.cli.bench_policy_engine import confirm

        assert self.found is not None
        confirmation = confirm(self.output, self.loaded.options(), self.found, self.parts)
        self.sections.append(part_c(confirmation))
        self.figures["confirmation"] = confirmation.to_dict()
        return confirmation.failure


def _command(part: str, options: PolicyBenchOptions, loaded: _Loaded) -> str:
    """Return the command line that gives the figures again."""
    words = ["spectuner bench policy --part", part.lower() if part == "ALL" else part]
    if part in ("B", "ALL"):
        words += ["--seeds", str(options.seeds), "--profile", options.profile]
        words += ["--workloads", options.workloads, "--windows", str(options.windows)]
        words += ["--off-tax", f"{options.off_tax_ratio:g}"]
        words += [] if options.trace is None else ["--trace", str(options.trace)]
        words += ["--adaptive"] if options.adaptive else []
    if part != "B":
        words += ["--model", loaded.model, "--draft", loaded.draft]
    if part in ("C", "ALL"):
        words += ["--seconds", f"{loaded.seconds:g}"]
    if options.calibration is not None:
        words += ["--calibration", str(options.calibration)]
    return " ".join(words)


def _print(output: Output, result: PolicyBench) -> None:
    autopilot, reviewed = result.table.standings
    heads = ["policy", "% of oracle", "95 %", "below off", "recovery", "switches"]
    rows = table([*heads, "autopilot less it", "reviewed less it"])
    for row in result.table.rows:
        rows.add_row(
            row.policy,
            f"{100 * row.oracle_share:.2f}",
            f"{100 * row.oracle_share_low:.1f} to {100 * row.oracle_share_high:.1f}",
            f"{row.harm_share:.2%}",
            "-" if row.recovery_windows is None else f"{row.recovery_windows:.0f}",
            f"{row.switches_per_window:.2f}",
            _lead(autopilot, row.policy),
            _lead(reviewed, row.policy),
        )
    output.show("Goodput in share of the per-route oracle", rows)
    for line in result.lines():
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lead(standing: Standing, peer: str) -> str:
    pair = next((pair for pair in standing.pairs if pair.peer == peer), None)
    return "" if pair is None else f"{100 * pair.low:+.2f} to {100 * pair.high:+.2f}"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"--html {path} cannot be written: {error.strerror}") from error
