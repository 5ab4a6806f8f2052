"""What the console shows, as records; the JSON API gives the same fields under the same names.

Rates are None where nothing was counted (shown as "no data", never as 0). Times are in seconds.
Latency quantiles are ``inf`` where they lie above the histogram's last bound.
"""

from dashboards.views.drift import AlarmLine
from dashboards.views.gate import GateLine
from dashboards.views.operations import AuditLine, JobLine, JobRun, JobsView, TokenLine
from dashboards.views.proof import (
    ArmCounts,
    ArmFigures,
    DivergenceLine,
    DivergenceRoute,
    DivergenceView,
    ReplayLine,
    ReplayPair,
    ReplayView,
    Split,
)
from dashboards.views.recommendation import (
    Difference,
    DifferenceRow,
    RecommendationLine,
    RecommendationView,
    TransitionLine,
)
from dashboards.views.route import (
    CostRow,
    DraftRow,
    HistoryPoint,
    PositionCurve,
    PositionPoint,
    RouteView,
    SettingRow,
)
from dashboards.views.traffic import (
    AutopilotLine,
    Cell,
    EngineHealth,
    InForce,
    LoadTotal,
    Overview,
    Proposal,
    Worst,
)

__all__ = [
    "AlarmLine",
    "ArmCounts",
    "ArmFigures",
    "AuditLine",
    "AutopilotLine",
    "Cell",
    "CostRow",
    "Difference",
    "DifferenceRow",
    "DivergenceLine",
    "DivergenceRoute",
    "DivergenceView",
    "DraftRow",
    "EngineHealth",
    "GateLine",
    "HistoryPoint",
    "InForce",
    "JobLine",
    "JobRun",
    "JobsView",
    "LoadTotal",
    "Overview",
    "PositionCurve",
    "PositionPoint",
    "Proposal",
    "RecommendationLine",
    "RecommendationView",
    "ReplayLine",
    "ReplayPair",
    "ReplayView",
    "RouteView",
    "SettingRow",
    "Split",
    "TokenLine",
    "TransitionLine",
    "Worst",
]
