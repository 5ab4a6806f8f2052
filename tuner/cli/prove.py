"""``spectuner prove``: the engine's own verification code on a language whose answer is known."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.output import JsonOption, Output, table


def prove(
    samples: Annotated[int, typer.Option(min=1000, help="Sequences drawn by each arm.")] = 400_000,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    json_path: JsonOption = None,
) -> None:
    """Prove on a toy language that speculation leaves the output distribution as it is.

    Runs the engine's own verification beside a variant with the classic bug, which must be caught.
    """
    output = Output.open(json_path)
    from tuner.bench.prove import prove as run_proof

    with output.console.status("Drawing samples"):
        report = run_proof(samples=samples, seed=seed)
    figures = report.to_dict()
    _print(output, figures)
    output.write(figures)


def _print(output: Output, figures: dict[str, object]) -> None:
    tv, chi2, flagged = figures["tv"], figures["chi2_p"], figures["flagged"]
    assert isinstance(tv, dict)
    assert isinstance(chi2, dict)
    assert isinstance(flagged, list | tuple)
    arms = table(["arm", "TV", "chi-square p", "verdict"])
    for arm, distance in tv.items():
        verdict = "[red]differs[/]" if arm in flagged else "as the target"
        arms.add_row(arm, f"{distance:.4f}", f"{chi2[arm]:.4f}", verdict)
    output.show("Distance to the exact distribution", arms)
    alphas = figures["alpha_by_context"]
    assert isinstance(alphas, list | tuple)
    output.console.print("Acceptance by context: " + " ".join(f"{alpha:.3f}" for alpha in alphas))
    formula = table(["k", "measured", "formula"], num_text_columns=0)
    rows = figures["formula"]
    assert isinstance(rows, list | tuple)
    for row in rows:
        formula.add_row(str(row["k"]), f"{row['measured']:.3f}", f"{row['expected']:.3f}")
    output.show("Tokens per target pass", formula)
