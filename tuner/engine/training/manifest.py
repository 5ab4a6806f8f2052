"""What stands beside a trained head: where it comes from and what it was measured to do.

Written by `python -m tuner.engine.training` (a method, measure); a test compares it with the file.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

from tuner.engine.training.distill import Recipe
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.measure import RouteAcceptance
from tuner.engine.training.shards import file_digest
from tuner.engine.training.target import Target

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """The generated answers a head was trained on.

    Attributes:
        digest: sha256 over the shards' bytes in order.
        num_answers: answers.
        num_tokens: answer tokens.
        kinds: answers by the kind of their prompt.
    """

    digest: str
    num_answers: int
    num_tokens: int
    kinds: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """How a head was trained.

    Attributes:
        recipe: steps, rates and seed.
        copies_ratio: copying exercises per answer of the target.
        trained_tokens: predictions that the loss was taken on, all depths and repeats counted.
        held_out: number of the shard that was never trained on; None where there was none.
        coverage_ratio: held-out answer tokens that the draft vocabulary holds; None where nothing
            was held out.
        start_digest: sha256 of the trained weights it went on from; None where it began anew.
        notes: what else somebody needs to know who wants to do it again.
    """

    recipe: Recipe
    copies_ratio: float
    trained_tokens: int
    held_out: int | None = None
    coverage_ratio: float | None = None
    start_digest: str | None = None
    notes: str = ""


def write_manifest(
    path: Path, weights: Path, method: str, target: Target, data: DataSource, run: TrainingRun
) -> None:
    """Write the manifest of freshly trained `weights`; what it can do is not known yet."""
    manifest = {
        "name": f"smollm2-135m-instruct-{method.replace('_', '-')}",
        "method": method,
        "target_hash": target.digest,
        "weights_sha256": file_digest(weights),
        "weights_bytes": weights.stat().st_size,
        "data": {
            "sha256": data.digest,
            "answers": data.num_answers,
            "answer_tokens": data.num_tokens,
            "kinds": data.kinds,
        },
        "training": {
            "recipe": asdict(run.recipe),
            "copies_per_answer": run.copies_ratio,
            "trained_tokens": run.trained_tokens,
            "start_sha256": run.start_digest,
            "held_out_shard": run.held_out,
            "held_out_vocab_coverage": run.coverage_ratio,
            "notes": run.notes,
        },
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
        "acceptance": {},
    }
    _replace(path, manifest)


def add_acceptance(path: Path, weights: Path, routes: dict[str, RouteAcceptance]) -> None:
    """State in the manifest what its weights were measured to do.

    Raises:
        TrainingError: there is no manifest, or it is that of other weights.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise TrainingError(f"cannot read {path}: train the draft model again") from error
    if not isinstance(manifest, dict) or manifest.get("weights_sha256") != file_digest(weights):
        raise TrainingError(f"{path} describes other weights than {weights}: train them again")
    _replace(path, {**manifest, "acceptance": {n: _measured(r) for n, r in routes.items()}})


def _replace(path: Path, manifest: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _measured(route: RouteAcceptance) -> dict[str, object]:
    return {
        "k": len(route.accepted_by_position),
        "tokens": route.tokens,
        "tokens_per_pass": round(route.tokens_per_pass, 4),
        "mean_accepted": round(route.mean_accepted, 4),
        "accepted_by_position": [round(ratio, 4) for ratio in route.ratios],
    }
