"""Recorded answers run again token by token on a measured profile: no guess about acceptance.

With the target's own text known, every drafter at every length can be marked at every token, which
is exact for greedy answers. Only time comes from the profile. A batch is closed: a request that
ends is replaced at once by the next one of its route.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collectors.records import DecodeStep, DraftCost, Method, Setting, StepGroup, StepOutcome
from policy.errors import InvalidInput
from policy.simulate.calibrated import Calibration
from policy.simulate.profiles import Drafting, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What one drafter guesses at each token of an answer; entry i is about the tokens from i on.

    Attributes:
        drafted: tokens it finds, up to the depth marked.
        kept: how many of them the answer agrees with, from the front.
    """

    drafted: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One recorded answer.

    Attributes:
        route: route name.
        prompt_tokens: length of the prompt.
        output_tokens: length of the answer, its end token included.
        marks: by method; the first entry is about the token after the first.
    """

    route: str
    prompt_tokens: int
    output_tokens: int
    marks: Mapping[Method, Marks]

    def __post_init__(self) -> None:
        """Refuse marks of another length."""
        wanted = max(0, self.output_tokens - 1)
        for method, marks in self.marks.items():
            if not len(marks.drafted) == len(marks.kept) == wanted:
                raise InvalidInput(
                    f"{method} marks {len(marks.kept)} tokens of {wanted} on route {self.route}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """What each part of a step takes.

    Attributes:
        profile: target passes and draft rounds, context counted over the whole batch.
        ways: which entry of the profile a method drafts by.
        catch_up_s: seconds in which a method reads one token that it has not seen.
        calibration: what the profile was made of.
    """

    calibration: Calibration
    profile: Profile
    ways: Mapping[Method, Drafting]
    catch_up_s: Mapping[Method, float]


@dataclass(slots=True, kw_only=True)
class _Row:
    script: Script
    output: int = 0
    read: dict[Method, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.output >= self.script.output_tokens

    @property
    def length(self) -> int:
        return self.script.prompt_tokens + self.output


@dataclass(slots=True, kw_only=True)
class _Counted:
    """What one route did in a step."""

    positions: int = 0
    tokens: int = 0
    outcomes: Counter[tuple[int, int]] = field(default_factory=Counter)

    def group(self, route: str, setting: Setting) -> StepGroup:
        return StepGroup(
            route=route,
            setting=setting,
            tokens=self.tokens,
            outcomes=tuple(
                StepOutcome(drafted=drafted, accepted=kept, rows=rows)
                for (drafted, kept), rows in sorted(self.outcomes.items())
            ),
        )


class ReplayedBatch:
    """A batch of recorded answers in which the rows of each route never change in number."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[Script]],
        rows_by_route: Mapping[str, int],
        times: Timetable,
        max_tokens: int,
    ) -> None:
        """Begin with the first answers of each route.

        Args:
            scripts: by route, in the order in which they are asked for, again and again.
            rows_by_route: sequences of each route.
            times: what steps take.
            max_tokens: limit that the requests had; drafts never reach beyond it.
        """
        self._scripts = scripts
        self._times = times
        self._max_tokens = max_tokens
        self._asked: Counter[str] = Counter()
        self._seq = 0
        self._rows = [
            self._next_row(route) for route, num in rows_by_route.items() for _ in range(num)
        ]

    def step(self, settings: Mapping[str, Setting]) -> DecodeStep:
        """Do one step with these Settings by route, and replace what ended."""
        self._seq += 1
        starting = [row for row in self._rows if not row.output]
        decoding = [row for row in self._rows if row.output]
        prefill_tokens = sum(row.script.prompt_tokens for row in starting)
        context = sum(row.length - 1 for row in decoding)
        drafts = self._drafts(decoding, settings)
        counted: dict[str, _Counted] = {}
        for row in decoding:
            here = counted.setdefault(row.script.route, _Counted())
            self._decode(row, settings[row.script.route], here)
        for row in starting:
            row.output = 1
        positions = prefill_tokens + sum(here.positions for here in counted.values())
        rows = len(self._rows)
        self._rows = [
            self._next_row(row.script.route) if row.is_over else row for row in self._rows
        ]
        return DecodeStep(
            seq=self._seq,
            at=float(self._seq),
            plan_digest="",
            running=rows,
            waiting=0,
            positions=positions,
            prefill_tokens=prefill_tokens,
            context_tokens=context,
            verify_s=self._target_s(rows, context, positions),
            sample_s=0.0,
            other_s=0.0,
            drafts=drafts,
            groups=tuple(here.group(route, settings[route]) for route, here in counted.items()),
        )

    def _next_row(self, route: str) -> _Row:
        scripts = self._scripts[route]
        row = _Row(script=scripts[self._asked[route] % len(scripts)])
        self._asked[route] += 1
        return row

    def _room(self, row: _Row, setting: Setting) -> int:
        return max(0, min(setting.k, self._max_tokens - row.output - 1))

    def _decode(self, row: _Row, setting: Setting, counted: _Counted) -> None:
        """Let one row take a pass."""
        drafted = kept = 0
        room = self._room(row, setting)
        if room:
            marks, here = row.script.marks[setting.method], row.output - 1
            drafted = min(room, marks.drafted[here])
            kept = min(drafted, marks.kept[here])
        delivered = min(kept + 1, row.script.output_tokens - row.output)
        row.output += delivered
        counted.positions += 1 + drafted
        counted.tokens += delivered
        counted.outcomes[drafted, kept] += 1

    def _drafts(
        self, rows: Sequence[_Row], settings: Mapping[str, Setting]
    ) -> tuple[DraftCost, ...]:
        asked: dict[Method, list[tuple[_Row, int]]] = {}
        for row in rows:
            setting = settings[row.script.route]
            room = self._room(row, setting)
            if room:
                asked.setdefault(setting.method, []).append((row, room))
        return tuple(self._cost(method, rows_asked) for method, rows_asked in asked.items())

    def _cost(self, method: Method, asked: Sequence[tuple[_Row, int]]) -> DraftCost:
        depth = max(room for _, room in asked)
        unread = 0
        for row, room in asked:
            # What a steady round reads anew, its own last draft, is in the table already.
            unread += max(0, row.length - row.read.get(method, 0) - room - 1)
            row.read[method] = row.length
        way = self._times.ways[method]
        table = self._times.profile.drafts[way]
        steady_s = float(table.seconds(np.array(len(asked)), np.array(depth)))
        return DraftCost(
            method=method,
            rows=len(asked),
            tokens=sum(room for _, room in asked),
            depth=depth,
            seconds=steady_s + unread * self._times.catch_up_s.get(method, 0.0),
        )

    def _target_s(self, rows: int, context: int, positions: int) -> float:
        table = self._times.profile.step_table_s(rows, float(context))
        return float(table[min(positions, len(table) - 1)])
