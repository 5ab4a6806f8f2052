"""Parts A and C of `spectuner bench policy` put together, and the file that holds part A."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from collectors.errors import InvalidRecord
from collectors.records import Method
from collectors.records.parsing import JsonObject, as_object, integer, items, member, number, text
from policy.errors import InvalidInput
from policy.simulate.calibrated import Calibration, RoundTime, VerifyTime
from policy.simulate.profiles import Drafting
from policy.simulate.replayed import Marks, Script, Timetable
from policy.simulate.worlds import MAX_DEPTH
from tuner.bench.policy_batches import PacedBatch, Reference
from tuner.bench.policy_calibration import Bench, Measured, Shapes, SwitchTime, num_batches
from tuner.bench.policy_engine import LIMITS, ROUTES, Parts, load_parts, pool
from tuner.bench.policy_fidelity import CellRuns, Cells, Fidelity
from tuner.bench.policy_live import Confirmation, LiveOptions, confirm, num_windows
from tuner.bench.policy_traces import Recorded, record
from tuner.engine.limits import EngineLimits
from tuner.engine.settings import EngineSettings

PER_ROUTE = 4
MAX_TOKENS = 96
NUM_POLICIES = 5
_MARKED = (1, 3, MAX_DEPTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePartsOptions:
    """What runs on the engine.

    Attributes:
        engine: what is loaded; limits and threads are the benchmark's own.
        limits: of the engine.
        per_route: prompts of each route.
        max_tokens: longest answer.
        shapes: what part A times.
        cells: what the gate of part A runs.
        live: what part C runs.
    """

    engine: EngineSettings = field(default_factory=EngineSettings)
    limits: EngineLimits = LIMITS
    per_route: int = PER_ROUTE
    max_tokens: int = MAX_TOKENS
    shapes: Shapes = field(default_factory=Shapes)
    cells: Cells = field(default_factory=Cells)
    live: LiveOptions = field(default_factory=LiveOptions)

    @property
    def settings(self) -> EngineSettings:
        """What is loaded, on one thread."""
        return replace(self.engine, limits=self.limits, threads=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartA:
    """What was measured on the engine, and how well it predicts.

    Attributes:
        drafter: method behind the arms of the draft model.
        max_tokens: longest answer recorded.
        measured: times.
        recorded: answers and marks.
        fidelity: the gate; None where it was read from a file and stands there.
    """

    drafter: Method
    max_tokens: int
    measured: Measured
    recorded: Recorded
    fidelity: Fidelity | None = None

    @property
    def times(self) -> Timetable:
        """What the replay of answers takes its seconds from."""
        caught_up = self.measured.calibration.catch_up_s
        return Timetable(
            calibration=self.measured.calibration,
            profile=self.measured.calibration.profile(),
            ways={Method.PROMPT_LOOKUP: Drafting.LOOKUP, self.drafter: Drafting.MODEL},
            catch_up_s={
                Method.PROMPT_LOOKUP: caught_up.get(Drafting.LOOKUP, 0.0),
                self.drafter: caught_up.get(Drafting.MODEL, 0.0),
            },
        )

    def batches(self) -> list[list[VerifyTime]]:
        """Return the target passes of each batch, in the order in which they were measured."""
        found: list[list[VerifyTime]] = []
        for cell in self.measured.calibration.verify:
            is_next = not found or cell.positions <= found[-1][-1].positions
            if is_next:
                found.append([])
            found[-1].append(cell)
        return found

    def lines(self) -> list[str]:
        """Return the figures beside the tables, one sentence each."""
        calibration = self.measured.calibration
        switches = ", ".join(
            f"{one.method} {1e3 * one.seconds:.1f} ms" for one in self.measured.switches
        )
        reading = 1e6 * calibration.catch_up_s.get(Drafting.MODEL, 0.0)
        return [
            f"Tax of speculation switched off: {100 * calibration.off_tax_ratio:.2f} %.",
            f"Drafting switched on after {self.measured.switches[0].plain_steps} plain steps costs "
            f"once: {switches}; {self.drafter} reads a token in {reading:.0f} microseconds.",
        ]

    def acceptance(self) -> list[dict[str, object]]:
        """Return tokens of a pass by method, at three draft lengths."""
        methods = {
            method
            for scripts in self.recorded.scripts.values()
            for script in scripts
            for method in script.marks
        }
        return [
            {
                "method": method.value,
                "tokens_per_pass": {
                    str(depth): self.recorded.tokens_per_pass(method, depth) for depth in _MARKED
                },
            }
            for method in sorted(methods)
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form, from which ``read_part_a`` reads it again."""
        return {
            "calibration": _calibration_to_dict(self),
            "acceptance": self.acceptance(),
            "fidelity": None if self.fidelity is None else self.fidelity.to_dict(),
            "recorded": _recorded_to_dict(self.recorded),
        }


