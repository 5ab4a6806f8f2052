"""What a run over all methods found: a row an arm, what to use of each method, the crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from collectors.records import Method, Setting
from tuner.bench.arms import WITHOUT_WEIGHTS
from tuner.bench.figures import Figures, Sums, figures_of
from tuner.bench.recommended import Recommended, recommend

COPY_HEAVY = "copy-heavy demo routes"
LONG_PROMPTS = "RAG + summarisation"
ALL_QUESTIONS = "all questions"
LONG_CATEGORIES = ("rag", "summarization")
_OTHER_HALF = "the half that did not choose"
_WANTED_OF_EACH = 0.95


class Source(StrEnum):
    """Where questions come from."""

    FILE = "file"
    LONG = "long"
    DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Which questions were asked.

    Attributes:
        file: name of the file.
        questions_in_file: questions that it holds.
        questions: of them asked, every category with its share.
        too_long: of the chosen ones left out because they do not fit into the context.
        later_turns_left_out: turns after the first, over the whole file.
        more_long_questions: further ones with long prompts, asked of methods without weights.
        demo_questions: of the demo's copy-heavy routes, asked of methods without weights.
        max_tokens: tokens of an answer at most.
    """

    file: str
    questions_in_file: int
    questions: int
    too_long: int
    later_turns_left_out: int
    more_long_questions: int
    demo_questions: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """One Setting on one workload.

    Attributes:
        setting: the Setting.
        source: where the questions come from.
        batch: sequences together.
        sums: per question and batch.
        rss_mb: peak resident memory of the process meanwhile, MiB; None where unknown.
    """

    setting: Setting
    source: Source
    batch: int
    sums: tuple[Sums, ...]
    rss_mb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table: an arm on a set of questions.

    Attributes:
        group: name of the set.
        setting: the arm.
        batch: sequences together.
        figures: what was measured.
        rss_mb: peak resident memory, MiB.
    """

    group: str
    setting: Setting
    batch: int
    figures: Figures
    rss_mb: float | None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        figures, setting = self.figures, self.setting
        return {
            "group": self.group,
            "method": setting.method,
            "k": setting.k,
            "tree_nodes": setting.tree_nodes,
            "tree_width": setting.tree_width,
            "is_adaptive": setting.is_adaptive,
            "batch": self.batch,
            "prompts": figures.questions,
            "tokens_per_pass": figures.tokens_per_pass,
            "acceptance_by_position": list(figures.acceptance_by_position),
            "c": figures.c,
            "predicted_speedup": figures.predicted_speedup,
            "speedup": figures.speedup,
            "speedup_interval": figures.interval,
            "first_draft_steps": figures.first_draft_steps,
            "rss_mb": self.rss_mb,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One figure that the engine is meant to reach.

    Attributes:
        name: what is claimed.
        row: the arm that does best; None where no such arm was measured.
        wanted_speedup: least speedup.
        wanted_tokens_per_pass: least tokens per pass; 0 for any.
    """

    name: str
    row: Row | None
    wanted_speedup: float
    wanted_tokens_per_pass: float = 0.0

    @property
    def holds(self) -> bool | None:
        """Say whether it is reached; None where nothing was measured."""
        if self.row is None or self.row.figures.speedup is None:
            return None
        is_fast = self.row.figures.speedup >= self.wanted_speedup
        return is_fast and self.row.figures.tokens_per_pass >= self.wanted_tokens_per_pass

    def line(self) -> str:
        """Return it as a sentence."""
        if self.row is None or self.row.figures.speedup is None:
            return f"{self.name}: not measured"
        figures, wanted = self.row.figures, f"{self.wanted_speedup:g}x"
        if self.wanted_tokens_per_pass:
            wanted += f" and {self.wanted_tokens_per_pass:g} tokens per pass"
        return (
            f"{self.name}: {self.row.setting.label}, {figures.speedup:.2f}x plain, "
            f"{figures.tokens_per_pass:.2f} tokens per pass over {figures.questions} questions "
            f"(wanted {wanted}: {'holds' if self.holds else 'does not hold'})"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "wanted_speedup": self.wanted_speedup,
            "wanted_tokens_per_pass": self.wanted_tokens_per_pass,
            "holds": self.holds,
            "best": None if self.row is None else self.row.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Up to which batch a method pays.

    Attributes:
        method: the method.
        speedups: best speedup of its arms, by batch.
        batch: sequences together at which the speedup falls through 1, on a line through the two
            measured batches around it (logarithmic in the batch); None where it does not fall
            through between them.
    """

    method: Method
    speedups: dict[int, float]
    batch: float | None

    def line(self) -> str:
        """Return it as a sentence."""
        told = ", ".join(f"{value:.2f}x at batch {batch}" for batch, value in self.speedups.items())
        if self.batch is not None:
            return f"{self.method}: {told}; crosses 1.0 at batch {self.batch:.1f}"
        return f"{self.method}: {told}; {self._side()}"

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"method": self.method, "speedups": self.speedups, "batch": self.batch}

    def _side(self) -> str:
        if min(self.speedups.values()) >= 1:
            return "above 1.0 throughout"
        if max(self.speedups.values()) < 1:
            return "below 1.0 throughout"
        return "rises through 1.0 with the batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """The result.

    Attributes:
        runs: every arm on every workload.
        sampled: which questions were asked.
        not_loaded: methods without weights for this target.
        with_weights: loaded methods with trained weights.
    """

    runs: tuple[ArmRun, ...]
    sampled: Sampled
    not_loaded: tuple[Method, ...]
    with_weights: frozenset[Method]

    def rows(self) -> list[Row]:
        """Return every arm at every batch size over all questions of the file."""
        return list(self._rows(ALL_QUESTIONS, self._of(Source.FILE)))

    def group_rows(self) -> list[Row]:
        """Return every arm at batch 1 by group and by category."""
        demo = self._of(Source.DEMO)
        alone = [run for run in self._of(Source.FILE) if run.batch == 1]
        more = {run.setting: run.sums for run in self._of(Source.LONG)}
        long = [replace(run, sums=(*run.sums, *more.get(run.setting, ()))) for run in alone]
        rows = [*self._rows(COPY_HEAVY, demo), *self._rows(LONG_PROMPTS, long, LONG_CATEGORIES)]
        for runs in (demo, alone):
            for category in _categories(runs):
                rows.extend(self._rows(category, runs, (category,)))
        return rows

    def fastest(self) -> list[Row]:
        """Return each method's fastest arm at each batch size, over all questions."""
        rows = self.rows()
        keys = dict.fromkeys((row.setting.method, row.batch) for row in rows)
        best = [
            _fastest([row for row in rows if (row.setting.method, row.batch) == key])
            for key in keys
        ]
        return [row for row in best if row is not None]

    def recommended(self) -> list[Recommended]:
        """Return what to use of each method at each batch size, off included."""
        runs = self._of(Source.FILE)
        return [
            recommended
            for batch in dict.fromkeys(run.batch for run in runs)
            for recommended in recommend(
                {run.setting: run.sums for run in runs if run.batch == batch}, batch
            )
        ]

    def claims(self) -> list[Claim]:
        """Return what the engine is meant to reach at batch 1, and whether it does."""
        groups = self.group_rows()
        copying = [row for row in groups if row.setting.method in WITHOUT_WEIGHTS]
        alone = [row for row in self.fastest() if row.batch == 1]
        return [
            Claim(
                name=f"Best method without weights on {COPY_HEAVY}",
                row=_fastest([row for row in copying if row.group == COPY_HEAVY]),
                wanted_speedup=1.5,
            ),
            Claim(
                name=f"Best method without weights on {LONG_PROMPTS}",
                row=_fastest([row for row in copying if row.group == LONG_PROMPTS]),
                wanted_speedup=1.15,
            ),
            Claim(
                name=f"Best trained head over {ALL_QUESTIONS}",
                row=_fastest([row for row in alone if row.setting.method in self.with_weights]),
                wanted_speedup=1.3,
                wanted_tokens_per_pass=1.8,
            ),
            self._slowest_recommended(),
        ]

    def crossings(self) -> list[Crossing]:
        """Return for each method up to which batch it pays."""
        speedups: dict[Method, dict[int, float]] = {}
        for row in sorted(self.fastest(), key=lambda row: row.batch):
            if row.setting.k and row.figures.speedup is not None:
                by_batch = speedups.setdefault(row.setting.method, {})
                by_batch[row.batch] = row.figures.speedup
        return [
            Crossing(method=method, speedups=by_batch, batch=crossing_of(by_batch))
            for method, by_batch in speedups.items()
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: the keys of `spectuner bench engine --methods --json`."""
        recommended = self.recommended()
        chosen = {(each.setting, each.batch) for each in recommended if each.setting.k}
        return {
            "methods": [
                {**row.to_dict(), "recommended": (row.setting, row.batch) in chosen}
                for row in self.rows()
            ],
            "recommended": [each.to_dict() for each in recommended],
            "groups": [row.to_dict() for row in self.group_rows()],
            "claims": [claim.to_dict() for claim in self.claims()],
            "crossings": [crossing.to_dict() for crossing in self.crossings()],
            "sampled": asdict(self.sampled),
            "not_loaded": list(self.not_loaded),
        }

    def _slowest_recommended(self) -> Claim:
        """Return the claim about what is recommended at batch 1, timed where it was not chosen."""
        name = "Slowest method at what is recommended of it"
        timed = [
            (each.speedup, each, each.held_out)
            for each in self.recommended()
            if each.batch == 1 and each.held_out is not None and each.speedup is not None
        ]
        if not timed:
            return Claim(name=name, row=None, wanted_speedup=_WANTED_OF_EACH)
        _, slowest, figures = min(timed, key=lambda each: each[0])
        row = Row(
            group=_OTHER_HALF,
            setting=slowest.setting,
            batch=slowest.batch,
            figures=figures,
            rss_mb=None,
        )
        named = f"{name} ({slowest.method})"
        return Claim(name=named, row=row, wanted_speedup=_WANTED_OF_EACH)

    def _of(self, source: Source) -> list[ArmRun]:
        return [run for run in self.runs if run.source is source]

    def _rows(
        self, group: str, runs: Sequence[ArmRun], categories: Sequence[str] | None = None
    ) -> Iterator[Row]:
        for run in runs:
            setting = run.setting
            figures = figures_of(run.sums, setting.k, categories, is_adaptive=setting.is_adaptive)
            if figures is not None:
                yield Row(
                    group=group,
                    setting=run.setting,
                    batch=run.batch,
                    figures=figures,
                    rss_mb=run.rss_mb,
                )


def crossing_of(speedups: dict[int, float]) -> float | None:
    """Return the batch at which a speedup falls through 1; None where it does not.

    Args:
        speedups: by batch, ascending.
    """
    points = list(speedups.items())
    for (before, high), (after, low) in itertools.pairwise(points):
        if high >= 1 > low:
            share = (high - 1) / (high - low)
            return math.exp(math.log(before) + share * math.log(after / before))
    return None


def _categories(runs: Sequence[ArmRun]) -> list[str]:
    return list(dict.fromkeys(sums.category for run in runs for sums in run.sums))


def _fastest(rows: Sequence[Row]) -> Row | None:
    return max(_timed(rows), key=_speedup_of, default=None)


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.figures.speedup is not None]


def _speedup_of(row: Row) -> float:
    assert row.figures.speedup is not None
    return row.figures.speedup
