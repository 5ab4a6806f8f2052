"""What the endpoints work on, given to the application as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from collectors.records import PinnedConfig
from tuner.engine.capabilities import Capabilities
from tuner.engine.capture import Capture
from tuner.engine.grammar import GrammarCompiler
from tuner.engine.journal import Journal
from tuner.engine.live_plan import LivePlan
from tuner.engine.loop import EngineLoop
from tuner.engine.metrics import EngineMetrics
from tuner.engine.server.prompts import PromptReader

ENGINE_NAME = "spectuner"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The running engine as the server sees it.

    Attributes:
        loop: runs the core.
        journal: numbered records.
        plan: the live plan.
        capture: requests kept for replay.
        metrics: what Prometheus reads.
        prompts: text to token ids and back.
        grammars: compiles what answers must be.
        capabilities: what the engine can do.
        pinned: its configuration with speculation off.
        version: version of this package.
        boot_id: changes with each start of the process.
        started_at: Unix seconds at the start.
        api_key: key that clients must send; None for none.
        allowed_hosts: names that it answers to without a key, beside those of loopback.
    """

    loop: EngineLoop
    journal: Journal
    plan: LivePlan
    capture: Capture
    metrics: EngineMetrics
    prompts: PromptReader
    grammars: GrammarCompiler
    capabilities: Capabilities
    pinned: PinnedConfig
    version: str
    boot_id: str
    started_at: int
    api_key: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """OpenAI's ``system_fingerprint``: changes with anything that could change an output."""
        return f"{ENGINE_NAME}-{self.pinned.digest[:12]}"
