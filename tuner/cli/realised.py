"""What a recommendation brought, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.cli.output import NO_DATA, Output, table

if TYPE_CHECKING:
    from policy.outcome import Outcome
    from policy.realised import Counted, Realised, RealisedLevel
    from policy.types import Interval
    from tuner.store.recommendations import StoredRecommendation
    from tuner.workflows.standing import Standing

TOO_LITTLE = "not enough data yet"
COLUMNS = (
    "load",
    "Setting",
    "predicted",
    "realised",
    "over it",
    "before",
    "over it",
    "steps",
    "windows",
)


def show_standing(
    output: Output, entry: StoredRecommendation, standing: Standing, *, is_whole: bool = True
) -> None:
    """Print a missed prediction with its way back; where whole, evidence and what it brought too.

    Args:
        output: where to.
        entry: the recommendation.
        standing: how it stands.
        is_whole: False prints a missed prediction only.
    """
    lines = [_outcome_line(entry, one) for one in standing.outcomes if one.is_missed or is_whole]
    if is_whole:
        lines += [_evidence_line(standing), *standing.snoozed]
    for line in lines:
        output.console.print(f"- {line}", markup=False, highlight=False)
    if is_whole:
        show_realised(output, standing.brought)


def standing_figures(standing: Standing) -> dict[str, object]:
    """Return the JSON form of how a recommendation stands."""
    amount = standing.amount
    return {
        "amount": None if amount is None else {n: getattr(amount, n) for n in amount.__slots__},
        "outcomes": [_outcome_figures(one) for one in standing.outcomes],
        "snoozed": list(standing.snoozed),
        "realised": realised_figures(standing.brought),
    }


def show_realised(output: Output, brought: Realised | None) -> None:
    """Print predicted beside realised goodput; nothing where no plan came into force."""
    if brought is None:
        return
    rows = table(COLUMNS, 2)
    for level in brought.levels:
        now, then = level.realised, level.before
        rows.add_row(
            level.load.label,
            "keep" if level.setting == level.former else level.setting.label,
            NO_DATA if level.predicted is None else _numbers(level.predicted),
            _rate(now),
            _share(level.over_predicted),
            _rate(then),
            _share(level.over_before),
            f"{then.steps if then else 0} -> {now.steps if now else 0}",
            f"{then.windows if then else 0} -> {now.windows if now else 0}",
        )
    output.show("Predicted and realised tokens/s while decoding, 90 % intervals", rows)
    lines = (
        f"A figure needs {brought.min_windows} windows and {brought.min_steps} steps wholly under "
        "one plan.",
        "Before and since follow each other in time: traffic may differ, so this is no experiment.",
        *(line for level in brought.levels for line in _notes(level)),
    )
    for line in lines:
        output.console.print(f"- {line}", markup=False, highlight=False)


def realised_figures(brought: Realised | None) -> dict[str, object] | None:
    """Return the JSON form of what a recommendation brought; None where it was never in force."""
    if brought is None:
        return None
    return {
        "since_s": brought.since_s,
        "windows": brought.windows,
        "min_windows": brought.min_windows,
        "min_steps": brought.min_steps,
        "levels": [_level_figures(level) for level in brought.levels],
    }


def _outcome_line(entry: StoredRecommendation, one: Outcome) -> str:
    if not one.is_missed:
        return f"Realised: {one}."
    back = f'; take it back with `spectuner rollback {entry.id} --why "..."`'
    can_go_back = entry.state.value == "promoted"
    return f"Prediction missed by #{entry.id}: {one}{back if can_go_back else ''}."


def _evidence_line(standing: Standing) -> str:
    amount = standing.amount
    if amount is None:
        return "Evidence: not counted, as it was made by an older version."
    return (
        f"Evidence: {amount.passes} passes, {amount.windows} windows, {amount.requests} requests, "
        f"{amount.replay_pairs} replay pairs."
    )


def _outcome_figures(one: Outcome) -> dict[str, object]:
    return {
        "load": one.load.label,
        "setting": one.setting.to_dict(),
        "figure": one.figure,
        "basis": one.basis.value,
        "predicted": _triple(one.predicted),
        "realised": _triple(one.realised),
        "is_missed": one.is_missed,
    }


def _notes(level: RealisedLevel) -> list[str]:
    notes = []
    if level.before is not None and level.realised is not None:
        then, now = _shares(level.before.row_shares), _shares(level.realised.row_shares)
        notes.append(f"Rows at load {level.load.label}: {then} before, {now} since.")
    if level.others:
        names = ", ".join(level.others)
        notes.append(f"At load {level.load.label} other routes' Settings changed too: {names}.")
    return notes


def _rate(counted: Counted | None) -> str:
    if counted is None or counted.tokens_per_s is None:
        return TOO_LITTLE
    return _numbers(counted.tokens_per_s)


def _numbers(rate: Interval) -> str:
    if rate.low == rate.high:
        return f"{rate.mean:.1f}"
    return f"{rate.mean:.1f} ({rate.low:.1f} to {rate.high:.1f})"


def _share(over: float | None) -> str:
    return "" if over is None else f"{over:+.0%}"


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{route} {share:.0%}" for route, share in shares.items()) or NO_DATA


def _level_figures(level: RealisedLevel) -> dict[str, object]:
    return {
        "load": level.load.label,
        "former": level.former.to_dict(),
        "setting": level.setting.to_dict(),
        "predicted": _triple(level.predicted),
        "before": _counted_figures(level.before),
        "realised": _counted_figures(level.realised),
        "over_predicted": level.over_predicted,
        "over_before": level.over_before,
        "others": list(level.others),
    }


def _counted_figures(counted: Counted | None) -> dict[str, object] | None:
    if counted is None:
        return None
    plain = {name: getattr(counted, name) for name in counted.__slots__}
    return {
        **plain,
        "tokens_per_s": _triple(counted.tokens_per_s),
        "row_shares": dict(counted.row_shares),
    }


def _triple(rate: Interval | None) -> list[float] | None:
    return None if rate is None else [rate.low, rate.mean, rate.high]
