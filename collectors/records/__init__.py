"""The vocabulary that every part shares. Standard library only.

Records are frozen and validate themselves, so that a bad value is named where it enters.
``to_dict`` and ``from_dict`` are the wire form (JSON) of journal, plan and store.
"""

from collectors.records.capture import CapturedRequest
from collectors.records.journal import JournalPage, JournalRecord
from collectors.records.pinned import PinnedConfig
from collectors.records.plan import (
    CALIBRATION_ROUTE,
    LOAD_LEVELS,
    OTHER_ROUTE,
    LoadLevel,
    Plan,
    PlanEntry,
    Route,
    load_level_named,
    load_level_of,
    require_route_name,
)
from collectors.records.request import (
    LATENCY_BOUNDS_S,
    FinishReason,
    LatencyHistogram,
    RequestTrace,
)
from collectors.records.samples import EngineSample, GpuSample
from collectors.records.setting import (
    MAX_DRAFT_LENGTH,
    MAX_TREE_NODES,
    OFF,
    AcceptanceRule,
    Method,
    Setting,
)
from collectors.records.step import DecodeStep, DraftCost, StepGroup, StepOutcome

__all__ = [
    "CALIBRATION_ROUTE",
    "LATENCY_BOUNDS_S",
    "LOAD_LEVELS",
    "MAX_DRAFT_LENGTH",
    "MAX_TREE_NODES",
    "OFF",
    "OTHER_ROUTE",
    "AcceptanceRule",
    "CapturedRequest",
    "DecodeStep",
    "DraftCost",
    "EngineSample",
    "FinishReason",
    "GpuSample",
    "JournalPage",
    "JournalRecord",
    "LatencyHistogram",
    "LoadLevel",
    "Method",
    "PinnedConfig",
    "Plan",
    "PlanEntry",
    "RequestTrace",
    "Route",
    "Setting",
    "StepGroup",
    "StepOutcome",
    "load_level_named",
    "load_level_of",
    "require_route_name",
]
