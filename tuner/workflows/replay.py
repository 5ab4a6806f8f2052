"""Shadow replay: captured requests on two Settings, paired request by request.

Requests go out in blocks of the asked concurrency. A block runs on one arm, then on the other, and
the arm that goes first alternates, so that drift of the machine hits both arms alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

from collectors.records import Setting
from tuner.errors import BadRequest, NothingToDo
from tuner.store import captures, pinned, replays
from tuner.store.captures import StoredCapture
from tuner.store.replays import ArmRun, ReplayPair, ReplayState, ReplaySummary
from tuner.workflows.pairing import summary_of
from tuner.workflows.shadow import ShadowAnswer, ask, mismatch_reason
from tuner.workflows.site import Site

MAX_CONCURRENCY = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a replay is run.

    Attributes:
        route: the only route to replay; None for all.
        requests: captured requests at most, the newest ones.
        concurrency: requests on the engine at once.
        gap_scale: 1 keeps the gaps between arrivals within a block, 0 sends all at once.
        max_tokens: cap on the answers; None keeps each request's own.
    """

    route: str | None = None
    requests: int = 20
    concurrency: int = 1
    gap_scale: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.requests < 1:
            raise BadRequest(f"requests must be at least 1, got {self.requests}")
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise BadRequest(f"concurrency must be 1 to {MAX_CONCURRENCY}, got {self.concurrency}")
        if not 0 <= self.gap_scale <= 100:
            raise BadRequest(f"gap scale must be 0 to 100, got {self.gap_scale}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise BadRequest(f"max tokens must be at least 1, got {self.max_tokens}")

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
        summary: what it showed.
        pairs: pair by pair.
    """

    id: int
    base: Setting
    other: Setting
    summary: ReplaySummary
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
    pairs: list[ReplayPair] = []
    try:
        for block in _blocks(chosen, options.concurrency):
            site.raise_if_stopping()
            fresh = _run_block(site, block, (base, other), len(pairs), options, sleep)
            site.raise_if_stopping()
            with site.store.writing() as session:
                replays.add_pairs(session, number, fresh)
            pairs += fresh
            on_pair(len(pairs), len(chosen))
    except BaseException as error:
        stopped = f"stopped after {len(pairs)} of {len(chosen)} pairs: {_one_line(error)}"
        _close(site, number, ReplayState.FAILED, summary_of(pairs), stopped)
        raise
    summary = summary_of(pairs)
    reason = None if summary.pairs else f"no pair counts: {pairs[0].void_reason}"
    _close(site, number, ReplayState.DONE if summary.pairs else ReplayState.FAILED, summary, reason)
    return ReplayReport(id=number, base=base, other=other, summary=summary, pairs=tuple(pairs))


def chosen_captures(site: Site, route: str | None, limit: int) -> tuple[StoredCapture, ...]:
    """Return newly captured requests in order of arrival, spread evenly over the routes.

    Raises:
        NothingToDo: there is none.
    """
    with site.store.reading() as session:
        held = captures.count_by_route(session, site.engine)
        routes = [name for name in held if route in (None, name)]
        per_route = [
            captures.listed(session, site.engine, route=name, limit=limit) for name in routes
        ]
    if not routes:
        where = "" if route is None else f" of route {route}"
        raise NothingToDo(
            f"no request{where} is captured on {site.engine}; set SPECTUNER_CAPTURE_ENABLED=true "
            "and wait for traffic"
        )
    newest_first = (reversed(found) for found in per_route)
    turns = [one for turn in zip_longest(*newest_first) for one in turn if one is not None]
    return tuple(sorted(turns[:limit], key=lambda one: (one.request.at, one.id)))


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


def _close(
    site: Site, number: int, state: ReplayState, summary: ReplaySummary, error: str | None
) -> None:
    with site.store.writing() as session:
        replays.finish(session, number, state=state, summary=summary, at=site.now(), error=error)


def _blocks(chosen: Sequence[StoredCapture], size: int) -> Iterator[Sequence[StoredCapture]]:
    for start in range(0, len(chosen), size):
        yield chosen[start : start + size]


def _run_block(
    site: Site,
    block: Sequence[StoredCapture],
    arms: tuple[Setting, Setting],
    place: int,
    options: ReplayOptions,
    sleep: Callable[[float], None],
) -> list[ReplayPair]:
    """Run a block on both arms; the arm that goes first alternates from block to block."""
    base_first = (place // options.concurrency) % 2 == 0
    order = arms if base_first else (arms[1], arms[0])
    first, second = (_run_arm(site, block, arm, place, options, sleep) for arm in order)
    answers = (first, second) if base_first else (second, first)
    return [
        _pair(place + index, capture, arms, (base, other))
        for index, (capture, base, other) in enumerate(zip(block, *answers, strict=True))
    ]


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


def _pair(
    place: int,
    capture: StoredCapture,
    arms: tuple[Setting, Setting],
    answers: tuple[ShadowAnswer, ShadowAnswer],
) -> ReplayPair:
    reasons = [mismatch_reason(arm, answer) for arm, answer in zip(arms, answers, strict=True)]
    named = [
        f"{name}: {reason}"
        for name, reason in zip(("base", "other"), reasons, strict=True)
        if reason is not None
    ]
    return ReplayPair(
        place=place,
        request_id=capture.request.request_id,
        route=capture.request.route,
        base=_run(answers[0]),
        other=_run(answers[1]),
        void_reason="; ".join(named) or None,
    )


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
