"""``spectuner bench``: speed of methods and peers, and greedy outputs against plain decoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tuner.cli.bench_drift import drift
from tuner.cli.bench_engine import MethodTexts, ServerPlaces, compare_methods, compare_peers
from tuner.cli.bench_policy import policy
from tuner.cli.bench_service import service
from tuner.cli.engine import HeadOption, heads_named
from tuner.cli.errors import UsageError
from tuner.cli.output import JsonOption, Output, table
from tuner.cli.progress import Progressing

if TYPE_CHECKING:
    from tuner.bench.exactness import Exactness
    from tuner.engine.settings import EngineSettings

app = typer.Typer(help="Measure speed and exactness of the engine.", no_args_is_help=True)
app.command()(policy)
app.command()(drift)
app.command()(service)

ModelOption: TypeAlias = Annotated[
    str, typer.Option(help="bundled, a Hugging Face directory, or a GGUF file.")
]
DraftOption: TypeAlias = Annotated[str, typer.Option(help="bundled, a directory, or none.")]
ThreadsOption: TypeAlias = Annotated[int, typer.Option(min=0, help="CPU threads; 0 for all.")]


_METHODS, _PEERS = "Comparing drafting methods", "Comparing with peers"
_ROUNDS, _FEW_ROUNDS = 7, 2
MethodsOption: TypeAlias = Annotated[
    str,
    typer.Option(metavar="all|METHOD,...", help="Methods compared.", rich_help_panel=_METHODS),
]
PromptsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Questions: Spec-Bench's JSONL or the demo's traffic format.",
        rich_help_panel=_METHODS,
    ),
]
LimitOption: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Questions asked; 0 for all.", rich_help_panel=_METHODS)
]
BatchOption: TypeAlias = Annotated[
    str, typer.Option(metavar="N,...", help="Sequences together.", rich_help_panel=_METHODS)
]
LengthsOption: TypeAlias = Annotated[
    str, typer.Option("--ks", metavar="K,...", help="Draft lengths.", rich_help_panel=_METHODS)
]
TreesOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NODESxWIDTH,...",
        help="Trees of methods that branch, or none.",
        rich_help_panel=_METHODS,
    ),
]
AdaptiveOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--adaptive",
        help="Add each method's adaptive mode, the longest of --ks its ceiling.",
        rich_help_panel=_METHODS,
    ),
]
PeersOption: TypeAlias = Annotated[
    bool, typer.Option(help="Compare with other engines.", rich_help_panel=_PEERS)
]
PeerPythonOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="PATH", help="Interpreter that has vllm; this one's.", rich_help_panel=_PEERS
    ),
]
LlamaServerOption: TypeAlias = Annotated[
    str, typer.Option(metavar="PATH", help="llama.cpp's server.", rich_help_panel=_PEERS)
]


@app.command()
def engine(
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    head: HeadOption = None,
    tokens: Annotated[
        int,
        typer.Option("--max-tokens", "--tokens", min=8, help="Tokens generated per prompt."),
    ] = 48,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds against peers; 7, or 2 beside a method comparison."),
    ] = None,
    threads: ThreadsOption = 0,
    methods: MethodsOption = "",
    prompts: PromptsOption = None,
    limit: LimitOption = 10,
    batch: BatchOption = "1,16",
    ks: LengthsOption = "3,5",
    trees: TreesOption = "5x3,15x3",
    adaptive: AdaptiveOption = False,
    peers: PeersOption = True,
    peer_python: PeerPythonOption = "",
    llama_server: LlamaServerOption = "llama-server",
    json_path: JsonOption = None,
) -> None:
    """Measure the engine against transformers on this machine: round-robin, medians.

    A ratio is the peer's time over ours; above 1 the engine is faster. With --methods and
    --prompts every drafting method answers real questions first, each step beside a plain one.
    """
    output = Output.open(json_path)
    if bool(methods) != (prompts is not None):
        raise UsageError("--methods and --prompts go together: --methods all --prompts FILE")
    loaded = replace(_loaded(model, draft, threads), heads=heads_named(head or ()))
    figures: dict[str, object] = {}
    if prompts is not None:
        texts = MethodTexts(methods=methods, batch=batch, ks=ks, trees=trees, adaptive=adaptive)
        options = texts.options(loaded, prompts)
        figures |= compare_methods(output, replace(options, limit=limit, num_tokens=tokens))
    if peers:
        places = ServerPlaces(peer_python=peer_python, llama_server=llama_server)
        rounds = rounds or (_FEW_ROUNDS if methods else _ROUNDS)
        figures |= compare_peers(output, loaded, places, tokens, rounds)
    output.write(figures)


@app.command()
def exactness(
    model: ModelOption = "bundled",
    draft: DraftOption = "bundled",
    prompts: Annotated[int, typer.Option(min=1, help="Demo prompts compared.")] = 40,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens generated per prompt.")] = 128,
    threads: ThreadsOption = 0,
    json_path: JsonOption = None,
) -> None:
    """Compare greedy outputs of every method, chains and trees, with plain decoding, by token.

    Exit code 1 where a difference is not explained by rounding.
    """
    output = Output.open(json_path)
    from tuner.bench.exactness import ExactnessBench, ExactnessOptions

    bench = ExactnessBench(
        ExactnessOptions(
            engine=_loaded(model, draft, threads), num_prompts=prompts, num_tokens=tokens
        )
    )
    with Progressing.on(output.console, "Comparing") as progress:
        count = progress.counting(bench.num_cases)
        found = bench.run(on_case=lambda _: count())
    _show_exactness(output, found)
    output.write(found.to_dict())
    if found.num_wrong:
        raise typer.Exit(1)


def _loaded(model: str, draft: str, threads: int) -> EngineSettings:
    from tuner.engine.settings import EngineSettings

    return EngineSettings(model=model, draft=draft, threads=threads)


def _show_exactness(output: Output, found: Exactness) -> None:
    outcomes = list(dict.fromkeys(outcome for case in found.cases for outcome in case.outcomes))
    names = [str(outcome).replace("_", " ") for outcome in outcomes]
    rows = table(["Setting", "batch", *names, "drafted", "tokens/pass"])
    for case in found.cases:
        counts = [str(case.outcomes.get(outcome, 0)) for outcome in outcomes]
        drafted, per_pass = str(case.drafted), f"{case.tokens_per_pass:.2f}"
        rows.add_row(case.setting.label, str(case.batch), *counts, drafted, per_pass)
    output.show("Greedy outputs against plain decoding of the same engine", rows)
    for line in found.lines():
        output.console.print(line, markup=False, highlight=False, soft_wrap=True)
