"""Asks for drafters that are tried without a core."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from collectors.records import Setting
from tuner.engine.drafters.base import DraftAsk
from tuner.engine.request import SamplingParams


def ask(
    token_ids: Sequence[int],
    setting: Setting,
    *,
    slot: int = 0,
    k: int | None = None,
    route: str = "chat",
    temperature: float = 0.0,
) -> DraftAsk:
    wanted = setting.k if k is None else k
    return DraftAsk(
        slot=slot,
        token_ids=token_ids,
        k=wanted,
        num_nodes=setting.max_nodes if setting.is_tree else wanted,
        route=route,
        setting=setting,
        sampling=SamplingParams(temperature=temperature),
        generator=torch.Generator().manual_seed(0),
    )
