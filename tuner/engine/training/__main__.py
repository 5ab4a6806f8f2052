"""Commands that train drafting heads: `spectuner train --help`.

A method's own command goes the whole way; generate, features, distill and measure are its steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tuner.engine.errors import EngineError
from tuner.engine.model.bundled_model import resolve_model
from tuner.engine.training.captured import read_captured
from tuner.engine.training.display import acceptance_table, bar, training_bar
from tuner.engine.training.distill import Recipe
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.features import write_features
from tuner.engine.training.job import TrainingJob, measure_head, run_job
from tuner.engine.training.measure import (
    DEFAULT_TRAFFIC,
    TargetAnswer,
    answer_traffic,
    read_traffic,
)
from tuner.engine.training.methods import HEADS, head_kind
from tuner.engine.training.prompts import KIND_WEIGHTS, weights_of
from tuner.engine.training.selfgen import GenerationPlan, answer_captured, answer_own
from tuner.engine.training.shards import shard_number, shard_paths
from tuner.engine.training.target import Target, load_target

app = typer.Typer(no_args_is_help=True, help="Train drafting heads.", add_completion=False)
console = Console()
MethodArgument = Annotated[str, typer.Argument(help=f"One of {', '.join(HEADS)}.")]
TargetOption = Annotated[str, typer.Option(help="`bundled`, or a folder in Hugging Face layout.")]
DataOption = Annotated[Path, typer.Option(help="Folder of the generated answers.")]
OutOption = Annotated[Path, typer.Option(help="Folder of the head.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of torch.")]
TrafficOption = Annotated[Path, typer.Option(help="Prompts to measure on, one JSON object a line.")]
StepsOption = Annotated[int, typer.Option(min=1, help="Optimizer steps.")]
DecayOption = Annotated[int, typer.Option(min=1, help="Last steps, with falling rates.")]
StartOption = Annotated[Path | None, typer.Option(help="Trained weights to go on from.")]
SeedOption = Annotated[int, typer.Option(help="Start of all random numbers.")]
VocabOption = Annotated[int, typer.Option(min=64, help="Token ids the head may propose.")]
BatchOption = Annotated[int, typer.Option(min=256, help="Tokens in one step.")]
ShardsOption = Annotated[int, typer.Option(min=1, help="Files of 384 answers to have.")]


@app.command()
def generate(
    data: DataOption,
    shards: ShardsOption = 15,
    first: Annotated[int, typer.Option(min=0, help="Number of the first file.")] = 0,
    stride: Annotated[int, typer.Option(min=1, help="Make every n-th file only.")] = 1,
    seed: SeedOption = 3,
    kinds: Annotated[
        str, typer.Option(help="Only these kinds of prompts, with commas; else all.")
    ] = "",
    target: TargetOption = "bundled",
    threads: ThreadsOption = 1,
) -> None:
    """Let the target answer training prompts; a stopped run goes on with the first missing file."""
    weights = weights_of(kinds.split(",") if kinds else KIND_WEIGHTS)
    loaded, tokenizer = _load(target, threads)
    numbers = range(first, first + shards, stride)
    _answer_own(loaded, tokenizer, data, numbers, GenerationPlan(seed=seed, kinds=weights))


@app.command()
def features(
    data: DataOption, target: TargetOption = "bundled", threads: ThreadsOption = 1
) -> None:
    """Compute the target's hidden states of all answers once, 4.6 KB a token for the bundled."""
    loaded, _ = _load(target, threads)
    _compute_features(loaded, data)


@app.command()
def distill(
    method: MethodArgument,
    data: DataOption,
    out: OutOption,
    steps: StepsOption = 1000,
    decay_steps: DecayOption = 250,
    batch_tokens: BatchOption = 4096,
    held_out: Annotated[
        int | None, typer.Option(min=0, help="Number of the file that only measures.")
    ] = None,
    copies: Annotated[float, typer.Option(min=0, help="Exercises in copying per answer.")] = 0.0,
    start: StartOption = None,
    notes: Annotated[str, typer.Option(help="A line for the manifest.")] = "",
    seed: SeedOption = 0,
    vocab_size: VocabOption = 8192,
    target: TargetOption = "bundled",
    threads: ThreadsOption = 1,
) -> None:
    """Train a head on the generated answers; a stopped run goes on from its checkpoint."""
    kind = head_kind(method)
    loaded, tokenizer = _load(target, threads)
    job = TrainingJob(
        kind=kind,
        recipe=Recipe(
            seed=seed,
            num_steps=steps,
            decay_steps=decay_steps,
            batch_tokens=batch_tokens,
            depths=kind.trained_depths,
        ),
        data=data,
        out=out,
        held_out=held_out,
        vocab_size=vocab_size,
        copies_ratio=copies,
        start=start,
        notes=notes,
    )
    with training_bar(console, steps) as report:
        run_job(job, loaded, tokenizer, report)