def num_calls_a(options: EnginePartsOptions) -> int:
    """Return how often part A calls back."""
    answers = options.per_route * len(ROUTES)
    cells = options.shapes.turns * options.cells.number
    return answers + num_batches(options.shapes) + cells


def run_part_a(
    options: EnginePartsOptions, on_call: Callable[[], None] = lambda: None
) -> tuple[PartA, Parts]:
    """Measure, record and check; a quarter of an hour of one busy core with the bundled model.

    Raises:
        BadRequest: the engine has not the drafters.
        StartupError: the model cannot be loaded.
    """
    parts = load_parts(options.settings)
    prompts = pool(parts, options.per_route)
    recorded = record(parts, prompts, options.max_tokens, on_call)
    ids = [token for encoded in prompts.values() for one in encoded for token in one.token_ids]
    reference = Reference(parts)
    bench = Bench(parts, ids, options.shapes, reference, on_call)
    runs = CellRuns(parts, prompts, options.max_tokens, options.cells, reference, on_call)
    for _ in range(options.shapes.turns):
        bench.turn()
        runs.turn()
    found = PartA(
        drafter=parts.drafter,
        max_tokens=options.max_tokens,
        measured=bench.measured(),
        recorded=recorded,
    )
    return replace(found, fidelity=runs.against(recorded, found.times)), parts


def run_part_c(
    options: EnginePartsOptions,
    found: PartA,
    parts: Parts | None = None,
    on_call: Callable[[], None] = lambda: None,
) -> Confirmation:
    """Run policies on the engine against part A's replay; ``num_calls_c`` calls.

    Args:
        options: how.
        found: of part A, measured on this machine.
        parts: what is loaded already; None to load.
        on_call: called after each window.

    Raises:
        InvalidInput: part A was recorded with another drafter or other prompts.
    """
    first = parts or load_parts(options.settings)
    if found.drafter is not first.drafter:
        raise InvalidInput(
            f"part A was recorded with {found.drafter}, and {first.drafter} is loaded; give the "
            "same --model and --draft, or run part A again"
        )
    prompts = pool(first, len(next(iter(found.recorded.answers.values()))))
    if set(prompts) != set(found.recorded.answers):
        raise InvalidInput("part A was recorded on other routes; run it again")
    most = max(options.live.loads)
    seats = [first.seated(most, prompts, found.max_tokens) for _ in range(NUM_POLICIES)]
    paced = partial(PacedBatch, reference=Reference(first), usual_s=found.measured.reference_s)
    return confirm(
        seats, prompts, found.recorded, found.times, found.max_tokens, paced, options.live, on_call
    )


def num_calls_c(options: EnginePartsOptions) -> int:
    """Return about how often part C calls back."""
    return num_windows(options.live)


def read_part_a(path: Path) -> PartA:
    """Read what part A wrote with ``--json``.

    Raises:
        InvalidInput: the file cannot be read or is none of part A.
    """
    try:
        data = as_object(json.loads(path.read_text()), "file")
        return _part_a_of(data)
    except (OSError, ValueError, InvalidRecord) as error:
        raise InvalidInput(f"--calibration {path}: not written by part A ({error})") from error


def _part_a_of(data: JsonObject) -> PartA:
    times = as_object(data.get("calibration"), "calibration")
    recorded = as_object(data.get("recorded"), "recorded")
    gate = as_object(data.get("fidelity"), "fidelity")
    if gate.get("failure") is not None:
        raise InvalidRecord(f"no policy may be scored on it: {gate['failure']}")
    return PartA(
        drafter=member(Method, text(times, "drafter"), "drafter"),
        max_tokens=integer(times, "max_tokens"),
        measured=Measured(
            calibration=_calibration_of(times),
            switches=tuple(_switch(as_object(one, "switch")) for one in items(times, "switches")),
            reference_s=number(times, "reference_s"),
            cpu_s=number(times, "cpu_s"),
        ),
        recorded=_recorded_of(recorded),
    )


