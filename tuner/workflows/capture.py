"""Captured requests: switched by the settings, redacted before they touch a disk, bounded.

What lookup drafting would have done on their answers is scored on the way and stored as counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectors.base import CapturePage
from collectors.records import CapturedRequest
from collectors.records.parsing import canonical_json
from tuner.errors import CursorMoved
from tuner.store import captures, counterfactuals, facts
from tuner.store.facts import Journal
from tuner.workflows.counterfactual import is_scorable, scored
from tuner.workflows.redaction import redact, redact_values
from tuner.workflows.site import Site

PAGE_RECORDS = 200
_PATH = "/spec/capture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What one round of capture did.

    Attributes:
        stored: requests stored.
        scored: requests whose answers lookup drafting was scored on.
        redactions: places blanked out in them.
        deleted: requests deleted by age, bound or because their route is private now.
    """

    stored: int = 0
    scored: int = 0
    redactions: int = 0
    deleted: int = 0

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"stored {self.stored}, scored lookups on {self.scored}, blanked {self.redactions} "
            f"places, deleted {self.deleted}"
        )

    def plus(self, other: Captured) -> Captured:
        """Return the sums of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__}
        return Captured(**sums)


def capture(site: Site) -> Captured:
    """Bring the engine's capture in line with the settings, pull, and delete what is over.

    Raises:
        SourceUnreachable: the engine does not answer; deletions happen all the same.
        SourceRefused: the engine refused.
    """
    deleted = delete_old(site)
    configure(site)
    if not site.settings.capture_enabled:
        return Captured(deleted=deleted)
    pulled = _pull(site)
    return pulled.plus(Captured(deleted=deleted + delete_old(site)))


def configure(site: Site) -> None:
    """Switch the engine's capture as the settings say, unless it is so already.

    Raises:
        SourceUnreachable: the engine does not answer.
        SourceRefused: the engine refused.
    """
    wanted = _wanted(site)
    live = site.address.get(_PATH)
    if canonical_json({name: live.get(name) for name in wanted}) == canonical_json(wanted):
        return
    site.address.raise_unless_ok(site.address.send("PUT", _PATH, body=wanted), _PATH)


def delete_old(site: Site) -> int:
    """Delete captures beyond age and bound, and those of routes that are private now."""
    private = _private_routes(site)
    oldest_s = site.clock() - site.settings.capture_retention_days * 86_400
    with site.store.writing() as session:
        gone = captures.delete_before(session, oldest_s)
        gone += captures.delete_routes(session, private) if private else 0
        gone += captures.delete_beyond(session, site.engine, site.settings.capture_per_route)
    return gone


def redacted(request: CapturedRequest) -> tuple[CapturedRequest, int]:
    """Return a request fit for a disk, and how many places were blanked out.

    Token ids spell the prompt out, so they are dropped wherever the text had to change. The answer
    never goes to a disk.
    """
    prompt, in_prompt = redact(request.prompt)
    sampling, in_sampling = redact_values(request.sampling)
    ids = request.prompt_ids if not in_prompt else ()
    clean = replace(request, prompt=prompt, prompt_ids=ids, sampling=sampling, output_ids=())
    return clean, in_prompt + in_sampling


def _wanted(site: Site) -> dict[str, object]:
    settings = site.settings
    return {
        "enabled": settings.capture_enabled,
        "share": settings.capture_share,
        "per_route": settings.capture_per_route,
        "private_routes": list(_private_routes(site)),
    }


def _private_routes(site: Site) -> tuple[str, ...]:
    return tuple(sorted(route.name for route in site.settings.routes if route.is_private))


def _pull(site: Site) -> Captured:
    total = Captured()
    while True:
        page, after = _next_page(site)
        if not page.records and page.last_seq <= after:
            return total
        total = total.plus(_store_page(site, page, after))
        if len(page.records) < PAGE_RECORDS:
            return total


def _next_page(site: Site) -> tuple[CapturePage, int]:
    with site.store.reading() as session:
        newest = facts.latest_cursor(session, site.engine, Journal.CAPTURES)
    after = newest.last_seq if newest else 0
    page = site.collector.captures(after, PAGE_RECORDS)
    if newest is None or page.boot_id == newest.boot_id:
        return page, after
    with site.store.reading() as session:
        known = facts.find_cursor(session, site.engine, page.boot_id, Journal.CAPTURES)
    after = known.last_seq if known else 0
    return site.collector.captures(after, PAGE_RECORDS), after


def _store_page(site: Site, page: CapturePage, after: int) -> Captured:
    """Store a page and its scores with the moved cursor; nothing where another was first.

    Scoring takes long and comes before the transaction, which keeps everybody else from writing.
    """
    private = frozenset(_private_routes(site))
    fresh = [one for one in page.records if one.seq > after]
    open_ones = [one for one in fresh if one.route not in private]
    clean = [redacted(one) for one in open_ones]
    kept = zip(open_ones, clean, strict=True)
    whole = [one for one, (_, blanked) in kept if not blanked and is_scorable(one)]
    found = scored(whole, site.settings.arms)
    last_seq = fresh[-1].seq if fresh and len(page.records) >= PAGE_RECORDS else page.last_seq
    last_seq = max(last_seq, after)
    try:
        with site.store.writing() as session:
            cursor = facts.open_cursor(
                session, site.engine, page.boot_id, site.now(), Journal.CAPTURES
            )
            if cursor.last_seq != after:
                return Captured()
            lost = last_seq - after - len(fresh)
            captures.add(session, cursor, clean, last_seq=last_seq, lost=lost)
            counterfactuals.add(session, cursor, last_seq, site.clock(), found)
    except CursorMoved:
        return Captured()
    blanked = sum(count for _, count in clean)
    return Captured(stored=len(clean), scored=len(whole) if found else 0, redactions=blanked)
