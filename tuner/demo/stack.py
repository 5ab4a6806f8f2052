"""Engine and service as child processes, and the settings they share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.demo.options import DemoOptions
from tuner.demo.processes import SPECTUNER, Child, require_free_port, start_child
from tuner.settings import ENV_PREFIX, Settings, load_settings

_ENGINE_START_S = 300.0
_SERVICE_START_S = 300.0
_MOST_RESTARTS = 5
_WATCH_S = 1.0


_GATE_PROMPTS = 20
_GATE_PRECISION = 0.2
"""A short day captures few prompts, so that the demo's gate asks for fewer pairs."""

_REFERENCE_INTERVAL = 16
"""A short day has few steps, so that more of them run plain to measure what drafting brings."""


@dataclass(slots=True, kw_only=True)
class Stack:
    """The engine and the service of one demo.

    Attributes:
        options: how the demo is run.
        settings: of the service.
        logs: folder for the children's output.
        say: prints one line.
        engine: once started.
        service: once started.
        num_restarts: how often the service was started again.
    """

    options: DemoOptions
    settings: Settings
    logs: Path
    say: Callable[[str], None]
    engine: Child | None = field(default=None, init=False)
    service: Child | None = field(default=None, init=False)
    num_restarts: int = field(default=0, init=False)

    async def start(self) -> None:
        """Start both and wait until both answer.

        Raises:
            ChildFailed: one ended or did not answer in time.
        """
        self.engine = start_child(
            "engine", [*SPECTUNER, *self._engine_arguments()], {}, self.logs / "engine.log"
        )
        await asyncio.to_thread(
            self.engine.wait_until_healthy, self.settings.engine_url, _ENGINE_START_S
        )
        self.service = self._start_service()
        await asyncio.to_thread(
            self.service.wait_until_healthy, self._service_url, _SERVICE_START_S
        )

    async def watch(self) -> None:
        """Start the service again whenever it dies; ends with an error where the engine does.

        Raises:
            ChildFailed: the engine ended, or the service does not stay up.
        """
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.engine is not None:
                await asyncio.to_thread(self.engine.require_healthy, self.settings.engine_url)
            if self.service is not None and self.service.process.poll() is not None:
                if self.num_restarts == _MOST_RESTARTS:
                    self.service.require_running()
                self.num_restarts += 1
                self.say(f"The service died ({self.service.process.returncode}); starting it again")
                self.service = self._start_service()

    def stop(self) -> None:
        """End both, at once; what does not end in time is killed and said."""
        children = [child for child in (self.service, self.engine) if child is not None]
        for child in children:
            child.ask_to_end()
        for child in children:
            if not child.stop():
                self.say(f"The {child.name} did not end in time and was killed")

    @property
    def _service_url(self) -> str:
        return f"http://{self.settings.host}:{self.settings.port}"

    def _start_service(self) -> Child:
        log = self.logs / f"service-{self.num_restarts}.log"
        return start_child("service", [*SPECTUNER, "serve"], environment_of(self.settings), log)

    def _engine_arguments(self) -> list[str]:
        options = self.options
        return [
            "engine",
            *("--port", str(options.engine_port)),
            *("--model", options.model),
            *("--draft", options.draft),
            *("--max-rows", str(options.max_rows)),
            *("--drain-s", "2"),
            *("--reference-interval", str(_REFERENCE_INTERVAL)),
        ]


def require_ports(options: DemoOptions) -> None:
    """Refuse ports that others listen on.

    Raises:
        PortInUse: one is taken; the message names the flag that chooses another.
    """
    require_free_port("127.0.0.1", options.port, "--port")
    require_free_port("127.0.0.1", options.engine_port, "--engine-port")


def demo_settings(options: DemoOptions, data_dir: Path, config: Path | None = None) -> Settings:
    """Return the service's settings for a demo: capture on, short intervals, a gate of few pairs.

    Args:
        options: how the demo is run.
        data_dir: where facts are kept.
        config: TOML file whose settings the demo's own overrule.
    """
    is_alone = options.exits
    return load_settings(
        config,
        host="127.0.0.1",
        port=options.port,
        public_url=f"http://127.0.0.1:{options.port}",
        data_dir=data_dir,
        database_url=f"sqlite:///{data_dir / 'spectuner.db'}",
        engine_url=f"http://127.0.0.1:{options.engine_port}",
        capture_enabled=True,
        capture_share=1.0,
        replay_requests=_GATE_PROMPTS,
        gate_requests=_GATE_PROMPTS,
        gate_precision=_GATE_PRECISION,
        ingest_interval_s=0.5,
        observe_interval_s=5.0,
        window_s=10.0,
        recommend_interval_s=3600.0 if is_alone else 20.0,
    )


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment in which a child reads these very settings."""
    plain = settings.model_dump(mode="json")
    return {
        ENV_PREFIX + name.upper(): value if isinstance(value, str) else json.dumps(value)
        for name, value in plain.items()
        if value is not None
    }
