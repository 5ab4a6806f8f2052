"""Part C: policies on the real engine, and whether replayed answers put them in the same order.

Policies take turns window by window, so that the machine is the same for all, and their steps are
put to the pace at which part A measured. Every answer is compared token by token with that of plain
decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from collectors.records import OFF, Setting
from policy.simulate.closed_loop import (
    Batch,
    ClosedLoop,
    Field,
    FixedPlayer,
    Player,
    Stretch,
    players,
)
from policy.simulate.replayed import ReplayedBatch, Timetable
from tuner.bench.policy_engine import LiveBatch, Parts
from tuner.bench.policy_traces import Recorded
from tuner.bench.questions import Encoded

LEAST_TAU = 0.8
LOADS = (4, 8, 16)
SECONDS = 90.0
WINDOW_S = 0.5
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How policies are run.

    Attributes:
        seconds: CPU-seconds of each policy at the pace of part A, shared out over the loads.
        loads: sequences in the batch, one stretch each; a multiple of the routes.
        window_s: CPU-seconds between two decisions.
    """

    seconds: float = SECONDS
    loads: tuple[int, ...] = LOADS
    window_s: float = WINDOW_S

    @property
    def stretch_s(self) -> float:
        """CPU-seconds of a policy at one load."""
        return self.seconds / len(self.loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One policy.

    Attributes:
        policy: name.
        live: stretches on the engine, by load.
        replayed: the same on recorded answers and the measured table.
    """

    policy: str
    live: tuple[Stretch, ...]
    replayed: tuple[Stretch, ...]

    @property
    def pairs(self) -> list[tuple[Stretch, Stretch]]:
        """Live and replayed stretch of each load."""
        return list(zip(self.live, self.replayed, strict=True))

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "policy": self.policy,
            "live": goodput_of(self.live),
            "replayed": goodput_of(self.replayed),
            "by_load": [
                {"rows": one.rows, "live": one.goodput, "replayed": other.goodput}
                for one, other in self.pairs
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An answer that is not that of plain decoding."""

    policy: str
    route: str
    place: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What the engine said.

    Attributes:
        standings: policies, the best on the engine first.
        compared_tokens: tokens compared with plain decoding.
        differences: answers that were not equal.
    """

    standings: tuple[Standing, ...]
    compared_tokens: int
    differences: tuple[Difference, ...]

    @property
    def tau(self) -> float:
        """Kendall's tau of the order of the policies on the engine and on the recording."""
        pairs = [
            (goodput_of(one.live) - goodput_of(other.live))
            * (goodput_of(one.replayed) - goodput_of(other.replayed))
            for one, other in combinations(self.standings, 2)
        ]
        return sum((pair > 0) - (pair < 0) for pair in pairs) / len(pairs)

    @property
    def failure(self) -> str | None:
        """Why the engine does not confirm the replay; None where it does."""
        if self.differences:
            first = self.differences[0]
            return (
                f"{len(self.differences)} answers differ from plain decoding; the first is prompt "
                f"{first.place} of {first.route} under {first.policy}, at token {first.position}"
            )
        if self.tau < LEAST_TAU:
            return f"Kendall's tau of {self.tau:.2f} with the replay is below {LEAST_TAU}"
        return None

    def lines(self) -> list[str]:
        """Return what it comes to, one sentence each."""
        equal = self.compared_tokens and not self.differences
        return [
            f"Kendall's tau of engine and replay: {self.tau:.2f}; {LEAST_TAU} is asked for.",
            f"{self.compared_tokens} tokens compared with plain decoding: "
            + ("all equal." if equal else f"{len(self.differences)} answers differ."),
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "tau": self.tau,
            "failure": self.failure,
            "compared_tokens": self.compared_tokens,
            "differences": len(self.differences),
            "policies": [standing.to_dict() for standing in self.standings],
        }


def goodput_of(stretches: Sequence[Stretch]) -> float:
    """Return tokens per CPU-second over all loads."""
    seconds = sum(stretch.seconds for stretch in stretches)
    return sum(stretch.tokens for stretch in stretches) / seconds if seconds else 0.0


def replay(
    recorded: Recorded, times: Timetable, field_: Field, max_tokens: int, options: LiveOptions
) -> tuple[Setting, dict[str, tuple[Stretch, ...]]]:
    """Play recorded answers; return the best fixed arm in hindsight, and what each policy got.

    Args:
        recorded: answers and marks.
        times: the measured table.
        field_: routes and drafter.
        max_tokens: longest answer, as recorded.
        options: as on the engine.
    """

    def played(player: Player) -> tuple[Stretch, ...]:
        stretches, window = [], 0
        for rows in options.loads:
            by_route = _rows(field_, rows)
            batch = ReplayedBatch(recorded.scripts, by_route, times, max_tokens)
            loop = ClosedLoop(
                batch, player, by_route, window_s=options.window_s, first_window=window
            )
            while loop.used_s < options.stretch_s:
                loop.play_window()
            window = loop.next_window
            stretches.append(loop.stretch)
        return tuple(stretches)

    fixed = {arm: played(FixedPlayer(arm, field_)) for arm in field_.arms if arm != OFF}
    best = max(fixed, key=lambda arm: goodput_of(fixed[arm]))
    entrants = players(field_, times, best, SEED)
    return best, {player.name: played(player) for player in entrants}


def num_windows(options: LiveOptions) -> int:
    """Return about how often ``on_window`` will be called."""
    return 5 * round(options.seconds / options.window_s)


@dataclass(slots=True, kw_only=True)
class _Seat:
    """One policy with an engine of its own on the shared weights."""

    player: Player
    parts: Parts
    window: int = 0
    stretches: list[Stretch] = field(default_factory=list)


def confirm(
    seats: Sequence[Parts],
    prompts: Mapping[str, Sequence[Encoded]],
    recorded: Recorded,
    times: Timetable,
    max_tokens: int,
    paced: Callable[[Batch], Batch],
    options: LiveOptions | None = None,
    on_window: Callable[[], None] = lambda: None,
) -> Confirmation:
    """Run policies on the engine and on the recording.

    Args:
        seats: five sets of parts on the same weights, each with drafters of its own.
        prompts: those that were recorded.
        recorded: answers and marks.
        times: the measured table.
        max_tokens: longest answer, as recorded.
        paced: puts the steps of a batch to the pace of the table.
        options: how; None for what is promised.
        on_window: called after each window on the engine.
    """
    chosen = options or LiveOptions()
    field_ = Field(routes=tuple(prompts), drafter=seats[0].drafter)
    best, replayed = replay(recorded, times, field_, max_tokens, chosen)
    entrants = players(field_, times, best, SEED)
    taken = [_Seat(player=p, parts=s) for p, s in zip(entrants, seats, strict=True)]
    compared, differences = 0, []
    for rows in chosen.loads:
        by_route = _rows(field_, rows)
        batches = _batches(taken, prompts, by_route, max_tokens)
        _play(taken, [paced(batch) for batch in batches], by_route, chosen, on_window)
        for seat, batch in zip(taken, batches, strict=True):
            for route, place, token_ids in (*batch.answers, *batch.close()):
                compared += len(token_ids)
                position = _first_difference(token_ids, recorded.answers[route][place])
                if position is not None:
                    differences.append(
                        Difference(
                            policy=seat.player.name, route=route, place=place, position=position
                        )
                    )
    standings = [
        Standing(
            policy=seat.player.name,
            live=tuple(seat.stretches),
            replayed=replayed[seat.player.name],
        )
        for seat in taken
    ]
    return Confirmation(
        standings=tuple(sorted(standings, key=lambda one: -goodput_of(one.live))),
        compared_tokens=compared,
        differences=tuple(differences),
    )


def _batches(
    seats: Sequence[_Seat],
    prompts: Mapping[str, Sequence[Encoded]],
    by_route: Mapping[str, int],
    max_tokens: int,
) -> list[LiveBatch]:
    """Return a fresh batch for each policy."""
    return [
        LiveBatch(seat.parts.engine(seat.parts.drafters), prompts, by_route, max_tokens)
        for seat in seats
    ]


def _play(
    seats: Sequence[_Seat],
    batches: Sequence[Batch],
    by_route: Mapping[str, int],
    options: LiveOptions,
    on_window: Callable[[], None],
) -> None:
    """Play one load, the policy that has used least in turn."""
    loops = [
        ClosedLoop(
            batch,
            seat.player,
            by_route,
            window_s=options.window_s,
            first_window=seat.window,
        )
        for seat, batch in zip(seats, batches, strict=True)
    ]
    while (loop := min(loops, key=lambda one: one.used_s)).used_s < options.stretch_s:
        loop.play_window()
        on_window()
    for seat, loop in zip(seats, loops, strict=True):
        seat.stretches.append(loop.stretch)
        seat.window = loop.next_window


def _rows(field_: Field, rows: int) -> dict[str, int]:
    return {route: rows // len(field_.routes) for route in field_.routes}


def _first_difference(given: Sequence[int], plain: Sequence[int]) -> int | None:
    """Return where an answer, perhaps cut short, leaves plain decoding; None where it does not."""
    for position, (one, other) in enumerate(zip(given, plain, strict=False)):
        if one != other:
            return position
    return None if len(given) <= len(plain) else len(plain)
