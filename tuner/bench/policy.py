"""`spectuner bench policy`, part B: all policies in drawn worlds, compared world by world."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collectors.records import Setting
from policy.errors import InvalidInput
from policy.simulate.calibrated import Calibration
from policy.simulate.engine import ADAPTIVE_ARMS, ARMS, Engine
from policy.simulate.field import peers
from policy.simulate.match import Match, play
from policy.simulate.objectives import tpot_limits_s
from policy.simulate.profiles import Profile, profile_named
from policy.simulate.scores import OURS, Pair, Row, Table, table_of
from policy.simulate.worlds import NUM_WINDOWS, ROUTES, World, draw_world, workloads_of
from policy.statistics import Floats
from tuner.bench.policy_bounds import Bound, bounds_of, standing_lines, standing_to_dict
from tuner.bench.policy_planner import PlannerTime, planner_time
from tuner.bench.policy_trace import Trace, read_trace

LEAST_WINDOWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBenchOptions:
    """What is played.

    Attributes:
        seeds: number of worlds.
        profile: name of a hardware profile.
        workloads: names joined by ``+``.
        windows: windows of a world.
        off_tax_ratio: what a step without speculation costs more than on a clean engine.
        trace: file of arrivals and lengths that gives the load; None to draw it.
        measured: measured table in place of the built-in profile `cpu`; None to keep that.
        calibration: file that it was read from, for the command line; None where there is none.
        adaptive: True where the engine's adaptive mode is among the arms.
        again: command line of the run that this is a part of; None where it is all of it.
    """

    seeds: int = 20
    profile: str = "gpu"
    workloads: str = "W2+W3+W5"
    windows: int = NUM_WINDOWS
    off_tax_ratio: float = 0.03
    trace: Path | None = None
    measured: Calibration | None = None
    calibration: Path | None = None
    adaptive: bool = False
    again: str | None = None

    @property
    def arms(self) -> tuple[Setting, ...]:
        """What every policy that chooses among arms may choose."""
        return (*ARMS, *ADAPTIVE_ARMS) if self.adaptive else ARMS

    @property
    def played_profile(self) -> Profile:
        """What a step costs: the measured table where there is one for the profile.

        Raises:
            InvalidInput: there is no profile of that name, or the tax is out of range.
        """
        built_in = profile_named(self.profile, self.off_tax_ratio)
        if self.measured is None or self.profile != "cpu":
            return built_in
        return self.measured.profile("cpu", is_beyond_usual=True)

    @property
    def source(self) -> str:
        """One sentence: where the times of the profile come from."""
        if self.profile == "cpu" and self.measured is not None:
            return "Profile cpu: times measured by part A, off-state tax included."
        return f"Profile {self.profile}: built-in figures, not measured on this machine."

    def checked(self) -> Trace | None:
        """Refuse what cannot be played, and read the trace if there is one.

        Raises:
            InvalidInput: a name is unknown, a number out of range, or the trace no trace.
        """
        profile_named(self.profile, self.off_tax_ratio)
        workloads_of(self.workloads)
        if self.seeds < 1:
            raise InvalidInput(f"--seeds must be 1 or more, got {self.seeds}")
        if self.windows < LEAST_WINDOWS:
            raise InvalidInput(f"--windows must be {LEAST_WINDOWS} or more, got {self.windows}")
        return None if self.trace is None else read_trace(self.trace)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyBench:
    """The result.

    Attributes:
        options: what was played.
        table: scores and paired differences.
        load: [W] rows of the first world, for the report.
        planner: time of a search for a large service.
        cpu_s: thread-CPU seconds of the whole run.
    """

    options: PolicyBenchOptions
    table: Table
    load: tuple[int, ...]
    planner: PlannerTime
    cpu_s: float

    @property
    def command(self) -> str:
        """The command line that gives these figures again."""
        chosen = self.options
        if chosen.again is not None:
            return chosen.again
        trace = "" if chosen.trace is None else f" --trace {chosen.trace}"
        if chosen.calibration is not None:
            trace += f" --calibration {chosen.calibration}"
        trace += " --adaptive" if chosen.adaptive else ""
        return (
            f"spectuner bench policy --part B --seeds {chosen.seeds} --profile {chosen.profile} "
            f"--workloads {chosen.workloads} --windows {chosen.windows} "
            f"--off-tax {chosen.off_tax_ratio:g}{trace}"
        )

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What must hold, with what was found."""
        return bounds_of(self.table, self.planner, is_pace="W7" in self.options.workloads.upper())

    def lines(self) -> list[str]:
        """Return the figures beside the table, one sentence each."""
        standings = self.table.standings
        return [
            "Ahead: the lower end of the paired 95 % interval lies above 0.",
            *(line for standing in standings for line in standing_lines(standing)),
            self.planner.sentence,
            *(bound.sentence for bound in self.bounds),
            self.options.source,
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: the keys of `spectuner bench policy --json`."""
        table = self.table
        return {
            "command": self.command,
            "scores": [_score(row) for row in table.rows],
            "details": [_details(row) for row in table.rows],
            "paired": [
                {"policy": standing.row.policy, **_pair(pair)}
                for standing in table.standings
                for pair in standing.pairs
            ],
            "ours": [standing_to_dict(standing) for standing in table.standings],
            "bounds": [bound.to_dict() for bound in self.bounds],
            "planner_cpu_ms": self.planner.to_dict(),
            "tpot_limits_ms": _by_route(1e3 * tpot_limits_s(self.options.played_profile)),
            "cpu_s": self.cpu_s,
        }


def num_runs(options: PolicyBenchOptions) -> int:
    """Return how often `on_run` will be called."""
    world = _world(options, 0, None)
    engine = Engine(world=world, profile=options.played_profile)
    return options.seeds * (1 + len(OURS) + len(ARMS) + len(peers(engine, 0)))


def bench_policy(
    options: PolicyBenchOptions,
    trace: Trace | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> PolicyBench:
    """Play; 20 worlds of 1200 windows take some minutes of one core.

    Args:
        options: what.
        trace: gives the load where there is one; as ``checked`` read it.
        on_run: called after each policy in each world, for a progress bar.
    """
    started = time.thread_time()
    matches = [_match(options, seed, trace, on_run) for seed in range(options.seeds)]
    return PolicyBench(
        options=options,
        table=table_of(matches),
        load=tuple(matches[0].load.tolist()),
        planner=planner_time(),
        cpu_s=time.thread_time() - started,
    )


def _match(
    options: PolicyBenchOptions, seed: int, trace: Trace | None, on_run: Callable[[], None]
) -> Match:
    engine = Engine(world=_world(options, seed, trace), profile=options.played_profile)
    return play(engine, time.thread_time, on_run, options.arms)


def _world(options: PolicyBenchOptions, seed: int, trace: Trace | None) -> World:
    traffic = None if trace is None else trace.running(seed, options.windows)
    return draw_world(seed, workloads_of(options.workloads), options.windows, traffic)


def _score(row: Row) -> Mapping[str, object]:
    return {
        "policy": row.policy,
        "oracle_share": row.oracle_share,
        "oracle_share_low": row.oracle_share_low,
        "oracle_share_high": row.oracle_share_high,
        "harm_share": row.harm_share,
        "recovery_windows": row.recovery_windows,
        "switches_per_window": row.switches_per_window,
    }


def _details(row: Row) -> Mapping[str, object]:
    return {
        "policy": row.policy,
        "switches_per_1000_windows": 1000 * row.switches_per_window,
        "limited_share": row.limited_share,
        "kept_share": row.kept_share,
        "tpot_p99_ms": _by_route(1e3 * row.tpot_p99_s),
        "drawdown_windows": row.drawdown_windows,
        "regret": row.regret.tolist(),
    }


def _by_route(values: Floats) -> Mapping[str, float]:
    return dict(zip(ROUTES, values.tolist(), strict=True))


def _pair(pair: Pair) -> Mapping[str, object]:
    return {
        "peer": pair.peer,
        "difference": pair.difference,
        "low": pair.low,
        "high": pair.high,
    }
