"""What ``spectuner bench engine`` does: methods on real questions, peers, and their tables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.engine import methods_named
from tuner.cli.errors import UsageError
from tuner.cli.output import Output, table, whole_numbers
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.bench.arms import TreeShape
    from tuner.bench.engine import EngineBench
    from tuner.bench.method_report import MethodReport, Row
    from tuner.bench.methods import MethodOptions
    from tuner.bench.recommended import Recommended
    from tuner.engine.settings import EngineSettings

_ALL = "all"
_NO_TREES = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodTexts:
    """Options of a method comparison that are text.

    Attributes:
        methods: ``all``, or names with commas between them.
        batch: batch sizes.
        ks: draft lengths.
        trees: tree shapes, or ``none``.
        adaptive: measure the adaptive mode too.
    """

    methods: str
    batch: str
    ks: str
    trees: str
    adaptive: bool

    def options(self, engine: EngineSettings, prompts: Path) -> MethodOptions:
        """Read them.

        Raises:
            UsageError: one of them means nothing.
        """
        from tuner.bench.methods import MethodOptions

        methods = methods_named("" if self.methods == _ALL else self.methods)
        return MethodOptions(
            engine=replace(engine, methods=methods),
            prompts=prompts,
            batches=parse_counts("--batch", self.batch),
            draft_lengths=parse_counts("--ks", self.ks),
            trees=parse_trees(self.trees),
            has_adaptive=self.adaptive,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlaces:
    """Where engines lie that run as servers.

    Attributes:
        peer_python: interpreter with vLLM; empty for this one.
        llama_server: llama.cpp's server.
    """

    peer_python: str
    llama_server: str


def compare_methods(output: Output, options: MethodOptions) -> dict[str, object]:
    """Measure every method, print the tables and return the figures."""
    from tuner.bench.methods import MethodBench

    bench = MethodBench(options)
    with Progressing.on(output.console, "Comparing methods") as progress:
        report = bench.run(on_run=progress.counting(bench.num_runs))
    show_methods(output, report)
    return report.to_dict()


def compare_peers(
    output: Output, engine: EngineSettings, places: ServerPlaces, num_tokens: int, rounds: int
) -> dict[str, object]:
    """Compare with transformers and with what servers there are, print and return the figures."""
    from tuner.bench.engine import EngineBenchOptions, bench_engine, num_jobs
    from tuner.bench.server_peers import ServerPeerOptions, compare_servers

    options = EngineBenchOptions(engine=engine, num_tokens=num_tokens, rounds=rounds)
    with Progressing.on(output.console, "Comparing with transformers") as progress:
        result = bench_engine(options, on_job=progress.counting(num_jobs(options)))
    _show_speed(output, result)
    servers = ServerPeerOptions(
        engine=engine,
        peer_python=places.peer_python,
        llama_server=places.llama_server,
        rounds=rounds,
        num_tokens=num_tokens,
        threads=engine.threads or os.cpu_count() or 1,
    )
    cases = result.peer_cases()
    for case in compare_servers(servers):
        cases.append(case)
        output.console.print(case.line(), markup=False, highlight=False, soft_wrap=True)
    return {**result.to_dict(), "peers": [case.to_dict() for case in cases]}


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Read a comma-separated list of counts, ascending and each once.

    Raises:
        UsageError: an entry is no whole number from 1.
    """
    counts = sorted(set(whole_numbers(option, text)))
    if counts[0] < 1:
        raise UsageError(f"{option} {text}: {counts[0]} is below 1")
    return tuple(counts)


def parse_trees(text: str) -> tuple[TreeShape, ...]:
    """Read ``NODESxWIDTH,...`` or ``none``.

    Raises:
        UsageError: an entry has another form, or no tree has this shape.
    """
    from tuner.bench.arms import TreeShape

    if text == _NO_TREES:
        return ()
    trees = []
    for entry in text.split(","):
        match = re.fullmatch(r"\s*(\d+)x(\d+)\s*", entry)
        if match is None:
            raise UsageError(f"--trees: {entry!r} is not NODESxWIDTH, such as 15x3, or none")
        trees.append(TreeShape(nodes=int(match[1]), width=int(match[2])))
    return tuple(trees)


