"""Parts A and C of ``spectuner bench policy``: what runs on the real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.cli.output import Output, table
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from tuner.bench.policy_engine import Parts
    from tuner.bench.policy_live import Confirmation
    from tuner.bench.policy_parts import EnginePartsOptions, PartA


def calibrate(output: Output, options: EnginePartsOptions) -> tuple[PartA, Parts]:
    """Run part A and print it."""
    from tuner.bench.policy_parts import num_calls_a, run_part_a

    with Progressing.on(output.console, "Measuring") as progress:
        found, parts = run_part_a(options, progress.counting(num_calls_a(options)))
    _print_times(output, found)
    _print_gate(output, found)
    return found, parts


def confirm(
    output: Output, options: EnginePartsOptions, found: PartA, parts: Parts | None
) -> Confirmation:
    """Run part C and print it."""
    from tuner.bench.policy_parts import num_calls_c, run_part_c

    with Progressing.on(output.console, "Confirming") as progress:
        counted = progress.counting(num_calls_c(options))
        confirmation = run_part_c(options, found, parts, counted)
    rows = table(["policy", "tokens per CPU-second", "replayed", *_loads(confirmation)])
    for standing in confirmation.standings:
        figures = standing.to_dict()
        by_load = [f"{one.goodput:.1f} ({two.goodput:.1f})" for one, two in standing.pairs]
        rows.add_row(
            standing.policy, f"{figures['live']:.1f}", f"{figures['replayed']:.1f}", *by_load
        )
    output.show("Policies on the engine, and on replayed answers (in brackets by load)", rows)
    for line in confirmation.lines():
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)
    return confirmation


def _loads(confirmation: Confirmation) -> list[str]:
    return [f"{stretch.rows} rows" for stretch in confirmation.standings[0].live]


def _print_times(output: Output, found: PartA) -> None:
    cells = found.measured.calibration.verify
    positions = sorted({cell.positions for cell in cells})
    rows = table(["rows", "context", *(str(count) for count in positions)], 0)
    for batch in found.batches():
        times = {cell.positions: cell.seconds for cell in batch}
        context = sum(cell.context_tokens for cell in batch) / len(batch)
        figures = [f"{1e3 * times[p]:.1f}" if p in times else "" for p in positions]
        rows.add_row(str(batch[0].rows), f"{context:.0f}", *figures)
    output.show("CPU milliseconds of a target pass by positions, 25th percentile", rows)
    for line in found.lines():
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_gate(output: Output, found: PartA) -> None:
    if found.fidelity is None:
        return
    rows = table(["routes", "rows", "Setting", "measured", "predicted", "error", "std. error"])
    for cell in found.fidelity.cells:
        rows.add_row(
            "+".join(cell.routes),
            str(cell.rows),
            cell.setting.label,
            f"{cell.measured:.1f}",
            f"{cell.predicted:.1f}",
            f"{cell.error:+.1%}",
            f"{cell.noise:.1%}",
        )
    output.show("Tokens per CPU-second that the table predicts, against the engine", rows)
    for line in found.fidelity.lines():
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)
