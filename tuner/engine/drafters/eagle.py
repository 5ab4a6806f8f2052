"""EAGLE: one layer over the target's hidden states and the next token's embedding.

EAGLE-1 and EAGLE-3 heads draft chains, or trees grown by the head's own confidence as in EAGLE-2.
Source: arXiv:2401.15077, arXiv:2406.16858, arXiv:2503.01840.
"""

from __future__ import annotations

from collectors.records import Method
from tuner.engine.drafters.recurrent import RecurrentDrafter


class EagleDrafter(RecurrentDrafter):
    """Drafts with an EAGLE head, its own last state fed back in place of the target's."""

    method = Method.EAGLE