def show_methods(output: Output, report: MethodReport) -> None:
    """Print the tables and what they say in sentences."""
    _show_rows(output, "Every method over all questions", report.rows())
    groups: dict[str, list[Row]] = {}
    for row in report.group_rows():
        groups.setdefault(row.group, []).append(row)
    best = [max(rows, key=lambda row: row.figures.speedup or 0) for rows in groups.values()]
    if best:
        _show_rows(output, "The fastest of each group at batch 1", best, heading="group")
    _show_recommended(output, report.recommended())
    sentences = [
        *(claim.line() for claim in report.claims()),
        *(crossing.line() for crossing in report.crossings()),
        _sampled(report),
    ]
    if report.not_loaded:
        missing = ", ".join(method.value for method in report.not_loaded)
        sentences.append(f"Not loaded, so not measured: {missing}")
    for sentence in sentences:
        output.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _show_recommended(output: Output, recommended: Sequence[Recommended]) -> None:
    columns = ["method", "recommended", "batch", "predicted", "on other half", "90 %"]
    shown = table([*columns, "chosen by each half"], num_text_columns=2)
    shown.columns[-1].justify = "left"
    for each in recommended:
        interval = None if each.held_out is None else each.held_out.interval
        shown.add_row(
            each.method.value,
            each.setting.label,
            str(each.batch),
            _figure(each.predicted_speedup),
            _figure(each.speedup),
            _interval(interval),
            ", ".join(setting.label for setting in each.halves) or "-",
        )
    output.show("Recommended: chosen on half of the questions, timed on the other half", shown)


def _show_rows(output: Output, title: str, rows: Sequence[Row], heading: str = "") -> None:
    words = [heading, "Setting"] if heading else ["Setting"]
    figures = ["batch", "tokens/pass", "c", "predicted", "speedup", "90 %", "MiB"]
    shown = table([*words, *figures, "acceptance by position"], num_text_columns=len(words))
    shown.columns[-1].justify = "left"
    for row in rows:
        found, names = row.figures, [row.group] if heading else []
        shown.add_row(
            *names,
            row.setting.label,
            str(row.batch),
            f"{found.tokens_per_pass:.2f}",
            _figure(found.c, 3),
            _figure(found.predicted_speedup),
            _figure(found.speedup),
            _interval(found.interval),
            _figure(row.rss_mb, 0),
            " ".join(f"{rate:.2f}" for rate in found.acceptance_by_position),
        )
    output.show(title, shown)


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(interval: tuple[float, float, float] | None) -> str:
    return f"{interval[0]:.2f}-{interval[2]:.2f}" if interval else "-"


def _sampled(report: MethodReport) -> str:
    sampled = report.sampled
    parts = [
        f"{sampled.questions} of {sampled.questions_in_file} questions of {sampled.file}, "
        f"every category with its share; of methods without weights also "
        f"{sampled.more_long_questions} with long prompts and {sampled.demo_questions} of the "
        f"demo's copy-heavy routes; answers end by themselves or after {sampled.max_tokens} tokens",
        "a batch keeps its rows in flight: where an answer ends, its question is asked again",
    ]
    if sampled.later_turns_left_out:
        parts.append(
            f"first turns only ({sampled.later_turns_left_out} later ones in the file are left out)"
        )
    if sampled.too_long:
        parts.append(f"{sampled.too_long} too long for the context left out")
    return "Asked: " + "; ".join(parts)


def _show_speed(output: Output, result: EngineBench) -> None:
    columns = ["case", "peer", "ratio", "tokens/s", "tokens/pass", "peer's"]
    rows = table(columns, num_text_columns=2)
    for case in result.cases:
        rows.add_row(
            case.name,
            case.peer or "no peer",
            _figure(case.ratio),
            f"{case.tokens_per_s:.1f}",
            f"{case.tokens_per_pass:.2f}",
            _figure(case.peer_tokens_per_pass),
        )
    output.show("Time of the peer over ours", rows)
    for line in result.lines():
        output.console.print(line, markup=False, highlight=False)