@app.command()
def measure(
    method: MethodArgument,
    out: OutOption,
    traffic: TrafficOption = DEFAULT_TRAFFIC,
    k: Annotated[int | None, typer.Option(min=1, max=16, help="Draft length.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Answers a sampled prompt.")] = 2,
    write: Annotated[bool, typer.Option(help="State the result in the manifest.")] = False,
    seed: SeedOption = 7,
    target: TargetOption = "bundled",
    threads: ThreadsOption = 1,
) -> None:
    """Measure acceptance on the demo's traffic; with --write, state it in the manifest."""
    kind = head_kind(method)
    loaded, tokenizer = _load(target, threads)
    answers = _target_answers(loaded, tokenizer, traffic, repeats, seed)
    console.print(acceptance_table(measure_head(kind, out, loaded, answers, k, is_stated=write)))


def _whole_way(method: str) -> Callable[..., None]:
    """Return the command that takes one method from prompts to a measured head."""

    def command(
        out: OutOption,
        data: Annotated[
            Path | None, typer.Option(help="Captured requests, one JSON object a line.")
        ] = None,
        self_distill: Annotated[
            bool, typer.Option("--self-distill", help="Use this project's own prompts.")
        ] = False,
        answers: Annotated[
            Path | None, typer.Option(help="Folder for the target's answers; else OUT/answers.")
        ] = None,
        shards: ShardsOption = 15,
        steps: StepsOption = 1500,
        start: StartOption = None,
        traffic: TrafficOption = DEFAULT_TRAFFIC,
        seed: SeedOption = 0,
        vocab_size: VocabOption = 8192,
        target: TargetOption = "bundled",
        threads: ThreadsOption = 1,
    ) -> None:
        if (data is None) is not self_distill:
            raise TrainingError("give one of --data FILE and --self-distill, not both")
        kind, folder = head_kind(method), answers or out / "answers"
        loaded, tokenizer = _load(target, threads)
        if data is None:
            _answer_own(loaded, tokenizer, folder, range(shards), GenerationPlan(seed=seed))
        else:
            _answer_captured(loaded, tokenizer, folder, data, seed)
        if kind.needs_states:
            _compute_features(loaded, folder)
        recipe = Recipe(
            seed=seed, num_steps=steps, decay_steps=-(-steps // 3), depths=kind.trained_depths
        )
        job = TrainingJob(
            kind=kind,
            recipe=recipe,
            data=folder,
            out=out,
            held_out=_last_of_several(folder),
            vocab_size=vocab_size,
            start=start,
        )
        with training_bar(console, steps) as report:
            run_job(job, loaded, tokenizer, report)
        measured = _target_answers(loaded, tokenizer, traffic, 1, seed)
        console.print(acceptance_table(measure_head(kind, out, loaded, measured, is_stated=True)))

    return command


for _name, _kind in HEADS.items():
    app.command(_name, help=f"Train {_kind.title}: answers, training, measured acceptance.")(
        _whole_way(_name)
    )


def _answer_own(
    target: Target,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    numbers: range,
    plan: GenerationPlan,
) -> None:
    with bar(console, "answers of the target", len(numbers)) as advance, torch.inference_mode():
        answer_own(target, tokenizer, folder, numbers, plan, lambda _n, _tokens: advance())


def _answer_captured(
    target: Target, tokenizer: PreTrainedTokenizerBase, folder: Path, captures: Path, seed: int
) -> None:
    captured = read_captured(captures)
    with bar(console, "answers of the target", None) as advance, torch.inference_mode():
        eos_id = int(tokenizer.eos_token_id)
        answer_captured(target, eos_id, captured, folder, seed, lambda _n, _tokens: advance())


def _compute_features(target: Target, folder: Path) -> None:
    shards = shard_paths(folder)
    with bar(console, "hidden states", len(shards)) as advance, torch.inference_mode():
        write_features(target, shards, lambda _path, _tokens: advance())


def _last_of_several(folder: Path) -> int | None:
    """Return the number of the last shard, to be held out; None where there is only one."""
    shards = shard_paths(folder)
    return shard_number(shards[-1]) if len(shards) > 1 else None


def _target_answers(
    target: Target, tokenizer: PreTrainedTokenizerBase, traffic: Path, repeats: int, seed: int
) -> list[TargetAnswer]:
    prompts = read_traffic(traffic)
    sampled = [prompt for prompt in prompts if prompt.sampling.temperature > 0]
    asked = prompts + sampled * (repeats - 1)
    longest = max(prompt.sampling.max_tokens for prompt in asked)
    what = f"{len(asked)} answers to measure on"
    with bar(console, what, longest) as advance, torch.inference_mode():
        answers = answer_traffic(target, tokenizer, asked, seed, lambda _step: advance())
    greedy = [answer for answer in answers if answer.prompt.sampling.temperature == 0]
    return answers + greedy * (repeats - 1)


def _load(target: str, threads: int) -> tuple[Target, PreTrainedTokenizerBase]:
    torch.set_num_threads(threads)
    folder = resolve_model(target)
    return load_target(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def main() -> None:
    """Run a command; an error that a user can cause is one line and exit code 2."""
    try:
        app()
    except EngineError as error:
        stderr = Console(stderr=True, soft_wrap=True)
        stderr.print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