def _calibration_to_dict(found: PartA) -> dict[str, object]:
    measured = found.measured
    calibration = measured.calibration
    return {
        "drafter": found.drafter.value,
        "max_tokens": found.max_tokens,
        "reference_s": measured.reference_s,
        "cpu_s": measured.cpu_s,
        "off_tax_ratio": calibration.off_tax_ratio,
        "catch_up_s": {way.name: each for way, each in calibration.catch_up_s.items()},
        "verify": [asdict(cell) for cell in calibration.verify],
        "rounds": [{**asdict(cell), "way": cell.way.name} for cell in calibration.rounds],
        "switches": [asdict(one) for one in measured.switches],
    }


def _calibration_of(data: JsonObject) -> Calibration:
    caught_up = as_object(data.get("catch_up_s"), "catch_up_s")
    cells = [as_object(one, "verify") for one in items(data, "verify")]
    rounds = [as_object(one, "rounds") for one in items(data, "rounds")]
    return Calibration(
        verify=tuple(
            VerifyTime(
                rows=integer(cell, "rows"),
                positions=integer(cell, "positions"),
                context_tokens=number(cell, "context_tokens"),
                seconds=number(cell, "seconds"),
            )
            for cell in cells
        ),
        rounds=tuple(
            RoundTime(
                way=_way(text(cell, "way")),
                rows=integer(cell, "rows"),
                depth=integer(cell, "depth"),
                seconds=number(cell, "seconds"),
            )
            for cell in rounds
        ),
        catch_up_s={_way(name): number(caught_up, name) for name in caught_up},
        off_tax_ratio=number(data, "off_tax_ratio"),
    )


def _way(name: str) -> Drafting:
    if name not in Drafting.__members__:
        raise InvalidRecord(f"unknown way of drafting {name!r}")
    return Drafting[name]


def _switch(data: JsonObject) -> SwitchTime:
    return SwitchTime(
        method=member(Method, text(data, "method"), "method"),
        plain_steps=integer(data, "plain_steps"),
        seconds=number(data, "seconds"),
    )


def _recorded_to_dict(recorded: Recorded) -> dict[str, object]:
    return {
        "answers": {
            route: [list(answer) for answer in answers]
            for route, answers in recorded.answers.items()
        },
        "scripts": {
            route: [_script_to_dict(script) for script in scripts]
            for route, scripts in recorded.scripts.items()
        },
    }


def _script_to_dict(script: Script) -> dict[str, object]:
    return {
        "prompt_tokens": script.prompt_tokens,
        "output_tokens": script.output_tokens,
        "marks": {
            method.value: {"drafted": list(marks.drafted), "kept": list(marks.kept)}
            for method, marks in script.marks.items()
        },
    }


def _recorded_of(data: JsonObject) -> Recorded:
    scripts = as_object(data.get("scripts"), "scripts")
    answers = as_object(data.get("answers"), "answers")
    return Recorded(
        scripts={
            route: tuple(_script(route, as_object(one, "script")) for one in items(scripts, route))
            for route in scripts
        },
        answers={
            route: tuple(
                _integers({"answer": answer}, "answer") for answer in items(answers, route)
            )
            for route in answers
        },
    )


def _script(route: str, data: JsonObject) -> Script:
    marks = as_object(data.get("marks"), "marks")
    return Script(
        route=route,
        prompt_tokens=integer(data, "prompt_tokens"),
        output_tokens=integer(data, "output_tokens"),
        marks={
            member(Method, name, "method"): _marks(as_object(marks[name], name)) for name in marks
        },
    )


def _marks(data: JsonObject) -> Marks:
    return Marks(drafted=_integers(data, "drafted"), kept=_integers(data, "kept"))


def _integers(data: JsonObject, key: str) -> tuple[int, ...]:
    return tuple(integer({key: value}, key) for value in items(data, key))
