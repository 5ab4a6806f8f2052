"""Which captured requests a replay takes, and whose turn is next: routes in turn until told."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from collectors.records import load_level_of
from policy.gate import conversations, is_narrow
from tuner.errors import NothingToDo
from tuner.store import captures
from tuner.store.captures import StoredCapture
from tuner.store.replays import ReplayPair
from tuner.workflows.pairing import speeds_of_pairs
from tuner.workflows.site import Site


class Turns:
    """Gives the blocks of a replay: routes in turn, without those whose interval is narrow."""

    def __init__(
        self, chosen: Sequence[StoredCapture], concurrency: int, precision: float | None
    ) -> None:
        """Take the captured requests, those on the engine at once, and the half width asked for."""
        self._waiting: dict[str, deque[StoredCapture]] = defaultdict(deque)
        for one in chosen:
            self._waiting[one.request.route].append(one)
        self._concurrency, self._precision = concurrency, precision
        self._led: Counter[str] = Counter()
        self._told: set[str] = set()

    def blocks(self) -> Iterator[tuple[Sequence[StoredCapture], bool]]:
        """Give each block, and whether the base goes first; that alternates within each route."""
        while block := self._next_block():
            leader = block[0].request.route
            self._led[leader] += 1
            yield block, self._led[leader] % 2 == 1

    def note(self, pairs: Sequence[ReplayPair]) -> None:
        """Look at all pairs so far, and send no more of routes that are told."""
        if self._precision is None:
            return
        level = load_level_of(self._concurrency)
        speeds = speeds_of_pairs(pairs, precision=self._precision)
        self._told |= {one.route for one in speeds if one.load == level and is_narrow(one)}

    def _next_block(self) -> Sequence[StoredCapture]:
        open_routes = [
            route for route, queue in self._waiting.items() if queue and route not in self._told
        ]
        block: list[StoredCapture] = []
        for route in sorted(open_routes, key=lambda name: self._led[name]):
            if len(block) == self._concurrency:
                break
            block.append(self._waiting[route].popleft())
        for route in open_routes:
            while self._waiting[route] and len(block) < self._concurrency:
                block.append(self._waiting[route].popleft())
        return sorted(block, key=lambda one: (one.request.at, one.id))


def chosen_captures(site: Site, route: str | None, limit: int) -> tuple[StoredCapture, ...]:
    """Return newly captured requests in order of arrival, spread evenly over the routes.

    Requests of one token are left out: they have no decode pass, so no Setting is at work in them.

    Raises:
        NothingToDo: there is none.
    """
    with site.store.reading() as session:
        held = captures.count_by_route(session, site.engine)
        routes = [name for name in held if route in (None, name)]
        per_route = [
            captures.listed(session, site.engine, route=name, limit=limit, is_decoding=True)
            for name in routes
        ]
    where = "" if route is None else f" of route {route}"
    if not routes:
        raise NothingToDo(
            f"no request{where} is captured on {site.engine}; set SPECTUNER_CAPTURE_ENABLED=true "
            "and wait for traffic"
        )
    newest_first = ([one for one in reversed(found) if _is_decoding(one)] for found in per_route)
    turns = [one for turn in zip_longest(*newest_first) for one in turn if one is not None]
    if not turns:
        raise NothingToDo(
            f"every captured request{where} has no decode pass: one token is its whole answer, so "
            "no Setting changes it; wait for longer answers"
        )
    return tuple(sorted(turns[:limit], key=lambda one: (one.request.at, one.id)))


def conversation_of(chosen: Sequence[StoredCapture]) -> Mapping[str, str]:
    """Return the conversation of each captured request, by request id, found by their prompts."""
    by_route: dict[str, dict[str, str]] = defaultdict(dict)
    for one in chosen:
        by_route[one.request.route][one.request.request_id] = one.request.prompt
    return {
        request: name
        for prompts in by_route.values()
        for request, name in conversations(prompts).items()
    }


def _is_decoding(capture: StoredCapture) -> bool:
    return capture.request.sampling.get("max_tokens") not in (0, 1)
