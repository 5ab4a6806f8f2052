"""Alarms: what was seen, since when, with which figures, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from collectors.records import Method
from policy.drift_contrasts import passes_per_token, token_shares
from policy.drift_history import Cut
from policy.types import Observation

BEFORE, AFTER, UPTIME = "tokens_per_pass_before", "tokens_per_pass", "uptime_s"
MOVERS_NAMED = 3
MANY_RESTARTS = 5
RESTART_SPAN_S = 900.0
"""So many starts within that span are no upgrade and no person trying things: it keeps ending."""


class AlarmKind(StrEnum):
    """What an alarm is about."""

    DECAY = "decay"
    RISE = "rise"
    VERSION_CHANGE = "version_change"
    MIX_CHANGE = "mix_change"
    COUNTER_FAULT = "counter_fault"
    LOOP = "loop"
    PREDICTION_MISSED = "prediction_missed"

    @property
    def stops_decisions(self) -> bool:
        """True where figures of the route cannot be trusted, so that nothing is recommended."""
        return self in (AlarmKind.COUNTER_FAULT, AlarmKind.LOOP)

    @property
    def is_change(self) -> bool:
        """True where it tells of a change, so that the next one is another change."""
        return self in (AlarmKind.DECAY, AlarmKind.RISE, AlarmKind.MIX_CHANGE)

    @property
    def lifetime_s(self) -> float:
        """Seconds after it was last seen from which an alarm is over."""
        return 600.0 if self.stops_decisions else 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A start of the engine.

    Attributes:
        boot_id: its id.
        started_s: when it was first seen, Unix seconds.
    """

    boot_id: str
    started_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that people and the policy should know.

    Attributes:
        kind: what it is about.
        route: route name; None where it is about the whole engine.
        method: drafting method; None where it is about all.
        since_s: when it began, as far as can be told, Unix seconds.
        seen_s: when it was last seen, Unix seconds.
        saw: what was seen, one sentence.
        advice: what to do, one or two sentences.
        figures: the numbers behind it, by name.
    """

    kind: AlarmKind
    route: str | None
    method: Method | None = None
    since_s: float
    seen_s: float
    saw: str
    advice: str
    figures: Mapping[str, float] = field(default_factory=dict)


def acceptance_alarm(
    route: str,
    method: Method,
    cut: Cut,
    found: tuple[int, float, float],
    seen_s: float,
    boot: Boot | None,
) -> Alarm:
    """Say that a route's acceptance fell or rose.

    Args:
        route: route name.
        method: the method seen most on both sides.
        cut: where the history parts.
        found: draft positions, tokens per pass before and after.
        seen_s: end of the newest window, Unix seconds.
        boot: the engine's start; None where unknown.
    """
    depth, before, after = found
    kind = AlarmKind.DECAY if after < before else AlarmKind.RISE
    figures = {
        BEFORE: before,
        AFTER: after,
        "draft_positions": float(depth),
        "score": cut.score,
        "passes_before": float(cut.before[:, 0, 0].sum()),
        "passes": float(cut.after[:, 0, 0].sum()),
    }
    if boot is not None and boot.started_s <= cut.since_s:
        figures[UPTIME] = cut.since_s - boot.started_s
    alarm = Alarm(
        kind=kind,
        route=route,
        method=method,
        since_s=cut.since_s,
        seen_s=seen_s,
        saw="",
        advice=_ADVICE[kind],
        figures=figures,
    )
    return replace(alarm, saw=_acceptance_sentence(alarm))


def continued(earlier: Alarm, later: Alarm) -> Alarm:
    """Return an alarm that is seen again: it began when the earlier one did, from what was then."""
    figures = dict(later.figures)
    if BEFORE in earlier.figures:
        figures[BEFORE] = earlier.figures[BEFORE]
    if UPTIME in earlier.figures:
        figures[UPTIME] = earlier.figures[UPTIME]
    same = replace(later, since_s=min(earlier.since_s, later.since_s), figures=figures)
    if later.kind in (AlarmKind.DECAY, AlarmKind.RISE):
        return replace(same, saw=_acceptance_sentence(same))
    return same


def _acceptance_sentence(alarm: Alarm) -> str:
    before, after, when = alarm.figures[BEFORE], alarm.figures[AFTER], _clock(alarm.since_s)
    if UPTIME in alarm.figures:
        when += f", {_span(alarm.figures[UPTIME])} after the engine's start"
    verb = "fell" if alarm.kind is AlarmKind.DECAY else "rose"
    return (
        f"{alarm.method} on {alarm.route} {verb} from {before:.2f} to {after:.2f} tokens a pass "
        f"({after / before - 1:+.1%}) since {when}, at equal Settings and sampling."
    )


def mix_alarm(kinds: Sequence[str], cut: Cut, seen_s: float) -> Alarm:
    """Say that traffic moved between kinds of which passes yield more or less.

    Args:
        kinds: ``route/sampling`` of each cell.
        cut: where the history parts.
        seen_s: end of the newest window, Unix seconds.
    """
    sides = cut.before[None], cut.after[None]
    cost = passes_per_token(*sides)[0]
    old, new = (token_shares(side)[0] for side in sides)
    before, after = (1 / max(float((share * cost).sum()), 1e-12) for share in (old, new))
    movers = sorted(range(len(kinds)), key=lambda kind: -abs(new[kind] - old[kind]))
    named = movers[:MOVERS_NAMED]
    moves = ", ".join(f"{kinds[kind]} {old[kind]:.0%} to {new[kind]:.0%}" for kind in named)
    figures = {
        BEFORE: before,
        AFTER: after,
        "score": cut.score,
        **{f"share_before {kinds[kind]}": float(old[kind]) for kind in named},
        **{f"share {kinds[kind]}": float(new[kind]) for kind in named},
    }
    return Alarm(
        kind=AlarmKind.MIX_CHANGE,
        route=None,
        since_s=cut.since_s,
        seen_s=seen_s,
        saw=(
            f"Traffic moved since {_clock(cut.since_s)} (share of tokens: {moves}). With every "
            f"route as before, that alone takes the engine from {before:.2f} to {after:.2f} tokens "
            "a pass."
        ),
        advice=_ADVICE[AlarmKind.MIX_CHANGE],
        figures=figures,
    )


def fault_alarm(observation: Observation, reason: str) -> Alarm:
    """Say that counts of a route cannot be right."""
    names = ("passes", "verify_passes", "drafted", "accepted", "tokens")
    counts = {name: float(getattr(observation, name)) for name in names}
    return Alarm(
        kind=AlarmKind.COUNTER_FAULT,
        route=observation.route,
        method=observation.setting.method,
        since_s=observation.start_s,
        seen_s=observation.end_s,
        saw=f"Counts that cannot be, of {reason}.",
        advice=_ADVICE[AlarmKind.COUNTER_FAULT],
        figures={name: value for name, value in counts.items() if math.isfinite(value)},
    )


def restart_alarm(boots: Sequence[Boot], now_s: float) -> Alarm | None:
    """Say that the engine starts again and again; None where it does not."""
    recent = [boot for boot in boots if 0 <= now_s - boot.started_s <= RESTART_SPAN_S]
    if len(recent) < MANY_RESTARTS:
        return None
    since_s = min(boot.started_s for boot in recent)
    return Alarm(
        kind=AlarmKind.COUNTER_FAULT,
        route=None,
        since_s=since_s,
        seen_s=now_s,
        saw=(
            f"{len(recent)} starts of the engine since {_clock(since_s)}: its counters begin again "
            "each time, and what happened before each end may be lost."
        ),
        advice=(
            "Read the engine's log for why it ends. Where several engines answer at one address, "
            "give each a name and an address of its own."
        ),
        figures={"starts": float(len(recent)), "within_s": RESTART_SPAN_S},
    )


def loop_alarm(
    route: str, method: Method, since_s: float, seen_s: float, *, tries: float, hits: float
) -> Alarm:
    """Say that acceptance is too good to be true."""
    return Alarm(
        kind=AlarmKind.LOOP,
        route=route,
        method=method,
        since_s=since_s,
        seen_s=seen_s,
        saw=(
            f"{hits:.0f} of {tries:.0f} draft tokens of {method} on {route} were kept "
            f"({hits / tries:.1%}) since {_clock(since_s)}: answers that repeat themselves look so."
        ),
        advice=_ADVICE[AlarmKind.LOOP],
        figures={"acceptance_rate": hits / tries, "draft_tokens": tries},
    )


def version_alarms(
    before: Mapping[str, str], after: Mapping[str, str], *, since_s: float, seen_s: float
) -> tuple[Alarm, ...]:
    """Say what of an engine changed: one alarm for the engine, one for each changed drafter.

    Args:
        before: what it was, by part; drafters are named ``drafter METHOD``.
        after: what it is.
        since_s: when it was first seen changed, Unix seconds.
        seen_s: now, Unix seconds.
    """
    changed = sorted(
        part for part in before.keys() | after.keys() if before.get(part) != after.get(part)
    )
    methods = {part: part.removeprefix(DRAFTER) for part in changed if part.startswith(DRAFTER)}
    groups: list[tuple[Method | None, list[str]]] = [
        (None, [part for part in changed if part not in methods]),
        *((Method(name), [part]) for part, name in methods.items() if part in before),
    ]
    return tuple(
        _version_alarm(method, parts, before, after, since_s, seen_s)
        for method, parts in groups
        if parts
    )


DRAFTER = "drafter "


def _version_alarm(
    method: Method | None,
    parts: Sequence[str],
    before: Mapping[str, str],
    after: Mapping[str, str],
    since_s: float,
    seen_s: float,
) -> Alarm:
    moves = "; ".join(
        f"{part}: {_short(before.get(part))} to {_short(after.get(part))}" for part in parts
    )
    whose = "The engine" if method is None else f"The drafter of {method}"
    return Alarm(
        kind=AlarmKind.VERSION_CHANGE,
        route=None,
        method=method,
        since_s=since_s,
        seen_s=seen_s,
        saw=f"{whose} is another since {_clock(since_s)} ({moves}).",
        advice=_ADVICE[AlarmKind.VERSION_CHANGE],
        figures={"changed_parts": float(len(parts))},
    )


_ADVICE = {
    AlarmKind.DECAY: (
        "Replay requests captured before: if they are accepted as they were, the route's prompts "
        "changed and recommendations will follow; if not, the engine wears with uptime "
        "(vllm-project/vllm#41838): restart it and watch whether this rises again."
    ),
    AlarmKind.RISE: (
        "Nothing to mend. Evidence from before counts less from now, so longer drafts may be "
        "recommended soon."
    ),
    AlarmKind.VERSION_CHANGE: (
        "Evidence from before counts little from now. Evaluations were of the former "
        "configuration: run `spectuner divergence` and `spectuner replay` again before approving."
    ),
    AlarmKind.MIX_CHANGE: (
        "No drafter got worse; do not tune for it. Where a route is a mixture, split it by its "
        "kinds of prompts, so that each gets its own Setting."
    ),
    AlarmKind.COUNTER_FAULT: (
        "Compare with the engine's own /metrics, and update the engine or the collector. Nothing "
        "is recommended here until ten minutes pass without such counts."
    ),
    AlarmKind.LOOP: (
        "Read answers of the route for repeated text. Nothing is recommended here meanwhile; where "
        "texts are copied by design, acknowledge this with `spectuner drift --acknowledge`."
    ),
}


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC"


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _short(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= 24 else f"{value[:12]}..."
