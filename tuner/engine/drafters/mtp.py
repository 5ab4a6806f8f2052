"""MTP: the sequential modules that a model in the style of DeepSeek-V3 was trained with.

Each module predicts one token further than the one before it; beyond the last one, and with a
single module always, they are applied again. Of drafted tokens a module sees those it read itself.
Source: arXiv:2412.19437, section 2.2.
"""

from __future__ import annotations

from collectors.records import Method
from tuner.engine.drafters.recurrent import RecurrentDrafter


class MtpDrafter(RecurrentDrafter):
    """Drafts with MTP modules, each over the state that the one before it gave."""

    method = Method.MTP
