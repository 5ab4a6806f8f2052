"""The heads that can be trained, by the name of their method."""

from __future__ import annotations

from tuner.engine.training.draft import DraftModel
from tuner.engine.training.eagle import EagleHead
from tuner.engine.training.errors import TrainingError
from tuner.engine.training.head import DraftHead
from tuner.engine.training.medusa import MedusaHead
from tuner.engine.training.mlp_speculator import MlpSpeculator
from tuner.engine.training.mtp import MtpHead
from tuner.engine.training.pard import PardModel

HEADS: dict[str, type[DraftHead]] = {
    head.method: head
    for head in (DraftModel, MedusaHead, EagleHead, MtpHead, PardModel, MlpSpeculator)
}


def head_kind(method: str) -> type[DraftHead]:
    """Return the class of a method's head.

    Raises:
        TrainingError: no head of that name can be trained.
    """
    if method not in HEADS:
        raise TrainingError(f"unknown method {method!r}: use one of {', '.join(HEADS)}")
    return HEADS[method]
