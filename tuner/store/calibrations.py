"""Step costs of an idle engine: one row an engine and configuration, written after each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from collectors.records import Method
from collectors.records.parsing import JsonObject, as_object, integer, items, member, number, text
from policy.calibration import CalibratedCosts
from policy.timings import CatchUp
from tuner.store import coding
from tuner.store.schema import CalibrationRow
from tuner.store.statements import insert_if_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalibration:
    """What was measured so far in one configuration.

    Attributes:
        pinned: digest of the configuration with speculation off.
        created_at: when it was last written.
        cells: labels of the parts measured.
        costs: what they cost.
    """

    pinned: str
    created_at: datetime
    cells: tuple[str, ...]
    costs: CalibratedCosts


def save(session: Session, engine: str, calibration: StoredCalibration) -> None:
    """Write a calibration in place of what the configuration had."""
    row: Mapping[str, object] = {
        "engine": engine,
        "pinned": calibration.pinned,
        "created_at": calibration.created_at,
        "body": _body(calibration),
    }
    if not insert_if_missing(session, CalibrationRow, row):
        session.execute(
            update(CalibrationRow)
            .where(CalibrationRow.engine == engine, CalibrationRow.pinned == calibration.pinned)
            .values(created_at=calibration.created_at, body=row["body"])
        )


def find(session: Session, engine: str, pinned: str) -> StoredCalibration | None:
    """Return what was measured in a configuration; None where nothing was."""
    row = session.scalars(
        select(CalibrationRow).where(
            CalibrationRow.engine == engine, CalibrationRow.pinned == pinned
        )
    ).first()
    if row is None:
        return None
    body = as_object(row.body, f"calibration of {engine}")
    return StoredCalibration(
        pinned=row.pinned,
        created_at=row.created_at,
        cells=coding.texts(items(body, "cells")),
        costs=CalibratedCosts(
            steps=coding.listed(body, "step_costs", coding.step_cost_from_dict),
            drafts=coding.listed(body, "draft_costs", coding.draft_cost_from_dict),
            catch_ups=coding.listed(body, "catch_ups", _catch_up_from_dict),
        ),
    )


def _body(calibration: StoredCalibration) -> dict[str, object]:
    costs = calibration.costs
    return {
        "cells": list(calibration.cells),
        "step_costs": [coding.step_cost_to_dict(cost) for cost in costs.steps],
        "draft_costs": [coding.draft_cost_to_dict(cost) for cost in costs.drafts],
        "catch_ups": [
            {name: getattr(one, name) for name in one.__slots__} for one in costs.catch_ups
        ],
    }


def _catch_up_from_dict(data: JsonObject) -> CatchUp:
    return CatchUp(
        method=member(Method, text(data, "method"), "method"),
        context_tokens=integer(data, "context_tokens"),
        rounds=integer(data, "rounds"),
        total_s=number(data, "total_s"),
    )
