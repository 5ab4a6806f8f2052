"""``spectuner theory``: the closed formulas for any acceptance, draft length and draft cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from tuner.cli.errors import UsageError
from tuner.cli.output import JsonOption, Output, numbers, table, whole_numbers

_MAX_K = 20
_LONGEST = 10_000


def theory(
    alpha: Annotated[
        str, typer.Option(help="Acceptance rate per token, 0 to 1; a list gives one row each.")
    ] = "0.5,0.6,0.7,0.8,0.9",
    c: Annotated[
        str, typer.Option(help="Cost of one draft step over one target step; a list is allowed.")
    ] = "0.05",
    k: Annotated[str, typer.Option(help="Draft lengths, separated by commas.")] = "1,2,3,4,5,6,8",
    json_path: JsonOption = None,
) -> None:
    """Print the speedup that speculation can give, by acceptance, draft length and draft cost.

    Tokens per target pass are (1 - alpha^(k+1)) / (1 - alpha); the speedup divides them by k c + 1.
    """
    output = Output.open(json_path)
    alphas, costs, lengths = numbers("--alpha", alpha), numbers("--c", c), whole_numbers("--k", k)
    if max(lengths) > _LONGEST:
        raise UsageError(f"--k: {max(lengths)} is more than {_LONGEST}, the longest draft computed")
    figures = theory_figures(alphas, costs, lengths)
    for cost in costs:
        output.show(
            f"Speedup over plain decoding at c = {cost:g}", _speedup_table(alphas, cost, lengths)
        )
    output.write(figures)


def theory_figures(
    alphas: Sequence[float], costs: Sequence[float], lengths: Sequence[int]
) -> dict[str, object]:
    """Return ``rows`` and ``best``, the best k of the first alpha and c.

    Raises:
        InvalidInput: a value is out of range.
    """
    from policy.theory import best_k, expected_tokens, speedup

    pairs = [(alpha, c) for c in costs for alpha in alphas]
    rows = [
        {
            "alpha": alpha,
            "c": c,
            "k": k,
            "expected_tokens": expected_tokens(alpha, k),
            "speedup": speedup(alpha, k, c),
        }
        for alpha, c in pairs
        for k in lengths
    ]
    best, gain = best_k(alphas[0], costs[0], _MAX_K)
    return {"rows": rows, "best": {"k": best, "speedup": gain}}


def _speedup_table(alphas: Sequence[float], c: float, lengths: Sequence[int]) -> Table:
    from policy.theory import best_k, speedup

    headings = ["alpha", *(f"k={k}" for k in lengths), f"best k in 1..{_MAX_K}"]
    result = table(headings, num_text_columns=0)
    for alpha in alphas:
        best, gain = best_k(alpha, c, _MAX_K)
        cells = [f"{speedup(alpha, k, c):.2f}" for k in lengths]
        result.add_row(f"{alpha:g}", *cells, f"{best} ({gain:.2f})")
    return result
