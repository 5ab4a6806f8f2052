"""Live requests kept for replay: off at start, sampled, bounded per route, private routes never.

The core offers each finished request; the service reads pages and decides what reaches a disk.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collectors.records import CapturedRequest
from tuner.engine.errors import InvalidCapture
from tuner.engine.request import EngineRequest, SamplingParams

MAX_PER_ROUTE = 10_000

Decode: TypeAlias = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What is captured.

    Attributes:
        enabled: False keeps nothing.
        share: chance that a request is kept, 0 to 1.
        per_route: requests held of each route at most.
        private_routes: routes that are never captured.
    """

    enabled: bool = False
    share: float = 1.0
    per_route: int = 64
    private_routes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a share that is no share and a bound that bounds nothing."""
        if not 0 <= self.share <= 1:
            raise InvalidCapture(f"share must be 0 to 1, got {self.share}", param="share")
        if not 1 <= self.per_route <= MAX_PER_ROUTE:
            raise InvalidCapture(
                f"per_route must be 1 to {MAX_PER_ROUTE}, got {self.per_route}", param="per_route"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePage:
    """Captured requests after a cursor, oldest first.

    Attributes:
        boot_id: changes with each start of the process.
        first_seq: oldest number still held; last_seq + 1 where nothing is.
        last_seq: newest number given; 0 before the first.
        records: rising numbers, with gaps where a request was displaced.
    """

    boot_id: str
    first_seq: int
    last_seq: int
    records: tuple[CapturedRequest, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {
            "boot_id": self.boot_id,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "records": [record.to_dict() for record in self.records],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    seq: int
    at: float
    request: EngineRequest
    output_ids: tuple[int, ...]


class Capture:
    """Requests held in memory for replay.

    Every sampled request enters. Where its route is full it takes a random place, so that the
    held ones lean to recent traffic without being the last burst only.
    """

    def __init__(self, boot_id: str, decode: Decode, rng: random.Random) -> None:
        """Start switched off.

        Args:
            boot_id: changes with each start of the process.
            decode: turns prompt ids into text; called when a page is read, from its thread.
            rng: source of the sampling coins.
        """
        self.boot_id = boot_id
        self._decode = decode
        self._rng = rng
        self._settings = CaptureSettings()
        self._held: dict[str, list[_Held]] = {}
        self._last_seq = 0
        self._lock = threading.Lock()

    @property
    def settings(self) -> CaptureSettings:
        """What is captured now."""
        return self._settings

    @property
    def num_held(self) -> int:
        """Requests held now, over all routes."""
        with self._lock:
            return sum(len(held) for held in self._held.values())

    def configure(self, settings: CaptureSettings) -> None:
        """Change what is captured; what the new settings forbid is dropped at once."""
        with self._lock:
            self._settings = settings
            kept = self._held if settings.enabled else {}
            self._held = {
                route: held[-settings.per_route :]
                for route, held in kept.items()
                if route not in settings.private_routes
            }

    def offer(self, request: EngineRequest, output_ids: Sequence[int], at: float) -> bool:
        """Keep a finished request by chance; return whether it was kept.

        Args:
            request: the request; shadow requests are never kept.
            output_ids: its answer.
            at: its arrival, Unix seconds.
        """
        if not self._settings.enabled or request.is_shadow:
            return False
        with self._lock:
            settings = self._settings
            if not settings.enabled or request.route in settings.private_routes:
                return False
            if self._rng.random() >= settings.share:
                return False
            self._last_seq += 1
            self._keep(
                _Held(
                    seq=self._last_seq,
                    at=at,
                    request=request,
                    output_ids=tuple(output_ids),
                )
            )
            return True

    def page(self, after: int, limit: int) -> CapturePage:
        """Return up to ``limit`` held requests after a cursor, oldest first."""
        with self._lock:
            held = sorted(self._all_held(), key=lambda entry: entry.seq)
            last_seq = self._last_seq
        first_seq = held[0].seq if held else last_seq + 1
        chosen = [entry for entry in held if entry.seq > after][:limit]
        return CapturePage(
            boot_id=self.boot_id,
            first_seq=first_seq,
            last_seq=last_seq,
            records=tuple(self._record(entry) for entry in chosen),
        )

    def _all_held(self) -> Iterator[_Held]:
        for held in self._held.values():
            yield from held

    def _keep(self, entry: _Held) -> None:
        held = self._held.setdefault(entry.request.route, [])
        if len(held) >= self._settings.per_route:
            del held[self._rng.randrange(len(held))]
        held.append(entry)

    def _record(self, entry: _Held) -> CapturedRequest:
        request = entry.request
        return CapturedRequest(
            seq=entry.seq,
            at=entry.at,
            request_id=request.request_id,
            route=request.route,
            prompt=self._decode(request.prompt_ids),
            prompt_ids=request.prompt_ids,
            sampling=sampling_to_dict(request.sampling),
            completion_tokens=len(entry.output_ids),
            output_ids=entry.output_ids,
        )


def sampling_to_dict(sampling: SamplingParams) -> dict[str, object]:
    """Return sampling parameters under the names that OpenAI and vLLM give them."""
    grammar = sampling.grammar
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()},
        "min_tokens": sampling.min_tokens,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "seed": sampling.seed,
        "structured_outputs": None if grammar is None else grammar.source.to_dict(),
    }
