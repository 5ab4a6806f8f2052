"""Shadow replay: captured requests on two Settings, paired request by request.

Requests go out in blocks of the asked concurrency, routes in turn. A block runs on one arm, then on
the other, and the arm that goes first alternates within each route, so that drift of the machine
hits both arms alike. It ends once every route's interval is narrow enough, or the budget is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from collectors.records import Setting
from policy.gate import RouteSpeed
from tuner.errors import BadRequest
from tuner.store import pinned, replays, route_proofs
from tuner.store.captures import StoredCapture
from tuner.store.replays import ArmRun, ReplayPair, ReplayState, ReplaySummary
from tuner.workflows.pairing import speeds_of_pairs, summary_of
from tuner.workflows.shadow import ShadowAnswer, ask, mismatch_reason
from tuner.workflows.site import Site
from tuner.workflows.turns import Turns, chosen_captures, conversation_of

MAX_CONCURRENCY = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a replay is run.

    Attributes:
        route: the only route to replay; None for all.
        requests: captured requests at most, the newest ones with a decode pass.
        concurrency: requests on the engine at once.
        gap_scale: 1 keeps the gaps between arrivals within a block, 0 sends all at once.
        max_tokens: cap on the answers; None keeps each request's own.
        precision: half width of a route's 90 % interval, in log ratio, from which on no more of
            its requests are sent; None sends all, and judges by the settings' ``gate_precision``.
        budget_tokens: output tokens of both arms after which no block begins; None for any.
        budget_s: seconds after which no block begins; None for any.
    """

    route: str | None = None
    requests: int = 20
    concurrency: int = 1
    gap_scale: float = 0.0
    max_tokens: int | None = None
    precision: float | None = None
    budget_tokens: int | None = None
    budget_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.requests < 1:
            raise BadRequest(f"requests must be at least 1, got {self.requests}")
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise BadRequest(f"concurrency must be 1 to {MAX_CONCURRENCY}, got {self.concurrency}")
        if not 0 <= self.gap_scale <= 100:
            raise BadRequest(f"gap scale must be 0 to 100, got {self.gap_scale}")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise BadRequest(
                f"max tokens must be at least 2, got {self.max_tokens}: one token has no decode "
                "pass"
            )
        if self.precision is not None and not 0 < self.precision < 10:
            raise BadRequest(f"precision must be above 0 and below 10, got {self.precision}")

    def to_dict(self) -> dict[str, object]:
        """Return the stored form."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """A finished replay.

    Attributes:
        id: its number in the store.
        base: the first Setting.
        other: the second.
        summary: what it showed over all routes together.
        speeds: what it showed route by route, at each load level that has pairs.
        pairs: pair by pair.
    """

    id: int
    base: Setting
    other: Setting
    summary: ReplaySummary
    speeds: tuple[RouteSpeed, ...]
    pairs: tuple[ReplayPair, ...]


def replay(
    site: Site,
    base: Setting,
    other: Setting,
    options: ReplayOptions,
    *,
    on_pair: Callable[[int, int], None] = lambda done, total: None,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Run captured requests on two Settings and store what each pair did.

    Args:
        site: the engine and its store.
        base: the first Setting, such as speculation off.
        other: the Setting it is compared with.
        options: how to run.
        on_pair: called after each block with pairs done and pairs in all.
        sleep: waits for arrivals and for a full queue.

    Raises:
        BadRequest: the engine cannot run a Setting.
        NothingToDo: no captured request is there.
        SourceUnreachable: the engine does not answer at the start.
        SourceRefused: the engine refused at the start.
    """
    number, chosen = _open(site, base, other, options)
    run = _Run(
        site=site, arms=(base, other), options=options, sleep=sleep, talks=conversation_of(chosen)
    )
    try:
        for fresh in run.blocks(chosen):
            with site.store.writing() as session:
                replays.add_pairs(session, number, fresh)
                found = summary_of(run.pairs, planned=len(chosen))
                replays.note_progress(session, number, found)
            on_pair(len(run.pairs), len(chosen))
    except BaseException as error:
        stopped = f"stopped after {len(run.pairs)} of {len(chosen)} pairs: {_one_line(error)}"
        _close(run, number, len(chosen), failure=stopped)
        raise
    summary = summary_of(run.pairs, planned=len(chosen))
    failure = None if summary.pairs else f"no pair counts: {run.pairs[0].void_reason}"
    speeds = _close(run, number, len(chosen), failure=failure)
    return ReplayReport(
        id=number, base=base, other=other, summary=summary, speeds=speeds, pairs=tuple(run.pairs)
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One replay while it runs."""

    site: Site
    arms: tuple[Setting, Setting]
    options: ReplayOptions
    sleep: Callable[[float], None]
    talks: Mapping[str, str]
    pairs: list[ReplayPair] = field(default_factory=list)

    def blocks(self, chosen: Sequence[StoredCapture]) -> Iterator[list[ReplayPair]]:
        """Run block after block, and give its pairs."""
        turns = Turns(chosen, self.options.concurrency, self.options.precision)
        started_s = self.site.clock()
        for block, is_base_first in turns.blocks():
            if self._is_spent(started_s):
                return
            self.site.raise_if_stopping()
            fresh = self._pairs_of(block, is_base_first)
            self.site.raise_if_stopping()
            self.pairs += fresh
            turns.note(self.pairs)
            yield fresh

    def _is_spent(self, started_s: float) -> bool:
        tokens = sum(pair.base.tokens + pair.other.tokens for pair in self.pairs)
        most_tokens, most_s = self.options.budget_tokens, self.options.budget_s
        is_late = most_s is not None and self.site.clock() - started_s >= most_s
        is_costly = most_tokens is not None and tokens >= most_tokens
        return bool(self.pairs) and (is_late or is_costly)

    def _pairs_of(self, block: Sequence[StoredCapture], is_base_first: bool) -> list[ReplayPair]:
        """Run a block on both arms."""
        place = len(self.pairs)
        order = self.arms if is_base_first else (self.arms[1], self.arms[0])
        first, second = (
            _run_arm(self.site, block, arm, place, self.options, self.sleep) for arm in order
        )
        answers = (first, second) if is_base_first else (second, first)
        return [
            self._pair(place + index, len(block), capture, (base, other))
            for index, (capture, base, other) in enumerate(zip(block, *answers, strict=True))
        ]

    def _pair(
        self,
        place: int,
        rows: int,
        capture: StoredCapture,
        answers: tuple[ShadowAnswer, ShadowAnswer],
    ) -> ReplayPair:
        request = capture.request
        return ReplayPair(
            place=place,
            request_id=request.request_id,
            route=request.route,
            base=_run(answers[0]),
            other=_run(answers[1]),
            void_reason=_void_reason(self.arms, answers),
            rows=rows,
            conversation=self.talks[request.request_id],
        )


def pin(site: Site, settings: Sequence[Setting]) -> tuple[str, ...]:
    """Store the engine's configuration at each Setting, and return the digests.

    Raises:
        BadRequest: the engine cannot run one of them.
        SourceUnreachable: the engine does not answer.
        SourceRefused: the engine refused.
    """
    capabilities = site.collector.capabilities()
    for setting in settings:
        reason = capabilities.unsupported_reason(setting)
        if reason is not None:
            raise BadRequest(f"{setting.label} cannot run: {reason}")
    configs = [capabilities.pinned_at(setting) for setting in settings]
    with site.store.writing() as session:
        return tuple(pinned.remember(session, config, site.now()) for config in configs)


def _open(
    site: Site, base: Setting, other: Setting, options: ReplayOptions
) -> tuple[int, tuple[StoredCapture, ...]]:
    chosen = chosen_captures(site, options.route, options.requests)
    digests = pin(site, (base, other))
    with site.store.writing() as session:
        number = replays.start(
            session,
            engine=site.engine,
            route=options.route,
            base=digests[0],
            other=digests[1],
            options=options.to_dict(),
            at=site.now(),
        )
    return number, chosen


def _close(run: _Run, number: int, planned: int, failure: str | None) -> tuple[RouteSpeed, ...]:
    """Close a replay with what it showed, route by route; return that."""
    site, summary = run.site, summary_of(run.pairs, planned=planned)
    precision = run.options.precision or site.settings.gate_precision
    speeds = speeds_of_pairs(run.pairs, precision=precision)
    state = ReplayState.DONE if failure is None else ReplayState.FAILED
    with site.store.writing() as session:
        route_proofs.add_speeds(session, number, speeds)
        replays.finish(session, number, state=state, summary=summary, at=site.now(), error=failure)
    return speeds


def _run_arm(
    site: Site,
    block: Sequence[StoredCapture],
    setting: Setting,
    place: int,
    options: ReplayOptions,
    sleep: Callable[[float], None],
) -> list[ShadowAnswer]:
    """Send a block's requests at one Setting, in order of arrival."""
    origin_s = block[0].request.at

    def send(index: int) -> ShadowAnswer:
        capture = block[index]
        gap_s = (capture.request.at - origin_s) * options.gap_scale
        if gap_s > 0:
            sleep(gap_s)
        overrides = _overrides(capture, place + index, options)
        return ask(site.address, capture, setting, overrides, stopping=site.stopping, sleep=sleep)

    with ThreadPoolExecutor(max_workers=len(block)) as pool:
        return list(pool.map(send, range(len(block))))


def _overrides(capture: StoredCapture, place: int, options: ReplayOptions) -> dict[str, object]:
    """Give both arms the same seed, and the cap on the answer."""
    overrides: dict[str, object] = {}
    if capture.request.sampling.get("seed") is None:
        overrides["seed"] = place
    if options.max_tokens is not None:
        own = capture.request.sampling.get("max_tokens")
        overrides["max_tokens"] = (
            min(own, options.max_tokens) if isinstance(own, int) else options.max_tokens
        )
    return overrides


def _void_reason(
    arms: tuple[Setting, Setting], answers: tuple[ShadowAnswer, ShadowAnswer]
) -> str | None:
    reasons = [mismatch_reason(arm, answer) for arm, answer in zip(arms, answers, strict=True)]
    named = [
        f"{name}: {reason}"
        for name, reason in zip(("base", "other"), reasons, strict=True)
        if reason is not None
    ]
    return "; ".join(named) or None


def _run(answer: ShadowAnswer) -> ArmRun:
    return ArmRun(
        tokens=len(answer.token_ids),
        seconds=answer.seconds,
        ttft_s=answer.ttft_s,
        passes=answer.passes,
        drafted=answer.drafted,
        accepted=answer.accepted,
        setting=answer.setting,
    )


def _one_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
