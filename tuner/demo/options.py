"""How the demo is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.demo.traffic import bundled_traffic
from tuner.errors import BadRequest

DAY_S = 360.0
MIN_MINUTES = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo is run.

    Attributes:
        minutes: length of the traffic; None plays day after day until Ctrl-C.
        exits: end after the traffic, with the summary; otherwise engine and console stay up.
        approves: approve every recommended change at once, as no operator is there.
        traffic: JSONL file with the prompts.
        seed: of arrivals and choice of prompts.
        port: of the console.
        engine_port: of the engine.
        data_dir: folder for facts and logs; None for the default or a throw-away one.
        keeps: keep the facts for the next run; otherwise a throw-away folder is used.
        model: what the engine loads; ``bundled`` by default.
        draft: its draft model.
        max_rows: sequences in the engine's batch.
    """

    minutes: float | None = None
    exits: bool = False
    approves: bool = False
    traffic: Path = bundled_traffic()
    seed: int = 0
    port: int = 8400
    engine_port: int = 8401
    data_dir: Path | None = None
    keeps: bool = True
    model: str = "bundled"
    draft: str = "bundled"
    max_rows: int = 32

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.minutes is not None and self.minutes < MIN_MINUTES:
            raise BadRequest(f"--minutes must be at least {MIN_MINUTES}, got {self.minutes}")
        if self.exits and self.minutes is None:
            raise BadRequest("--exit needs --minutes: how long shall the traffic last?")
        if self.port == self.engine_port:
            raise BadRequest(f"--port and --engine-port are both {self.port}; choose two ports")
        if self.data_dir is not None and not self.keeps:
            raise BadRequest("--no-keep uses a throw-away folder; leave --data-dir away")

    @property
    def day_s(self) -> float:
        """Length of one day of traffic, in seconds."""
        return DAY_S if self.minutes is None else 60 * self.minutes
